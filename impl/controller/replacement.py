"""What takes the place of a group that was given up: a spare, a group of a later step, or nobody.

    given up ─ spares ─→ in-flight permit (wait, no slot) → borrow, or substitute (slot) → its own task
             └ none ───→ shrink (in the slot that counted the last failure)

Between its last failure and its end a group given up stays ADMITTED and keeps its buffer slot; a save in between finds
it pending, with its failures counted, and a restored run attempts it once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import steps
from ..run.spare_pool import UNREAD, Spare
from .parts import RunParts

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..keys import GroupId
    from ..run.slots import Slot


@dataclass(frozen=True, slots=True)
class Successor:
    """The group that generates in the place of another, and its prompt."""

    group: GroupId
    prompt: Any


class Replacement:
    """One method an action, each inside the slot whose cut it is given; `fill` chooses between them."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts

    def fill(self, cut: Cut, group: GroupId) -> Successor | None:
        """Give the place of `group` to a spare if there is one, else shrink its step; the group that generates next."""
        parts = self._parts
        if parts.pool.next is None:
            self.shrink(cut, group)
            return None
        lender = self.lender(group) if parts.config.borrow else None
        return self.substitute(cut, group) if lender is None else self.borrow(cut, group, lender)

    def substitute(self, cut: Cut, group: GroupId) -> Successor:
        """A spare fills the place itself: admission, stamp, slot and permit. The old group is dropped, `replaced`."""
        step = self._parts.buffer.slots[group].step
        spare, successor = self._replaced(cut, group, step)
        self._parts.barrier.emit("substitute", group=group, spare=successor.group, key=spare.key, step=step)
        return successor

    def borrow(self, cut: Cut, group: GroupId, lender: Slot) -> Successor:
        """The lender moves up into the hole, and the spare fills the place that it leaves; see `lender`."""
        hole = self._parts.buffer.slots[group].step
        assert hole is not None
        assert lender.step is not None
        spare, successor = self._replaced(cut, group, lender.step)
        self._parts.buffer.restamp(cut, lender.group, hole)
        self._parts.barrier.emit(
            "borrow",
            group=group, spare=successor.group, key=spare.key, lender=lender.group, step=hole, later=lender.step,
        )  # fmt: skip
        return successor

    def shrink(self, cut: Cut, group: GroupId) -> None:
        """Drop a group for good (`failed`): slot, permit, ledger entry and its step's target change together."""
        parts = self._parts
        steps.shrink(cut, parts.ledger, parts.buffer, parts.sampler, group)
        parts.progress.forget_failures(cut, group)

    def lender(self, group: GroupId) -> Slot | None:
        """A ready, unclaimed group of the furthest step behind that of `group`; None without one, or without stamps.

        A hole of a step that has passed cannot be: the step waits for it.
        """
        parts = self._parts
        hole = parts.buffer.slots[group].step
        if hole is None or hole < parts.progress.version:
            return None
        later = [
            slot
            for slot in parts.buffer.slots.values()
            if slot.ready and not slot.claimed and slot.step is not None and slot.step > hole
        ]
        return max(later, key=lambda slot: (slot.step or 0, -slot.group), default=None)

    def _replaced(self, cut: Cut, group: GroupId, step: int | None) -> tuple[Spare, Successor]:
        """Drop `group`, and admit the next spare for `step` with its buffer slot."""
        parts = self._parts
        spare = parts.pool.next
        assert spare is not None
        # Read before anything moves: a row that cannot be read leaves the pool and the place as they are.
        prompt = self.prompt_of(spare)
        entry = parts.ledger.replace(cut, group, spare.key, spare.payload, step)
        parts.pool.take(cut)
        parts.buffer.hand_over(cut, group, entry.group, entry.key, step, parts.progress.version)
        parts.progress.forget_failures(cut, group)
        return spare, Successor(entry.group, prompt)

    def prompt_of(self, spare: Spare) -> Any:
        """The prompt of a spare: as it was read, else its stored payload, else its row of the dataset."""
        if spare.prompt is not UNREAD:
            return spare.prompt
        if spare.payload is not None:
            return spare.payload
        return self._parts.loader.payload(spare.key)
