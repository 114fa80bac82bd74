"""The run, as the cut machine has it and as the library has it, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from impl.keys import Key
from spec.machines.cut import WEIGHT_FIFO, WINDOWED
from spec.machines.cut.state import ADMITTED, CLAIMED, DROPPED, NO_ENTRY, NO_SLOT, READY, RESERVED, TRAINED, UNREADY
from spec.machines.cut.state import OPEN as CUT_OPEN
from spec.machines.cut.state import WRITING as CUT_WRITING

from ..follower import View
from .prompts import Prompts

if TYPE_CHECKING:
    from impl import Controller

LEDGER_SAYS = {RESERVED: "RESERVED", ADMITTED: "ADMITTED"}
#: The library's samplers of which a rule looks at weights.
SELECT_BY_WEIGHT = ("weight_fifo", "windowed")
_SLOT_SAYS = {UNREADY: "unready", READY: "ready", CLAIMED: "claimed"}


def cut_of_machine(state: Any) -> View:
    """The run as the cut machine has it."""
    return {
        "cursor": state.cursor,
        "epoch": state.epoch,
        "exhausted": bool(state.epoch == state.epochs - 1 and state.epoch_over),
        "dispatch cursor": state.dispatch_cursor,
        "shortfalls": tuple((step, missing) for step, missing in enumerate(state.shortfall) if missing),
        "drop count": state.dropped,
        "ledger": frozenset((p, LEDGER_SAYS[e]) for p, e in enumerate(state.ledger) if e != NO_ENTRY),
        "slots": frozenset((p, _SLOT_SAYS[e]) for p, e in enumerate(state.slot) if e != NO_SLOT),
        "spares": frozenset(p for p, e in enumerate(state.spare) if e),
        "trained": frozenset(p for p, e in enumerate(state.account) if e == TRAINED),
        "dropped": frozenset(p for p, e in enumerate(state.account) if e == DROPPED),
        "stamps": frozenset((p, e) for p, e in enumerate(state.stamp) if e >= 0),
        "weights": frozenset((p, e) for p, e in enumerate(state.weight) if e >= 0 and selects_by_weight(state)),
        "version": state.version,
        "permits": state.permits,
        "window open": state.window >= CUT_OPEN and state.window != CUT_WRITING,
    }


def cut_of_implementation(controller: Controller, prompts: Prompts) -> View:
    """The run as `impl` has it, with groups and keys named by the machine's prompts."""
    ledger, buffer, sampler = controller.ledger, controller.buffer, controller._parts.sampler
    entries = {prompts.of_group(group): entry for group, entry in ledger.entries.items()}
    slots = {prompts.of_group(group): slot for group, slot in buffer.slots.items()}
    stamps = {p: entry.step for p, entry in entries.items()} | {p: slot.step for p, slot in slots.items()}
    loader = controller._parts.loader
    where, of_sampler = loader.state(), sampler.state()
    known = prompts.known().items()
    return {
        "cursor": batches_handed_out(where.epoch, where.position, where.batch_size, where.dataset_length),
        "epoch": where.epoch,
        "exhausted": where.exhausted,
        "dispatch cursor": of_sampler.cursor,
        "shortfalls": tuple(of_sampler.shortfalls),
        "drop count": of_sampler.dropped,
        "ledger": frozenset((p, entry.phase.name) for p, entry in entries.items()),
        "slots": frozenset((p, _slot_says(slot)) for p, slot in slots.items()),
        "spares": frozenset(prompts.of_key(spare.key) for spare in controller.pool.spares),
        "trained": frozenset(p for key, p in known if ledger.accounts.is_trained(Key(*key))),
        "dropped": frozenset(p for key, p in known if Key(*key) in ledger.accounts.dropped),
        "stamps": frozenset((p, step) for p, step in stamps.items() if step is not None),
        # Every dispatch notes the version; it is compared where a rule looks at it.
        "weights": frozenset((p, slot.weight) for p, slot in slots.items() if sampler.name in SELECT_BY_WEIGHT),
        "version": controller.progress.version,
        # A permit that a task holds on its way to a slot is free to the machine, which takes it with the slot.
        "permits": buffer.capacity - len(slots),
        "window open": controller.barrier._core.cut is not None,
    }


def selects_by_weight(state: Any) -> bool:
    """Whether a rule of the machine's sampler looks at weights."""
    return bool(state.sampler in (WEIGHT_FIFO, WINDOWED))


def batches_handed_out(epoch: int, position: int, batch_size: int, length: int) -> int:
    """Batches over all epochs; the last one of an epoch may be short."""
    return int(epoch * -(-length // batch_size) + -(-position // batch_size))


def _slot_says(slot: Any) -> str:
    return "claimed" if slot.claimed else "ready" if slot.ready else "unready"
