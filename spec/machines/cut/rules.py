"""What must hold of every step of the cut: whose turn it is, what moves with it, and that nothing else does.

The properties of `properties` say what must never come to be; these say what an action must do and when it may, so that
one that does less, or comes too early or for the wrong prompt, is noticed where it is taken.
"""

from __future__ import annotations

from ...language.expression import Value, all_of, any_of, count, implies, not_, where
from ...language.pictures import ANY, STAYS, picture
from . import leases, rollout, saving, training, trouble
from .properties import image_is
from .state import (
    ADMITTED,
    BACKING_OFF,
    BUFFER_READ,
    CAPTURED,
    CLAIMED,
    DRAINING,
    DROPPED,
    FENCED,
    FULL,
    GENERATING,
    GIVEN_UP,
    LAPSED,
    LEDGER_READ,
    LOADER_READ,
    NO_ACCOUNT,
    NO_ENTRY,
    NO_LEASE,
    NO_SLOT,
    OPEN,
    OUTSIDE_WINDOW,
    POOL_READ,
    READY,
    RESERVED,
    SAMPLER_READ,
    SILENT,
    SNAPSHOT,
    TRAINED,
    UNREADY,
    WRITING,
    ages,
    cut,
    has_gate,
    stamped,
)

ABOUT = (rollout, trouble, training, saving, leases)
"""The modules whose actions these rules are about: they are there before them."""

# ---------------------------------------------------------------------------------------------------- Pictures

