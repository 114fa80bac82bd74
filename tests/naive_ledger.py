"""The readable ledger: one list of entries, and every question a pass over it. What the indexed one is held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from impl import Admission, InvariantViolated, Key, LedgerEntry, Phase


class NaiveLedger:
    """The rules of `Ledger` without cuts, events and messages: it refuses by a bare InvariantViolated."""

    def __init__(self) -> None:
        self.pending: list[LedgerEntry] = []
        self.dropped: dict[Key, str] = {}
        self.next_group = 0
        self.next_admission = 0

    def entries(self) -> Mapping[int, LedgerEntry]:
        return {entry.group: entry for entry in self.pending}

    def admissions(self, phase: Phase | None) -> tuple[Admission, ...]:
        found = []
        for number in range(self.next_admission):
            of_it = [entry for entry in self.pending if entry.admission == number and phase in (None, entry.phase)]
            if of_it:
                groups, keys = tuple(entry.group for entry in of_it), tuple(entry.key for entry in of_it)
                found.append(Admission(number, groups, keys))
        return tuple(found)

    def groups_of_step(self, step: int) -> tuple[int, ...]:
        return tuple(entry.group for entry in self.pending if entry.step == step)

    def group_of(self, key: Key) -> int | None:
        return next((entry.group for entry in self.pending if entry.key == key), None)

    def phase_counts(self) -> Mapping[Phase, int]:
        counts = Counter(entry.phase for entry in self.pending)
        return {phase: counts[phase] for phase in Phase}

    def reserve(self, keys: Sequence[Key]) -> Admission:
        refuse_if(not self.free(keys))
        groups = tuple(range(self.next_group, self.next_group + len(keys)))
        for group, key in zip(groups, keys, strict=True):
            self.pending.append(LedgerEntry(group, key, Phase.RESERVED, self.next_admission))
        self.next_group += len(keys)
        self.next_admission += 1
        return Admission(self.next_admission - 1, groups, tuple(keys))

    def admit(self, admission: Admission, step: int | None) -> tuple[int, ...]:
        members = [entry for entry in self.pending if entry.admission == admission.id]
        refuse_if(not members or any(entry.group not in admission.groups for entry in members))
        refuse_if(any(entry.phase is Phase.ADMITTED for entry in members))
        refuse_if(step is not None and any(entry.step == step for entry in self.pending))
        for entry in members:
            self.exchange(replace(entry, phase=Phase.ADMITTED, step=step))
        return tuple(entry.group for entry in members)

    def remove_committed(self, group: int) -> bool:
        before = len(self.pending)
        self.pending = [entry for entry in self.pending if entry.group != group]
        return len(self.pending) < before

    def drop(self, group: int, reason: str) -> LedgerEntry:
        entry = self.entry(group)
        self.dropped[entry.key] = reason
        self.pending.remove(entry)
        return entry

    def drop_batch(self, keys: Sequence[Key], reason: str) -> None:
        refuse_if(not self.free(keys))
        self.dropped.update(dict.fromkeys(keys, reason))

    def replace(self, group: int, key: Key, step: int | None) -> LedgerEntry:
        old = self.entry(group)
        refuse_if(old.phase is not Phase.ADMITTED or not self.free([key]))
        admission = old.admission
        if step != old.step:
            same_step = [entry.admission for entry in self.pending if step is not None and entry.step == step]
            admission = same_step[0] if same_step else self.next_admission
        self.dropped[old.key] = "replaced"
        self.pending.remove(old)
        entry = LedgerEntry(self.next_group, key, Phase.ADMITTED, admission, step)
        self.pending.append(entry)
        self.next_group += 1
        self.next_admission = max(self.next_admission, admission + 1)
        return entry

    def fail_attempt(self, group: int) -> LedgerEntry:
        entry = self.entry(group)
        self.exchange(replace(entry, attempt=entry.attempt + 1))
        return self.entry(group)

    def free(self, keys: Sequence[Key]) -> bool:
        taken = {entry.key for entry in self.pending} | self.dropped.keys()
        return len(set(keys)) == len(keys) and not taken & set(keys)

    def entry(self, group: int) -> LedgerEntry:
        found = [entry for entry in self.pending if entry.group == group]
        refuse_if(not found)
        return found[0]

    def exchange(self, entry: LedgerEntry) -> None:
        self.pending = [entry if other.group == entry.group else other for other in self.pending]


def refuse_if(wrong: bool) -> None:
    if wrong:
        raise InvariantViolated("the naive ledger refuses")
