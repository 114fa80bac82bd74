"""Variants of the cut that do one thing less than they should, too early, or for the wrong prompt."""

from __future__ import annotations

from ...language.expression import Value, all_of, count, each, not_, put, where
from ...language.machine import Machine, changed
from . import cut
from .saving import request_cut
from .state import (
    ADMITTED,
    BACKING_OFF,
    DRAINING,
    DROPPED,
    FULL,
    GENERATING,
    GIVEN_UP,
    OPEN,
    OUTSIDE_WINDOW,
    READY,
    RESERVED,
    SNAPSHOT,
    UNREADY,
    any_reserved,
    any_spare,
    data_is_over,
    none_parked,
    parked,
    stamped,
)
from .training import claiming, eligible, finish_step
from .trouble import evict, given_up, shrink, substitute
from .variants import Effects

# ------------------------------------------------------------------------------------------------- Pictures


@cut.variant(breaks="entries_follow_the_picture", scope="one_failure", length=6)
def given_up_in_the_ledger(machine: Machine) -> None:
    """A group that is given up stays in the ledger: a restart would generate it again."""
    changed(machine, "shrink", lambda s, p: {"ledger": s.ledger})


@cut.variant(breaks="slots_follow_the_picture", scope="one_failure", length=6)
def given_up_in_its_slot(machine: Machine) -> None:
    """A group that is given up keeps its slot, although its permit is given back."""
    changed(machine, "shrink", lambda s, p: {"slot": s.slot})


@cut.variant(breaks="what_is_given_up_is_accounted", scope="one_failure", length=6)
def given_up_silently(machine: Machine) -> None:
    """A group that is given up is in no account: nobody can say where the prompt is."""
    changed(machine, "shrink", lambda s, p: {"account": s.account})


@cut.variant(breaks="trouble_follows_the_picture", scope="retries", length=8)
def retried_at_once(machine: Machine) -> None:
    """A group that has used up its attempts is tried once more."""

    def retry(s: Value, p: Value) -> Effects:
        """Backing off or given up."""
        tired = (s.trouble[p] == BACKING_OFF) | (s.trouble[p] == GIVEN_UP)
        return (s.slot[p] == UNREADY) & tired & (s.generations > 0), {
            "trouble": put(s.trouble, p, GENERATING),
            "generations": s.generations - 1,
        }

    machine.replace("retry", retry)


@cut.variant(breaks="leases_follow_the_picture", scope="leases", length=6)
def committed_twice(machine: Machine) -> None:
    """A group is generated again and committed while a silent writer holds its slot and may still commit it."""
    guarded = machine.actions["commit_group"].function

    def commit_group(s: Value, p: Value) -> Effects:
        """Whoever holds a slot for it."""
        _, effects = guarded(s, p)
        return (s.ledger[p] == ADMITTED) & (s.slot[p] == UNREADY) & (s.trouble[p] == GENERATING), effects

    machine.replace("commit_group", commit_group)


@cut.variant(breaks="commits_linger_once", scope="one_batch", length=5)
def committed_without_trace(machine: Machine) -> None:
    """Nobody remembers that a ledger entry is to be removed, which the next claim would find."""
    changed(machine, "commit_group", lambda s, p: {"lingering": s.lingering})


@cut.variant(breaks="saves_follow_the_picture", scope="failed_saves", length=3)
def fails_before_it_is_whole(machine: Machine) -> None:
    """A save fails as its cut opens, which is no failure after the window."""
    failing = machine.actions["fail_save"].function

    def fail_save(s: Value) -> Effects:
        """At once."""
        guard, effects = failing(s)
        return guard | ((s.window == OPEN) & (s.failed_saves_left > 0)), effects

    machine.replace("fail_save", fail_save)


@cut.variant(breaks="a_save_is_of_the_kind_asked_for", scope="snapshots", length=1)
def every_save_is_full(machine: Machine) -> None:
    """A snapshot is taken for a full save: the next ones belong to it, and no trainer state does."""
    changed(machine, "request_snapshot", lambda s: {"kind": FULL})


