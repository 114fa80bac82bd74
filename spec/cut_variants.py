"""Variants of the cut: each one small change of the protocol, with the property that must catch it.

Where a length differs from the design's table it is because a save is finer here: five artifacts are read one a step,
where the prototype read them in two or three, and waiting at the gate is a step of its own.
"""

from __future__ import annotations

from dataclasses import replace

from .cut import (
    ADMITTED,
    BUFFER_READ,
    DRAINING,
    LEDGER_READ,
    NO_ENTRY,
    OPEN,
    OUTSIDE_WINDOW,
    READ_EARLY,
    READY,
    RESERVED,
    SAMPLER_READ,
    UNREADY,
    any_reserved,
    between_steps,
    claim,
    crash_and_restore,
    cut,
    finish_step,
    gate_open,
    none_parked,
    slots_enter,
    step_is_free,
)
from .cut_properties import rank
from .expression import Value, each, not_, put, where
from .machine import Machine

FIVE_READS = "five artifacts are read one a step, where the prototype counted them as two reads"
GATE_IS_A_STEP = "five artifacts are read one a step, and waiting at the gate is a step of its own"


def _forget_at_crash(machine: Machine, name: str) -> None:
    """A variable of a variant is gone with the process: a restore starts with it at zero."""
    restore = machine.actions["crash_and_restore"].function

    def crash_and_restore(s: Value) -> tuple[Value, dict[str, Value]]:
        guard, effects = restore(s)
        return guard, {**effects, name: 0}

    crash_and_restore.__doc__ = restore.__doc__
    machine.replace("crash_and_restore", crash_and_restore)


@cut.variant(breaks="one_owner_on_disk", scope="one_batch", length=9, table_length=6, why_length_differs=FIVE_READS)
def cursor_ahead(machine: Machine) -> None:
    """The checkpoint holds the moved cursor and the finished groups, and no ledger: what is in flight has no owner."""

    def read_ledger(s: Value) -> tuple[Value, dict[str, Value]]:
        """There is no ledger to read."""
        return s.window == BUFFER_READ, {"window": LEDGER_READ}

    machine.replace("read_ledger", read_ledger)


@cut.variant(
    breaks="cursor_covers_stamps", scope="one_batch", length=12, table_length=8, why_length_differs=GATE_IS_A_STEP
)
def skewed_cut(machine: Machine) -> None:
    """The dispatch cursor is read before the checkpoint is asked for, and the producer runs on in between."""

    def read_sampler_early(s: Value) -> tuple[Value, dict[str, Value]]:
        """The save begins: it reads the dispatch cursor while slots may still be entered."""
        return (s.window == OUTSIDE_WINDOW) & (s.saves_left > 0) & between_steps(s), {
            "window": READ_EARLY,
            "image_dispatch_cursor": s.dispatch_cursor,
            "saves_left": s.saves_left - 1,
        }

    def request_cut(s: Value) -> tuple[Value, dict[str, Value]]:
        """Only now is the checkpoint asked for."""
        return s.window == READ_EARLY, {"window": DRAINING}

    def read_sampler(s: Value) -> tuple[Value, dict[str, Value]]:
        """The dispatch cursor was read before."""
        return s.window == OPEN, {"window": SAMPLER_READ}

    machine.system(who="train pump", progress=False)(read_sampler_early)
    machine.actions["request_cut"] = replace(machine.actions["request_cut"], function=request_cut, progress=True)
    machine.replace("read_sampler", read_sampler)


@cut.variant(
    breaks="none_lost",
    scope="two_batches",
    length=16,
    table_length=11,
    why_length_differs=GATE_IS_A_STEP,
    with_variants=("skewed_cut",),
)
def silent_duplicate_guard(machine: Machine) -> None:
    """An admission that finds its step occupied is thrown away without an error: a whole fresh batch is gone."""

    def commit_admission(s: Value) -> tuple[Value, dict[str, Value]]:
        """As ever where the step is free; where it is not, the batch is dropped and the cursor moves on."""
        step = s.dispatch_cursor + 1
        free = step_is_free(s, step)
        return slots_enter(s) & (s.gate_passed == 1) & gate_open(s), {
            "gate_passed": 0,
            "dispatch_cursor": step,
            "ledger": each(
                s.prompts,
                lambda p: where(s.ledger[p] == RESERVED, where(free, ADMITTED, NO_ENTRY), s.ledger[p]),
            ),
            "stamp": each(s.prompts, lambda p: where((s.ledger[p] == RESERVED) & free, step, s.stamp[p])),
        }

    machine.replace("commit_admission", commit_admission)


