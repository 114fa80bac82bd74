"""What is explored: one fresh instance of the program, and what is declared about it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ExplorerUsageError
from .identical import Declared

Main: TypeAlias = Coroutine[Any, Any, Any]


@dataclass(slots=True)
class Subject:
    """One fresh instance of a program, made anew for every run.

    `coroutine` is the main coroutine, or several that start side by side and together are the program.
    `state()` declares the shared state: once given, user objects are opaque and what it leaves out is not seen.
    `invariant()` is asked in every state; it raises, or returns a sentence, when it is violated.
    `observe()` is called once before the first step and after every step; it may raise `Violation`, and what it
    returns is part of the state.
    `finish()` is asked once when everything has ended; it raises, or returns a sentence, when the end is wrong.
    `durable()` says what a crash at this moment may leave: a mapping from a name to an image, a choice each. It is
    asked in every state while crashes are left; without it nothing survives, and the image is None.
    `recover(image)` returns the next process: a coroutine or several, which keep the other fields, or a `Subject`.
    `close()` is called when the run is over, whatever happened.
    `identical` names tasks that do the same to the same: states that differ only in who is who are then one state.
    `narrate()` says in words what the last step did, for the steps of a counterexample.
    `horizon` says that the program looks at distances of time alone, and at none above so many seconds (`moments.py`).
    """

    coroutine: Main | Sequence[Main]
    state: Callable[[], Any] | None = None
    invariant: Callable[[], object] | None = None
    observe: Callable[[], Hashable] | None = None
    finish: Callable[[], object] | None = None
    durable: Callable[[], Mapping[str, Any]] | None = None
    recover: Callable[[Any], Main | Sequence[Main] | Subject] | None = None
    close: Callable[[], object] | None = None
    identical: Declared = ()
    horizon: float | None = None
    narrate: Callable[[], Sequence[str]] | None = None

    def mains(self) -> tuple[Main, ...]:
        """Return the main coroutines as a tuple."""
        if isinstance(self.coroutine, Sequence):
            return tuple(self.coroutine)
        return (self.coroutine,)


Program: TypeAlias = Callable[[], Main | Subject]


def fresh_subject(program: Program) -> Subject:
    """Call the program once and return its subject; a bare coroutine becomes one."""
    made: object = program()
    if inspect.iscoroutine(made):
        return Subject(made)
    if not isinstance(made, Subject):
        raise ExplorerUsageError(
            f"the program returned {type(made).__name__}; it must return a fresh coroutine or a Subject. "
            "Pass the coroutine function itself, or a function that builds the objects and returns the coroutine"
        )
    require_coroutines(made)
    return made


def require_coroutines(subject: Subject) -> None:
    """Refuse a subject that holds anything but coroutines, or none."""
    for coroutine in subject.mains():
        if not inspect.iscoroutine(coroutine):
            raise ExplorerUsageError(
                f"Subject.coroutine holds {type(coroutine).__name__}; it must be a fresh coroutine or several"
            )
    if not subject.mains():
        raise ExplorerUsageError("Subject.coroutine is empty; there is nothing to run")


def identity_of(program: Program) -> dict[str, Any]:
    """Return how a trace names the program: its reference, or what `program.trace_identity` says.

    A function of the script that is running is named by the script's file, under which a replay can import it. A
    callable that is built from parameters sets the attribute `trace_identity`, a JSON object, on itself.
    """
    declared = getattr(program, "trace_identity", None)
    if declared is not None:
        return dict(declared)
    function: Any = program
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    module = getattr(function, "__module__", None) or "?"
    if module == "__main__":
        module = _importable_name_of_main()
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return {"reference": f"{module}:{name}"}


def _importable_name_of_main() -> str:
    """Return `package.module` after `python -m`, the stem of a script's file, and `__main__` where there is no file."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    stem = Path(getattr(main, "__file__", None) or "").stem
    return stem if stem.isidentifier() else "__main__"
