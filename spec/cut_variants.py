"""Variants of the cut in how prompts are admitted, generated and trained. Those of a save are in `save_variants`.

Each is one small change of the protocol, with the property that must catch it. Where a length differs from the design's
table it is because the model is finer here: waiting at the gate is a step, and six artifacts are read one a step.
"""

from __future__ import annotations

from dataclasses import replace

from .cut import cut
from .cut.rollout import admitted, any_reserved, gate_open, has_gate, none_parked, step_is_free
from .cut.scope import WEIGHT_FIFO
from .cut.state import (
    ADMITTED,
    DRAINING,
    GENERATING,
    NO_ENTRY,
    NO_SLOT,
    OPEN,
    READY,
    RESERVED,
    UNREADY,
    any_spare,
    first_spare,
    parked,
    stamped,
    too_old,
)
from .cut.training import claim, claiming, eligible, finish_step
from .cut.trouble import evict, given_up, replaced, shrink
from .expression import Value, all_of, any_of, count, each, not_, put, where
from .machine import Machine

GATE_IS_A_STEP = "waiting at the gate is a step, and six artifacts are read one a step"
BETWEEN_SLOTS = "checked between slots too, where the prototype looked at the disk only"
Effects = tuple[Value, dict[str, Value]]


def forget_at_crash(machine: Machine, name: str, over: str | None = None) -> None:
    """A variable of a variant is gone with the process: a restore starts with it at zero."""
    for action in ("crash_and_restore", "crash_and_restore_replay_free"):
        _reset_in(machine, action, name, over)


def _reset_in(machine: Machine, action: str, name: str, over: str | None) -> None:
    restore = machine.actions[action].function

    def restored(s: Value) -> Effects:
        guard, effects = restore(s)
        return guard, {**effects, name: 0 if over is None else each(getattr(s, over), lambda p: 0)}

    restored.__doc__ = restore.__doc__
    machine.replace(action, restored)


def widen_permits(machine: Machine) -> None:
    """Permits of a variant that loses count of them may leave their range; the property says so, not the range."""
    for name in ("permits", "generations"):
        known = machine.variables[name]
        machine.variables[name] = replace(known, low=lambda scope: -9, high=lambda scope: scope.capacity + 9)


def widen_steps(machine: Machine) -> None:
    """A variant that trains a prompt twice, or in smaller steps, does more steps than the scope has batches."""
    machine.domains["steps"] = lambda scope: 4 * scope.batches_in_all + 1
    names = ("version", "stamp", "weight", "dispatch_cursor", "anchor")
    for name in (*names, "image_version", "image_stamp", "image_weight", "image_dispatch_cursor"):
        machine.variables[name] = replace(machine.variables[name], high=lambda scope: 4 * scope.batches_in_all)


# ------------------------------------------------------------------------------------------- loader and gate


@cut.variant(
    breaks="one_owner_on_disk", scope="one_batch", length=10, table_length=6, why_length_differs=GATE_IS_A_STEP
)
def reserve_apart(machine: Machine) -> None:
    """The loader cursor moves in one slot and the prompts are RESERVED in the next: a save falls between."""
    machine.variable("promised", 0, 1, "1: a batch is behind the cursor and not yet in the ledger")
    reserve = machine.actions["reserve_batch"].function

    def reserve_batch(s: Value) -> Effects:
        """The first half: the cursor moves."""
        guard, effects = reserve(s)
        moved = {name: effects[name] for name in ("cursor", "epoch_over")}
        return guard & (s.promised == 0), {**moved, "promised": 1}

    def reserve_promised(s: Value) -> Effects:
        """The second half: the prompts of the batch are RESERVED."""
        return s.promised == 1, {
            "promised": 0,
            "ledger": each(s.prompts, lambda p: where(s.batch_of[p] == s.cursor - 1, RESERVED, s.ledger[p])),
        }

    machine.replace("reserve_batch", reserve_batch)
    machine.system(who="rollout pump", slot=True)(reserve_promised)
    forget_at_crash(machine, "promised")


