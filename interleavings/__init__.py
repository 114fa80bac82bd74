"""The schedule explorer for asyncio: runs unmodified coroutines through every interleaving.

    result = interleavings.explore(program, cancels=1)
    result.assert_holds()

`program` is a callable that returns a fresh coroutine. See README.md beside this file for what a choice is, what a
state is, and what a verdict rests on.
"""

from interleavings.emit import emit
from interleavings.errors import ExplorerUsageError, ForbiddenCall, TraceUnreadable, Violation
from interleavings.explore import explore
from interleavings.replay import ReplayResult, replay
from interleavings.result import Failure, Result
from interleavings.subject import Program, Subject
from interleavings.trace import Step, Trace
from interleavings.walkers import register_walker

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
    "emit",
    "explore",
    "register_walker",
    "replay",
]
