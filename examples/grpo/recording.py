"""What a life writes down beside its checkpoints, and tells the process that watches it.

    trained.jsonl    the keys handed out, the step resumed at, the keys and figures of each train step. It owes nothing
                     to the checkpoints: the account of the prompts is made from both
    measured.jsonl   occupancy of the buffer whenever it changes, and the figures of every save
    trace.jsonl      every event, by the library's own tracer

Each line is written through to the kernel, which outlives the process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from impl import Controller, JsonlTracer

from .setting import MEASURED_LOG, TRACE, TRAINED_LOG


class Recording:
    """The tracer of a life: passes every event to the library's tracer, and takes down what the end needs."""

    def __init__(self, directory: Path, events: TextIO) -> None:
        self._tracer = JsonlTracer(directory / TRACE)
        self._events = events
        self._trained = (directory / TRAINED_LOG).open("a", encoding="utf-8")
        self._measured = (directory / MEASURED_LOG).open("a", encoding="utf-8")
        self._controller: Controller | None = None
        self._closed = False
        self._occupancy: tuple[int, int, int] | None = None

    def attach(self, controller: Controller) -> None:
        """Name the controller whose events these are."""
        self._controller = controller
        self.measured("life", version=controller.progress.version, capacity=controller.buffer.capacity)

    # -- a tracer of the library

    def begin_run(self, identity: Mapping[str, Any] | None) -> None:
        """Begin a segment of the trace."""
        self._tracer.begin_run(identity)

    def close(self) -> None:
        """End the trace and the logs; a Controller does, when the run is over."""
        self._tracer.close()
        self._closed = True
        self._trained.close()
        self._measured.close()

    def __call__(self, action: str, /, **fields: Any) -> None:
        """Take one event down."""
        self._tracer(action, **fields)
        if self._controller is None or self._closed:
            return
        if action == "restore":
            self.trained("resumed", step=fields["step"], name=fields["name"])
        elif action in ("reserve_batch", "divert_batch"):
            self.trained("handed_out", keys=fields["keys"])
        elif action == "leave_slot":
            self._note_occupancy(self._controller)
        elif action == "publish":
            self._note_save(self._controller)
        self.say(action)

    # -- the lines

    def say(self, event: str, **fields: Any) -> None:
        """Tell whoever watches."""
        version = None if self._controller is None else self._controller.progress.version
        _write(self._events, {"event": event, "version": version, **fields})

    def trained(self, event: str, **fields: Any) -> None:
        """A line of the log that the account is made from."""
        _write(self._trained, {"event": event, "at": time.time(), **fields})

    def measured(self, event: str, **fields: Any) -> None:
        """A line of the measurements."""
        _write(self._measured, {"event": event, "at": time.time(), **fields})

    def _note_occupancy(self, controller: Controller) -> None:
        slots = controller.buffer.slots.values()
        claimed = sum(slot.claimed for slot in slots)
        ready = sum(slot.ready for slot in slots) - claimed
        occupancy = (len(slots) - ready - claimed, ready, claimed)
        if occupancy != self._occupancy:
            self._occupancy = occupancy
            self.measured("occupancy", generating=occupancy[0], ready=ready, claimed=claimed)

    def _note_save(self, controller: Controller) -> None:
        assert controller.checkpointer is not None
        figures = controller.checkpointer.statistics().saves[-1]
        self.measured(
            "save", name=figures.name, kind=figures.kind, queue=figures.queue_seconds, drain=figures.drain_seconds,
            window=figures.window_seconds, stage=figures.stage_seconds, persist=figures.persist_seconds,
            bytes=figures.bytes,
        )  # fmt: skip


def _write(file: TextIO, line: Mapping[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()
