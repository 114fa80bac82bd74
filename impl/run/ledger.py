"""The prompt ledger: the owner of every prompt that was handed out and is not finished.

    unread --reserve--> RESERVED --admit--> ADMITTED --(commit to the buffer)--> remove_committed
                              \\___________________\\________ drop(reason) -> accounts

A group enters with its whole loader batch, in the same section that moves the loader, and leaves when its finished
rows have another owner. In between it may be parked, generating, failed or retried: the ledger does not care, which is
what makes a checkpoint lose nothing.

A payload of None means that the prompt is the dataset's row of that key; any other payload is the prompt itself, and
must be a strict JSON value for the run to be savable.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from cleancut_leaf.words import counted

from ..arguments import (
    require_abilities,
    require_cut,
    require_group,
    require_key,
    require_keys,
    require_kind,
    require_payloads,
    require_step,
    require_text,
)
from ..errors import CheckpointCorrupt, InvariantViolated, UsageError
from ..keys import GroupId, Key
from .accounts import Accounts, AccountsSnapshot
from .pending_groups import LedgerEntry, PendingGroups, Phase
from .slots import BufferSnapshot

if TYPE_CHECKING:
    from ..barrier import BarrierFrontEnd, Cut


@dataclass(frozen=True, slots=True)
class Admission:
    """Groups that pass the gate together, for one train step."""

    id: int
    groups: tuple[GroupId, ...]
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The ledger at one instant, without what others own; with its counters and the accounts. Immutable.

    Made from a file it is checked: `require_consistent` names the first contradiction.
    """

    entries: Mapping[GroupId, LedgerEntry]
    next_group: GroupId
    next_admission: int
    accounts: AccountsSnapshot

    def require_consistent(self) -> None:
        """Raise CheckpointCorrupt unless each key has one owner, ids are below the counters, and admissions agree."""
        keys: dict[Key, GroupId] = {}
        phases: dict[int, LedgerEntry] = {}
        for group, entry in self.entries.items():
            fresh = 0 <= group < self.next_group and 0 <= entry.admission < self.next_admission
            if entry.group != group or not fresh:
                raise _contradiction(
                    f"group {group} of admission {entry.admission} stands under the name {entry.group}, while the next "
                    f"group is {self.next_group} and the next admission {self.next_admission}"
                )
            other = keys.setdefault(entry.key, group)
            if other != group:
                raise _contradiction(f"groups {other} and {group} are both {entry.key}")
            if self.accounts.is_trained(entry.key) or entry.key in self.accounts.dropped:
                raise _contradiction(f"group {group} is pending, but its {entry.key} was trained or dropped")
            if entry.phase is Phase.RESERVED and entry.step is not None:
                raise _contradiction(f"group {group} is only reserved, but stamped with step {entry.step}")
            first = phases.setdefault(entry.admission, entry)
            if (first.phase, first.step) != (entry.phase, entry.step):
                raise _contradiction(f"the groups {first.group} and {group} of admission {entry.admission} disagree")


