"""A crash as a choice: what it may leave behind, and the program that goes on from there.

The process that died is kept as it is until the run is over, so nothing of it runs any more: no `finally`, no callback,
no finalizer. What survives is therefore exactly what `durable` said at the instant of the crash.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ExplorerUsageError
from .subject import Subject, require_coroutines

CRASH = "crash"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Crash:
    """The choice to let the process die here; `what` names what it leaves, `image` is that."""

    what: str
    image: Any

    @property
    def key(self) -> str:
        """The name of the choice."""
        return f"{CRASH} {self.what}".rstrip()


def possible_crashes(subject: Subject) -> list[Crash]:
    """Return one choice for each image that a crash at this moment may leave."""
    if subject.durable is None:
        return [Crash("", None)]
    images: object = subject.durable()
    if not isinstance(images, Mapping) or not images or not all(isinstance(name, str) for name in images):
        raise ExplorerUsageError(
            f"Subject.durable returned {images!r}; it must return a mapping from a name to what a crash may leave, one "
            "entry for each possibility, for example {'': disk.synced()}"
        )
    return [Crash(name, image) for name, image in images.items()]


def next_subject(crashed: Subject, image: Any) -> Subject:
    """Ask `recover` for the program that goes on; what it leaves open stays as it was.

    Coroutines keep every other field of the subject that crashed. A `Subject` stands for itself, and takes over
    `durable` and `recover` alone where it has no `recover` of its own.
    """
    assert crashed.recover is not None
    made: object = crashed.recover(image)
    if isinstance(made, Subject):
        if made.recover is None:
            made = dataclasses.replace(made, durable=made.durable or crashed.durable, recover=crashed.recover)
    elif inspect.iscoroutine(made) or (isinstance(made, Sequence) and not isinstance(made, (str, bytes))):
        made = dataclasses.replace(crashed, coroutine=made)
    else:
        raise ExplorerUsageError(
            f"Subject.recover returned {type(made).__name__}; it must return a fresh coroutine, several, or a Subject"
        )
    require_coroutines(made)
    return made


def require_recovery(subject: Subject, crashes: int) -> None:
    """Refuse a budget of crashes for a program that does not say how it goes on after one."""
    if crashes and subject.recover is None:
        for coroutine in subject.mains():
            coroutine.close()
        raise ExplorerUsageError(
            f"crashes={crashes}: the program does not say how it goes on after a crash. Return "
            "Subject(main(), durable=..., recover=...): durable() names what a crash may leave, and recover(image) "
            "returns the coroutine of the next process"
        )
