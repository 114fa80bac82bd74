"""Watches a run for a stall, and says what everybody waits for.

A stall is a stretch in which no section ended and the trainer did not move, while no save was in progress. The limits
have to be longer than the longest generation and the longest train step, because those look the same from outside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cleancut_leaf.words import counted

from ..errors import RunStalled
from .parts import RunParts

logger = logging.getLogger("cleancut.controller")

#: Looks within each limit; a stall is noticed at most this much of a limit late.
_LOOKS_PER_LIMIT = 4


class Watchdog:
    """Logs a stall after `stall_warning` seconds, and raises RunStalled after `stall_timeout`."""

    def __init__(
        self, parts: RunParts, describe: Callable[[], list[str]], save_in_progress: Callable[[], bool]
    ) -> None:
        self._parts = parts
        self._describe = describe
        self._save_in_progress = save_in_progress
        limits = (parts.config.stall_warning, parts.config.stall_timeout)
        self._limits = [limit for limit in limits if limit is not None]

    @property
    def wanted(self) -> bool:
        """Whether any limit is set; without one there is nothing to run."""
        return bool(self._limits)

    async def run(self) -> None:
        """Look now and then, for ever."""
        loop = asyncio.get_running_loop()
        config = self._parts.config
        seen, since, warned = self._mark(), loop.time(), False
        while True:
            await asyncio.sleep(min(self._limits) / _LOOKS_PER_LIMIT)
            now = loop.time()
            if self._save_in_progress() or self._mark() != seen:
                seen, since, warned = self._mark(), now, False
                continue
            still = now - since
            if config.stall_timeout is not None and still >= config.stall_timeout:
                raise RunStalled(self.report(still))
            if config.stall_warning is not None and still >= config.stall_warning and not warned:
                warned = True
                logger.warning("%s", self.report(still))

    def report(self, seconds: float) -> str:
        """What everybody waits for, in one text."""
        parts = self._parts
        barrier = parts.barrier.statistics()
        buffer = parts.buffer.statistics()
        lines = [
            *self._describe(),
            f"replay buffer: permits {buffer['free']} of {buffer['capacity']} free, {buffer['permits_held']} held, "
            f"{buffer['permits_waited_for']} waited for; slots {buffer['unready']} unready, {buffer['ready']} ready, "
            f"{buffer['claimed']} claimed",
            f"sampler {parts.sampler.name}: dispatch cursor {parts.sampler.cursor}, version {parts.progress.version}",
            f"ledger: {counted(len(parts.ledger.entries), 'group')} pending; spare pool: "
            f"{counted(len(parts.pool), 'prompt')}",
            f"barrier: {counted(barrier.active_mutations, 'section')} open, "
            f"{counted(barrier.waiting_mutations, 'mutation')} and "
            f"{counted(barrier.waiting_checkpoints, 'checkpoint')} waiting"
            + "".join(f"; held by {holder}" for holder in barrier.holders),
        ]
        return (
            f"nothing has moved for {seconds:.0f} s. Everybody waits:\n  " + "\n  ".join(lines) + "\n"
            "The likely cause is the one that the others wait for: a generation or train step that hangs (see "
            "attempt_timeout), or a holder of the barrier. If it is only slow, raise stall_warning and stall_timeout."
        )

    def _mark(self) -> tuple[int, int]:
        return self._parts.barrier.mutation_version, self._parts.progress.version
