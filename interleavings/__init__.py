"""The schedule explorer for asyncio: runs unmodified coroutines through every interleaving.

    result = interleavings.explore(program, cancels=1)
    result.assert_holds()

`program` is a callable that returns a fresh coroutine. See README.md beside this file for what a choice is, what a
state is, and what a verdict rests on.
"""

from .emitting import emit
from .errors import ExplorerUsageError, ForbiddenCall, TraceUnreadable, Violation
from .exploring import explore
from .replaying import ReplayResult, replay
from .result import Failure, Result
from .subject import Program, Subject
from .trace import Step, Trace
from .waits import Wait, register_wait
from .walkers import register_walker

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
