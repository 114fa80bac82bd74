"""The context managers that the asyncio barrier hands out. Each is its own token: one object for one section.

Written by hand, not with `@asynccontextmanager`: an exit that awaits nothing cannot be cancelled, and an explorer of
schedules sees the frames.

A free section is entered without touching the loop, and in few steps, some of them written out where a call would read
better: with all checks it takes about three times what `asyncio.Lock` does, which has none. What can be looked up later
is (the line, the name of the task). That the right loop runs is known from the thread and the current task, since
CPython 3.11 asks the kernel whenever it is asked for the running loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from .admission import ENDED, LIVE, NEW
from .cut import HELD, Cut, Held, Nested, outer_sections
from .section import Section, would_block

if TYPE_CHECKING:
    from .asyncio_barrier import CheckpointBarrier


# Bound once: CPython 3.11 looks up and binds the method at each `HELD.get()`.
_held = HELD.get
_hold = HELD.set
# What `asyncio.current_task` looks into. Only a short cut: whoever is not found in it asks properly, through `_bind`.
_RUNNING: Mapping[asyncio.AbstractEventLoop | None, asyncio.Task[object]]
_RUNNING = getattr(asyncio.tasks, "_current_tasks", {})


class AsyncioSection(Section):
    """What the sections of both sides have beyond a token: the asking task, and the future it waits on."""

    __slots__ = ("waiter",)

    barrier: CheckpointBarrier
    task: asyncio.Task[object] | None
    # Set while the request waits. Its result says only "look again": what happened stands in the other fields.
    waiter: asyncio.Future[None] | None

    @property
    def task_name(self) -> str | None:
        """The name of the task that asked; None for a callback, and after the section has ended."""
        return None if self.task is None else self.task.get_name()


class MutationSection(AsyncioSection):
    """A shared section: `async with barrier.mutation(kind) as cut`."""

    __slots__ = ()

    async def __aenter__(self) -> Cut:
        barrier = self.barrier
        held = _held()
        link: Held = self
        if held.standing is LIVE and (outer := outer_sections(held, barrier)) is not None:
            link = Nested(self, outer)
        if get_ident() != barrier._thread or (task := _RUNNING.get(barrier._loop)) is None:
            task = barrier._bind()
        core = barrier._core
        if core.gate_open and self.standing is NEW:
            core.inside[self] = None
            self.standing = LIVE
            self.task = task
            self.since = barrier._time()
            if barrier._watched:
                barrier._entered(self)
        else:
            core.request_slot(self)
            self.task = task
            await barrier._wait(self)
        _hold(link)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the slot back. Nothing is awaited here, so no cancellation can keep it."""
        barrier = self.barrier
        if get_ident() != barrier._thread:
            barrier._release_elsewhere(self)
            return
        core = barrier._core
        if core.gate_open and self.standing is LIVE and not barrier._watched:
            del core.inside[self]
            self.standing = ENDED
            core.mutation_version += 1
            self.task = None
        else:
            barrier._release(self)


class ImmediateSection(AsyncioSection):
    """A shared section that never waits: `with barrier.mutation_nowait(kind) as cut`."""

    __slots__ = ()

    def __enter__(self) -> Cut:
        barrier = self.barrier
        held = _held()
        link: Held = self
        if held.standing is LIVE and (outer := outer_sections(held, barrier)) is not None:
            link = Nested(self, outer)
        if get_ident() != barrier._thread or (task := _RUNNING.get(barrier._loop)) is None:
            task = barrier._bind()
        core = barrier._core
        if core.gate_open and self.standing is NEW:
            core.inside[self] = None
            self.standing = LIVE
        elif not core.request_slot_nowait(self):
            raise would_block(self)
        self.task = task
        self.since = barrier._time()
        if barrier._watched:
            barrier._entered(self)
        _hold(link)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the slot back."""
        barrier = self.barrier
        if get_ident() != barrier._thread:
            barrier._release_elsewhere(self)
            return
        core = barrier._core
        if core.gate_open and self.standing is LIVE and not barrier._watched:
            del core.inside[self]
            self.standing = ENDED
            core.mutation_version += 1
            self.task = None
        else:
            barrier._release(self)


class CheckpointSection(AsyncioSection):
    """The exclusive section: `async with barrier.checkpoint() as cut`."""

    __slots__ = ("timeout",)

    exclusive: ClassVar[bool] = True

    async def __aenter__(self) -> Cut:
        barrier = self.barrier
        outer = outer_sections(_held(), barrier)
        task = barrier._bind()
        if barrier._must_pass_through_loop():
            # Before the request, so that the gate is not shut for a turn in which nothing is read.
            barrier._arriving[self] = None
            try:
                await asyncio.sleep(0)
            finally:
                barrier._arriving.pop(self, None)
            barrier._bind()
        open_at_once = barrier._core.request_cut(self)
        self.task = task
        if open_at_once:
            barrier._opened_at_once(self)
        else:
            await barrier._wait(self)
        _hold(self if outer is None else Nested(self, outer))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the cut. Nothing is awaited here, so no cancellation can keep it."""
        if get_ident() != self.barrier._thread:
            self.barrier._release_elsewhere(self)
        else:
            self.barrier._release(self)