@cut.variant(breaks="the_gate_is_passed_once", scope="two_batches_ahead", length=3)
def the_gate_stays_passed(machine: Machine) -> None:
    """An admission leaves the gate passed: the next one is committed without having waited."""
    changed(machine, "commit_admission", lambda s: {"gate_passed": s.gate_passed})


@cut.variant(breaks="an_epoch_ends_once", scope="epochs", length=14)
def read_past_the_end(machine: Machine) -> None:
    """The loader is asked for more although its epoch is over: the next epoch's first batch comes within this one."""
    reserve = machine.actions["reserve_batch"].function

    def reserve_batch(s: Value) -> Effects:
        """Over or not, unless all is."""
        _, effects = reserve(s)
        return not_(data_is_over(s)) & not_(any_reserved(s)) & none_parked(s), effects

    machine.replace("reserve_batch", reserve_batch)


@cut.variant(breaks="columns_are_written_once", scope="background", length=8)
def columns_of_the_step_before(machine: Machine) -> None:
    """What a step has written counts for the next one, too, which then writes nothing."""
    changed(machine, "finish_step", lambda s: {"columns": s.columns})


# ------------------------------------------------------------------------------------------------ Rollout pump


@cut.variant(breaks="one_admission_at_a_time", scope="two_batches_ahead", length=2)
def the_next_batch_early(machine: Machine) -> None:
    """The loader is asked for the next batch while the one before waits for its admission: two wait as one."""
    reserve = machine.actions["reserve_batch"].function

    def reserve_batch(s: Value) -> Effects:
        """As soon as the epoch has one."""
        _, effects = reserve(s)
        return s.epoch_over == 0, effects

    machine.replace("reserve_batch", reserve_batch)


@cut.variant(breaks="a_batch_is_reserved_whole", scope="short_batch", length=6)
def every_short_batch_dropped(machine: Machine) -> None:
    """A short last batch is dropped although it is to be trained."""

    def lacks(s: Value) -> Value:
        return count(s.prompts, lambda p: s.batch_of[p] == s.cursor) < s.batch_size

    def of_batch(s: Value, p: Value) -> Value:
        return s.batch_of[p] == s.cursor

    changed(
        machine,
        "reserve_batch",
        lambda s: {
            "ledger": each(s.prompts, lambda p: where(of_batch(s, p) & not_(lacks(s)), RESERVED, s.ledger[p])),
            "account": each(s.prompts, lambda p: where(of_batch(s, p) & lacks(s), DROPPED, s.account[p])),
        },
    )


@cut.variant(breaks="a_batch_is_diverted_whole", scope="spares", length=1)
def diverted_before_the_first(machine: Machine) -> None:
    """The first batch of all is diverted: the pool has it, and no step is there that it could fill."""
    divert = machine.actions["divert_batch"].function

    def divert_batch(s: Value) -> Effects:
        """From the first one on."""
        _, effects = divert(s)
        return (s.epoch_over == 0) & not_(any_reserved(s)) & none_parked(s) & not_(any_spare(s)), effects

    machine.replace("divert_batch", divert_batch)


@cut.variant(breaks="the_gate_is_passed_for_a_batch", scope="two_batches", length=6)
def the_gate_is_not_waited_for(machine: Machine) -> None:
    """The admitter does not wait for the gate, and finds it shut in its slot."""

    def pass_gate(s: Value) -> Effects:
        """Whatever the gate."""
        return (s.gate_passed == 0) & any_reserved(s) & none_parked(s), {"gate_passed": 1}

    machine.replace("pass_gate", pass_gate)


@cut.variant(breaks="an_admission_is_committed_whole", scope="one_pair", length=3)
def half_an_admission(machine: Machine) -> None:
    """Of an admission one prompt becomes ADMITTED and the others stay behind."""

    def first(s: Value, p: Value) -> Value:
        return (s.ledger[p] == RESERVED) & all_of(s.prompts, lambda q: (q >= p) | (s.ledger[q] != RESERVED))

    changed(
        machine,
        "commit_admission",
        lambda s: {"ledger": each(s.prompts, lambda p: where(first(s, p), ADMITTED, s.ledger[p]))},
    )


