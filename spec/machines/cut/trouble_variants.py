"""Variants of the cut in what becomes of failed, replaced, stale and claimed groups."""

from __future__ import annotations

from ...language.expression import Value, all_of, any_of, count, each, not_, put, where
from ...language.machine import Machine
from . import cut
from .scope import WEIGHT_FIFO
from .state import (
    ADMITTED,
    CLAIMED,
    GENERATING,
    NO_ENTRY,
    NO_SLOT,
    READY,
    UNREADY,
    any_spare,
    first_spare,
    stamped,
    too_old,
)
from .training import claim, claiming, eligible, finish_step
from .trouble import evict, given_up, replaced, shrink
from .variants import BETWEEN_SLOTS, GATE_IS_A_STEP, Effects, forget_at_crash, widen_permits, widen_steps

# -------------------------------------------------------------------------------------------------- trouble


@cut.variant(breaks="permits_balance", scope="one_failure", length=6, table_length=4, why_length_differs=GATE_IS_A_STEP)
def permit_leak_on_failure(machine: Machine) -> None:
    """A group that is dropped keeps its buffer permit: after enough failures nothing can be dispatched."""

    def drop_only(s: Value, p: Value) -> Effects:
        """As ever, but for the permit."""
        guard, effects = shrink(s, p)
        return guard, {**effects, "permits": s.permits}

    machine.replace("shrink", drop_only)
    widen_permits(machine)


@cut.variant(breaks="stamps_complete", scope="one_failure", length=6, table_length=9, why_length_differs=BETWEEN_SLOTS)
def drop_outside_slot(machine: Machine) -> None:
    """A group given up is dropped without a slot, and its step is credited later in one."""
    machine.variable("uncredited", 0, 1, "1: this prompt was dropped and its step not credited", over="prompts")
    machine.variable("credit_to", -1, lambda scope: scope.batches_in_all, "the step to credit", initial=-1)

    def drop_only(s: Value, p: Value) -> Effects:
        """The first half: the group is dropped, cut or not."""
        guard, effects = shrink(s, p)
        rest = {name: value for name, value in effects.items() if name != "shortfall"}
        return guard & (s.credit_to == -1), {**rest, "credit_to": s.stamp[p], "uncredited": put(s.uncredited, p, 1)}

    def credit(s: Value) -> Effects:
        """The second half: the step needs one group less."""
        return s.credit_to >= 0, {
            "credit_to": -1,
            "uncredited": each(s.prompts, lambda p: 0),
            "shortfall": each(s.steps, lambda k: where(k == s.credit_to, s.shortfall[k] + 1, s.shortfall[k])),
        }

    machine.replace("shrink", drop_only)
    machine.outside_slot("shrink")
    machine.system(who="generation", slot=True)(credit)


@cut.variant(breaks="one_owner_on_disk", scope="spares", length=16, table_length=10, why_length_differs=GATE_IS_A_STEP)
def spare_outside_slot(machine: Machine) -> None:
    """A spare is taken out of the pool without a slot, and put into its place in one: a save falls between."""
    machine.variable("popped", 0, 1, "1: taken out of the pool and not yet in its place", over="prompts")

    def take_spare(s: Value, p: Value) -> Effects:
        """The first half: the spare leaves the pool, cut or not."""
        nobody_popped = all_of(s.prompts, lambda q: s.popped[q] == 0)
        return given_up(s, p) & any_spare(s) & nobody_popped, {
            "spare": each(s.prompts, lambda q: where(first_spare(s, q), 0, s.spare[q])),
            "popped": each(s.prompts, lambda q: where(first_spare(s, q), 1, 0)),
        }

    def substitute(s: Value, p: Value) -> Effects:
        """The second half: it takes the place of the group given up."""
        old = replaced(s, p)

        def owners(of_old: Value, of_spare: Value, before: Value) -> Value:
            return each(s.prompts, lambda q: where(q == p, of_old, where(s.popped[q] == 1, of_spare, before[q])))

        ready = given_up(s, p) & any_of(s.prompts, lambda q: s.popped[q] == 1) & (s.generations > 0)
        return ready, {
            **old,
            "ledger": owners(NO_ENTRY, ADMITTED, s.ledger),
            "slot": owners(NO_SLOT, UNREADY, s.slot),
            "stamp": owners(-1, s.stamp[p], s.stamp),
            "spare": each(s.prompts, lambda q: s.spare[q]),
            "popped": each(s.prompts, lambda q: 0),
        }

    machine.environment(each="prompts")(take_spare)
    machine.replace("substitute", substitute)
    forget_at_crash(machine, "popped", over="prompts")