picture(
    cut,
    "entries_follow_the_picture",
    "ledger",
    "A ledger entry stays until its group is committed or given up, and is then gone.",
    {
        "dispatch": (ADMITTED, STAYS),
        "commit_group": (ADMITTED, STAYS),
        "fall_silent": (ADMITTED, STAYS),
        "fail_attempt": (ADMITTED, STAYS),
        "retry": (ADMITTED, STAYS),
        "remove_committed": (ADMITTED, NO_ENTRY),
        "substitute": (ADMITTED, NO_ENTRY),
        "borrow": (ADMITTED, NO_ENTRY),
        "shrink": (ADMITTED, NO_ENTRY),
        "abort_stale": (ADMITTED, NO_ENTRY),
        "evict": (ANY, NO_ENTRY),
    },
)
picture(
    cut,
    "slots_follow_the_picture",
    "slot",
    "A slot is unready from the dispatch to the commit and then ready; given up, it is free.",
    {
        "dispatch": (NO_SLOT, UNREADY),
        "commit_group": (UNREADY, READY),
        "fall_silent": (UNREADY, STAYS),
        "fail_attempt": (UNREADY, STAYS),
        "retry": (UNREADY, STAYS),
        "remove_committed": (READY, STAYS),
        "substitute": (UNREADY, NO_SLOT),
        "borrow": (UNREADY, NO_SLOT),
        "shrink": (UNREADY, NO_SLOT),
        "abort_stale": (UNREADY, NO_SLOT),
        "evict": (READY, NO_SLOT),
    },
)
picture(
    cut,
    "what_is_given_up_is_accounted",
    "account",
    "Whatever is given up was in nobody's account, and is in the accounts from then on.",
    dict.fromkeys(("substitute", "borrow", "shrink", "abort_stale", "evict"), (NO_ACCOUNT, DROPPED)),
)
picture(
    cut,
    "trouble_follows_the_picture",
    "trouble",
    "A generation that failed backs off and is tried again, or is given up and leaves its place.",
    {
        "commit_group": (GENERATING, STAYS),
        "fall_silent": (GENERATING, STAYS),
        "fail_attempt": (GENERATING, ANY),
        "retry": (BACKING_OFF, GENERATING),
        "substitute": (GIVEN_UP, GENERATING),
        "borrow": (GIVEN_UP, GENERATING),
        "shrink": (GIVEN_UP, GENERATING),
        "abort_stale": (ANY, GENERATING),
    },
)
picture(
    cut,
    "leases_follow_the_picture",
    "lease",
    "A lease lapses after silence alone and is fenced after that; nobody else commits while it holds the slot.",
    {
        "commit_group": ((NO_LEASE, FENCED), STAYS),
        "fall_silent": (NO_LEASE, SILENT),
        "expire_lease": (SILENT, LAPSED),
        "fence_lease": (LAPSED, FENCED),
        "write_late": ((SILENT, LAPSED, FENCED), NO_LEASE),
    },
)
picture(
    cut,
    "commits_linger_once",
    "lingering",
    "A commit leaves its ledger entry to be removed, once.",
    {"commit_group": (0, 1), "remove_committed": (1, 0), "evict": (ANY, 0)},
)
picture(
    cut,
    "saves_follow_the_picture",
    "window",
    "A save reads each artifact once, in order, and is over when its image is published or given up.",
    {
        "request_cut": (OUTSIDE_WINDOW, DRAINING),
        "request_snapshot": (OUTSIDE_WINDOW, DRAINING),
        "open_cut": (DRAINING, OPEN),
        "skip_snapshot": (OPEN, OUTSIDE_WINDOW),
        "read_sampler": (OPEN, SAMPLER_READ),
        "read_loader": (SAMPLER_READ, LOADER_READ),
        "read_pool": (LOADER_READ, POOL_READ),
        "read_buffer": (POOL_READ, BUFFER_READ),
        "read_ledger": (BUFFER_READ, LEDGER_READ),
        "read_trainer": (LEDGER_READ, CAPTURED),
        "close_window": (CAPTURED, WRITING),
        "publish": ((CAPTURED, WRITING), OUTSIDE_WINDOW),
        "fail_save": ((CAPTURED, WRITING), OUTSIDE_WINDOW),
        "crash_and_restore": ((CAPTURED, WRITING), OUTSIDE_WINDOW),
        "crash_and_restore_replay_free": ((CAPTURED, WRITING), OUTSIDE_WINDOW),
        "lose_window": (
            (OPEN, SAMPLER_READ, LOADER_READ, POOL_READ, BUFFER_READ, LEDGER_READ, CAPTURED),
            OUTSIDE_WINDOW,
        ),
    },
)
picture(
    cut,
    "a_save_is_of_the_kind_asked_for",
    "kind",
    "A full save is full, a snapshot a snapshot, and only a snapshot is skipped.",
    {"request_cut": (ANY, FULL), "request_snapshot": (ANY, SNAPSHOT), "skip_snapshot": (SNAPSHOT, FULL)},
)
picture(
    cut,
    "the_gate_is_passed_once",
    "gate_passed",
    "The admitter passes the gate once for each admission.",
    {"pass_gate": (0, 1), "commit_admission": (1, 0)},
)
picture(
    cut,
    "an_epoch_ends_once",
    "epoch_over",
    "Batches are handed out before the epoch is over, and the next one begins after it.",
    {"reserve_batch": (0, ANY), "divert_batch": (0, ANY), "end_epoch": (1, 0)},
)
picture(
    cut,
    "columns_are_written_once",
    "columns",
    "The derived columns of a step are written once, and forgotten with it.",
    {"write_back": (0, 1), "finish_step": (ANY, 0)},
)

# ----------------------------------------------------------------------------------------------- Rollout pump


def waits_for_dispatch(s: Value, p: Value) -> Value:
    """Prompt `p` is admitted and has no slot."""
    return (s.ledger[p] == ADMITTED) & (s.slot[p] == NO_SLOT)


@cut.step("reserve_batch", "divert_batch", "pass_gate", "drain_pool", witness=lambda s: s.cursor > 0)
def one_admission_at_a_time(s: Value, after: Value) -> Value:
    """The next batch, and the gate, are for when everything admitted is dispatched: one admission at a time."""
    dispatched = all_of(s.prompts, lambda p: not_(waits_for_dispatch(s, p)))
    new_one = implies(any_of(s.prompts, lambda p: s.ledger[p] == RESERVED), after.gate_passed == 1)
    return dispatched & new_one


@cut.step("reserve_batch", witness=lambda s: (s.last_batch < s.batch_size) & (s.cursor > 0))
def a_batch_is_reserved_whole(s: Value, after: Value) -> Value:
    """Every prompt of the batch is RESERVED, or all are dropped: if the batch is short, and short ones are to be."""
    size = count(s.prompts, lambda p: s.batch_of[p] == s.cursor)
    dropped = (s.drop_short == 1) & (size < s.batch_size)
    return all_of(
        s.prompts,
        lambda p: implies(
            s.batch_of[p] == s.cursor,
            where(dropped, after.account[p] == DROPPED, after.ledger[p] == RESERVED),
        ),
    )


