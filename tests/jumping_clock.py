"""An event loop whose clock jumps to the next timer instead of waiting for it.

For tests of time limits: hours pass in no time, and the same in every run. Nothing else may be awaited that takes real
time, so no executor threads and no files.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits; tells the loop how much time it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits and no timer is set: the program has stalled for good")
        self.now += max(timeout, 0.0)
        return list(super().select(0))


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that reads the selector's clock."""

    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_in_virtual_time(program: Coroutine[Any, Any, Result]) -> Result:
    """Run `program` to its end; a stall raises RuntimeError instead of hanging."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(program)
