"""The replay buffer: an index of immutable slots over a data plane, and the permits that bound it.

    acquire_permit()  →  reserve   →  commit   →  claim   →  finish
    outside a slot       unready      ready                  rows cleared, permit back
                         ↘ release_unready, abort_stale      ↘ evict (ready, unclaimed)
                         ↘ hand_over (to a spare)

The permit belongs to the slot from `reserve` on and returns with `finish`, `evict`, `abort_stale` or
`release_unready`, never at `claim`: a snapshot of claimed groups would exceed the capacity when it is restored.

A group is owned by the buffer once its slot is ready; until then the ledger owns it. With a ledger bound, the steps
that would leave a second owner behind (claim, evict) remove its entry themselves, in their own section, so that no
caller can forget it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cleancut_leaf.words import counted

from ..arguments import (
    require_abilities,
    require_count,
    require_cut,
    require_group,
    require_groups,
    require_kind,
    require_text,
)
from ..errors import CheckpointIncompatible, InvariantViolated, UsageError
from ..rows.plane import DataPlane, Rows
from ..waiting import Wakeup
from .pending_groups import GroupIndex
from .permits import Permit, PermitPool, require_permit
from .slots import BufferSnapshot, Claim, Slot, checked_slots, require_balanced, require_slot

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier, Cut
    from ..keys import GroupId, Key
    from .ledger import Ledger

__all__ = ["BufferSnapshot", "Claim", "ReplayBuffer", "Slot"]


class ReplayBuffer:
    """`capacity` slots for groups on their way from generation to training.

    Every method that takes a `cut` runs inside a mutation slot of `barrier` and is synchronous. A refusal changes
    nothing.
    """

    # Invariant one_owner_in_memory: a ready slot's group has rows in the plane, an unready one's has none.
    # Invariant permits_balance: one permit is placed for each slot.
    # Invariant steps_agree: `_of_step` holds what a pass over `_slots` would find; `_put` and `_take_out` keep both.
    _slots: dict[GroupId, Slot]
    _of_step: GroupIndex[int | None]
    # Invariant results_may_be_late: every group whose slot went before it was ready, for as long as this object lives.
    _given_up: set[GroupId]

    def __init__(
        self, barrier: CheckpointBarrier, capacity: int, plane: DataPlane, ledger: Ledger | None = None
    ) -> None:
        require_abilities("barrier", barrier, ("name", "emit", "mutation"), "a CheckpointBarrier")
        require_abilities("plane", plane, ("commit", "rows", "derive", "groups", "clear"), "a DataPlane")
        self.barrier = barrier
        self.plane = plane
        self._permits = PermitPool(capacity, "replay buffer")
        self._slots = {}
        self._of_step = GroupIndex()
        self._given_up = set()
        self._claim: Claim | None = None
        self._changed = Wakeup()
        self._ledger: Ledger | None = None
        if ledger is not None:
            self.bind_ledger(ledger)

    def bind_ledger(self, ledger: Ledger) -> None:
        """Let the buffer check ownership against `ledger` and keep its accounts. A Controller always does this."""
        require_abilities("ledger", ledger, ("barrier", "entries", "accounts"), "the Ledger of the run")
        if self._ledger is not None and self._ledger is not ledger:
            raise UsageError("the replay buffer is bound to another ledger already. One run has one ledger.")
        if ledger.barrier is not self.barrier:
            raise UsageError(
                "buffer and ledger were made with different barriers. A checkpoint is one cut of all of them; give "
                "both the same barrier."
            )
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger | None:
        """The ledger this buffer was bound to."""
        return self._ledger

    @property
    def capacity(self) -> int:
        return self._permits.capacity

    @property
    def permits(self) -> int:
        """Permits that nobody holds: places for further groups."""
        return self._permits.free

    @property
    def waiting_for_permit(self) -> int:
        """How many dispatches wait for a permit."""
        return self._permits.waiting

    @property
    def slots(self) -> Mapping[GroupId, Slot]:
        """The index, read-only: unready slots in dispatch order, ready ones in order of arrival."""
        return MappingProxyType(self._slots)

    def groups_of_step(self, step: int) -> tuple[GroupId, ...]:
        """The groups whose slot is stamped with `step`, oldest first."""
        return self._of_step.of(step)

    @property
    def given_up_in_flight(self) -> Set[GroupId]:
        """Groups whose slot went before they were ready: whoever made them may still bring rows for these ids."""
        return frozenset(self._given_up)

    @property
    def claim_open(self) -> bool:
        """Whether a train step has claimed groups and has not finished."""
        return self._claim is not None

    @property
    def dispatch_open(self) -> bool:
        """Whether somebody waits for a permit, or holds one that has not become a slot."""
        return self._permits.unspent > 0 or self._permits.waiting > 0

    async def wait_changed(self) -> None:
        """Wait for the next change of the index. Nothing is handed over: look at `slots` again afterwards."""
        await self._changed.wait()

    def wake(self) -> None:
        """Wake everybody in `wait_changed`, for a change elsewhere that a train step may wait for."""
        self._changed.wake()

    # -- permits --------------------------------------------------------------------------------------------------

    async def acquire_permit(self) -> Permit:
        """Wait for a place, first come first served. Outside any slot: what frees a place needs one."""
        return await self._permits.acquire()

    def give_back(self, permit: Permit) -> None:
        """Return a permit that was not used for a slot; does nothing for one that was."""
        require_permit(permit)
        permit.give_back()

    # -- a group's way --------------------------------------------------------------------------------------------

    def reserve(self, cut: Cut, group: GroupId, key: Key, step: int | None, weight: int, permit: Permit) -> Slot:
        """Turn a permit into an unready slot; the action `dispatch`."""
        require_cut(cut, self.barrier)
        require_permit(permit)
        self._require_dispatchable(group, key, step, weight)
        permit.spend(self._permits)
        slot = self._put(Slot(group, key, step, weight))
        self.barrier.emit("dispatch", group=group)
        return slot

    def commit(self, cut: Cut, group: GroupId, staged: Any, ready: Any = None) -> None:
        """Make staged rows visible and the slot ready; from here on the buffer owns the group.

        The ledger's entry stays until `Ledger.remove_committed`, which needs no slot.
        """
        require_cut(cut, self.barrier)
        require_group("group", group)
        slot = self._slots.get(group)
        if slot is None or slot.ready:
            raise InvariantViolated(
                f"group {group} was to be committed, but it {'has no slot' if slot is None else 'is ready already'}. "
                "A late result of an aborted or earlier attempt must not be added; check that the slot is there and "
                "unready, inside the section that commits."
            )
        if self._ledger is not None and group not in self._ledger.entries:
            raise InvariantViolated(
                f"group {group} was to be committed, but the ledger does not own it any more. It was dropped "
                "meanwhile; its slot should have gone in the same section."
            )
        self.plane.commit(cut, group, staged, ready)
        # Taken out and put in again, so that the index lists ready slots in order of arrival.
        self._take_out(group)
        self._put(replace(slot, ready=True))
        self.barrier.emit("commit_group", group=group)
        self._changed.wake()

    def claim(self, cut: Cut, groups: Iterable[GroupId], step: int) -> Claim:
        """Give ready groups to the train step `step`; their slots and permits stay until `finish`."""
        require_cut(cut, self.barrier)
        chosen = require_groups("groups", groups)
        require_count("step", step, least=0)
        if self._claim is not None:
            raise InvariantViolated(
                f"step {step} was to claim groups while the claim of step {self._claim.step} is open. One train step "
                "runs at a time."
            )
        if not chosen or len(set(chosen)) != len(chosen):
            raise UsageError(f"groups: {chosen!r} given; a claim takes at least one group, and each of them once.")
        self._require_ready(chosen, f"claimed by step {step}")
        claim = Claim(chosen, step, self.plane)
        for group in chosen:
            self._put(replace(self._slots[group], claimed=True))
            self._forget_entry(group)
        self._claim = claim
        self.barrier.emit("claim", groups=chosen, step=step)
        self._changed.wake()
        return claim

    def write_back(self, cut: Cut, claim: Claim, group: GroupId, columns: Rows) -> None:
        """Add derived columns (advantages, for one) to a claimed group: a new record takes the place of the old."""
        require_cut(cut, self.barrier)
        self._require_open(claim)
        claim.write_back(group, columns)
        self.barrier.emit("write_back", group=group)

    def finish(self, cut: Cut, claim: Claim) -> None:
        """The train step succeeded: its groups are trained, their rows cleared, their permits back."""
        require_cut(cut, self.barrier)
        self._require_open(claim)
        if self._ledger is not None:
            self._account_for([self._slots[group].key for group in claim.groups], self._ledger)
        for group in claim.groups:
            self._remove(group)
        claim.close()
        self._claim = None
        self.barrier.emit("finish_step", groups=claim.groups, step=claim.step)
        self._changed.wake()

    def evict(self, cut: Cut, group: GroupId, reason: str = "stale_ready") -> None:
        """Drop a ready, unclaimed group, by default because it is too old; never an unready slot."""
        require_cut(cut, self.barrier)
        require_text("reason", reason, "stale_ready")
        self._require_ready((group,), "evicted")
        if self._ledger is not None:
            # First, because it refuses a key that is settled already.
            self._ledger.accounts.drop(self._slots[group].key, reason)
        self._forget_entry(group)
        self._remove(group)
        self.barrier.emit("evict", group=group, reason=reason)
        self._changed.wake()

    def abort_stale(self, cut: Cut, group: GroupId) -> None:
        """Give up a group in flight that is too old (`stale_inflight`): slot, permit and ledger entry go together."""
        require_cut(cut, self.barrier)
        self._require_unready(group, "aborted")
        if self._ledger is not None and group not in self._ledger.entries:
            raise InvariantViolated(
                f"group {group} was to be aborted in flight, but the ledger does not own it. It was dropped meanwhile; "
                "its slot should have gone in the same section."
            )
        self._remove(group)
        self.barrier.emit("abort_stale", group=group)
        if self._ledger is not None:
            self._ledger.drop(cut, group, "stale_inflight")
        self._changed.wake()

    def hand_over(self, cut: Cut, group: GroupId, successor: GroupId, key: Key, step: int | None, weight: int) -> Slot:
        """Give the place of a group that was given up, permit included, to the spare that `Ledger.replace` admitted."""
        require_cut(cut, self.barrier)
        self._require_unready(group, "replaced")
        self._require_dispatchable(successor, key, step, weight, "successor")
        self._given_up.add(group)
        self._take_out(group)
        return self._put(Slot(successor, key, step, weight))

    def restamp(self, cut: Cut, group: GroupId, step: int) -> None:
        """Move a ready, unclaimed group to another train step; it keeps its order of arrival. A part of `borrow`."""
        require_cut(cut, self.barrier)
        require_count("step", step, least=0)
        self._require_ready((group,), f"moved to step {step}")
        self._put(replace(self._slots[group], step=step))
        self._forget_entry(group)
        self._changed.wake()

    def release_unready(self, cut: Cut, group: GroupId) -> None:
        """Give up the slot of a group in flight; the caller says in the same section what becomes of the group."""
        require_cut(cut, self.barrier)
        self._require_unready(group, "given up")
        self._remove(group)
        self._changed.wake()

    @staticmethod
    def _account_for(keys: list[Key], ledger: Ledger) -> None:
        """Count keys as trained: all of them, or none if one is settled already."""
        for key in keys:
            before = ledger.accounts.settled(key)
            if before is not None:
                raise InvariantViolated(
                    f"{key} was to be counted as trained, but it already {before}. Two groups were made of one prompt; "
                    "restore a checkpoint from before that."
                )
        for key in keys:
            ledger.accounts.train(key)

    def _put(self, slot: Slot) -> Slot:
        """Add a slot, or put it in the place of the one that its group has."""
        before = self._slots.get(slot.group)
        if before is not None:
            self._of_step.discard(before.step, slot.group)
        self._slots[slot.group] = slot
        self._of_step.add(slot.step, slot.group)
        return slot

    def _take_out(self, group: GroupId) -> None:
        self._of_step.discard(self._slots.pop(group).step, group)

    def _remove(self, group: GroupId) -> None:
        if not self._slots[group].ready:
            self._given_up.add(group)
        self._take_out(group)
        self.plane.clear(group)
        self._permits.return_place()

    def _forget_entry(self, group: GroupId) -> None:
        if self._ledger is not None:
            self._ledger.remove_committed(group)

    def _require_ready(self, groups: Iterable[GroupId], purpose: str) -> None:
        for group in groups:
            require_group("group", group)
            slot = self._slots.get(group)
            if slot is None or not slot.ready or slot.claimed:
                state = "has no slot" if slot is None else "is claimed already" if slot.claimed else "is not ready"
                raise InvariantViolated(
                    f"group {group} was to be {purpose}, but it {state}. The choice was made before another section "
                    "ran; choose inside the section that acts on it."
                )

    def _require_unready(self, group: GroupId, purpose: str) -> None:
        require_group("group", group)
        slot = self._slots.get(group)
        if slot is None or slot.ready:
            raise InvariantViolated(
                f"group {group} was to be {purpose} in flight, but it "
                f"{'has no slot' if slot is None else 'is ready'}. Look again inside the section that gives it up."
            )

    def _require_dispatchable(
        self, group: GroupId, key: Key, step: int | None, weight: int, name: str = "group"
    ) -> None:
        require_slot(name, group, key, step, weight)
        if group in self._slots:
            raise InvariantViolated(
                f"group {group} has a slot already. It was dispatched twice; a group is dispatched once per run."
            )
        if self._ledger is None:
            return
        entry = self._ledger.entries.get(group)
        if entry is None or entry.phase.name != "ADMITTED" or entry.step != step or entry.key != key:
            raise InvariantViolated(
                f"group {group} was to be dispatched for step {step}, and the ledger has "
                f"{'no entry for it' if entry is None else f'{entry.phase.name}, step {entry.step}, {entry.key}'}. "
                "Only an admitted group is dispatched, with the stamp of its admission."
            )

    def _require_open(self, claim: Claim) -> None:
        require_kind("claim", claim, Claim, "what `claim` returned")
        if claim is not self._claim:
            raise InvariantViolated(
                f"the claim of step {claim.step} is not the open one. It was finished, or belongs to another buffer."
            )

    # -- checkpoint -----------------------------------------------------------------------------------------------

    def snapshot(self, cut: Cut) -> BufferSnapshot:
        """The index at this instant: one copy of references."""
        require_cut(cut, self.barrier)
        return BufferSnapshot(self._slots.copy(), self.capacity)

    def check_fits(self, count: int) -> None:
        """Refuse a restore of `count` groups that this buffer has no room for; changes nothing."""
        if require_count("count", count, least=0) > self.capacity:
            raise CheckpointIncompatible(
                f"the checkpoint holds {counted(count, 'buffered group')} and this buffer has a capacity of "
                f"{self.capacity}. The capacity was lowered between the runs. Resume with a capacity of at least "
                f"{count}, or restore without the buffer (load_buffer=False): the groups are then generated again."
            )

    def load(self, cut: Cut, slots: Iterable[Slot]) -> None:
        """Replace the index by restored slots, all ready, and take a permit for each. The rows are the plane's."""
        require_cut(cut, self.barrier, exclusive=True)
        restored = {slot.group: replace(slot, ready=True, claimed=False) for slot in checked_slots(slots)}
        self.check_fits(len(restored))
        if self.dispatch_open or self._claim is not None:
            raise InvariantViolated(
                "the buffer was to be replaced while permits are out or waited for, or a claim is open. A restore "
                "comes before the pumps start."
            )
        for _ in range(len(self._slots)):
            self._permits.return_place()
        self._slots, self._of_step = {}, GroupIndex()
        for slot in restored.values():
            self._put(slot)
        self._permits.take_places(len(restored))
        self._changed.wake()

    def statistics(self) -> Mapping[str, int]:
        """Counts of this instant; raises InvariantViolated if permits, slots and rows do not agree."""
        self.check()
        slots = self._slots.values()
        return {
            "capacity": self.capacity,
            "free": self._permits.free,
            "permits_held": self._permits.unspent,
            "permits_waited_for": self._permits.waiting,
            "unready": sum(not slot.ready for slot in slots),
            "ready": sum(slot.ready and not slot.claimed for slot in slots),
            "claimed": sum(slot.claimed for slot in slots),
        }

    def check(self) -> None:
        """Raise InvariantViolated unless each slot has a permit and, ready, its rows, or else the ledger's entry."""
        self._permits.check()
        entries = None if self._ledger is None else self._ledger.entries
        require_balanced(self._slots, self._permits.placed, self.plane.groups(), entries)
