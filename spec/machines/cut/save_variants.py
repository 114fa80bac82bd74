"""Variants of the cut in how a save reads, publishes and restores."""

from __future__ import annotations

from dataclasses import replace

from ...language.expression import Value, each, where
from ...language.machine import Machine
from . import cut
from .rollout import gate_open, step_is_free
from .saving import crash_and_restore, read_buffer
from .state import (
    ADMITTED,
    BUFFER_READ,
    DRAINING,
    FULL,
    LEDGER_READ,
    LOADER_READ,
    NO_ENTRY,
    OPEN,
    OUTSIDE_WINDOW,
    POOL_READ,
    READ_EARLY,
    READY,
    RESERVED,
    SAMPLER_READ,
    SNAPSHOT,
    WRITING,
    between_steps,
)
from .training import write_back
from .variants import GATE_IS_A_STEP, Effects, widen_steps

FULL_SAVE_FIRST = "a durable full save must come first, each save reads its artifacts one a step"
SIX_READS = "six artifacts are read one a step, where the prototype counted them as two reads"


@cut.variant(breaks="one_owner_on_disk", scope="one_batch", length=10, table_length=6, why_length_differs=SIX_READS)
def cursor_ahead(machine: Machine) -> None:
    """The checkpoint holds the moved cursor and the finished groups, and no ledger: what is in flight has no owner."""

    def read_ledger(s: Value) -> Effects:
        """There is no ledger to read."""
        return s.window == BUFFER_READ, {"window": LEDGER_READ}

    machine.replace("read_ledger", read_ledger)


@cut.variant(
    breaks="cursor_covers_stamps", scope="one_batch", length=13, table_length=8, why_length_differs=GATE_IS_A_STEP
)
def skewed_cut(machine: Machine) -> None:
    """The dispatch cursor is read before the checkpoint is asked for, and the producer runs on in between."""

    def read_sampler_early(s: Value) -> Effects:
        """The save begins: it reads the dispatch cursor while slots may still be entered."""
        return (s.window == OUTSIDE_WINDOW) & (s.saves_left > 0) & between_steps(s), {
            "window": READ_EARLY,
            "image_dispatch_cursor": s.dispatch_cursor,
            "saves_left": s.saves_left - 1,
        }

    def request_cut(s: Value) -> Effects:
        """Only now is the checkpoint asked for."""
        return s.window == READ_EARLY, {"window": DRAINING}

    def read_sampler(s: Value) -> Effects:
        """The dispatch cursor was read before."""
        return s.window == OPEN, {"window": SAMPLER_READ}

    machine.system(who="train pump", progress=False)(read_sampler_early)
    machine.actions["request_cut"] = replace(machine.actions["request_cut"], function=request_cut, progress=True)
    machine.replace("read_sampler", read_sampler)


@cut.variant(
    breaks="none_lost",
    scope="two_batches",
    length=17,
    table_length=11,
    why_length_differs=GATE_IS_A_STEP,
    with_variants=("skewed_cut",),
)
def silent_duplicate_guard(machine: Machine) -> None:
    """An admission that finds its step occupied is thrown away without an error: a whole fresh batch is gone."""

    def commit_admission(s: Value) -> Effects:
        """As ever where the step is free; where it is not, the batch is dropped and the cursor moves on."""
        step = s.dispatch_cursor + 1
        free = step_is_free(s, step)
        return (s.gate_passed == 1) & gate_open(s), {
            "gate_passed": 0,
            "dispatch_cursor": step,
            "ledger": each(
                s.prompts, lambda p: where(s.ledger[p] == RESERVED, where(free, ADMITTED, NO_ENTRY), s.ledger[p])
            ),
            "stamp": each(s.prompts, lambda p: where((s.ledger[p] == RESERVED) & free, step, s.stamp[p])),
        }

    machine.replace("commit_admission", commit_admission)


@cut.variant(
    breaks="one_owner_on_disk", scope="one_batch", length=14, table_length=9, why_length_differs=GATE_IS_A_STEP
)
def no_subtraction(machine: Machine) -> None:
    """The ledger is stored as it stands, with the entries of groups that the buffer owns already."""

    def read_ledger(s: Value) -> Effects:
        """The ledger is read whole."""
        return s.window == BUFFER_READ, {
            "window": LEDGER_READ,
            "image_ledger": each(s.prompts, lambda p: s.ledger[p]),
            "image_tries": each(s.prompts, lambda p: s.tries[p]),
        }

    machine.replace("read_ledger", read_ledger)


@cut.variant(
    breaks="one_owner_in_memory",
    scope="one_batch",
    length=14,
    table_length=2,
    why_length_differs="counted from an empty run that first writes the old image; the table starts from that image",
    with_variants=("no_subtraction",),
)
def no_restore_subtraction(machine: Machine) -> None:
    """A restore takes ledger and buffer of an old image as they are: a group that is in both comes back twice."""

    def restore(s: Value) -> Effects:
        """As ever, but the ledger is loaded without the subtraction."""
        guard, effects = crash_and_restore(s)
        return guard, {**effects, "ledger": each(s.prompts, lambda p: s.image_ledger[p])}

    machine.replace("crash_and_restore", restore)


@cut.variant(breaks="one_owner_on_disk", scope="spares", length=14, table_length=9, why_length_differs=GATE_IS_A_STEP)
def pool_not_saved(machine: Machine) -> None:
    """The spare pool is not part of the checkpoint: its prompts are behind the cursor and nowhere."""

    def read_pool(s: Value) -> Effects:
        """There is no pool to read."""
        return s.window == LOADER_READ, {"window": POOL_READ}

    machine.replace("read_pool", read_pool)


