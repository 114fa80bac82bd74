"""Judges the state a run is in: a broken invariant, an error nobody saw, a deadlock, a leak, or a good end."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Violation
from ..runtime.result import Failure
from ..runtime.tasks import ExplorerTask, exception_of, was_cancelled

if TYPE_CHECKING:
    from interleavings.runtime.run import Run, Target


def judge(run: Run, options: dict[str, Target]) -> Failure | None:
    """Return the failure of this state, if it has one. Sets the run's `outcome` when it has come to its end."""
    if run.escaped is not None:
        return _failure_from("exception", run.escaped, run.escaped_from)
    if run.loop.unhandled:
        return _unhandled(run.loop.unhandled[0])
    if run.invariant is not None:
        failure = _ask("invariant", run.invariant)
        if failure is not None:
            return failure
    ended = True
    for main in run.mains:
        if not main.done():
            ended = False
            continue
        failure = _main_failure(run, main)
        if failure is not None:
            return failure
    if not ended:
        if run.only_environment(options):
            return _deadlock(run)
        return None
    leaked = [task for task in run.living() if not getattr(task, "housekeeping", False)]
    if leaked:
        return _leak(run, leaked)
    if options:
        return None
    return _end(run)


def _main_failure(run: Run, main: ExplorerTask) -> Failure | None:
    if was_cancelled(main):
        if run.cancelled_labels:
            return None  # the environment cancelled somebody, and the program passed it on
        return Failure("exception", "CancelledError", f"{main.label} ended cancelled, and nobody had cancelled it")
    exception = exception_of(main)
    return None if exception is None else _failure_from("exception", exception, f"in {main.label}")


def _failure_from(kind: str, error: BaseException, where: str) -> Failure:
    if isinstance(error, Violation):
        return Failure("violation", error.property, error.message, error.details)
    leaves = _leaves(error)
    first = leaves[0]
    text = str(first)
    if len(leaves) > 1:
        text = "; ".join(f"{type(leaf).__name__}: {leaf}" if str(leaf) else type(leaf).__name__ for leaf in leaves)
    return Failure(kind, type(first).__name__, f"{text} ({where})".lstrip(), {"raised_at": raised_at(first)})


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]


def raised_at(error: BaseException) -> str:
    """Return file, line and function where an exception was raised."""
    entries = traceback.extract_tb(error.__traceback__)
    if not entries:
        return "unknown"
    last = entries[-1]
    return f"{last.filename.rpartition('/')[2]}:{last.lineno} in {last.name}"


def _unhandled(context: dict[str, Any]) -> Failure:
    exception = context.get("exception")
    message = str(context.get("message", "unhandled error"))
    if isinstance(exception, BaseException):
        return _failure_from("unhandled-exception", exception, message)
    return Failure("unhandled-exception", "loop", message)


def _ask(kind: str, question: Callable[[], object]) -> Failure | None:
    name = getattr(question, "__name__", kind)
    try:
        answer = question()
    except Violation as violation:
        return Failure("violation", violation.property, violation.message, violation.details)
    except Exception as error:
        return Failure(kind, name, str(error) or type(error).__name__, {"raised_at": raised_at(error)})
    if answer is None or answer is True:
        return None
    return Failure(kind, name, "it returned False" if answer is False else str(answer))


def _deadlock(run: Run) -> Failure:
    labels = sorted(run.loop.label_of(task) for task in run.living())
    return Failure("deadlock", "deadlock", f"nothing can run any more; blocked: {', '.join(labels)}")


def _leak(run: Run, leaked: list[ExplorerTask]) -> Failure:
    labels = sorted(run.loop.label_of(task) for task in leaked)
    verb = "is" if len(labels) == 1 else "are"
    text = f"the program ended and {', '.join(labels)} {verb} still pending; await or cancel what is started"
    if run.cancelled_labels:
        text += f" (after {', '.join(run.cancelled_labels)} was cancelled)"
    return Failure("leaked-task", "leaked-task", text)


def _end(run: Run) -> Failure | None:
    run.living()  # brings the list of unseen failures up to date
    for task in run.unseen:
        label = run.loop.label_of(task)
        if was_cancelled(task):
            return Failure(
                "unseen-exception", "CancelledError", f"{label} raised CancelledError by itself and nobody awaited it"
            )
        error = exception_of(task)
        assert error is not None
        awaited = run.rules.strict and not task._log_traceback
        seen = "which was awaited and ignored; the search is strict" if awaited else "which nobody awaited"
        return _failure_from("unseen-exception", error, f"in {label}, {seen}")
    if run.subject.finish is not None:
        failure = _ask("finish", run.subject.finish)
        if failure is not None:
            return failure
    run.outcome = _outcome(run)
    return None


def _outcome(run: Run) -> str:
    texts = []
    for main in run.mains:
        if was_cancelled(main):
            texts.append("cancelled")
        else:
            texts.append(f"returned {main._result!r}")  # type: ignore[attr-defined]
    return "; ".join(texts)