@cut.step("divert_batch", witness=lambda s: s.dispatch_cursor >= 0)
def a_batch_is_diverted_whole(s: Value, after: Value) -> Value:
    """A whole batch goes into the empty pool, never a short one that is to be dropped, nor before the first step."""
    size = count(s.prompts, lambda p: s.batch_of[p] == s.cursor)
    whole = (s.drop_short == 0) | (size >= s.batch_size)
    empty = all_of(s.prompts, lambda p: s.spare[p] == 0)
    return whole & empty & (s.dispatch_cursor >= 0) & (count(s.prompts, lambda p: after.spare[p] == 1) == size)


@cut.step("pass_gate", witness=lambda s: s.dispatch_cursor >= 0)
def the_gate_is_passed_for_a_batch(s: Value, after: Value) -> Value:
    """The gate is passed with a RESERVED admission in hand, and as far ahead as the sampler allows."""
    return any_of(s.prompts, lambda p: s.ledger[p] == RESERVED) & within_lookahead(s)


def admitted_in_all(s: Value) -> Value:
    """How many groups were admitted and not dropped since: trained, in the buffer, or on their way to it."""
    return count(
        s.prompts,
        lambda p: (s.account[p] == TRAINED) | (s.slot[p] >= READY) | (s.ledger[p] == ADMITTED),
    )


def within_lookahead(s: Value) -> Value:
    """One more step may be admitted: in order, at most `lookahead` ahead; with a gate, as many groups as that fills."""
    steps = s.version + s.lookahead
    in_order = s.dispatch_cursor + 1 <= steps
    return where(stamped(s), in_order, not_(has_gate(s)) | (admitted_in_all(s) < s.batch_size * (steps + 1)))


@cut.step("commit_admission", witness=lambda s: s.dispatch_cursor >= 0)
def an_admission_is_committed_whole(s: Value, after: Value) -> Value:
    """Every RESERVED prompt becomes ADMITTED and takes the next step, not further ahead than the sampler allows."""
    step = s.dispatch_cursor + 1
    moved = all_of(
        s.prompts,
        lambda p: implies(
            s.ledger[p] == RESERVED,
            (after.ledger[p] == ADMITTED) & (after.stamp[p] == where(stamped(s), step, -1)),
        ),
    )
    return moved & within_lookahead(s) & (after.dispatch_cursor == where(has_gate(s), step, s.dispatch_cursor))


@cut.step("dispatch", witness=lambda s: count(s.prompts, lambda q: waits_for_dispatch(s, q)) > 1)
def the_oldest_batch_is_dispatched_first(s: Value, after: Value, p: Value) -> Value:
    """A prompt is dispatched when no prompt of an earlier batch waits for it, and is as old as the trainer is then."""
    none_older = all_of(s.prompts, lambda q: (s.batch_of[q] >= s.batch_of[p]) | not_(waits_for_dispatch(s, q)))
    return none_older & (after.weight[p] == where(stamped(s), -1, s.version))


@cut.step("drain_pool", witness=lambda s: count(s.prompts, lambda p: s.spare[p] == 1) > 1)
def the_pool_is_drained_by_steps(s: Value, after: Value) -> Value:
    """At the end of the data, when nothing generates, the first spares fill a step; too few for one are dropped."""
    over = (s.epoch == s.epochs - 1) & (s.epoch_over == 1) & all_of(s.prompts, lambda p: s.slot[p] != UNREADY)
    spares = count(s.prompts, lambda p: s.spare[p] == 1)

    def goes(p: Value) -> Value:
        before = count(s.prompts, lambda q: (q < p) & (s.spare[q] == 1))
        taken = (before < s.batch_size) & (spares >= s.batch_size)
        reserved = (after.ledger[p] == RESERVED) & (after.spare[p] == 0)
        kept = (after.spare[p] == 1) & (spares >= s.batch_size)
        dropped = (after.account[p] == DROPPED) & (after.spare[p] == 0) & (spares < s.batch_size)
        return where(taken, reserved, kept | dropped)

    return over & (spares > 0) & all_of(s.prompts, lambda p: implies(s.spare[p] == 1, goes(p)))


# ---------------------------------------------------------------------------------------------------- Trouble