@cut.variant(breaks="no_stall", scope="two_batches", length=7, table_length=7)
def gate_in_slot(machine: Machine) -> None:
    """The admitter waits for its gate inside a slot: the gate waits for the trainer, whose save waits for the slot."""
    machine.variable("admission_slot", 0, 1, "1: the admitter holds a slot and waits for its gate")

    def pass_gate(s: Value) -> tuple[Value, dict[str, Value]]:
        """The admitter enters its slot first, whatever the gate."""
        return slots_enter(s) & (s.admission_slot == 0) & any_reserved(s) & none_parked(s), {"admission_slot": 1}

    def commit_admission(s: Value) -> tuple[Value, dict[str, Value]]:
        """Inside the slot the gate opened at last: the admission is committed and the slot given back."""
        step = s.dispatch_cursor + 1
        return (s.admission_slot == 1) & gate_open(s) & step_is_free(s, step), {
            "admission_slot": 0,
            "dispatch_cursor": step,
            "ledger": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, ADMITTED, s.ledger[p])),
            "stamp": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, step, s.stamp[p])),
        }

    def open_cut(s: Value) -> tuple[Value, dict[str, Value]]:
        """The drain must wait for the admitter's slot too."""
        return (s.window == DRAINING) & (s.admission_slot == 0), {"window": OPEN}

    machine.replace("pass_gate", pass_gate)
    machine.replace("commit_admission", commit_admission)
    machine.replace("open_cut", open_cut)
    _forget_at_crash(machine, "admission_slot")
    assert machine.progress is not None
    machine.progress = replace(machine.progress, rank=lambda s: rank(s) + s.admission_slot)


@cut.variant(
    breaks="one_owner_on_disk", scope="one_batch", length=13, table_length=9, why_length_differs=GATE_IS_A_STEP
)
def no_subtraction(machine: Machine) -> None:
    """The ledger is stored as it stands, with the entries of groups that the buffer owns already."""

    def read_ledger(s: Value) -> tuple[Value, dict[str, Value]]:
        """The ledger is read whole."""
        return s.window == BUFFER_READ, {
            "window": LEDGER_READ,
            "image_ledger": each(s.prompts, lambda p: s.ledger[p]),
        }

    machine.replace("read_ledger", read_ledger)


@cut.variant(
    breaks="one_owner_in_memory",
    scope="one_batch",
    length=13,
    table_length=2,
    why_length_differs="counted from an empty run that first writes the old image; the table starts from that image",
    with_variants=("no_subtraction",),
)
def no_restore_subtraction(machine: Machine) -> None:
    """A restore takes ledger and buffer of an old image as they are: a group that is in both comes back twice."""
    restore = machine.actions["crash_and_restore"].function

    def crash_and_restore(s: Value) -> tuple[Value, dict[str, Value]]:
        """As ever, but the ledger is loaded without the subtraction."""
        guard, effects = restore(s)
        return guard, {**effects, "ledger": each(s.prompts, lambda p: s.image_ledger[p])}

    machine.replace("crash_and_restore", crash_and_restore)


@cut.variant(breaks="one_owner_on_disk", scope="one_batch", length=9, table_length=6, why_length_differs=FIVE_READS)
def reserve_apart(machine: Machine) -> None:
    """The loader cursor moves in one slot and the prompts are RESERVED in the next: a save falls between."""
    machine.variable("promised", 0, 1, "1: a batch is behind the cursor and not yet in the ledger")

    def reserve_batch(s: Value) -> tuple[Value, dict[str, Value]]:
        """The first half: the cursor moves."""
        ready_for_more = (s.cursor < s.batches) & not_(any_reserved(s)) & none_parked(s)
        return slots_enter(s) & ready_for_more & (s.promised == 0), {"cursor": s.cursor + 1, "promised": 1}

    def reserve_promised(s: Value) -> tuple[Value, dict[str, Value]]:
        """The second half: the prompts of the batch are RESERVED."""
        return slots_enter(s) & (s.promised == 1), {
            "promised": 0,
            "ledger": each(s.prompts, lambda p: where(s.batch_of[p] == s.cursor - 1, RESERVED, s.ledger[p])),
        }

    machine.replace("reserve_batch", reserve_batch)
    machine.system(who="rollout pump")(reserve_promised)
    _forget_at_crash(machine, "promised")


@cut.variant(
    breaks="stamps_complete",
    scope="one_batch",
    length=3,
    table_length=7,
    why_length_differs="checked between slots too, where the prototype looked at the disk only",
)
def phase_apart(machine: Machine) -> None:
    """The dispatch cursor moves in one slot, phases and stamps follow in the next."""
    machine.variable("half_admitted", 0, 1, "1: the cursor has moved and the phases have not")

    def pass_gate(s: Value) -> tuple[Value, dict[str, Value]]:
        """As ever, but not between the two halves."""
        guard = (s.gate_passed == 0) & (s.half_admitted == 0) & any_reserved(s) & none_parked(s) & gate_open(s)
        return guard, {"gate_passed": 1}

    def commit_admission(s: Value) -> tuple[Value, dict[str, Value]]:
        """The first half: the cursor moves."""
        step = s.dispatch_cursor + 1
        return slots_enter(s) & (s.gate_passed == 1) & gate_open(s) & step_is_free(s, step), {
            "gate_passed": 0,
            "half_admitted": 1,
            "dispatch_cursor": step,
        }

    def flip_phases(s: Value) -> tuple[Value, dict[str, Value]]:
        """The second half: the admission becomes ADMITTED and is stamped."""
        return slots_enter(s) & (s.half_admitted == 1), {
            "half_admitted": 0,
            "ledger": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, ADMITTED, s.ledger[p])),
            "stamp": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, s.dispatch_cursor, s.stamp[p])),
        }

    machine.replace("pass_gate", pass_gate)
    machine.replace("commit_admission", commit_admission)
    machine.system(who="rollout pump")(flip_phases)
    _forget_at_crash(machine, "half_admitted")


