"""The records of the replay buffer: a slot, the open claim, the snapshot a checkpoint takes, and how they balance."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleancut_leaf.words import counted

from ..arguments import require_count, require_group, require_items, require_key, require_kind, require_step
from ..errors import InvariantViolated
from ..rows.plane import DataPlane, Rows

if TYPE_CHECKING:
    from ..keys import GroupId, Key


@dataclass(frozen=True)
class Slot:
    """One place of the buffer. Never changed: a slot that becomes ready or claimed is replaced by another record."""

    group: GroupId
    key: Key
    #: The train step the group was admitted for; None with a sampler that does not stamp.
    step: int | None
    #: The trainer version when the group was dispatched.
    weight: int
    #: Whether the rows are in the data plane. Until then the ledger owns the group.
    ready: bool = False
    #: Whether the open train step has it. On disk a claimed slot is a ready one.
    claimed: bool = False


@dataclass(frozen=True)
class BufferSnapshot:
    """The buffer index at one instant, by reference: the records are immutable and the mapping is a copy."""

    slots: Mapping[GroupId, Slot]
    capacity: int

    @property
    def claimed(self) -> frozenset[GroupId]:
        """The groups of the open train step."""
        return frozenset(group for group, slot in self.slots.items() if slot.claimed)

    def __contains__(self, group: object) -> bool:
        """Whether the buffer owns `group`: ready or claimed. An unready slot belongs to the ledger's entry."""
        slot = self.slots.get(group)  # type: ignore[call-overload]
        return slot is not None and slot.ready


def require_slot(name: str, group: GroupId, key: Key, step: int | None, weight: int) -> None:
    """UsageError unless these make a slot; `name` is what the caller calls the group."""
    require_group(name, group)
    require_key("key", key)
    require_step(step)
    require_count("weight", weight, least=0)


def checked_slots(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """`slots` as a tuple; UsageError unless each is one."""
    found = require_items("slots", slots, "slots, as a snapshot has them")
    for slot in found:
        require_kind("one of slots", slot, Slot, "a Slot, as a snapshot has it")
    return found


class Claim:
    """The groups the open train step has taken.

    Rows are looked up when they are asked for, on the thread that trains, so that a plane can make that thread's
    stream wait for them. Derived columns live here, not in the plane; they are recomputed after a restore.
    """

    def __init__(self, groups: tuple[GroupId, ...], step: int, plane: DataPlane) -> None:
        self.groups = groups
        self.step = step
        self.open = True
        self._plane = plane
        self._derived: dict[GroupId, Rows] = {}

    def rows(self, group: GroupId) -> Rows:
        """A claimed group's rows, with the columns written back to it."""
        self._require_mine(group)
        derived = self._derived.get(group)
        return self._plane.rows(group) if derived is None else derived

    def write_back(self, group: GroupId, columns: Rows) -> None:
        """Put a record with `columns` in the place of a group's rows; `ReplayBuffer.write_back` calls it in a slot."""
        self._derived[group] = self._plane.derive(self.rows(group), columns)

    def close(self) -> None:
        """Forget the rows: the train step is over."""
        self.open = False
        self._derived = {}

    def _require_mine(self, group: GroupId) -> None:
        require_group("group", group)
        if not self.open or group not in self.groups:
            raise InvariantViolated(
                f"group {group} is not in the claim of step {self.step}"
                f"{'' if self.open else ', which is finished'}. Rows of a claim may be used until its step ends; keep "
                "a copy of what is needed later."
            )


def require_balanced(
    slots: Mapping[GroupId, Slot], placed: int, groups: Iterable[GroupId], entries: Container[GroupId] | None
) -> None:
    """Raise InvariantViolated unless every slot has a permit, every ready one rows, every other one a ledger entry.

    `placed` permits, rows of `groups`, pending `entries` if a ledger is known.
    """
    if placed != len(slots):
        raise InvariantViolated(
            f"{counted(placed, 'permit is', 'permits are')} placed and the buffer has {counted(len(slots), 'slot')}. "
            "Slot and permit must come and go in one section; this is a fault of the library."
        )
    with_rows = set(groups)
    ready = {group for group, slot in slots.items() if slot.ready}
    if with_rows != ready:
        raise InvariantViolated(
            f"groups {sorted(with_rows ^ ready)} are in only one of the buffer index and the data plane. Rows that "
            "nobody names must not remain; this is a fault of the library, or the plane was changed directly."
        )
    dropped = [group for group in slots if group not in ready and entries is not None and group not in entries]
    if dropped:
        raise InvariantViolated(
            f"groups {dropped} have a slot and a permit, and no entry in the ledger: they were dropped without their "
            "slot. Give up both in one section, as `steps.give_up` does."
        )
