"""What may go wrong with a generation, and what fills its place: retries, spares, smaller steps, and age."""

from __future__ import annotations

from ...language.expression import Value, any_of, each, not_, put, total, where
from .scope import IN_ORDER, WINDOWED
from .state import (
    ADMITTED,
    BACKING_OFF,
    DROPPED,
    GENERATING,
    GIVEN_UP,
    NO_ENTRY,
    NO_SLOT,
    READY,
    UNREADY,
    any_spare,
    cut,
    evicts,
    first_spare,
    stamped,
    too_old,
)


@cut.environment(each="prompts", slot=True, when=lambda scope: scope.failures)
def fail_attempt(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """The attempt for prompt `p` fails. The ledger keeps the group; the in-flight permit is given back.

    While its budget lasts it backs off, holding no permit but its slot's; then it is given up.
    """
    failing = (s.slot[p] == UNREADY) & (s.trouble[p] == GENERATING) & (s.failures_left > 0)
    last = s.tries[p] == s.retries
    return failing, {
        "trouble": put(s.trouble, p, where(last, GIVEN_UP, BACKING_OFF)),
        "tries": put(s.tries, p, where(last, s.tries[p], s.tries[p] + 1)),
        "generations": s.generations + 1,
        "failures_left": s.failures_left - 1,
    }


@cut.system(
    who="generation", each="prompts", slot=True, when=lambda scope: (scope.failures != 0) & (scope.retries != 0)
)
def retry(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """Prompt `p` is attempted again, with an in-flight permit taken outside the slot."""
    return (s.slot[p] == UNREADY) & (s.trouble[p] == BACKING_OFF) & (s.generations > 0), {
        "trouble": put(s.trouble, p, GENERATING),
        "generations": s.generations - 1,
    }


def given_up(s: Value, p: Value) -> Value:
    """Prompt `p` has used up its attempts and still holds its place."""
    return (s.slot[p] == UNREADY) & (s.trouble[p] == GIVEN_UP)


def replaced(s: Value, p: Value) -> dict[str, Value]:
    """The owner of a place is dropped as `replaced`, and the first spare is ADMITTED and generates in its place.

    The buffer permit goes with the place; the spare takes an in-flight permit. Stamps are set by the caller.
    """

    def owners(of_old: Value, of_spare: Value, old: Value) -> Value:
        return each(s.prompts, lambda q: where(q == p, of_old, where(first_spare(s, q), of_spare, old[q])))

    return {
        "account": put(s.account, p, DROPPED),
        "ledger": owners(NO_ENTRY, ADMITTED, s.ledger),
        "slot": owners(NO_SLOT, UNREADY, s.slot),
        "spare": each(s.prompts, lambda q: where(first_spare(s, q), 0, s.spare[q])),
        "weight": owners(-1, where(stamped(s), -1, s.version), s.weight),
        "trouble": put(s.trouble, p, GENERATING),
        "tries": put(s.tries, p, 0),
        "generations": s.generations - 1,
    }


@cut.system(who="generation", each="prompts", slot=True, when=lambda scope: (scope.spares != 0) & (scope.failures != 0))
def substitute(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """A spare takes the place of the group given up: its admission, its stamp, its slot. Needs a spare."""
    return given_up(s, p) & any_spare(s) & (s.generations > 0), {
        **replaced(s, p),
        "stamp": each(s.prompts, lambda q: where(q == p, -1, where(first_spare(s, q), s.stamp[p], s.stamp[q]))),
    }


def lends(s: Value, h: Value, p: Value) -> Value:
    """Group `h` is ready and unclaimed, of the furthest step later than that of the hole `p`; the first of them."""

    def later(q: Value) -> Value:
        return (s.slot[q] == READY) & (s.stamp[q] > s.stamp[p])

    further = any_of(
        s.prompts, lambda q: later(q) & ((s.stamp[q] > s.stamp[h]) | ((s.stamp[q] == s.stamp[h]) & (q < h)))
    )
    return later(h) & not_(further)


@cut.system(who="generation", each="prompts", slot=True, when=lambda scope: scope.borrow)
def borrow(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """A ready group of the furthest later step is re-stamped to the hole, and the spare fills the lender's place.

    Only in order: the trainer then waits for the spare later instead of now. Needs a lender and a spare.
    """
    lender = any_of(s.prompts, lambda h: lends(s, h, p))
    # Exactly one group lends, so the sum is its stamp.
    of_lender = total(s.prompts, lambda h: where(lends(s, h, p), s.stamp[h], 0))
    guard = (s.sampler == IN_ORDER) & given_up(s, p) & any_spare(s) & lender & (s.generations > 0)

    def restamped(q: Value) -> Value:
        elsewhere = where(lends(s, q, p), s.stamp[p], s.stamp[q])
        return where(q == p, -1, where(first_spare(s, q), of_lender, elsewhere))

    return guard & (s.stamp[p] >= s.version), {**replaced(s, p), "stamp": each(s.prompts, restamped)}


@cut.system(who="generation", each="prompts", slot=True, when=lambda scope: scope.failures)
def shrink(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """Without a spare the group given up is dropped as `failed`: its step needs one group less, its permit is free."""
    return given_up(s, p) & not_(any_spare(s)), {
        "account": put(s.account, p, DROPPED),
        "ledger": put(s.ledger, p, NO_ENTRY),
        "slot": put(s.slot, p, NO_SLOT),
        "stamp": put(s.stamp, p, -1),
        "weight": put(s.weight, p, -1),
        "trouble": put(s.trouble, p, GENERATING),
        "tries": put(s.tries, p, 0),
        "shortfall": each(s.steps, lambda k: where(stamped(s) & (k == s.stamp[p]), s.shortfall[k] + 1, s.shortfall[k])),
        "dropped": where(stamped(s), s.dropped, s.dropped + 1),
        "permits": s.permits + 1,
    }


def dropped_for_age(s: Value, p: Value) -> dict[str, Value]:
    """What moves when a group is given up for its age: slot and permit, ledger entry, account, the sampler's count."""
    return {
        "account": put(s.account, p, DROPPED),
        "ledger": put(s.ledger, p, NO_ENTRY),
        "lingering": put(s.lingering, p, 0),
        "slot": put(s.slot, p, NO_SLOT),
        "weight": put(s.weight, p, -1),
        "dropped": s.dropped + 1,
        "permits": s.permits + 1,
    }


@cut.system(who="train pump", each="prompts", slot=True, when=evicts)
def evict(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """A ready group that has become too old is dropped (`stale_ready`). Never an unready slot."""
    return evicts(s) & (s.slot[p] == READY) & too_old(s, p), dropped_for_age(s, p)


@cut.system(who="train pump", each="prompts", slot=True, when=lambda scope: scope.sampler == WINDOWED)
def abort_stale(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """A group still generating that is too old already is dropped (`stale_inflight`), then its task is cancelled.

    Only if the ledger owns it and its slot is not ready, looked at inside the slot.
    """
    generating = (s.slot[p] == UNREADY) & (s.ledger[p] == ADMITTED)
    return (s.sampler == WINDOWED) & generating & too_old(s, p), {
        **dropped_for_age(s, p),
        "trouble": put(s.trouble, p, GENERATING),
        "tries": put(s.tries, p, 0),
        "generations": where(s.trouble[p] == GENERATING, s.generations + 1, s.generations),
    }
