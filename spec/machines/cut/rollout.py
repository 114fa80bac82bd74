"""The rollout pump: from the loader through the gate into the buffer. It is the one admitter."""

from __future__ import annotations

from ...language.expression import Value, all_of, count, each, not_, put, where
from .scope import IN_ORDER
from .state import (
    ADMITTED,
    DROPPED,
    GENERATING,
    NO_ENTRY,
    READY,
    RESERVED,
    UNREADY,
    any_reserved,
    any_spare,
    cut,
    data_is_over,
    has_gate,
    held_in_silence,
    none_parked,
    parked,
    reserved_count,
    stamped,
)


def ready_for_more(s: Value) -> Value:
    """The epoch has a batch left, and the one before is wholly admitted and dispatched."""
    return (s.epoch_over == 0) & not_(any_reserved(s)) & none_parked(s)


def of_next_batch(s: Value, p: Value) -> Value:
    """Prompt `p` belongs to the batch the loader hands out next."""
    return s.batch_of[p] == s.cursor


def cursor_moved(s: Value) -> dict[str, Value]:
    """The loader hands out a batch; with the last one of an epoch its exhausted bit is set, in the same instant."""
    return {"cursor": s.cursor + 1, "epoch_over": where(s.cursor + 1 == (s.epoch + 1) * s.batches, 1, 0)}


def short(s: Value) -> Value:
    """The batch handed out next is a short one, to be dropped as remainder."""
    return (s.drop_short == 1) & (count(s.prompts, lambda p: of_next_batch(s, p)) < s.batch_size)


@cut.system(who="rollout pump", slot=True)
def reserve_batch(s: Value) -> tuple[Value, dict[str, Value]]:
    """The loader hands out a batch and every prompt of it is RESERVED, in one slot.

    Disabled at the end of an epoch, and while an earlier batch is not wholly dispatched. A short last batch that is to
    be dropped goes to the accounts at once, with reason `remainder`.
    """
    return ready_for_more(s), {
        **cursor_moved(s),
        "ledger": each(s.prompts, lambda p: where(of_next_batch(s, p) & not_(short(s)), RESERVED, s.ledger[p])),
        "account": each(s.prompts, lambda p: where(of_next_batch(s, p) & short(s), DROPPED, s.account[p])),
    }


@cut.system(who="rollout pump", slot=True, when=lambda scope: scope.epochs > 1)
def end_epoch(s: Value) -> tuple[Value, dict[str, Value]]:
    """The loader begins its next pass. Disabled in the last epoch: there the exhausted bit stays set."""
    return (s.epoch_over == 1) & (s.epoch < s.epochs - 1), {"epoch": s.epoch + 1, "epoch_over": 0}


@cut.system(who="rollout pump", slot=True, when=lambda scope: scope.spares)
def divert_batch(s: Value) -> tuple[Value, dict[str, Value]]:
    """A whole batch goes into the spare pool. It burns no stamp, and never happens before the first one.

    Disabled while the pool has spares: more of them would starve the trainer.
    """
    return ready_for_more(s) & (s.dispatch_cursor >= 0) & not_(any_spare(s)) & not_(short(s)), {
        **cursor_moved(s),
        "spare": each(s.prompts, lambda p: where(of_next_batch(s, p), 1, s.spare[p])),
    }


def gate_open(s: Value) -> Value:
    """The sampler admits one more.

    In order: its cursor is less than `lookahead` ahead of the trainer. By weight and ready first: the groups admitted
    and still to come, without those that were dropped, are less than `lookahead` steps ahead. Windowed: always.
    """
    admitted = s.batch_size * s.dispatch_cursor - s.dropped
    return where(
        stamped(s),
        s.dispatch_cursor < s.version + s.lookahead,
        not_(has_gate(s)) | (admitted < s.batch_size * (s.version + s.lookahead)),
    )


@cut.system(who="rollout pump")
def pass_gate(s: Value) -> tuple[Value, dict[str, Value]]:
    """The admitter, holding nothing, has waited until the sampler admits.

    Needs a RESERVED admission, and none parked: after a restore the ADMITTED ones are dispatched first, since they may
    be the only work that opens the gate.
    """
    return (s.gate_passed == 0) & any_reserved(s) & none_parked(s) & gate_open(s), {"gate_passed": 1}


def step_is_free(s: Value, step: Value) -> Value:
    """No group in flight carries this stamp."""
    return all_of(s.prompts, lambda p: s.stamp[p] != step)