@cut.step("fail_attempt", witness=lambda s: any_of(s.prompts, lambda p: s.tries[p] > 0))
def a_failure_counts(s: Value, after: Value, p: Value) -> Value:
    """A failed attempt is counted; after as many as are allowed, neither sooner nor later, its group is given up."""
    last = s.tries[p] == s.retries
    counted = after.tries[p] == where(last, s.tries[p], s.tries[p] + 1)
    return counted & (after.trouble[p] == where(last, GIVEN_UP, BACKING_OFF))


@cut.step("shrink", witness=lambda s: s.spares > 0)
def a_spare_is_used_before_a_step_shrinks(s: Value, after: Value, p: Value) -> Value:
    """A step gets smaller only when the pool is empty."""
    return all_of(s.prompts, lambda q: s.spare[q] == 0)


@cut.step("substitute", witness=lambda s: count(s.prompts, lambda q: s.spare[q] == 1) > 1)
def the_first_spare_takes_the_place(s: Value, after: Value, p: Value) -> Value:
    """Of the pool the first spare is taken, it is generated in the place and for the step of the group given up."""
    return all_of(
        s.prompts, lambda q: where(is_first_spare(s, q), takes(s, after, q, s.stamp[p]), kept(s, after, q, p))
    )


def is_first_spare(s: Value, q: Value) -> Value:
    """Prompt `q` is the spare that goes first."""
    return (s.spare[q] == 1) & (count(s.prompts, lambda r: (r <= q) & (s.spare[r] == 1)) == 1)


def takes(s: Value, after: Value, q: Value, step: Value) -> Value:
    """The spare `q` is dispatched for that step."""
    owned = (after.spare[q] == 0) & (after.ledger[q] == ADMITTED) & (after.slot[q] == UNREADY)
    return owned & (after.stamp[q] == step) & (after.weight[q] == where(stamped(s), -1, s.version))


def kept(s: Value, after: Value, q: Value, p: Value) -> Value:
    """Prompt `q`, unless it is `p` itself, is as it was."""
    same = (after.ledger[q] == s.ledger[q]) & (after.slot[q] == s.slot[q]) & (after.spare[q] == s.spare[q])
    return (q == p) | (same & (after.stamp[q] == s.stamp[q]) & (after.weight[q] == s.weight[q]))


@cut.step("borrow", witness=lambda s: count(s.prompts, lambda q: s.slot[q] == READY) > 1)
def the_furthest_step_lends(s: Value, after: Value, p: Value) -> Value:
    """The hole is filled by a ready group of the furthest later step, and the first spare is generated for that one."""

    def lends(q: Value) -> Value:
        further = any_of(s.prompts, lambda r: (s.slot[r] == READY) & (s.stamp[r] > s.stamp[q]))
        return (s.slot[q] == READY) & (s.stamp[q] > s.stamp[p]) & not_(further) & (after.stamp[q] == s.stamp[p])

    lent = count(s.prompts, lambda q: lends(q) & spare_for(s, after, s.stamp[q])) == 1
    others = all_of(s.prompts, lambda q: lends(q) | is_first_spare(s, q) | kept(s, after, q, p))
    return (s.stamp[p] >= s.version) & lent & others


def spare_for(s: Value, after: Value, step: Value) -> Value:
    """The first spare is dispatched for that step."""
    return any_of(s.prompts, lambda q: is_first_spare(s, q) & takes(s, after, q, step))


@cut.step("evict", "abort_stale", witness=lambda s: any_of(s.prompts, lambda p: s.slot[p] == UNREADY))
def a_fresh_group_is_not_given_up(s: Value, after: Value, p: Value) -> Value:
    """Only a group older than the sampler allows is given up for its age, and by a sampler that does so."""
    return (s.weight[p] >= 0) & (s.weight[p] + s.lookahead < s.version)


@cut.step("write_late", witness=lambda s: any_of(s.prompts, lambda p: (s.lease[p] == LAPSED) & (s.slot[p] == UNREADY)))
def a_late_write_is_taken_while_its_lease_holds(s: Value, after: Value, p: Value) -> Value:
    """A late write commits its group while its token is good and the group is still its own; later it moves nothing."""
    good = (s.lease[p] == SILENT) | (s.lease[p] == LAPSED)
    own = (s.ledger[p] == ADMITTED) & (s.slot[p] == UNREADY) & (s.trouble[p] == GENERATING)
    slot = where(good & own, READY, s.slot[p])
    return (after.slot[p] == slot) & (after.lingering[p] == where(good & own, 1, s.lingering[p]))