@cut.variant(breaks="the_oldest_batch_is_dispatched_first", scope="two_batches_ahead", length=17)
def dispatched_in_any_order(machine: Machine) -> None:
    """Whatever is admitted may be dispatched: after a restart the trainer may wait for the one that comes last."""
    send = machine.actions["dispatch"].function

    def dispatch(s: Value, p: Value) -> Effects:
        """Not the first alone."""
        _, effects = send(s, p)
        return parked(s, p) & (s.permits > 0) & (s.generations > 0), effects

    machine.replace("dispatch", dispatch)


@cut.variant(breaks="the_pool_is_drained_by_steps", scope="remainder", length=16)
def the_pool_is_thrown_away(machine: Machine) -> None:
    """At the end of the data the whole pool is dropped, although it would fill a step."""
    changed(
        machine,
        "drain_pool",
        lambda s: {
            "ledger": s.ledger,
            "account": each(s.prompts, lambda p: where(s.spare[p] == 1, DROPPED, s.account[p])),
            "spare": each(s.prompts, lambda p: 0),
        },
    )


# ----------------------------------------------------------------------------------------------------- Trouble


@cut.variant(breaks="a_failure_counts", scope="retries", length=5)
def failures_are_forgotten(machine: Machine) -> None:
    """A failed attempt is not counted: a prompt that always fails is tried for ever."""
    changed(machine, "fail_attempt", lambda s, p: {"tries": s.tries})


@cut.variant(breaks="a_spare_is_used_before_a_step_shrinks", scope="spares", length=7)
def shrinks_at_once(machine: Machine) -> None:
    """A step gets smaller although the pool has a spare for it."""

    def shrink_now(s: Value, p: Value) -> Effects:
        """Whatever the pool has."""
        _, effects = shrink(s, p)
        return given_up(s, p), effects

    machine.replace("shrink", shrink_now)


@cut.variant(breaks="the_first_spare_takes_the_place", scope="spares", length=7)
def spare_for_another_step(machine: Machine) -> None:
    """The spare takes the slot of the group given up, and not its stamp: its step waits for a group that has none."""
    changed(machine, "substitute", lambda s, p: {"stamp": put(s.stamp, p, -1)})


@cut.variant(breaks="the_furthest_step_lends", scope="borrow_ahead", length=12)
def lent_and_not_replaced(machine: Machine) -> None:
    """A ready group fills the hole, and the spare is generated for the hole, too: the lender's step lacks a group."""
    changed(machine, "borrow", lambda s, p: {"stamp": substitute(s, p)[1]["stamp"]})


@cut.variant(breaks="a_fresh_group_is_not_given_up", scope="windowed", length=6)
def given_up_a_step_early(machine: Machine) -> None:
    """A group is given up for its age while the sampler would still train it."""

    def evict_early(s: Value, p: Value) -> Effects:
        """From the last age that is allowed on."""
        _, effects = evict(s, p)
        return (s.slot[p] == READY) & (s.weight[p] >= 0) & (s.weight[p] <= s.version - s.lookahead), effects

    machine.replace("evict", evict_early)


@cut.variant(breaks="a_late_write_is_taken_while_its_lease_holds", scope="leases", length=6)
def late_writes_are_lost(machine: Machine) -> None:
    """A write that comes while its lease is good is thrown away: its group is in the buffer for nobody."""
    changed(
        machine, "write_late", lambda s, p: {"slot": s.slot, "lingering": s.lingering, "generations": s.generations}
    )


# ---------------------------------------------------------------------------------------------------- Training


@cut.variant(breaks="the_oldest_are_trained_first", scope="ready_first", length=11)
def the_youngest_first(machine: Machine) -> None:
    """Of several that may be taken the last one is: under load the first waits for ever."""

    def last(s: Value, p: Value) -> Value:
        newer = count(s.prompts, lambda q: (q > p) & eligible(s, q))
        return eligible(s, p) & (stamped(s) | (newer < s.batch_size))

    machine.replace("claim", lambda s: claiming(s, last))


