"""The barrier machine, followed over the sections of a run that wait or are open: a writer or a checkpoint for each.

A section is a writer with one round, or a checkpoint. It gets the row of one that has ended, so there are as many rows
as sections were ever alive at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from impl.tracing import Event
from spec.machines.barrier import CHECKPOINT_STANDS, INSIDE, WRITER_STANDS, BarrierScope, barrier

from .open_state import ANY_NUMBER, OpenState
from .refused import Refused

WRITERS, CHECKPOINTS = "all_writers", "all_checkpointers"
_SCOPE = BarrierScope(writers=0, rounds=1, checkpointers=0, cancellations=ANY_NUMBER, expiries=ANY_NUMBER)


class Sections:
    """Call `follow` with each event of the barrier; `inside` says whether a task holds a slot."""

    def __init__(self) -> None:
        self._state = OpenState(barrier, asdict(_SCOPE))
        # The row of each section that waits or is open.
        self._rows: dict[str, dict[int, int]] = {WRITERS: {}, CHECKPOINTS: {}}
        self._free: dict[str, list[int]] = {WRITERS: [], CHECKPOINTS: []}
        self._inside: Counter[str | None] = Counter()
        # By section: its kind, and the name that its task had when it was let in.
        self._kinds: dict[int, str] = {}
        self._entered: dict[int, str | None] = {}
        # The one cut that is open, by its section, and the task it belongs to.
        self.open_cut: int | None = None
        self._task_of_cut: str | None = None

    def follow(self, event: Event) -> None:
        """Take the step that an event of the barrier stands for. Raises `Refused`."""
        section, kind = event.fields["section"], event.fields["kind"]
        if self._kinds.get(section, kind) != kind:
            raise Refused(f"section {section} is of kind {self._kinds[section]!r}, not {kind!r}", self.enabled())
        getattr(self, f"_{event.action}")(event, section)

    def holds_slot(self, task: str | None) -> bool:
        """Whether a task is inside a slot; a task without a name, as under trio, cannot be told."""
        return task is None or self._inside[task] > 0

    def holds_cut(self, task: str | None) -> bool:
        """Whether the open cut is that task's."""
        return self.open_cut is not None and (task is None or self._task_of_cut in (None, task))

    # -- slots

    def _request_slot(self, event: Event, section: int) -> None:
        row = self._new_row(WRITERS, section, event)
        self._state.set_at("rounds_left", row, 1)
        self._take("request_slot", WRITERS, row, event)

    def _enter_slot(self, event: Event, section: int) -> None:
        row = self._row_of(WRITERS, section)
        # The machine's release lets the batch in at once; the library then names each of it, once.
        if section in self._entered or self._state.at[row] != INSIDE:
            self._take("enter_slot", WRITERS, row, event)
        self._entered[section] = event.fields["task"]
        self._inside[event.fields["task"]] += 1

    def _leave_slot(self, event: Event, section: int) -> None:
        if section in self._rows[WRITERS] and section not in self._entered:
            raise Refused(f"section {section} leaves a slot that it was never seen to enter", self.enabled())
        self._take("leave_slot", WRITERS, self._row_of(WRITERS, section), event)
        # A program may give its task another name meanwhile.
        task = self._entered.pop(section)
        self._inside[task] -= 1
        if not self._inside[task]:
            del self._inside[task]
        self._end(WRITERS, section)

    def _withdraw_slot(self, event: Event, section: int) -> None:
        self._take("withdraw_slot", WRITERS, self._row_of(WRITERS, section), event)
        self._end(WRITERS, section)

    # -- checkpoints

    def _request_cut(self, event: Event, section: int) -> None:
        row = self._new_row(CHECKPOINTS, section, event)
        self._state.set_at("cut", row, 0)
        self._take("request_cut", CHECKPOINTS, row, event)

    def _open_cut(self, event: Event, section: int) -> None:
        self._take("open_cut", CHECKPOINTS, self._row_of(CHECKPOINTS, section), event)
        self.open_cut, self._task_of_cut = section, event.fields["task"]

    def _close_cut(self, event: Event, section: int) -> None:
        self._take("close_cut", CHECKPOINTS, self._row_of(CHECKPOINTS, section), event)
        self.open_cut = None
        self._end(CHECKPOINTS, section)

    def _withdraw_cut(self, event: Event, section: int) -> None:
        action = "expire_cut" if event.fields["reason"] == "expired" else "withdraw_cut"
        self._take(action, CHECKPOINTS, self._row_of(CHECKPOINTS, section), event)
        self._end(CHECKPOINTS, section)

    # -- rows

    def _new_row(self, domain: str, section: int, event: Event) -> int:
        if any(section in rows for rows in self._rows.values()):
            raise Refused(f"section {section} asked for its place already and has not ended", self.enabled())
        free = self._free[domain]
        row = free.pop() if free else self._state.grow(domain, 1)[0]
        self._rows[domain][section] = row
        self._kinds[section] = event.fields["kind"]
        return row

    def _row_of(self, domain: str, section: int) -> int:
        if section not in self._rows[domain]:
            raise Refused(f"section {section} never asked for its place, or has ended", self.enabled())
        return self._rows[domain][section]

    def _end(self, domain: str, section: int) -> None:
        self._free[domain].append(self._rows[domain].pop(section))
        del self._kinds[section]

    def _take(self, action: str, domain: str, row: int, event: Event) -> None:
        if not self._state.take(action, row):
            standing = (
                WRITER_STANDS[self._state.at[row]] if domain == WRITERS else CHECKPOINT_STANDS[self._state.cut[row]]
            )
            raise Refused(
                f"the machine 'barrier' does not enable {action} there: section {event.fields['section']} is "
                f"{standing}, {self._said()}",
                self.enabled(),
            )

    def _said(self) -> str:
        queue = sorted((self._state.place[row], section) for section, row in self._rows[CHECKPOINTS].items())
        inside = [section for section, row in self._rows[WRITERS].items() if self._state.at[row] == INSIDE]
        return (
            f"the sections inside a slot are {_listed(inside)}, the checkpoints that wait or are open "
            f"{_listed([section for _, section in queue])}"
        )

    def enabled(self) -> list[str]:
        """What the machine would allow of the sections that are alive; a new one may ask at any time."""
        section_of = {(domain, row): section for domain, rows in self._rows.items() for section, row in rows.items()}
        domains = {domain: range(self._state.size(domain)) for domain in (WRITERS, CHECKPOINTS)}
        found: dict[str, list[int]] = {}
        for action, row in self._state.enabled(domains):
            section = section_of.get((str(action.each), -1 if row is None else row))
            if section is not None and not action.name.startswith("cancel"):
                found.setdefault(action.name, []).append(section)
        asking = ["request_slot (a new section)", "request_cut (a new section)"]
        return [f"{name} (section {_listed(sections)})" for name, sections in found.items()] + asking


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in sorted(numbers)[:8]) or "none"
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"