@cut.variant(
    breaks="one_owner_on_disk", scope="snapshots", length=24, table_length=10, why_length_differs=FULL_SAVE_FIRST
)
def claimed_forgotten(machine: Machine) -> None:
    """A rollout snapshot holds the ready groups and not the claimed ones: a crash before the step ends loses them."""

    def read_ready_only(s: Value) -> Effects:
        """Only what is ready and unclaimed."""
        guard, effects = read_buffer(s)
        return guard, {**effects, "image_ready": each(s.prompts, lambda p: where(s.slot[p] == READY, 1, 0))}

    machine.replace("read_buffer", read_ready_only)


@cut.variant(
    breaks="trained_matches_trainer", scope="snapshots", length=25, table_length=11, why_length_differs=FULL_SAVE_FIRST
)
def snapshot_past_anchor(machine: Machine) -> None:
    """A rollout snapshot is taken at any version: it counts work that the trainer restored with it has not done."""
    read = machine.actions["read_sampler"].function
    skip = machine.actions["skip_snapshot"].function

    def read_any(s: Value) -> Effects:
        """As soon as there is a durable full save, whatever the trainer has done since."""
        _, effects = read(s)
        return (s.window == OPEN) & ((s.kind == FULL) | (s.anchor >= 0)), effects

    def skip_without_save(s: Value) -> Effects:
        """Only when there is no durable full save at all."""
        _, effects = skip(s)
        return (s.window == OPEN) & (s.kind == SNAPSHOT) & (s.anchor < 0), effects

    machine.replace("read_sampler", read_any)
    machine.replace("skip_snapshot", skip_without_save)


@cut.variant(breaks="restore_is_a_fixed_point", scope="windowed_tight", length=13)
def unready_weights_saved(machine: Machine) -> None:
    """The image holds the weights of unready slots too, which a restore drops: the next save writes something else."""

    def read_all_weights(s: Value) -> Effects:
        """Of every slot, ready or not."""
        guard, effects = read_buffer(s)
        return guard, {**effects, "image_weight": each(s.prompts, lambda p: s.weight[p])}

    machine.replace("read_buffer", read_all_weights)


@cut.variant(breaks="image_equals_cut", scope="background", length=17)
def write_back_in_place(machine: Machine) -> None:
    """Derived columns are written into the committed tensors: an image that still refers to them changes with them."""

    def write_into_rows(s: Value) -> Effects:
        """As ever, but the rows of an image being written are the same tensors."""
        guard, effects = write_back(s)
        captured = (s.window == WRITING) | (s.window >= BUFFER_READ)
        return guard, {**effects, "image_altered": where(captured, 1, s.image_altered)}

    machine.replace("write_back", write_into_rows)


@cut.variant(
    breaks="step_free_at_admission", scope="two_batches", length=15, table_length=10, why_length_differs=GATE_IS_A_STEP
)
def cursor_from_version(machine: Machine) -> None:
    """A restore takes the dispatch cursor from the trainer's version instead of the image."""

    def restore(s: Value) -> Effects:
        """As ever, but for the dispatch cursor."""
        guard, effects = crash_and_restore(s)
        return guard, {**effects, "dispatch_cursor": s.image_version - 1}

    machine.replace("crash_and_restore", restore)


@cut.variant(
    breaks="none_lost",
    scope="epochs",
    length=16,
    table_length=9,
    why_length_differs="six artifacts are read one a step, and the epoch here has two batches",
)
def exhausted_bit_missing(machine: Machine) -> None:
    """The loader's exhausted bit is not saved: restored at the end of an epoch, it takes the next one for empty."""
    reserve = machine.actions["reserve_batch"].function

    def restore(s: Value) -> Effects:
        """As ever, but nobody knows any more that the epoch was over."""
        guard, effects = crash_and_restore(s)
        return guard, {**effects, "epoch_over": 0}

    def reserve_batch(s: Value) -> Effects:
        """As ever, within the epoch."""
        guard, effects = reserve(s)
        return guard & (s.cursor < (s.epoch + 1) * s.batches), effects

    def empty_epoch(s: Value) -> Effects:
        """The loader, asked for more at its end, ends a second time: a whole epoch is skipped."""
        at_end = (s.epoch_over == 0) & (s.cursor == (s.epoch + 1) * s.batches) & (s.epoch < s.epochs - 1)
        return at_end, {"epoch": s.epoch + 1, "cursor": s.cursor + s.batches, "epoch_over": 1}

    machine.replace("crash_and_restore", restore)
    machine.replace("reserve_batch", reserve_batch)
    machine.remove("divert_batch")
    machine.system(who="rollout pump", slot=True)(empty_epoch)


@cut.variant(breaks="trained_once", scope="one_batch", length=23)
def loader_from_version(machine: Machine) -> None:
    """A restore winds the loader back to the trainer's version: what was in flight is read and trained again."""

    def restore(s: Value) -> Effects:
        """As ever, but for the loader cursor."""
        guard, effects = crash_and_restore(s)
        over = where(s.image_version == s.batches, 1, 0)
        return guard, {**effects, "cursor": s.image_version, "epoch": 0, "epoch_over": over}

    machine.replace("crash_and_restore", restore)
    widen_steps(machine)