@cut.variant(breaks="no_generation_is_overtaken", scope="weight_fifo", length=17)
def overtaken_by_the_ready(machine: Machine) -> None:
    """By weight, whatever is ready and not too old is taken, though an older one still generates."""

    def any_fresh(s: Value, p: Value) -> Value:
        fresh = s.weight[p] >= s.version - s.lookahead
        return where(stamped(s), eligible(s, p), (s.slot[p] == READY) & fresh)

    machine.replace("claim", lambda s: claiming(s, any_fresh))


@cut.variant(breaks="a_step_is_whole", scope="windowed_pairs", length=6)
def trains_what_is_there(machine: Machine) -> None:
    """A step is trained with whatever is ready, although more will come."""

    def claim_some(s: Value) -> Effects:
        """As soon as one is."""
        guard, effects = claiming(s, eligible)
        free = (s.window < DRAINING) & all_of(s.prompts, lambda p: s.slot[p] <= READY)
        some = count(s.prompts, lambda p: eligible(s, p)) > 0
        return where(stamped(s), guard, free & some), effects

    machine.replace("claim", claim_some)


@cut.variant(breaks="columns_are_written_before_a_step_ends", scope="background", length=7)
def ends_without_columns(machine: Machine) -> None:
    """A step ends before its derived columns are written."""

    def finish(s: Value) -> Effects:
        """Written or not."""
        _, effects = finish_step(s)
        return not_(all_of(s.prompts, lambda p: s.slot[p] <= READY)), effects

    machine.replace("finish_step", finish)


@cut.variant(breaks="a_step_trains_what_it_claimed", scope="one_batch", length=7)
def the_version_stands_still(machine: Machine) -> None:
    """A step that is done does not raise the version: the next one is for the same step again."""
    changed(machine, "finish_step", lambda s: {"version": s.version})


@cut.variant(breaks="only_a_step_without_groups_is_empty", scope="one_failure", length=2)
def empty_before_it_is_admitted(machine: Machine) -> None:
    """A step that has no groups yet is taken for one that has lost them all."""
    pass_over = machine.actions["empty_step"].function

    def empty_step(s: Value) -> Effects:
        """Whether or not it was admitted."""
        guard, effects = pass_over(s)
        nobody = all_of(s.prompts, lambda p: (s.stamp[p] != s.version) & (s.slot[p] <= READY))
        not_done = s.version < s.batches
        return guard | (stamped(s) & nobody & not_done & (s.cursor > s.version)), effects

    machine.replace("empty_step", empty_step)


# ------------------------------------------------------------------------------------------ Saves and restores


@cut.variant(breaks="a_full_save_is_between_steps", scope="one_batch", length=7)
def saved_within_a_step(machine: Machine) -> None:
    """A full save is asked for while a train step is open: the weights are of no version."""

    def request(s: Value) -> Effects:
        """At any time."""
        _, effects = request_cut(s)
        return (s.window == OUTSIDE_WINDOW) & (s.saves_left > 0), effects

    machine.replace("request_cut", request)


@cut.variant(breaks="the_drain_waits_for_silent_writers", scope="leases", length=7)
def drained_of_the_heard(machine: Machine) -> None:
    """The drain waits for those that are heard of alone: a silent writer's token is good within the cut."""

    def open_cut(s: Value) -> Effects:
        """Whoever is silent."""
        return s.window == DRAINING, {"window": OPEN}

    machine.replace("open_cut", open_cut)


@cut.variant(breaks="only_what_belongs_to_no_save_is_skipped", scope="snapshots", length=12)
def every_snapshot_is_skipped(machine: Machine) -> None:
    """A snapshot is skipped although it belongs to the newest full save."""
    skip = machine.actions["skip_snapshot"].function

    def skip_snapshot(s: Value) -> Effects:
        """Whatever it belongs to."""
        _, effects = skip(s)
        return (s.window == OPEN) & (s.kind == SNAPSHOT), effects

    machine.replace("skip_snapshot", skip_snapshot)


@cut.variant(breaks="snapshots_belong_to_the_newest_full_save", scope="one_batch", length=9)
def no_save_to_belong_to(machine: Machine) -> None:
    """A full save that is durable is not remembered: no snapshot after it belongs to anything."""
    changed(machine, "publish", lambda s: {"anchor": s.anchor})