# --------------------------------------------------------------------------------------------------- Training


def taken(s: Value, after: Value, p: Value) -> Value:
    """Prompt `p` is claimed by this step."""
    return (s.slot[p] != CLAIMED) & (after.slot[p] == CLAIMED)


@cut.step("claim", witness=lambda s: ages(s) & (count(s.prompts, lambda p: s.slot[p] == READY) > s.batch_size))
def the_oldest_are_trained_first(s: Value, after: Value) -> Value:
    """No ready group is left behind that goes before one taken: in order by its stamp, else by age, then by place."""

    def goes_before(q: Value, p: Value) -> Value:
        age = where(ages(s), s.weight[q], 0), where(ages(s), s.weight[p], 0)
        usable = not_(ages(s)) | (s.weight[q] >= s.version - s.lookahead)
        return usable & ((age[0] < age[1]) | ((age[0] == age[1]) & (q < p)))

    def left(q: Value) -> Value:
        return (s.slot[q] == READY) & not_(taken(s, after, q))

    in_order = all_of(s.prompts, lambda p: implies(taken(s, after, p), s.stamp[p] == s.version))
    by_age = all_of(
        s.prompts,
        lambda p: implies(taken(s, after, p), all_of(s.prompts, lambda q: not_(left(q) & goes_before(q, p)))),
    )
    return where(stamped(s), in_order, by_age)


@cut.step("claim", witness=lambda s: ages(s) & any_of(s.prompts, lambda p: s.slot[p] == UNREADY))
def no_generation_is_overtaken(s: Value, after: Value) -> Value:
    """By weight, no group is trained that is younger than one that still generates."""

    def overtakes(p: Value, q: Value) -> Value:
        return taken(s, after, p) & (s.slot[q] == UNREADY) & (s.weight[q] < s.weight[p])

    overtaken = any_of(s.prompts, lambda p: any_of(s.prompts, lambda q: overtakes(p, q)))
    return implies(has_gate(s) & ages(s) & not_(stamped(s)), not_(overtaken))


@cut.step("claim", witness=lambda s: s.version > 0)
def a_step_is_whole(s: Value, after: Value) -> Value:
    """A step has all the groups it is to have; without stamps it is smaller only when nothing more will come."""
    groups = count(s.prompts, lambda p: taken(s, after, p))
    others_ready = all_of(s.prompts, lambda p: implies(s.ledger[p] != NO_ENTRY, s.slot[p] == READY))
    nothing_spare = all_of(s.prompts, lambda p: s.spare[p] == 0)
    end = (s.epoch == s.epochs - 1) & (s.epoch_over == 1) & others_ready & nothing_spare
    short = s.shortfall.at(s.version)
    size = where(stamped(s), s.batch_size - short, s.batch_size)
    return (groups > 0) & ((groups == size) | (not_(stamped(s)) & end & (groups < size)))


@cut.step("finish_step", witness=lambda s: s.write_back == 1)
def columns_are_written_before_a_step_ends(s: Value, after: Value) -> Value:
    """A step that has derived columns to write ends after they are written."""
    return (s.write_back == 0) | (s.columns == 1)


@cut.step("finish_step", "empty_step", witness=lambda s: s.version > 0)
def a_step_trains_what_it_claimed(s: Value, after: Value) -> Value:
    """What was claimed, and nothing else, is trained; the version is one more, and what the step lacked is settled."""

    def settled(p: Value) -> Value:
        trained = (after.account[p] == TRAINED) & (after.slot[p] == NO_SLOT)
        same = (after.account[p] == s.account[p]) & (after.slot[p] == s.slot[p])
        return where(s.slot[p] == CLAIMED, trained, same)

    return all_of(s.prompts, settled) & (after.version == s.version + 1)


@cut.step("empty_step", witness=lambda s: s.version >= 0)
def only_a_step_without_groups_is_empty(s: Value, after: Value) -> Value:
    """A step is passed over when every group of it is missing, not before it is admitted, and never a whole one."""
    admitted = stamped(s) & (s.dispatch_cursor >= s.version)
    return admitted & (s.shortfall.at(s.version) == s.batch_size) & all_of(s.prompts, lambda p: s.slot[p] != CLAIMED)


