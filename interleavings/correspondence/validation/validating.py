"""A production trace, line by line, against the machines: accepted, refused at a line, or open.

    python -m interleavings validate RUN.jsonl [MORE.jsonl ...]

The files of one run in the order in which its processes ran; a run that resumed may have them all in one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cleancut_leaf.words import counted
from impl.errors import TraceUnreadable as LineUnreadable
from impl.tracing import End, Event, Gap, Header, Torn, read_traces
from spec.machines.cut import cut

from ..refinement.vocabulary import BARRIER_EVENTS, CUT_EVENTS, FIGURE_EVENTS
from .filling import Filling
from .protocol import Protocol
from .refused import Refused
from .restores import restore
from .saves import READS, Images, Saves, require_name
from .sections import Sections
from .succession import GivenTwice, Succession

NAMELESS = "nobody named the run to its tracer; Checkpointer.attach does before the first event, and begin_run"
#: Events that must be emitted inside a mutation slot, by the task that holds it.
IN_A_SLOT = frozenset(name for name, action in cut.actions.items() if action.slot) | {"drop"}
#: The events that a dropped account belongs to, and whether they come after it.
GIVES_UP = frozenset({"substitute", "borrow", "shrink", "abort_stale"})
_OF_A_SAVE = frozenset({*READS, "skip_snapshot", "publish", "fail_save"})

NOT_SHOWN = (
    "how many generations may run at once, how many attempts a prompt has, how many epochs there are: any number is "
    "allowed, until an event can only be right at the end of the data",
    "the rows of a group, and what was trained or dropped before the newest restore: python -m impl fsck looks at the "
    "checkpoints themselves",
    "what a task did without emitting an event",
)


@dataclass(frozen=True)
class Refusal:
    """The first event that no action of the machines fits."""

    file: str
    line: int
    segment: int
    event: str
    why: str
    enabled: tuple[str, ...]


@dataclass
class Validation:
    """What came of a trace. `open_because` says what was not followed."""

    files: tuple[str, ...]
    lines: int = 0
    events: int = 0
    segments: int = 0
    cut_short: int = 0
    restores: int = 0
    restores_compared: int = 0
    most_alive: int = 0
    refusal: Refusal | None = None
    open_because: list[str] = field(default_factory=list)
    actions: Counter[str] = field(default_factory=Counter)
    foreign: Counter[str] = field(default_factory=Counter)
    """Events of the program itself, which no machine has."""

    @property
    def verdict(self) -> Literal["holds", "fails", "inconclusive"]:
        """`holds` only if every event was followed."""
        if self.refusal is not None:
            return "fails"
        return "inconclusive" if self.open_because or not self.events else "holds"

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        refused = self.refusal
        return {
            "verdict": self.verdict,
            "files": list(self.files),
            "lines": self.lines,
            "events": self.events,
            "segments": self.segments,
            "cut_short": self.cut_short,
            "restores": self.restores,
            "restores_compared": self.restores_compared,
            "most_alive": self.most_alive,
            "why": list(self.open_because),
            "not_shown": list(NOT_SHOWN),
            "actions": dict(self.actions.most_common()),
            "foreign_events": dict(self.foreign.most_common()),
            "refused": None if refused is None else {
                "file": refused.file, "line": refused.line, "segment": refused.segment, "event": refused.event,
                "why": refused.why, "enabled": list(refused.enabled),
            },
        }  # fmt: skip


class _Segment:
    """One process of the run: both machines, from its beginning."""

    def __init__(self, header: Header, images: Images, result: Validation) -> None:
        self._result = result
        self._images = images
        self.sections = Sections()
        self.protocol: Protocol | None = None
        self.why_not = ""
        # Groups of which one half of giving them up was seen, by the task that is at it.
        self._half: dict[tuple[str | None, int], str] = {}
        try:
            self.protocol = None if header.run is None else Protocol(header.run)
            self.why_not = NAMELESS if header.run is None else ""
        except LookupError as fault:
            self.why_not = str(fault)
        if self.protocol is not None:
            assert header.run is not None
            self._recovery = header.run.get("recovery", True) is True
            self._filling = Filling(self.protocol)
            self._saves = Saves(self.protocol, images, self._recovery)
            self._rules: dict[str, Callable[[Event], None]] = {
                **dict.fromkeys(CUT_EVENTS, self.protocol.follow),
                **dict.fromkeys(self._filling.actions(), self._filling.follow),
                **dict.fromkeys((*_OF_A_SAVE, "open_cut", "close_cut"), self._saves.follow),
                "restore": self._restore,
                "drop": lambda event: None,  # an account; see `_drop`
            }

    def follow(self, event: Event) -> bool:
        """Take one event's step in every machine that has it; False for an event that none has, or could follow."""
        action = event.action
        if action in BARRIER_EVENTS:
            self.sections.follow(event)
            if action == "leave_slot":
                self._leave(event)
            if action not in ("open_cut", "close_cut") or self.protocol is None:
                return True
        elif action not in CUT_EVENTS:
            return False
        else:
            self._require_place(event)
            if action in GIVES_UP:
                self._gave_up(event)
            elif action == "drop":
                self._drop(event)
        if self.protocol is None:
            return False
        self._rules[action](event)
        if (alive := self.protocol.prompts.alive) > self._result.most_alive:
            self._result.most_alive = alive
        return True

    def _require_place(self, event: Event) -> None:
        if event.action in IN_A_SLOT and not self.sections.holds_slot(event.task):
            raise Refused(
                f"{event.action} belongs inside a mutation slot, and {event.task} holds none", self._allowed()
            )
        in_window = event.action in READS or event.action in ("skip_snapshot", "restore")
        if in_window and not self.sections.holds_cut(event.task):
            raise Refused(f"{event.action} belongs inside a window, and {event.task} has none open", self._allowed())

    def _allowed(self) -> list[str]:
        return self.sections.enabled()

    def _gave_up(self, event: Event) -> None:
        key = (event.task, event.fields["group"])
        if event.action == "abort_stale":
            self._half[key] = "abort_stale"
        elif self._half.pop(key, None) != "drop":
            if event.action in ("substitute", "borrow"):
                # The ledger gives the place on and accounts for the old owner in one call, without a drop of its own.
                return
            raise Refused(f"{event.action} of group {key[1]} without the drop that belongs to it", ["drop"])

    def _drop(self, event: Event) -> None:
        """An account: it moves with the action that is named beside it, in the same slot."""
        key = (event.task, event.fields["group"])
        before = self._half.pop(key, None)
        if before == "drop":
            raise Refused(f"group {key[1]} is dropped a second time", ["what gives it up (shrink, substitute, borrow)"])
        if before != "abort_stale":
            self._half[key] = "drop"

    def _leave(self, event: Event) -> None:
        task = event.fields["task"]
        for other, group in self._half:
            if other == task:
                half = self._half[other, group]
                missing = "a drop" if half == "abort_stale" else "what gives the group up (shrink, substitute, borrow)"
                raise Refused(f"the slot ends after {half} of group {group} and without {missing}", [missing])

    def _restore(self, event: Event) -> None:
        assert self.protocol is not None
        self._result.restores += 1
        require_name(event)
        self._saves.went_on_from(event.fields["sequence"], event.fields.get("fence"))
        if not self._recovery:
            self.protocol.state.__dict__.update(version=event.fields["version"])
            if event.fields["cursor"] is not None:
                self.protocol.state.__dict__["dispatch_cursor"] = event.fields["cursor"]
            return
        self._result.restores_compared += restore(self.protocol, self._images, event)


