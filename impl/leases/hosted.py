"""The barrier that a host opens sections of, for holders in other processes and for itself.

It is a `CheckpointBarrier`: ledger, buffer, data plane and checkpointer in the host's process join it as any other.
What it adds: the sections of a lease are named after their holder, in messages and statistics; and a cut, whoever asked
for it, is open only once every part in another process has been told which tokens are void.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from sys import _getframe

from ..barrier import UNSET, CheckpointBarrier, CheckpointSection, Cut, MutationSection, Unset
from ..barrier.admission import NEW
from ..barrier.arguments import Tracer, seconds
from .table import Asking


class LeasedMutation(MutationSection):
    """A shared section of a holder in another process."""

    __slots__ = ("asked_at",)

    asked_at: str

    @property
    def place(self) -> str:
        """Where the holder opened it, as file:line."""
        return self.asked_at


class FencedCheckpoint(CheckpointSection):
    """The exclusive section; entered once the parts in other processes know what is void."""

    __slots__ = ("asked_at",)

    barrier: HostedBarrier
    asked_at: str | None

    @property
    def place(self) -> str:
        """Where it was opened, by a holder in another process or here."""
        return super().place if self.asked_at is None else self.asked_at

    async def __aenter__(self) -> Cut:
        await super().__aenter__()
        try:
            await self.barrier.before_a_cut()
        except BaseException:
            self.barrier._release(self)
            raise
        return self


async def _nobody_to_tell() -> None:
    return


class HostedBarrier(CheckpointBarrier):
    """See the module. `before_a_cut` is awaited when a drain is over, before anything is read."""

    def __init__(
        self,
        name: str = "checkpoint",
        drain_timeout: float | None = None,
        hold_warning: float | None = None,
        trace: Tracer | None = None,
    ) -> None:
        super().__init__(name, drain_timeout, hold_warning, trace)
        self.before_a_cut: Callable[[], Awaitable[None]] = _nobody_to_tell

    def checkpoint(self, timeout: float | Unset | None = UNSET) -> FencedCheckpoint:
        """The exclusive section, as an async context manager; for `timeout` see CheckpointBarrier."""
        return self._fenced(None, "checkpoint", timeout)

    def leased(self, asking: Asking) -> LeasedMutation | FencedCheckpoint:
        """The section that a holder elsewhere asks for, to be entered by a task of the host that stands for it."""
        if asking.exclusive:
            return self._fenced(asking.place, asking.kind, asking.timeout)
        section = LeasedMutation()
        frame = _getframe(1)
        section.barrier = self
        section.kind = asking.kind
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        section.asked_at = asking.place
        return section

    def _fenced(self, place: str | None, kind: str, timeout: float | Unset | None) -> FencedCheckpoint:
        section = FencedCheckpoint()
        frame = _getframe(2)
        section.barrier = self
        section.kind = kind
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        section.asked_at = place
        section.timeout = self._drain_timeout if isinstance(timeout, Unset) else seconds("timeout", timeout)
        return section
