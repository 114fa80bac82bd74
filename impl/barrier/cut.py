"""Cut tokens, and the sections that a context holds.

A token proves that its bearer is inside a section of one particular barrier. Writers ask it (`require`) before they
change anything; it expires when the section ends.

Which sections a context holds is one context variable with an immutable linked list, innermost first. A section's exit
marks its token dead and never resets the variable: a generator may be closed in another context than the one that
entered it, and a reset there would raise inside the release. Dead links are trimmed at the next entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import CodeType
from typing import ClassVar, Protocol, TypeAlias

from ..errors import BarrierReentered, ForeignCut, Holder, StaleCut
from .admission import ENDED, LIVE, Standing, Ticket


class Named(Protocol):
    """What a token needs to know of its barrier."""

    @property
    def name(self) -> str:
        """The name in messages."""
        ...

    def emit(self, action: str, **fields: object) -> None:
        """Pass an event of a part that was given this token to the tracer."""
        ...

    def lets_heirs_in(self, section: Cut) -> bool:
        """Whether the caller, whose context holds this section, has only inherited it and may open another."""
        ...


class Cut(Ticket):
    """The token of one section. Live between enter and exit, and never again.

    `exclusive` tells the two sides apart: True inside `checkpoint()`, False inside `mutation()`.
    """

    __slots__ = ("barrier", "code", "instruction", "since")

    barrier: Named
    # Where the section is opened: what `place` is worked out from.
    code: CodeType
    instruction: int
    # When the request was made; from the grant on, when it was granted. In the clock of the front end.
    since: float

    def require(self, barrier: object, exclusive: bool = False) -> None:
        """Raise unless this token is live and of `barrier`; with `exclusive`, unless it is of the exclusive side.

        An exclusive token passes where a shared one would do: inside a checkpoint nobody else writes.
        """
        if barrier is not self.barrier:
            raise ForeignCut(
                f"a cut of barrier {self.barrier.name!r} was used to write to a part guarded by barrier "
                f"{getattr(barrier, 'name', barrier)!r}; the two do not exclude each other, so the write could fall "
                "into a checkpoint. Give both parts the same barrier, or open a section of the right one."
            )
        if self.standing is not LIVE:
            state = "has ended" if self.standing is ENDED else "is not open yet"
            raise StaleCut(
                f"a cut of barrier {self.barrier.name!r} (kind {self.kind!r}, opened at {self.place}) was used, but "
                f"its section {state}; the likely cause is a cut kept in a variable or handed to a task that outlived "
                "it. Open a section around the write."
            )
        if exclusive and not self.exclusive:
            raise ForeignCut(
                f"a shared cut of barrier {self.barrier.name!r} (kind {self.kind!r}, opened at {self.place}) was used "
                "where the exclusive one is needed: other writers may be inside now. Use `async with "
                "barrier.checkpoint()`."
            )

    @property
    def place(self) -> str:
        """Where the section was opened, as file:line. Worked out when asked for; the entry keeps only two numbers."""
        line = self.code.co_firstlineno
        for start, end, number in self.code.co_lines():
            if start <= self.instruction < end and number is not None:
                line = number
                break
        return f"{self.code.co_filename}:{line}"

    @property
    def task_name(self) -> str | None:
        """The name of the task that asked; front ends know it."""
        return None

    def as_holder(self, now: float) -> Holder:
        """This section as it is shown in messages and statistics."""
        return Holder(self.task_name, self.kind, now - self.since, self.place, self.exclusive)

    def __repr__(self) -> str:
        side = "exclusive" if self.exclusive else "shared"
        return f"<{side} cut of {self.barrier.name!r}, kind {self.kind!r}, {self.standing.value}>"


class Detachment:
    """A mark in the list: what lies below it does not bind tasks that were started above it.

    It stays transparent to the task that made it: that task would still wait for itself.
    """

    __slots__ = ("barrier", "made_here")

    standing: ClassVar[Standing] = LIVE

    def __init__(self, barrier: Named, made_here: Callable[[], bool]) -> None:
        self.barrier = barrier
        self.made_here = made_here


class Nested:
    """A link of the list that has others below it. The last one, which is the common case, stands without."""

    __slots__ = ("inner", "outer")

    standing: ClassVar[Standing] = LIVE

    def __init__(self, inner: Cut | Detachment, outer: Held) -> None:
        self.inner = inner
        self.outer = outer


Held: TypeAlias = Cut | Detachment | Nested


def _held_by_nobody() -> Cut:
    section = Cut()
    section.standing = ENDED
    return section


HELD: ContextVar[Held] = ContextVar("cleancut_held_sections", default=_held_by_nobody())  # noqa: B039 - never changed
"""The sections of this context; a dead link where there are none, so that one question, is it live, is enough."""


def outer_sections(held: Held, barrier: Named) -> Held | None:
    """Return `held` without its dead links; raise BarrierReentered when a live section of `barrier` binds the caller.

    A task that was started inside a section has inherited it, and is refused only while it is open: whether it has
    ended by then is a matter of timing. `detached()` at the start is not, nor a barrier that only warns of heirs.

    Sections of *other* barriers may be nested; that is why this is a list. Two tasks that nest two barriers in opposite
    orders can block each other all the same: the drain limit names them.
    """
    kept: list[Cut | Detachment] = []
    detached = False
    for section in links(held):
        if isinstance(section, Detachment):
            detached = detached or (section.barrier is barrier and not section.made_here())
        elif section.standing is not LIVE:
            continue
        elif section.barrier is barrier and not detached and not barrier.lets_heirs_in(section):
            raise BarrierReentered(
                f"a section of barrier {barrier.name!r} was asked for in a context that already holds one (kind "
                f"{section.kind!r}, opened by {_task(section)} at {section.place}). With a checkpoint waiting between "
                "the two, the outer would wait for the inner and the inner for the checkpoint. Pass the cut you hold "
                "to the helper instead of opening another one. A task that was started inside the section is refused "
                "while that is open and let in once it has ended: start one that is meant to outlive it inside `with "
                "barrier.detached():`, or make the barrier with inherited='warn' to find these places first."
            )
        kept.append(section)
    while kept and isinstance(kept[-1], Detachment):
        # Nothing live below: the mark has nothing left to hide.
        kept.pop()
    return chain(kept)


def links(held: Held) -> Iterator[Cut | Detachment]:
    """The links of a list, innermost first."""
    while isinstance(held, Nested):
        yield held.inner
        held = held.outer
    yield held


def chain(sections: Sequence[Cut | Detachment]) -> Held | None:
    """The list with these links, innermost first; None for no links."""
    result: Held | None = None
    for section in reversed(sections):
        result = section if result is None else Nested(section, result)
    return result


def _task(section: Cut) -> str:
    return "a callback" if section.task_name is None else f"task {section.task_name!r}"
