"""In which order the processes of a run came, by the clocks of their segments: each once, and none before its time.

A trace shows one process after another. Files in a wrong order, one given twice, or two processes of a run that were
alive at once (one of them a zombie that had lost its store) would be followed as something that never was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from impl.errors import TraceUnreadable as TraceUnreadable
from impl.tracing import Event, Header

from .saves import Images


class GivenTwice(TraceUnreadable):
    """A segment that was read before: wrong use, and no fault of the run or of the file."""


@dataclass(frozen=True)
class _Moment:
    """One instant by both clocks; the one that never jumps means something within one host."""

    host: str
    monotonic: float
    wall: float

    def before(self, other: _Moment) -> bool:
        """Whether this was earlier. On one host both clocks must say so: one may be set back, one begins anew."""
        if self.host == other.host and self.monotonic >= other.monotonic:
            return False
        return self.wall < other.wall


@dataclass
class _Run:
    """What is known of one run: its checkpoints, and when its newest process began and was seen last."""

    identity: Mapping[str, Any] | None
    images: Images = field(default_factory=Images)
    began: _Moment | None = None
    newest: Event | None = None

    @property
    def last(self) -> _Moment | None:
        """When its newest process was seen last."""
        if self.began is None or self.newest is None:
            return self.began
        return _Moment(self.began.host, self.newest.monotonic, self.newest.wall)


class Succession:
    """Call `begin` with each header and `go_on` with each event, in the order of the files."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._runs = [_Run(None)]
        self._run = self._runs[0]

    def begin(self, header: Header, file: str, line: int) -> tuple[Images, str | None]:
        """The checkpoints that this process may go on from; and why it cannot have come after the one before, if so.

        Raises GivenTwice for a segment that was here already.
        """
        place = f"{file}, line {line}"
        if header.segment in self._seen:
            raise GivenTwice(
                f"{place}: the segment that begins here stands in {self._seen[header.segment]} already. The same "
                "trace, or a copy of it, was given twice; name each file once, the oldest first.",
                file,
                line,
            )
        self._seen[header.segment] = place
        # A segment without a run is what a program traced before it made its controller.
        if header.run is not None:
            self._run = next((run for run in self._runs if run.identity == header.run), None) or self._new(header.run)
        run, now = self._run, _Moment(header.host, header.monotonic, header.wall)
        out_of_order = _out_of_order(run, now)
        if out_of_order is not None:
            # What the one before it saved is not what this one found.
            run.images = Images()
        run.began, run.newest = now, None
        if header.run is not None:
            run.images.begin_life()
        return run.images, None if out_of_order is None else f"{place}: {out_of_order}, or a clock was set back"

    def _new(self, identity: Mapping[str, Any]) -> _Run:
        self._runs.append(_Run(identity))
        return self._runs[-1]

    def go_on(self, event: Event) -> None:
        """An event of the segment that has begun."""
        self._run.newest = event


def _out_of_order(run: _Run, now: _Moment) -> str | None:
    if run.began is not None and now.before(run.began):
        return (
            "this process began before the one that stands before it: the files are not in the order in which the "
            "processes ran"
        )
    if run.last is not None and now.before(run.last):
        return (
            "this process began while the one before it was still tracing: two processes of the run at once, and a "
            "trace does not show which of them a checkpoint is of"
        )
    return None