@cut.variant(breaks="a_restart_brings_back_the_image", scope="retries", length=14)
def restart_refills_retries(machine: Machine) -> None:
    """A new process knows of no attempts that failed: a prompt that crashes it is tried for ever."""
    changed(machine, "crash_and_restore", lambda s: {"tries": each(s.prompts, lambda p: 0)})


@cut.variant(breaks="a_replay_free_restart_generates_again", scope="replay_free", length=14)
def replay_free_admits_again(machine: Machine) -> None:
    """What is generated again is admitted again: it waits at the gate behind itself."""

    def entry(s: Value, p: Value) -> Value:
        return where(s.image_ready[p] == 1, RESERVED, s.image_ledger[p])

    changed(machine, "crash_and_restore_replay_free", lambda s: {"ledger": each(s.prompts, lambda p: entry(s, p))})


@cut.variant(breaks="outside_a_save_there_is_no_image", scope="failed_saves", length=17)
def remains_of_a_failed_save(machine: Machine) -> None:
    """A save that fails leaves what it has read, and the next one publishes it where it reads nothing new."""
    changed(machine, "fail_save", lambda s: {"image_version": s.image_version, "image_account": s.image_account})


# ---------------------------------------------------------------------------------------- What is remembered


@cut.variant(breaks="a_drop_is_owed", scope="weight_fifo_failures", length=6)
def drops_are_forgotten(machine: Machine) -> None:
    """A group that is given up is not counted as dropped: the gate waits for it."""
    changed(machine, "shrink", lambda s, p: {"dropped": s.dropped})


@cut.variant(breaks="nothing_is_kept_of_what_is_gone", scope="windowed", length=13)
def ages_outlive_groups(machine: Machine) -> None:
    """A group that is given up for its age leaves the age behind: in the image it stands for a group."""
    changed(machine, "evict", lambda s, p: {"weight": s.weight})


@cut.variant(breaks="a_group_in_the_buffer_is_known", scope="one_batch", length=6)
def claimed_in_the_ledger(machine: Machine) -> None:
    """A claim leaves the ledger alone: the entry of a committed group outlives its training."""
    changed(machine, "claim", lambda s: {"ledger": s.ledger})


@cut.variant(breaks="a_shortfall_is_of_a_step_to_come", scope="one_failure", length=7)
def shortfalls_are_never_settled(machine: Machine) -> None:
    """What a step lacked is kept when the step is over."""
    changed(machine, "empty_step", lambda s: {"shortfall": s.shortfall})


@cut.variant(breaks="crashes_are_counted", scope="one_batch", length=9)
def crashes_for_ever(machine: Machine) -> None:
    """A crash is not counted."""
    changed(machine, "crash_and_restore", lambda s: {"crashes_left": s.crashes_left})


@cut.variant(breaks="failures_are_counted", scope="one_failure", length=5)
def failures_for_ever(machine: Machine) -> None:
    """An attempt that fails is not counted."""
    changed(machine, "fail_attempt", lambda s, p: {"failures_left": s.failures_left})


@cut.variant(breaks="full_saves_are_counted", scope="one_batch", length=1)
def saves_for_ever(machine: Machine) -> None:
    """A full save is not counted."""
    changed(machine, "request_cut", lambda s: {"saves_left": s.saves_left})


@cut.variant(breaks="snapshots_are_counted", scope="snapshots", length=1)
def snapshots_for_ever(machine: Machine) -> None:
    """A snapshot is not counted."""
    changed(machine, "request_snapshot", lambda s: {"snapshots_left": s.snapshots_left})


@cut.variant(breaks="failing_saves_are_counted", scope="failed_saves", length=10)
def fails_for_ever(machine: Machine) -> None:
    """A save that fails is not counted."""
    changed(machine, "fail_save", lambda s: {"failed_saves_left": s.failed_saves_left})


@cut.variant(breaks="silences_are_counted", scope="leases", length=5)
def silent_for_ever(machine: Machine) -> None:
    """Whoever falls silent is not counted."""
    changed(machine, "fall_silent", lambda s, p: {"silences_left": s.silences_left})