@cut.variant(breaks="permits_balance", scope="windowed", length=12, table_length=11, why_length_differs=GATE_IS_A_STEP)
def evict_unready(machine: Machine) -> None:
    """Eviction takes unready slots too: the generation that still runs gives the same permit back a second time."""
    machine.variable("zombie", 0, 1, "1: its slot was taken from under a running generation", over="prompts")

    def evict_any(s: Value, p: Value) -> Effects:
        """Ready or not."""
        guard, effects = evict(s, p)
        unready = (s.slot[p] == UNREADY) & (s.trouble[p] == GENERATING) & too_old(s, p)
        taken = {"slot": put(s.slot, p, NO_SLOT), "weight": put(s.weight, p, -1), "permits": s.permits + 1}
        kept = {name: where(unready, getattr(s, name), value) for name, value in effects.items() if name not in taken}
        return guard | unready, {**kept, **taken, "zombie": put(s.zombie, p, where(unready, 1, s.zombie[p]))}

    def zombie_ends(s: Value, p: Value) -> Effects:
        """The generation ends, finds no slot, and gives both its permits back."""
        return s.zombie[p] == 1, {
            "zombie": put(s.zombie, p, 0),
            "permits": s.permits + 1,
            "generations": s.generations + 1,
        }

    machine.replace("evict", evict_any)
    machine.environment(each="prompts", slot=True)(zombie_ends)
    widen_permits(machine)


# -------------------------------------------------------------------------------------------------- training


@cut.variant(
    breaks="permits_balance", scope="one_batch", length=6, table_length=14, why_length_differs="seen at the claim"
)
def permit_at_claim(machine: Machine) -> None:
    """The buffer permit is given back when a group is claimed: a snapshot that holds it exceeds the capacity later."""

    def claim_and_free(s: Value) -> Effects:
        """As ever, and the permits are free at once."""
        guard, effects = claim(s)
        taken = count(s.prompts, lambda p: (s.slot[p] == READY) & (effects["ledger"][p] != s.ledger[p]))
        return guard, {**effects, "permits": s.permits + taken}

    def finish_only(s: Value) -> Effects:
        """As ever, but for the permits."""
        guard, effects = finish_step(s)
        return guard, {**effects, "permits": s.permits}

    machine.replace("claim", claim_and_free)
    machine.replace("finish_step", finish_only)
    widen_permits(machine)


@cut.variant(breaks="step_has_its_size", scope="windowed", length=11)
def takes_all_ready(machine: Machine) -> None:
    """A step takes every group that may be taken, however many: steps differ in size and the last ones starve."""

    def claim_all(s: Value) -> Effects:
        """Whatever may be taken, all of it."""
        guard, effects = claim(s)
        return guard, {
            **effects,
            "slot": each(s.prompts, lambda p: where(eligible(s, p), CLAIMED, s.slot[p])),
            "ledger": each(s.prompts, lambda p: where(eligible(s, p), NO_ENTRY, s.ledger[p])),
        }

    machine.replace("claim", claim_all)


@cut.variant(breaks="staleness_bound", scope="windowed", length=13)
def stale_selected(machine: Machine) -> None:
    """A claim takes whatever is ready, however old."""

    def any_ready(s: Value, p: Value) -> Value:
        return where(stamped(s), eligible(s, p), s.slot[p] == READY)

    machine.replace("claim", lambda s: claiming(s, any_ready))


@cut.variant(
    breaks="no_stall", scope="weight_fifo_pairs", length=28, table_length=25, why_length_differs=GATE_IS_A_STEP
)
def fifo_bare_minimum(machine: Machine) -> None:
    """By weight, a step takes groups of the least weight only: too few of them wait for ever."""

    def of_least_weight(s: Value, p: Value) -> Value:
        least = all_of(s.prompts, lambda q: (s.slot[q] == NO_SLOT) | (s.weight[q] < 0) | (s.weight[q] >= s.weight[p]))
        return eligible(s, p) & ((s.sampler != WEIGHT_FIFO) | least)

    machine.replace("claim", lambda s: claiming(s, of_least_weight))
    widen_steps(machine)


@cut.variant(breaks="no_stall", scope="weight_fifo_late", length=34)
def late_group_kept(machine: Machine) -> None:
    """By weight, what is too old is given up after a step alone: what comes later is counted, and no step follows."""
    machine.variable("sweeping", 0, 1, "1: a step has ended, and what is too old is being given up")

    def finish(s: Value) -> Effects:
        """As ever; then the buffer is gone through."""
        guard, effects = finish_step(s)
        return guard, {**effects, "sweeping": 1}

    def evict_after_a_step(s: Value, p: Value) -> Effects:
        """As ever, but only then."""
        guard, effects = evict(s, p)
        return guard & ((s.sampler != WEIGHT_FIFO) | (s.sweeping == 1)), effects

    def swept(s: Value) -> Effects:
        """Nothing that is ready is too old any more."""
        return (s.sweeping == 1) & all_of(s.prompts, lambda p: (s.slot[p] != READY) | not_(too_old(s, p))), {
            "sweeping": 0
        }

    machine.replace("finish_step", finish)
    machine.replace("evict", evict_after_a_step)
    machine.environment()(swept)
    forget_at_crash(machine, "sweeping")
