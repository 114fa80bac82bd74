"""The identity of a state: 128 bits of everything that can influence what happens next.

Two runs get the same identity only if living tasks (where each coroutine stands and all its frames hold, pending
cancellations), ready handles with their arguments and contexts, timers relative to now, jobs, failures nobody has
seen, budgets, what a crash would leave, what was declared and what the observer returned are alike. The order of the
ready list is left out because any member may run next; the search in FIFO order puts it in.
"""

from __future__ import annotations

import gc
import hashlib
import marshal
import random
from typing import TYPE_CHECKING, Any

from .errors import Unwalkable
from .loop import key_of
from .tasks import STEP_WRAPPER, ExplorerTask, stepped_task
from .walkers import Walk, describe, find_path

if TYPE_CHECKING:
    from interleavings.run import Run

# Version 2 has no back references and no interning flags, both of which depend on reference counts.
_MARSHAL_VERSION = 2


def fingerprint(run: Run) -> bytes:
    """Return the identity of the state the run is in. Raises `Unwalkable` with the place of what cannot be read."""
    walk = _walk_for(run)
    try:
        walk.run()
    except Unwalkable as error:
        path = find_path(_walk_for(run), error.subject)
        raise Unwalkable(error.subject, f"{error.reason}: {describe(error.subject)}, reached by {path}") from None
    return hashlib.blake2b(marshal.dumps(walk.out, _MARSHAL_VERSION), digest_size=16).digest()


def _walk_for(run: Run) -> Walk:
    walk = Walk(run.loop.now, run.base_context, run.declared)
    roots = _roots(run)
    walk.keep.append(roots)
    walk.stack.extend(roots[::-1])
    return walk


def _roots(run: Run) -> list[Any]:
    loop, subject = run.loop, run.subject
    roots: list[Any] = [run.cancels_left, run.crashes_left, len(run.cancelled_labels), run.observed]
    if run.crashes_left:
        roots += [subject.durable, subject.recover]
    if loop.clock_read:
        roots.append(loop.now)
    if loop.random_seeded:
        roots.append(random.getstate())
    if loop.hashed_futures:
        roots.append(loop.hashed_futures)
    roots.append(loop.get_task_factory())
    roots.append(loop.get_exception_handler())
    state = run.state
    if state is not None:
        roots.append(state())
    roots.append(subject.finish)
    roots.append(run.invariant)
    living = run.living()
    roots.append(len(living))
    roots.extend(sorted(living, key=loop.label_of))
    roots.extend(run.mains)
    handles = [handle for handle in loop.ready if not handle._cancelled]
    if not run.fifo:
        handles.sort(key=key_of)
    roots.append(len(handles))
    for handle in handles:
        roots.append(key_of(handle))
        callback: Any = handle._callback
        task = stepped_task(callback)
        if not isinstance(task, ExplorerTask) or handle._context is not task.context:
            roots.append(handle._context)
        if type(callback) is STEP_WRAPPER:  # the key says whose step it is
            roots.append(gc.get_referents(callback)[1:])
        elif isinstance(task, ExplorerTask):
            roots.append(handle._args)
        else:
            roots.append(callback)
            roots.append(handle._args)
    if loop.timers:
        roots.append("timers")
        for timer in sorted(loop.timers, key=lambda timer: (timer._when, timer.key)):
            roots.append(timer.key)
            roots.append(timer)
    if loop.jobs:
        roots.append("jobs")
        for job in sorted(loop.jobs, key=lambda job: job.key):
            roots.append(job.key)
            roots.append(job)
    roots.append(len(run.unseen))
    roots.extend(run.unseen)
    return roots