# ------------------------------------------------------------------------------------------- Saves and restores


@cut.always(witness=lambda s: (s.kind == FULL) & (s.window >= DRAINING))
def a_full_save_is_between_steps(s: Value) -> Value:
    """While a full save reads, no train step is open: the trainer's weights are those of its version."""
    reading = (s.kind == FULL) & (s.window >= DRAINING)
    return implies(reading, all_of(s.prompts, lambda p: s.slot[p] != CLAIMED))


@cut.step("open_cut", witness=lambda s: s.version > 0)
def the_drain_waits_for_silent_writers(s: Value, after: Value) -> Value:
    """A cut opens when no writer, be it silent, holds a slot."""
    return all_of(s.prompts, lambda p: (s.lease[p] != SILENT) & (s.lease[p] != LAPSED))


@cut.step("skip_snapshot", witness=lambda s: s.anchor >= 0)
def only_what_belongs_to_no_save_is_skipped(s: Value, after: Value) -> Value:
    """A snapshot is skipped when the trainer is not where the newest durable full save left it."""
    return s.version != s.anchor


@cut.step("publish", "crash_and_restore", "crash_and_restore_replay_free", witness=lambda s: s.image_version > 0)
def snapshots_belong_to_the_newest_full_save(s: Value, after: Value) -> Value:
    """What snapshots belong to is the newest full save that is durable."""
    return after.anchor == where(s.kind == FULL, s.image_version, s.anchor)


@cut.step("crash_and_restore", witness=lambda s: s.image_cursor > 0)
def a_restart_brings_back_the_image(s: Value, after: Value) -> Value:
    """A new process has what the image says and nothing else: no budget is refilled, and no group is younger."""
    return all_of(s.prompts, lambda p: image_is(s, after, p)) & nothing_survives(s, after)


@cut.step("crash_and_restore_replay_free", witness=lambda s: any_of(s.prompts, lambda p: s.image_ready[p] == 1))
def a_replay_free_restart_generates_again(s: Value, after: Value) -> Value:
    """Without the buffer, its groups are admitted as they were, for the same step, and only generated again."""

    def again(p: Value) -> Value:
        entry = where(s.image_ready[p] == 1, ADMITTED, s.image_ledger[p])
        owners = (after.account[p] == s.image_account[p]) & (after.spare[p] == s.image_spare[p])
        own = (after.stamp[p] == s.image_stamp[p]) & (after.tries[p] == s.image_tries[p]) & (after.weight[p] == -1)
        return (after.ledger[p] == entry) & (after.slot[p] == NO_SLOT) & owners & own

    counters = (
        (after.cursor == s.image_cursor)
        & (after.epoch == s.image_epoch)
        & (after.epoch_over == s.image_epoch_over)
        & (after.dispatch_cursor == s.image_dispatch_cursor)
        & (after.dropped == s.image_dropped)
        & (after.version == s.image_version)
    )
    return counters & all_of(s.prompts, again) & nothing_survives(s, after)


def nothing_survives(s: Value, after: Value) -> Value:
    """Of the old process nothing is left but writers elsewhere, whose leases are void."""

    def forgotten(p: Value) -> Value:
        lease = after.lease[p] == where(s.lease[p] == NO_LEASE, NO_LEASE, FENCED)
        return lease & (after.lingering[p] == 0) & (after.trouble[p] == GENERATING)

    return all_of(s.prompts, forgotten) & (after.gate_passed == 0) & (after.columns == 0)


@cut.always(witness=lambda s: s.window == DRAINING)
def outside_a_save_there_is_no_image(s: Value) -> Value:
    """Nothing of an image is kept once its save is over: it tells no two runs apart, and no later save holds it."""

    def nothing_of(p: Value) -> Value:
        owners = (s.image_ready[p] == 0) & (s.image_ledger[p] == NO_ENTRY) & (s.image_spare[p] == 0)
        rest = (s.image_stamp[p] == -1) & (s.image_weight[p] == -1) & (s.image_tries[p] == 0)
        return owners & rest & (s.image_account[p] == NO_ACCOUNT)

    counters = (
        (s.image_dispatch_cursor == -1)
        & (s.image_dropped == 0)
        & (s.image_cursor == 0)
        & (s.image_epoch == 0)
        & (s.image_epoch_over == 0)
        & (s.image_version == 0)
        & (s.image_altered == 0)
    )
    empty = counters & all_of(s.prompts, nothing_of) & all_of(s.steps, lambda k: s.image_shortfall[k] == 0)
    return where(s.window == OUTSIDE_WINDOW, empty & (s.kind == FULL), True)