@cut.variant(breaks="stamps_complete", scope="one_batch", length=3, table_length=7, why_length_differs=BETWEEN_SLOTS)
def phase_apart(machine: Machine) -> None:
    """The dispatch cursor moves in one slot, phases and stamps follow in the next."""
    machine.variable("half_admitted", 0, 1, "1: the cursor has moved and the phases have not")
    gate = machine.actions["pass_gate"].function

    def pass_gate(s: Value) -> Effects:
        """As ever, but not between the two halves."""
        guard, effects = gate(s)
        return guard & (s.half_admitted == 0), effects

    def commit_admission(s: Value) -> Effects:
        """The first half: the cursor moves."""
        step = s.dispatch_cursor + 1
        return (s.gate_passed == 1) & gate_open(s) & step_is_free(s, step), {
            "gate_passed": 0,
            "half_admitted": 1,
            "dispatch_cursor": step,
        }

    def flip_phases(s: Value) -> Effects:
        """The second half: the admission becomes ADMITTED and is stamped."""
        return s.half_admitted == 1, {
            "half_admitted": 0,
            "ledger": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, ADMITTED, s.ledger[p])),
            "stamp": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, s.dispatch_cursor, s.stamp[p])),
        }

    machine.replace("pass_gate", pass_gate)
    machine.replace("commit_admission", commit_admission)
    machine.system(who="rollout pump", slot=True)(flip_phases)
    forget_at_crash(machine, "half_admitted")


@cut.variant(breaks="no_stall", scope="two_batches", length=7, table_length=7)
def gate_in_slot(machine: Machine) -> None:
    """The admitter waits for its gate inside a slot: the gate waits for the trainer, whose save waits for the slot."""
    machine.variable("admission_slot", 0, 1, "1: the admitter holds a slot and waits for its gate")

    def pass_gate(s: Value) -> Effects:
        """The admitter enters its slot first, whatever the gate."""
        return (s.admission_slot == 0) & any_reserved(s) & none_parked(s), {"admission_slot": 1}

    def commit_admission(s: Value) -> Effects:
        """Inside the slot the gate opened at last: the admission is committed and the slot given back."""
        free = step_is_free(s, s.dispatch_cursor + 1)
        return (s.admission_slot == 1) & gate_open(s) & free, {**admitted(s), "admission_slot": 0}

    machine.actions["pass_gate"] = replace(machine.actions["pass_gate"], function=pass_gate, slot=True)
    machine.actions["commit_admission"] = replace(
        machine.actions["commit_admission"], function=commit_admission, slot=False
    )
    drain_waits_for(machine, "admission_slot")


def drain_waits_for(machine: Machine, slot: str) -> None:
    """A slot that is held over a wait: the drain waits for it, a restore is without it, taking it is progress."""

    def open_cut(s: Value) -> Effects:
        """The drain must wait for the slot that is held."""
        return (s.window == DRAINING) & (getattr(s, slot) == 0), {"window": OPEN}

    machine.replace("open_cut", open_cut)
    forget_at_crash(machine, slot)
    assert machine.progress is not None
    rank = machine.progress.rank
    machine.progress = replace(machine.progress, rank=lambda s: rank(s) + getattr(s, slot))


@cut.variant(breaks="gate_open_at_commit", scope="two_batches", length=7)
def gate_unchecked(machine: Machine) -> None:
    """The admitter neither waits for the gate nor looks at it inside its slot."""

    def pass_gate(s: Value) -> Effects:
        """Whatever the gate."""
        return (s.gate_passed == 0) & any_reserved(s) & none_parked(s), {"gate_passed": 1}

    def commit_admission(s: Value) -> Effects:
        """Whatever the gate."""
        return (s.gate_passed == 1) & step_is_free(s, s.dispatch_cursor + 1), admitted(s)

    machine.replace("pass_gate", pass_gate)
    machine.replace("commit_admission", commit_admission)


