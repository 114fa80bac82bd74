"""Variants of the cut in how prompts are handed out, admitted and committed.

Each is one small change of the protocol, with the property that must catch it. Where a length differs from the design's
table it is because the model is finer here: waiting at the gate is a step, and six artifacts are read one a step.
"""

from __future__ import annotations

from dataclasses import replace

from ...language.expression import Value, any_of, each, not_, where
from ...language.machine import Machine
from . import cut
from .rollout import admitted, gate_open, step_is_free
from .state import ADMITTED, DRAINING, OPEN, RESERVED, any_reserved, has_gate, none_parked, parked
from .training import claim

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


@cut.variant(breaks="loader_agrees", scope="two_batches", length=1)
def bit_set_early(machine: Machine) -> None:
    """The loader's exhausted bit is set with every batch: the run takes the data for over after the first."""
    reserve = machine.actions["reserve_batch"].function

    def reserve_batch(s: Value) -> Effects:
        """As ever, but for the bit."""
        guard, effects = reserve(s)
        return guard, {**effects, "epoch_over": 1}

    machine.replace("reserve_batch", reserve_batch)


@cut.variant(breaks="windowed_moves_no_cursor", scope="windowed_tight", length=3)
def windowed_counts(machine: Machine) -> None:
    """An admission moves the dispatch cursor of the sampler that has none."""

    def commit_admission(s: Value) -> Effects:
        """As ever, and the cursor moves whatever the sampler."""
        guard, effects = machine_commit(s)
        return guard, {**effects, "dispatch_cursor": s.dispatch_cursor + 1}

    machine_commit = machine.actions["commit_admission"].function
    machine.replace("commit_admission", commit_admission)


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