# ------------------------------------------------------------------------------------------- What is remembered


@cut.always(witness=lambda s: not_(stamped(s)) & has_gate(s) & (s.dropped > 0))
def a_drop_is_owed(s: Value) -> Value:
    """Without stamps, the gate counts every group that will not come: what was admitted is there, or was dropped."""
    counted = s.batch_size * (s.dispatch_cursor + 1) == admitted_in_all(s) + s.dropped
    return implies(not_(stamped(s)) & has_gate(s), counted)


@cut.always(each="prompts", witness=lambda s: any_of(s.prompts, lambda p: s.account[p] == DROPPED))
def nothing_is_kept_of_what_is_gone(s: Value, p: Value) -> Value:
    """A prompt that is in the accounts has no stamp, no age and no trouble any more; one dropped has no attempts."""
    gone = (s.stamp[p] == -1) & (s.weight[p] == -1) & (s.lingering[p] == 0) & (s.trouble[p] == GENERATING)
    return implies(s.account[p] != NO_ACCOUNT, gone & ((s.account[p] == TRAINED) | (s.tries[p] == 0)))


@cut.always(each="prompts", witness=lambda s: any_of(s.prompts, lambda p: s.slot[p] == CLAIMED))
def a_group_in_the_buffer_is_known(s: Value, p: Value) -> Value:
    """Every group in a slot has its stamp, or its age; a claimed one has left the ledger, and no task is behind it."""
    aged = implies(s.slot[p] != NO_SLOT, where(stamped(s), s.stamp[p] >= s.version, s.weight[p] >= 0))
    claimed = implies(s.slot[p] == CLAIMED, (s.ledger[p] == NO_ENTRY) & (s.lingering[p] == 0))
    troubled = implies(s.trouble[p] != GENERATING, (s.slot[p] == UNREADY) & (s.ledger[p] == ADMITTED))
    return aged & claimed & troubled


@cut.always(each="steps", witness=lambda s: stamped(s) & any_of(s.steps, lambda k: s.shortfall[k] > 0))
def a_shortfall_is_of_a_step_to_come(s: Value, step: Value) -> Value:
    """What a step lacks is known while the step is to come, and of no other step."""
    to_come = stamped(s) & (s.version <= step) & (step <= s.dispatch_cursor)
    return (s.shortfall[step] == 0) | to_come


# ---------------------------------------------------------------------------------------------- What a scope has


@cut.step("crash_and_restore", "crash_and_restore_replay_free", witness=lambda s: s.crashes_left == 1)
def crashes_are_counted(s: Value, after: Value) -> Value:
    """Every crash that the scope has left may come, and is then one less: a scope says how many it has."""
    return after.crashes_left == s.crashes_left - 1


@cut.step("fail_attempt", witness=lambda s: s.failures_left == 1)
def failures_are_counted(s: Value, after: Value) -> Value:
    """The same of attempts that fail."""
    return after.failures_left == s.failures_left - 1


@cut.step("request_cut", witness=lambda s: s.saves_left == 1)
def full_saves_are_counted(s: Value, after: Value) -> Value:
    """The same of full saves."""
    return after.saves_left == s.saves_left - 1


@cut.step("request_snapshot", witness=lambda s: s.snapshots_left == 1)
def snapshots_are_counted(s: Value, after: Value) -> Value:
    """The same of snapshots."""
    return after.snapshots_left == s.snapshots_left - 1


@cut.step("fail_save", witness=lambda s: s.failed_saves_left == 1)
def failing_saves_are_counted(s: Value, after: Value) -> Value:
    """The same of saves that fail."""
    return after.failed_saves_left == s.failed_saves_left - 1


@cut.step("fall_silent", "lose_window", witness=lambda s: s.silences_left == 1)
def silences_are_counted(s: Value, after: Value) -> Value:
    """The same of whoever falls silent."""
    return after.silences_left == s.silences_left - 1
