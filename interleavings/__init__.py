"""The schedule explorer for asyncio: runs unmodified coroutines through every interleaving.

    result = interleavings.explore(program, cancels=1)
    result.assert_holds()

`program` is a callable that returns a fresh coroutine. See README.md beside this file for what a choice is, what a
state is, and what a verdict rests on.
"""

from .errors import ExplorerUsageError, ForbiddenCall, TraceUnreadable, Violation
from .exploring import explore
from .replaying import ReplayResult, replay
from .report.emitting import emit
from .runtime.result import Failure, Result
from .runtime.subject import Program, Subject
from .runtime.trace import Step, Trace
from .runtime.waits import Wait, register_wait
from .state.walkers import register_walker

__all__ = [
    "ExplorerUsageError",
    "Failure",
    "ForbiddenCall",
    "Program",
    "ReplayResult",
    "Result",
    "Step",
    "Subject",
    "Trace",
    "TraceUnreadable",
    "Violation",
    "Wait",
    "emit",
    "explore",
    "register_wait",
    "register_walker",
    "replay",
]