def admitted(s: Value) -> dict[str, Value]:
    """What the admission of the RESERVED prompts moves: cursor, stamps, phases, and the credit of a short batch."""
    step = s.dispatch_cursor + 1
    missing = s.batch_size - reserved_count(s)
    return {
        "gate_passed": 0,
        "dispatch_cursor": where(has_gate(s), step, s.dispatch_cursor),
        "shortfall": each(s.steps, lambda k: where(stamped(s) & (k == step), s.shortfall[k] + missing, s.shortfall[k])),
        "dropped": where((s.sampler != IN_ORDER) & has_gate(s), s.dropped + missing, s.dropped),
        "ledger": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, ADMITTED, s.ledger[p])),
        "stamp": each(s.prompts, lambda p: where((s.ledger[p] == RESERVED) & stamped(s), step, s.stamp[p])),
    }


@cut.system(who="rollout pump", slot=True)
def commit_admission(s: Value) -> tuple[Value, dict[str, Value]]:
    """The whole RESERVED admission becomes ADMITTED and takes the next step, in one slot.

    The gate is looked at again inside, and an occupied step is refused. A short batch credits its step with what it
    lacks. Windowed: no cursor moves and no stamp is given.
    """
    free = not_(stamped(s)) | step_is_free(s, s.dispatch_cursor + 1)
    return (s.gate_passed == 1) & gate_open(s) & free, admitted(s)


@cut.system(who="rollout pump", each="prompts", slot=True)
def dispatch(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """Prompt `p`, the first that is parked, takes its permits and an unready slot; its generation starts.

    The permits are waited for outside any slot. The buffer permit belongs to the slot until the train step is finished
    or the group is given up; the in-flight permit until the generation ends.
    """
    first = all_of(s.prompts, lambda q: (q >= p) | (s.ledger[q] != ADMITTED) | (s.slot[q] != 0))
    return parked(s, p) & first & (s.permits > 0) & (s.generations > 0), {
        "slot": put(s.slot, p, UNREADY),
        "permits": s.permits - 1,
        "generations": s.generations - 1,
        "weight": put(s.weight, p, where(stamped(s), -1, s.version)),
    }


def generated(s: Value, p: Value) -> Value:
    """Prompt `p` is being generated, so its generations may be done at any moment."""
    return (s.ledger[p] == ADMITTED) & (s.slot[p] == UNREADY) & (s.trouble[p] == GENERATING)


@cut.system(who="generation", each="prompts", slot=True)
def commit_group(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """The generations of prompt `p` are done: its rows become visible and its slot ready, at once and in one slot.

    Disabled while a silent writer holds a slot for it. Once its lease is over, whoever generates it again commits.
    """
    return generated(s, p) & not_(held_in_silence(s, p)), {
        "slot": put(s.slot, p, READY),
        "lingering": put(s.lingering, p, 1),
        "generations": s.generations + 1,
    }


@cut.system(who="generation", each="prompts")
def remove_committed(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """The ledger entry of a committed group is dropped: the one ledger write that may run without a slot.

    The task that committed does it, right after; nobody does it after a restore. The cut stores the ledger without what
    the buffer owns, so it does not matter on which side of the cut this falls.
    """
    return s.lingering[p] == 1, {"ledger": put(s.ledger, p, NO_ENTRY), "lingering": put(s.lingering, p, 0)}


@cut.system(who="rollout pump", slot=True, when=lambda scope: scope.spares)
def drain_pool(s: Value) -> tuple[Value, dict[str, Value]]:
    """At the end of the data a whole step of spares becomes RESERVED; spares that fill no step are dropped.

    Disabled while something generates that may still need a spare.
    """
    spares = count(s.prompts, lambda p: s.spare[p] == 1)
    quiet = not_(any_reserved(s)) & none_parked(s) & all_of(s.prompts, lambda p: s.slot[p] != UNREADY)

    def taken(p: Value) -> Value:
        return (s.spare[p] == 1) & (count(s.prompts, lambda q: (q < p) & (s.spare[q] == 1)) < s.batch_size)

    whole = spares >= s.batch_size
    return data_is_over(s) & any_spare(s) & quiet, {
        "ledger": each(s.prompts, lambda p: where(whole & taken(p), RESERVED, s.ledger[p])),
        "account": each(s.prompts, lambda p: where(not_(whole) & (s.spare[p] == 1), DROPPED, s.account[p])),
        "spare": each(s.prompts, lambda p: where(whole & not_(taken(p)), s.spare[p], 0)),
    }


# Prompts of one batch are admitted together and may change places. Not so where the order of prompts decides between
# unlike ones: the other samplers take the first of several ready groups, the pool gives its first spare, and with
# retries two parked prompts may have failed differently often.
cut.symmetric(
    "prompts",
    blocks="batch_of",
    when=lambda scope: scope.sampler == IN_ORDER and not scope.spares and not scope.retries,
    ties=("dispatch",),
    alike=parked,
)