class Ledger:
    """The pending groups of a run, its id counters and its accounts.

    Every write wants a live cut of the ledger's barrier, except `remove_committed`. A refusal changes nothing.
    """

    def __init__(self, barrier: BarrierFrontEnd) -> None:
        require_abilities("barrier", barrier, ("name", "emit", "mutation"), "a CheckpointBarrier")
        self.barrier = barrier
        self.accounts = Accounts()
        # Invariant one_owner: no key occurs twice in here, nor in the accounts as well.
        # Invariant admission_whole: entries with one admission id have the same phase and the same step.
        self._pending = PendingGroups()
        # Invariant ids_fresh: above every id ever given, restarts included.
        self._next_group = 0
        self._next_admission = 0

    # -- views

    @property
    def entries(self) -> Mapping[GroupId, LedgerEntry]:
        """The pending groups, oldest first; a live, read-only view."""
        return MappingProxyType(self._pending.by_id)

    @property
    def next_group(self) -> GroupId:
        """The id that the next reserved group gets."""
        return self._next_group

    @property
    def next_admission(self) -> int:
        """The id that the next reserved admission gets."""
        return self._next_admission

    def admissions(self, phase: Phase | None = None) -> tuple[Admission, ...]:
        """The admissions with pending groups, oldest first; with `phase`, only those in it."""
        if phase is not None and not isinstance(phase, Phase):
            raise UsageError(f"phase is {phase!r}, which is none of {', '.join(map(str, Phase))}; give one, or None.")
        found = map(self._pending.of_admission, self._pending.admissions())
        return tuple(
            Admission(
                entries[0].admission, tuple(entry.group for entry in entries), tuple(entry.key for entry in entries)
            )
            for entries in found
            if phase is None or entries[0].phase is phase
        )

    def groups_of_step(self, step: int) -> tuple[GroupId, ...]:
        """The pending groups that are stamped with `step`, oldest first."""
        return self._pending.of_step(step)

    def group_of(self, key: Key) -> GroupId | None:
        """The pending group that is made of this prompt; None where there is none."""
        return self._pending.with_key(key)

    @property
    def phase_counts(self) -> Mapping[Phase, int]:
        """How many groups are pending in each phase; costs nothing, however many there are."""
        return MappingProxyType({phase: self._pending.counts.get(phase, 0) for phase in Phase})

    # -- writes

    def reserve(
        self, cut: Cut, keys: Iterable[Key], payloads: Sequence[object] | None = None, *, from_pool: bool = False
    ) -> Admission:
        """Own a whole loader batch, in the section that moved the loader; payloads are copied.

        Without payloads the prompts are the dataset's rows. `from_pool`: the prompts come out of the spare pool, at the
        end of the data, and the event is `drain_pool`.
        """
        require_cut(cut, self.barrier)
        wanted = require_keys("keys", keys)
        require_payloads(payloads, wanted)
        if not wanted:
            raise UsageError("keys is empty, but an admission has at least one prompt. After the last batch make none.")
        first_group = self._next_group
        fresh: dict[Key, GroupId] = {}
        for group, key in enumerate(wanted, first_group):
            owner = fresh.get(key, self._pending.with_key(key))
            if owner is not None:
                raise InvariantViolated(
                    f"{key} was to be reserved, but group {owner} is made of it already. Two owners of one "
                    "prompt; the likely cause is a loader whose cursor was set back without the ledger. Restore both "
                    "from one checkpoint."
                )
            settled = self.accounts.settled(key)
            if settled is not None:
                raise InvariantViolated(
                    f"{key} was to be reserved, but it {settled}. The likely cause is a loader whose cursor was set "
                    "back without the accounts. Restore both from one checkpoint."
                )
            fresh[key] = group
        admission = Admission(self._next_admission, tuple(range(first_group, first_group + len(wanted))), wanted)
        for place, (group, key) in enumerate(zip(admission.groups, wanted, strict=True)):
            # A copy: the caller may go on with its object, and a save writes what was reserved (A24).
            payload = None if payloads is None else deepcopy(payloads[place])
            self._pending.put(LedgerEntry(group, key, Phase.RESERVED, admission.id, None, payload))
        self._next_group += len(wanted)
        self._next_admission += 1
        if from_pool:
            self.barrier.emit("drain_pool", admission=admission.id, groups=admission.groups, keys=wanted, reason=None)
        else:
            self.barrier.emit(
                "reserve_batch", admission=admission.id, groups=admission.groups, keys=wanted, reason=None
            )
        return admission

    def admit(self, cut: Cut, admission: Admission, step: int | None) -> tuple[GroupId, ...]:
        """Turn a whole admission from RESERVED to ADMITTED, stamped; return the groups of it that are pending.

        Refused when the admission is unknown or already admitted, and when pending groups of another admission carry
        the step: on a right dispatch cursor that cannot be, so it is never reconciled by throwing the batch away.
        """
        require_cut(cut, self.barrier)
        require_kind("admission", admission, Admission, "what `reserve` or `admissions` returned")
        require_step(step)
        members = self._pending.of_admission(admission.id)
        if not members or not {entry.group for entry in members} <= set(admission.groups):
            raise InvariantViolated(
                f"admission {admission.id} (groups {_short(admission.groups)}) was to be admitted, but the ledger has "
                f"{counted(len(members), 'group')} of it, and not those. It was dropped, finished, or reserved by "
                "another ledger; admit what `reserve` or `admissions` returned."
            )
        if any(entry.phase is Phase.ADMITTED for entry in members):
            raise InvariantViolated(
                f"admission {admission.id} was to be admitted for step {step}, but it was admitted before, for step "
                f"{members[0].step}. The likely cause is a second admitter, or a restored admission that went through "
                "the gate again; admit each once."
            )
        occupants = () if step is None else self.groups_of_step(step)
        if occupants:
            raise InvariantViolated(
                f"admission {admission.id} was to be admitted for step {step}, but "
                f"{counted(len(occupants), 'group carries', 'groups carry')} that step already ({_short(occupants)}). "
                "The dispatch cursor is behind the ledger, as after a checkpoint whose parts were read at different "
                "instants. Nothing was discarded; restore a whole one."
            )
        for entry in members:
            self._pending.put(replace(entry, phase=Phase.ADMITTED, step=step))
        groups = tuple(entry.group for entry in members)
        self.barrier.emit("commit_admission", admission=admission.id, groups=groups, step=step)
        return groups

    def remove_committed(self, group: GroupId) -> bool:
        """Drop the entry of a group that the buffer owns now; False when it is gone already, by claim or evict.

        The one write without a slot. It may fall into a window: the cut subtracts what the buffer owns, so it stores
        the same with and without the entry.
        """
        require_group("group", group)
        if not self._pending.remove(group):
            return False
        self.barrier.emit("remove_committed", group=group)
        return True

    def drop(self, cut: Cut, group: GroupId, reason: str) -> LedgerEntry:
        """End a pending group untrained, on purpose, and account for its key."""
        require_cut(cut, self.barrier)
        entry = self._require_pending(group, f"dropped ({reason!r})")
        self.accounts.drop(entry.key, reason)
        self._pending.remove(group)
        self.barrier.emit("drop", group=group, reason=reason)
        return entry

    def drop_batch(self, cut: Cut, keys: Iterable[Key], reason: str, *, from_pool: bool = False) -> None:
        """End prompts that have no group, on purpose: a short batch as it is read, or what is left in the spare pool.

        The event is that of the action, `reserve_batch` or with `from_pool` `drain_pool`, and carries no groups.
        """
        require_cut(cut, self.barrier)
        ended = require_keys("keys", keys)
        require_text("reason", reason, "remainder")
        seen: set[Key] = set()
        for key in ended:
            pending = None if self._pending.with_key(key) is None else "is pending"
            owner = "is among the keys already" if key in seen else pending or self.accounts.settled(key)
            seen.add(key)
            if owner is not None:
                raise InvariantViolated(
                    f"{key} was to be dropped ({reason!r}), but it {owner}. Two owners of one prompt; the likely cause "
                    "is a loader whose cursor was set back without the ledger. Restore both from one checkpoint."
                )
        for key in ended:
            self.accounts.drop(key, reason)
        if from_pool:
            self.barrier.emit("drain_pool", admission=None, groups=(), keys=ended, reason=reason)
        else:
            self.barrier.emit("reserve_batch", admission=None, groups=(), keys=ended, reason=reason)

    def replace(self, cut: Cut, group: GroupId, key: Key, payload: object, step: int | None) -> LedgerEntry:
        """Give the place of a group that was given up to a spare: it is dropped (`replaced`), the spare ADMITTED.

        The spare gets an id of its own and the admission of the place it fills: the group's own when `step` is its
        stamp (`substitute`); else, when a later group was moved up into the hole (`borrow`), that of a pending group
        stamped with `step`, or a new one where none is pending. The payload is the pool's own copy.
        """
        require_cut(cut, self.barrier)
        old = self._require_pending(group, "replaced")
        key = require_key("key", key)
        require_step(step)
        if old.phase is not Phase.ADMITTED:
            raise InvariantViolated(
                f"group {group} was to be replaced, but it is only {old.phase.name}. Only a group that was admitted "
                "and failed has a place to fill."
            )
        other = self._pending.with_key(key)
        owner = self.accounts.settled(key) if other is None else f"is group {other}"
        if owner is not None:
            raise InvariantViolated(
                f"the spare {key} was to take the place of group {group}, but it {owner} already. Two owners of one "
                "prompt; restore ledger and pool from one checkpoint."
            )
        admission = old.admission
        if step != old.step:
            others = () if step is None else self._pending.of_step(step)
            admission = self.entries[others[0]].admission if others else self._next_admission
        self.accounts.drop(old.key, "replaced")
        self._pending.remove(group)
        entry = LedgerEntry(self._next_group, key, Phase.ADMITTED, admission, step, payload)
        self._pending.put(entry)
        self._next_group += 1
        self._next_admission = max(self._next_admission, admission + 1)
        return entry

    def fail_attempt(self, cut: Cut, group: GroupId, cause: str) -> LedgerEntry:
        """Count a failed generation of a group that stays pending; the event carries the number of the attempt."""
        require_cut(cut, self.barrier)
        require_text("cause", cause, "transient")
        before = self._require_pending(group, f"counted as failed ({cause!r})")
        entry = replace(before, attempt=before.attempt + 1)
        self._pending.put(entry)
        self.barrier.emit("fail_attempt", group=group, attempt=before.attempt, cause=cause)
        return entry

    # -- checkpoints

    def snapshot(self, cut: Cut, owned_elsewhere: Container[GroupId]) -> LedgerSnapshot:
        """The ledger minus the groups that others own, which is what goes to disk: there no group has two owners.

        Wants the exclusive cut: between two sections the buffer may own a group that this still lists.
        """
        require_cut(cut, self.barrier, exclusive=True)
        require_kind("owned_elsewhere", owned_elsewhere, Container, "a container of the groups that others own")
        # One copy of references, and out of it the few that the buffer has: a test of each would be a pass in the
        # window, ten times as long.
        entries = self._pending.by_id.copy()
        for group in _owned(owned_elsewhere, entries):
            del entries[group]
        return LedgerSnapshot(
            MappingProxyType(entries), self._next_group, self._next_admission, self.accounts.snapshot()
        )

    def load(self, cut: Cut, snapshot: LedgerSnapshot) -> None:
        """Replace everything by a snapshot; refused by CheckpointCorrupt when that contradicts itself."""
        require_cut(cut, self.barrier, exclusive=True)
        require_kind("snapshot", snapshot, LedgerSnapshot, "a LedgerSnapshot, as `snapshot` returned it")
        snapshot.require_consistent()
        self.accounts.load(snapshot.accounts)
        # By id, whatever the order of the file: that is the order in which they were reserved.
        self._pending = PendingGroups(entry for _, entry in sorted(snapshot.entries.items()))
        self._next_group = snapshot.next_group
        self._next_admission = snapshot.next_admission

    def _require_pending(self, group: GroupId, event: str) -> LedgerEntry:
        require_group("group", group)
        entry = self._pending.by_id.get(group)
        if entry is None:
            raise InvariantViolated(
                f"group {group} was to be {event}, but the ledger has no such entry: it was committed and removed, or "
                "dropped before. Look it up in `ledger.entries` inside the same section first."
            )
        return entry


def _owned(elsewhere: Container[GroupId], entries: Mapping[GroupId, LedgerEntry]) -> list[GroupId]:
    """The groups of `entries` that others own."""
    candidates = entries.keys() & elsewhere.slots.keys() if isinstance(elsewhere, BufferSnapshot) else entries
    return [group for group in candidates if group in elsewhere]


def _contradiction(what: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(
        f"the saved ledger contradicts itself: {what}. It was damaged, edited, or put together from parts of different "
        "checkpoints; restore an older one."
    )


def _short(groups: Sequence[GroupId], at_most: int = 8) -> str:
    text = ", ".join(map(str, groups[:at_most]))
    return text if len(groups) <= at_most else f"{text} and {len(groups) - at_most} more"
