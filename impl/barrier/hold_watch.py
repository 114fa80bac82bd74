"""Logs the sections that are open for too long, each once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .section import Section, Timer

if TYPE_CHECKING:
    from .front_end import BarrierFrontEnd

logger = logging.getLogger("cleancut.barrier")


class HoldWatch:
    """One timer for all sections of a barrier, armed while any is open.

    Nobody cancels it, which would cost more than the section that ended: it looks once more, finds nothing to wait
    for, and rests. So it outlives the last section by at most the limit.
    """

    def __init__(self, barrier: BarrierFrontEnd, limit: float) -> None:
        self._barrier = barrier
        self._limit = limit
        self._timer: Timer | None = None

    def opened(self, section: Section) -> None:
        """A section was let in."""
        section.warned = False
        if self._timer is None:
            self._look_in(self._limit)

    def forget_loop(self) -> None:
        """The barrier moves to another loop, idle; the timer stays behind."""
        if self._timer is not None:
            self._barrier._call_off(self._timer)
            self._timer = None

    def _look_in(self, delay: float) -> None:
        self._timer = self._barrier._call_later(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        barrier = self._barrier
        now = barrier._time()
        due: list[float] = []
        for section in barrier._core.holders():
            assert isinstance(section, Section)
            left = self._limit - (now - section.since)
            if section.warned:
                continue
            if left > 0:
                due.append(left)
                continue
            section.warned = True
            logger.warning(
                "Barrier %r: a section is open for longer than hold_warning (%s s): %s. Behind it wait %d mutations "
                "and %d checkpoints. The likely cause is an await inside the section that belongs outside.",
                barrier.name,
                self._limit,
                section.as_holder(now),
                barrier._core.waiting_mutations,
                barrier._core.waiting_checkpoints,
            )
        if due:
            self._look_in(min(due))
