"""The checkpoint barrier on asyncio: writers share it, a checkpoint has it alone.

    async with barrier.mutation("group_commits") as cut:   # shared; waits only while a checkpoint drains or is open
        ledger.drop(cut, ...)
    async with barrier.checkpoint() as cut:                # exclusive; read every restart-facing value here
        ...

The order of entry is decided by `AdmissionCore`; this file adds tasks, futures, timers, and who may call. Waiters are
plain futures. A release is synchronous, so no cancellation, however placed, leaks a section.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop
from collections.abc import Callable
from sys import _getframe
from threading import get_ident
from time import monotonic

from ..errors import WrongLoop
from .admission import NEW
from .arguments import UNSET, Tracer, Unset, label, seconds
from .asyncio_sections import AsyncioSection, CheckpointSection, ImmediateSection, MutationSection
from .front_end import BarrierFrontEnd, Inherited
from .section import Section, Timer, raise_refusal


class CheckpointBarrier(BarrierFrontEnd):
    """Shared mutation slots and one exclusive checkpoint. Constructible before there is a loop.

    It belongs to one event loop at a time and moves to another only when idle and when the former does not run.
    `drain_timeout` is the default limit of a checkpoint's drain in seconds, None for no limit; `hold_warning` logs,
    under "cleancut.barrier", sections of either side that are open for longer. `trace` is called with every event.

    A task, thread or callback that was started inside a section has inherited it. With `inherited="refuse"` it is
    refused while that is open, and let in once it has ended, which is a matter of timing where nobody waits for it.
    With "warn" it is let in either way, and what would have been refused is logged; who holds a section by itself is
    refused as ever.
    """

    def __init__(
        self,
        name: str = "checkpoint",
        drain_timeout: float | None = None,
        hold_warning: float | None = None,
        trace: Tracer | None = None,
        *,
        inherited: Inherited = "refuse",
    ) -> None:
        super().__init__(name, drain_timeout, hold_warning, trace, inherited=inherited)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    # -- sections

    def mutation(self, kind: str = "mutation") -> MutationSection:
        """A shared section, as an async context manager. `kind` is a free label for statistics and messages."""
        section = MutationSection()
        frame = _getframe(1)
        section.barrier = self
        # Asked here, since asking a function costs every section as much as the label itself.
        section.kind = kind if type(kind) is str else label("kind", kind)
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        return section

    def mutation_nowait(self, kind: str = "mutation") -> ImmediateSection:
        """A shared section, as a plain context manager; entering raises WouldBlock instead of waiting."""
        section = ImmediateSection()
        frame = _getframe(1)
        section.barrier = self
        section.kind = kind if type(kind) is str else label("kind", kind)
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        return section

    def checkpoint(self, timeout: float | Unset | None = UNSET) -> CheckpointSection:
        """The exclusive section, as an async context manager.

        `timeout` limits the drain alone, from the moment when this request heads the queue; UNSET takes the barrier's
        `drain_timeout`, None is unlimited. Passes through the loop once even when free, else a tight loop of
        checkpoints would never let a writer run.
        """
        section = CheckpointSection()
        frame = _getframe(1)
        section.barrier = self
        section.kind = "checkpoint"
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        section.timeout = self._drain_timeout if isinstance(timeout, Unset) else seconds("timeout", timeout)
        return section

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it belongs to; None before its first section."""
        return self._loop

    # -- entry

    def _bind(self) -> asyncio.Task[object] | None:
        """Belong to the running loop from here on, or refuse; return the running task, if it is one.

        The answer does not depend on whether there is contention.
        """
        former, loop = self._loop, _get_running_loop()
        if loop is not None and loop is former:
            return asyncio.current_task(loop)
        if loop is None:
            raise WrongLoop(
                f"barrier {self.name!r} was used where no event loop runs; the likely cause is a worker thread. "
                "Enter the section in a coroutine and hand the work to the thread from there, or use "
                "`asyncio.run_coroutine_threadsafe(coroutine, loop)`. On trio use `impl.trio.CheckpointBarrier`."
            )
        if former is not None:
            if not self._core.free:
                if former.is_closed():
                    raise self._dropped("event loop", "a task that was dropped instead of cancelled")
                raise WrongLoop(self._foreign("sections are open or waiting in the former"))
            if former.is_running():
                raise WrongLoop(self._foreign("the former still runs"))
        self._loop = loop
        self._thread = get_ident()
        # The clock of the loop, without the detour where that is the usual one.
        usual = getattr(type(loop), "time", None) is asyncio.BaseEventLoop.time
        self._time = monotonic if usual else loop.time
        self._arriving.clear()
        if self._hold_watch is not None:
            self._hold_watch.forget_loop()
        return asyncio.current_task(loop)

    def _foreign(self, cause: str) -> str:
        return (
            f"barrier {self.name!r} belongs to one event loop and was used in another, while {cause}. From another "
            "thread use `asyncio.run_coroutine_threadsafe(coroutine, loop)`; one loop after the other is fine once "
            "every section has ended."
        )

    async def _wait(self, section: AsyncioSection) -> None:
        """Wait for the grant of a queued request; whatever ends the wait, the request is settled afterwards."""
        assert self._loop is not None
        section.waiter = self._loop.create_future()
        self._queued(section)
        try:
            await section.waiter
        except BaseException:
            # The same exception passes out, whoever was woken by this.
            self._settle(section)
            raise
        finally:
            section.waiter = None
        raise_refusal(section)

    def _wake(self, section: Section) -> None:
        assert isinstance(section, AsyncioSection)
        waiter = section.waiter
        if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
            waiter.set_result(None)

    def _on_its_way_out(self, section: Section) -> bool:
        assert isinstance(section, AsyncioSection)
        return section.waiter is None or section.waiter.done()

    # -- exit

    def _release_elsewhere(self, section: AsyncioSection) -> None:
        """Give a section back from a thread that is not the loop's: there, if it still runs, and here if not.

        Such a release comes from the collector, when it finds an abandoned coroutine, or from a plain `with` that
        was moved.
        """
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._release, section)
        else:
            self._release(section)

    # -- the loop

    def _call_later(self, delay: float, callback: Callable[..., None], *arguments: Section) -> Timer | None:
        if self._loop is None or self._loop.is_closed():
            return None
        return self._loop.call_later(delay, callback, *arguments)

    def _call_after_this_turn(self, callback: Callable[..., None], *arguments: Section) -> None:
        assert self._loop is not None
        self._loop.call_soon(callback, *arguments)

    def _call_off(self, timer: Timer) -> None:
        timer.cancel()

    def _refuse_close_from_outside(self) -> None:
        if self._loop is not None and self._loop.is_running() and _get_running_loop() is not self._loop:
            raise WrongLoop(
                f"barrier {self.name!r} was closed from outside its event loop while that runs. "
                "Use `loop.call_soon_threadsafe(barrier.close, reason)`."
            )

    def _current_task(self) -> asyncio.Task[object] | None:
        return None if _get_running_loop() is None else asyncio.current_task()