@cut.variant(breaks="no_stall", scope="weight_fifo_failures", length=7, table_length=7)
def gate_ignores_drops(machine: Machine) -> None:
    """The gate counts admissions and never what was dropped of them: it waits for groups that will not come."""

    def gate(s: Value) -> Value:
        return not_(has_gate(s)) | (s.batch_size * s.dispatch_cursor < s.batch_size * (s.version + s.lookahead))

    def pass_gate(s: Value) -> Effects:
        """With the gate that does not subtract."""
        return (s.gate_passed == 0) & any_reserved(s) & none_parked(s) & gate(s), {"gate_passed": 1}

    def commit_admission(s: Value) -> Effects:
        """With the gate that does not subtract."""
        return (s.gate_passed == 1) & gate(s), admitted(s)

    machine.replace("pass_gate", pass_gate)
    machine.replace("commit_admission", commit_admission)


@cut.variant(breaks="no_stall", scope="two_batches", length=14, table_length=9, why_length_differs=GATE_IS_A_STEP)
def reserved_first(machine: Machine) -> None:
    """After a restore the RESERVED admission goes to the gate before the ADMITTED groups are dispatched."""
    send = machine.actions["dispatch"].function

    def pass_gate(s: Value) -> Effects:
        """Whether or not admitted groups wait for their dispatch."""
        return (s.gate_passed == 0) & any_reserved(s) & gate_open(s), {"gate_passed": 1}

    def dispatch(s: Value, p: Value) -> Effects:
        """Only when nothing is RESERVED any more."""
        guard, effects = send(s, p)
        return guard & not_(any_reserved(s)), effects

    machine.replace("pass_gate", pass_gate)
    machine.replace("dispatch", dispatch)


# ------------------------------------------------------------------------------------------ generation and commit


@cut.variant(breaks="no_stall", scope="retries", length=7)
def permit_in_slot(machine: Machine) -> None:
    """The buffer permit is waited for inside a slot: who gives one back is the trainer, whose save waits for it."""
    machine.variable("dispatch_slot", 0, 1, "1: the dispatcher holds a slot and waits for a permit")
    send = machine.actions["dispatch"].function

    def enter_dispatch_slot(s: Value) -> Effects:
        """The dispatcher enters its slot first, whatever the permits."""
        return (s.dispatch_slot == 0) & any_of(s.prompts, lambda p: parked(s, p)), {"dispatch_slot": 1}

    def dispatch(s: Value, p: Value) -> Effects:
        """Inside the slot a permit came at last."""
        guard, effects = send(s, p)
        return guard & (s.dispatch_slot == 1), {**effects, "dispatch_slot": 0}

    machine.system(who="rollout pump", slot=True)(enter_dispatch_slot)
    machine.actions["dispatch"] = replace(machine.actions["dispatch"], function=dispatch, slot=False)
    drain_waits_for(machine, "dispatch_slot")


@cut.variant(
    breaks="one_owner_on_disk", scope="one_batch", length=15, table_length=10, why_length_differs=GATE_IS_A_STEP
)
def commit_outside_slot(machine: Machine) -> None:
    """A group becomes ready without a slot: between the read of the buffer and its removal it is in neither image."""
    machine.outside_slot("commit_group")


@cut.variant(
    breaks="one_owner_on_disk", scope="one_batch", length=16, table_length=11, why_length_differs=GATE_IS_A_STEP
)
def lingering_entry(machine: Machine) -> None:
    """A claim leaves the ledger entry of a committed group: trained, it is still in the ledger, and comes back."""

    def claim_only(s: Value) -> Effects:
        """As ever, but the ledger is left alone."""
        guard, effects = claim(s)
        return guard, {"slot": effects["slot"]}

    machine.replace("claim", claim_only)


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