@cut.variant(
    breaks="one_owner_on_disk", scope="one_batch", length=14, table_length=10, why_length_differs=GATE_IS_A_STEP
)
def commit_outside_slot(machine: Machine) -> None:
    """A group becomes ready without a slot: between the read of the buffer and the removal it is in neither image."""

    def commit_group(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
        """Whenever the generations are done, cut or not."""
        return (s.ledger[p] == ADMITTED) & (s.slot[p] == UNREADY), {
            "slot": put(s.slot, p, READY),
            "lingering": put(s.lingering, p, 1),
        }

    machine.replace("commit_group", commit_group)


@cut.variant(breaks="image_equals_cut", scope="one_batch", length=9)
def reserve_outside_slot(machine: Machine) -> None:
    """The loader hands out a batch without a slot: it moves while the cut is read."""

    def reserve_batch(s: Value) -> tuple[Value, dict[str, Value]]:
        """Whenever the admitter is ready for more, cut or not."""
        return (s.cursor < s.batches) & not_(any_reserved(s)) & none_parked(s), {
            "cursor": s.cursor + 1,
            "ledger": each(s.prompts, lambda p: where(s.batch_of[p] == s.cursor, RESERVED, s.ledger[p])),
        }

    machine.replace("reserve_batch", reserve_batch)


@cut.variant(
    breaks="step_free_at_admission",
    scope="two_batches",
    length=14,
    table_length=10,
    why_length_differs=GATE_IS_A_STEP,
)
def cursor_from_version(machine: Machine) -> None:
    """A restore takes the dispatch cursor from the trainer's version instead of the image."""

    def restore(s: Value) -> tuple[Value, dict[str, Value]]:
        """As ever, but for the dispatch cursor."""
        guard, effects = crash_and_restore(s)
        return guard, {**effects, "dispatch_cursor": s.image_version - 1}

    machine.replace("crash_and_restore", restore)


@cut.variant(breaks="gate_open_at_commit", scope="two_batches", length=7)
def gate_unchecked(machine: Machine) -> None:
    """The admitter neither waits for the gate nor looks at it inside its slot."""

    def pass_gate(s: Value) -> tuple[Value, dict[str, Value]]:
        """Whatever the gate."""
        return (s.gate_passed == 0) & any_reserved(s) & none_parked(s), {"gate_passed": 1}

    def commit_admission(s: Value) -> tuple[Value, dict[str, Value]]:
        """Whatever the gate."""
        step = s.dispatch_cursor + 1
        return slots_enter(s) & (s.gate_passed == 1) & step_is_free(s, step), {
            "gate_passed": 0,
            "dispatch_cursor": step,
            "ledger": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, ADMITTED, s.ledger[p])),
            "stamp": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, step, s.stamp[p])),
        }

    machine.replace("pass_gate", pass_gate)
    machine.replace("commit_admission", commit_admission)


@cut.variant(breaks="trained_once", scope="one_batch", length=22)
def loader_from_version(machine: Machine) -> None:
    """A restore winds the loader back to the trainer's version: what was in flight is read and trained again."""

    def restore(s: Value) -> tuple[Value, dict[str, Value]]:
        """As ever, but for the loader cursor."""
        guard, effects = crash_and_restore(s)
        return guard, {**effects, "cursor": s.image_version}

    machine.replace("crash_and_restore", restore)
    # What is trained again counts again: the versions of a run go beyond its batches.
    for name in ("version", "image_version", "stamp", "image_stamp", "dispatch_cursor", "image_dispatch_cursor"):
        machine.variables[name] = replace(
            machine.variables[name], high=lambda scope: scope.batches * (scope.crashes + 1)
        )


@cut.variant(
    breaks="one_owner_on_disk", scope="one_batch", length=15, table_length=11, why_length_differs=GATE_IS_A_STEP
)
def lingering_entry(machine: Machine) -> None:
    """A claim leaves the ledger entry of a committed group: trained, it is still in the ledger, and comes back."""

    def claim_only(s: Value) -> tuple[Value, dict[str, Value]]:
        """As ever, but the ledger is left alone."""
        guard, effects = claim(s)
        return guard, {"slot": effects["slot"]}

    machine.replace("claim", claim_only)


@cut.variant(breaks="permits_balance", scope="one_batch", length=7)
def permit_kept_at_finish(machine: Machine) -> None:
    """A finished step does not give its permits back: after a few steps nothing can be dispatched."""

    def finish_only(s: Value) -> tuple[Value, dict[str, Value]]:
        """As ever, but for the permits."""
        guard, effects = finish_step(s)
        return guard, {**effects, "permits": s.permits}

    machine.replace("finish_step", finish_only)
