"""The train pump: which groups a step takes, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable

from ...language.expression import Value, all_of, any_of, count, each, implies, not_, where
from .scope import IN_ORDER, READY_FIRST, WEIGHT_FIFO
from .state import (
    CLAIMED,
    NO_ENTRY,
    NO_SLOT,
    READY,
    TRAINED,
    UNREADY,
    between_steps,
    cut,
    data_is_over,
    stamped,
    target,
    too_old,
    trainer_is_free,
)


def eligible(s: Value, p: Value) -> Value:
    """Prompt `p` is ready and may be taken now.

    In order: stamped for this step. By weight: within the staleness, and no younger than the oldest that is still
    generating, so that none is overtaken for ever. Ready first: any. Windowed: within the staleness.
    """
    oldest_generating = all_of(s.prompts, lambda q: (s.slot[q] != UNREADY) | (s.weight[q] >= s.weight[p]))
    by_weight = not_(too_old(s, p)) & implies(s.sampler == WEIGHT_FIFO, oldest_generating)
    chosen = where(s.sampler == IN_ORDER, s.stamp[p] == s.version, (s.sampler == READY_FIRST) | by_weight)
    return (s.slot[p] == READY) & chosen


def before(s: Value, q: Value, p: Value) -> Value:
    """Prompt `q` is taken before `p`: the older one; of one age, and ready first, the one that was handed out first."""
    older = (s.sampler != READY_FIRST) & (s.weight[q] < s.weight[p])
    same_age = (s.sampler == READY_FIRST) | (s.weight[q] == s.weight[p])
    return older | (same_age & (q < p))


Eligible = Callable[[Value, Value], Value]


def selected(s: Value, p: Value, may_be_taken: Eligible) -> Value:
    """Prompt `p` belongs to the next train step: all that are stamped for it, or the first of the eligible ones."""
    earlier = count(s.prompts, lambda q: may_be_taken(s, q) & before(s, q, p))
    return may_be_taken(s, p) & (stamped(s) | (earlier < s.batch_size))


def nothing_more_to_come(s: Value) -> Value:
    """The data is over, the pool is empty, and every group that is not trained is ready."""
    return data_is_over(s) & all_of(
        s.prompts, lambda p: (s.spare[p] == 0) & ((s.ledger[p] == NO_ENTRY) | (s.slot[p] == READY))
    )


def step_is_complete(s: Value, may_be_taken: Eligible) -> Value:
    """All groups of the next step are ready; unstamped, enough are, or no more will come."""
    all_stamped_ready = (s.dispatch_cursor >= s.version) & all_of(
        s.prompts, lambda p: implies(s.stamp[p] == s.version, s.slot[p] == READY)
    )
    takes_some = any_of(s.prompts, lambda p: may_be_taken(s, p))
    enough = count(s.prompts, lambda p: may_be_taken(s, p)) >= s.batch_size
    return takes_some & where(stamped(s), all_stamped_ready, enough | nothing_more_to_come(s))


def claiming(s: Value, may_be_taken: Eligible) -> tuple[Value, dict[str, Value]]:
    """A claim by this rule of what may be taken."""

    def taken(p: Value) -> Value:
        return selected(s, p, may_be_taken)

    return trainer_is_free(s) & between_steps(s) & step_is_complete(s, may_be_taken), {
        "slot": each(s.prompts, lambda p: where(taken(p), CLAIMED, s.slot[p])),
        "ledger": each(s.prompts, lambda p: where(taken(p), NO_ENTRY, s.ledger[p])),
        "lingering": each(s.prompts, lambda p: where(taken(p), 0, s.lingering[p])),
    }


@cut.system(who="train pump", slot=True)
def claim(s: Value) -> tuple[Value, dict[str, Value]]:
    """The trainer opens a step and takes its groups; a ledger entry that lingers goes in the same slot.

    Disabled while the trainer is in a save of its own.
    """
    return claiming(s, eligible)


@cut.system(who="train pump", slot=True, when=lambda scope: scope.write_back)
def write_back(s: Value) -> tuple[Value, dict[str, Value]]:
    """The open step writes its derived columns: new records with new tensors, which live in the claim.

    An image that holds the groups keeps the old records; after a restore the columns are computed again.
    """
    return not_(between_steps(s)) & (s.columns == 0), {"columns": 1}


@cut.system(who="train pump", slot=True)
def finish_step(s: Value) -> tuple[Value, dict[str, Value]]:
    """The open step succeeded: its groups are trained, their rows cleared, their permits back, the version one more."""
    written = (s.write_back == 0) | (s.columns == 1)
    return not_(between_steps(s)) & written, {
        "account": each(s.prompts, lambda p: where(s.slot[p] == CLAIMED, TRAINED, s.account[p])),
        "slot": each(s.prompts, lambda p: where(s.slot[p] == CLAIMED, NO_SLOT, s.slot[p])),
        "stamp": each(s.prompts, lambda p: where(s.slot[p] == CLAIMED, -1, s.stamp[p])),
        "weight": each(s.prompts, lambda p: where(s.slot[p] == CLAIMED, -1, s.weight[p])),
        "permits": s.permits + count(s.prompts, lambda p: s.slot[p] == CLAIMED),
        **next_version(s),
    }


def next_version(s: Value) -> dict[str, Value]:
    """One train step more is done; what it lacked is forgotten."""
    return {
        "version": s.version + 1,
        "columns": 0,
        "shortfall": each(s.steps, lambda k: where(k == s.version, 0, s.shortfall[k])),
    }


@cut.system(
    who="train pump", slot=True, when=lambda scope: (scope.failures != 0) | (scope.last_batch < scope.batch_size)
)
def empty_step(s: Value) -> tuple[Value, dict[str, Value]]:
    """A step shrunk to nothing still passes, so that the ones behind it are reached."""
    nothing_left = stamped(s) & (s.dispatch_cursor >= s.version) & (target(s) == 0)
    return trainer_is_free(s) & between_steps(s) & nothing_left, next_version(s)
