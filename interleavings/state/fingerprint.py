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
from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..errors import Unwalkable
from ..runtime.loop import ExplorerHandle, key_of
from ..runtime.tasks import STEP_WRAPPER, ExplorerTask, stepped_task
from .walkers import Walk, describe, find_path

if TYPE_CHECKING:
    from interleavings.runtime.run import Run

# Version 2 has no back references and no interning flags, both of which depend on reference counts.
_MARSHAL_VERSION = 2
_HERE = b"\x00the thread that explores\x00"


def fingerprint(run: Run) -> bytes:
    """Return the identity of the state the run is in. Raises `Unwalkable` with the place of what cannot be read."""
    walk = _walk_for(run)
    try:
        walk.run()
    except Unwalkable as error:
        path = find_path(_walk_for(run), error.subject)
        raise Unwalkable(error.subject, f"{error.reason}: {describe(error.subject)}, reached by {path}") from None
    return digest_of(walk)


def reading_of(value: Any) -> bytes:
    """Return 128 bits of any value by itself, the same in every process."""
    walk = Walk(0.0, {}, declared=False)
    walk.stack.append(value)
    try:
        walk.run()
    except Unwalkable as error:
        raise Unwalkable(
            error.subject, f"{error.reason}: {describe(error.subject)}, which observe() returned"
        ) from None
    return digest_of(walk)


def digest_of(walk: Walk) -> bytes:
    """Return 128 bits of what a reading wrote.

    The number of this thread, by which a program knows the thread it began on, is another in each process: it is read
    as one and the same.
    """
    content = marshal.dumps(walk.out, _MARSHAL_VERSION).replace(_written(get_ident()), _HERE)
    return hashlib.blake2b(content, digest_size=16).digest()


@cache
def _written(number: int) -> bytes:
    return marshal.dumps(number, _MARSHAL_VERSION)


def _walk_for(run: Run) -> Walk:
    walk = walk_of(run)
    roots = _roots(run)
    walk.keep.append(roots)
    walk.stack.extend(roots[::-1])
    return walk


def walk_of(run: Run) -> Walk:
    """Begin a reading of the state a run is in."""
    walk = Walk(run.loop.now, run.base_context, run.declared, run.subject.horizon)
    walk.hashed = run.loop.hashed_futures > 0
    walk.requests = "requests" in run.rules.sights
    return walk


def _roots(run: Run) -> list[Any]:
    roots = shared_roots(run)
    living = run.living()
    roots.append(len(living))
    roots.extend(sorted(living, key=run.loop.label_of))
    roots.extend(run.mains)
    roots.extend(waiting_roots(run, key_of, _key))
    return roots


def shared_roots(run: Run) -> list[Any]:
    """Return what is read before any task: budgets, what was declared, and what the last assertions hold on to."""
    loop, subject = run.loop, run.subject
    roots: list[Any] = [run.cancels_left, run.crashes_left, len(run.cancelled_labels), run.observed]
    if run.crashes_left:
        roots += [subject.durable, subject.recover]
    if "clock" in run.rules.sights:
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
    return roots


def waiting_roots(run: Run, handle_name: Callable[[ExplorerHandle], str], name: Callable[[Any], str]) -> list[Any]:
    """Return what may happen next, each with its name: handles, timers, jobs; and the failures nobody has seen."""
    loop = run.loop
    roots: list[Any] = []
    handles = [handle for handle in loop.ready if not handle._cancelled]
    if not run.fifo:
        handles.sort(key=handle_name)
    roots.append(len(handles))
    for handle in handles:
        roots.append(handle_name(handle))
        callback: Any = handle._callback
        task = stepped_task(callback)
        if task is None:
            roots.append(handle)  # the handle itself: whoever called call_soon may hold it, and cancel it
            continue
        if not isinstance(task, ExplorerTask) or handle._context is not task.context:
            roots.append(handle._context)
        if type(callback) is STEP_WRAPPER:  # the key says whose step it is
            held = gc.get_referents(callback)
            roots.append(len(held))
            roots.extend(held[1:])
        elif isinstance(task, ExplorerTask):
            roots.append(handle._args)
        else:
            roots.append(callback)
            roots.append(handle._args)
    if loop.timers:
        roots.append("timers")
        for timer in sorted(loop.timers, key=lambda timer: (timer._when, name(timer))):
            roots.append(name(timer))
            roots.append(timer)
    if loop.jobs:
        roots.append("jobs")
        for job in sorted(loop.jobs, key=name):
            roots.append(name(job))
            roots.append(job)
    roots.append(len(run.unseen))
    roots.extend(run.unseen)
    return roots


def _key(target: Any) -> str:
    key: str = target.key
    return key