def validate(
    paths: Sequence[str | os.PathLike[str]], progress: Callable[[Validation], None] | None = None
) -> Validation:
    """Follow the traces of one run, in order. Stops at the first event that does not fit.

    Raises `impl.errors.TraceUnreadable` where a file is none; a line that is damaged is a refusal of that line.
    """
    result = Validation(tuple(os.fspath(path) for path in paths))
    succession = Succession()
    segment: _Segment | None = None
    lost = False
    files = [name for name in result.files if len(result.files) == 1 or not _is_empty(name)]
    # A process that was killed before it had written anything down leaves an empty one.
    result.cut_short += len(result.files) - len(files)
    try:
        for name, (line, record) in read_traces(files):
            result.lines += 1
            if isinstance(record, Event):
                succession.go_on(record)
                if segment is None or lost:
                    continue
                result.events += 1
                try:
                    followed = segment.follow(record)
                except Refused as refused:
                    result.refusal = Refusal(name, line, result.segments, _said(record), refused.why, refused.enabled)
                    return result
                if followed:
                    result.actions[record.action] += 1
                elif record.action in CUT_EVENTS:
                    _note(result, f"segment {result.segments}: the protocol was not followed: {segment.why_not}")
                elif record.action not in FIGURE_EVENTS:
                    result.foreign[record.action] += 1
                if progress is not None and result.events % 20_000 == 0:
                    progress(result)
            elif isinstance(record, Header):
                result.cut_short += segment is not None
                images, out_of_order = succession.begin(record, name, line)
                if out_of_order is not None:
                    _note(result, out_of_order)
                result.segments += 1
                segment, lost = _Segment(record, images, result), False
            elif isinstance(record, Gap):
                lost = True
                _note(result, f"{name}, line {line}: {counted(record.lost, 'event is', 'events are')} missing, so the "
                              f"rest of segment {result.segments} was not followed")  # fmt: skip
            elif isinstance(record, End | Torn):
                result.cut_short += isinstance(record, Torn)
                segment = None
        result.cut_short += segment is not None
    except GivenTwice:
        raise
    except LineUnreadable as fault:
        if fault.line <= 1:
            raise
        result.refusal = Refusal(name, fault.line, result.segments, "a damaged line", str(fault), ())
        return result
    if not result.events:
        _note(result, "the trace holds no event")
    return result


def _is_empty(name: str) -> bool:
    try:
        return os.path.getsize(name) == 0
    except OSError:
        return False  # `read_trace` says what is wrong


def _note(result: Validation, text: str) -> None:
    if text not in result.open_because:
        result.open_because.append(text)


def _said(event: Event) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in event.fields.items() if value is not None)
    text = f"{event.action}({fields})" + ("" if event.task is None else f" of task {event.task}")
    return text if len(text) <= 400 else f"{text[:390]} …"
