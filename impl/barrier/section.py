"""A section of either side as both front ends know it: its token, its task, and why it was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..errors import CleancutError, WouldBlock
from .cut import Cut

if TYPE_CHECKING:
    from .front_end import BarrierFrontEnd


class Timer(Protocol):
    """What was set to happen later, and can be called off."""

    def cancel(self) -> object:
        """Call it off; nothing once it has happened."""
        ...


class Section(Cut):
    """What the sections of both sides and both front ends have beyond a token."""

    __slots__ = ("number", "refusal", "task", "warned")

    barrier: BarrierFrontEnd
    # What events call this section, unique for its barrier. Set by the first event, if there is a tracer.
    number: int
    # Set from the request to the end of the section: a token that outlives its section must not keep the task alive.
    task: object | None
    # Why a waiting request was withdrawn by somebody else: its drain limit, or the closing of the barrier.
    refusal: CleancutError | None
    # Its long hold was logged.
    warned: bool
    # The drain limit in seconds. Of the exclusive side alone, whose classes have the slot for it.
    timeout: float | None


def raise_refusal(section: Section) -> None:
    """Raise why a request was withdrawn by somebody else, if it was."""
    if section.refusal is not None:
        try:
            raise section.refusal
        finally:
            # The error's traceback holds this frame and so the section: no circle through both.
            section.refusal = None


def would_block(section: Section) -> WouldBlock:
    """The error for a mutation that may not wait and would have to."""
    return WouldBlock(
        f"a mutation (kind {section.kind!r}) of barrier {section.barrier.name!r} would have to wait: a checkpoint is "
        "open or draining. Use `async with barrier.mutation(...)` to wait for it, or try again later."
    )
