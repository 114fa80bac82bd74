"""The identity of a state whose identical tasks have no names, and the check that they are identical.

What is read is still everything: only the labels of declared tasks are left out. Equal readings therefore mean that
one state becomes the other by exchanging tasks, whatever order the tasks are read in; a good order merely finds more
states equal. Tasks that shared objects lead to are met in the order of those objects (a waiter queue, say); the rest
is sorted by what each is, read by itself.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unwalkable
from ..runtime.frames import frame_of
from ..runtime.identical import Identical, Naming
from ..runtime.loop import name_of
from ..runtime.tasks import ExplorerTask
from .fingerprint import digest_of, shared_roots, waiting_roots, walk_of
from .walkers import Walk, describe, find_path

if TYPE_CHECKING:
    from interleavings.runtime.run import Run, Target


def folded_fingerprint(run: Run, order: Sequence[ExplorerTask] = ()) -> tuple[bytes, Naming]:
    """Return the identity of a state up to who is who, and the names that its tasks got in it.

    `order` is for the check below: these tasks are read first, as they stand there.
    """
    identical = run.loop.identical
    assert identical is not None
    folded, walk = _begun(run, identical)
    for task in [*order, *_by_content(walk, folded)] if order else _by_content(walk, folded):
        if id(task) not in walk.memo:  # reading one may lead to another
            _read(walk, [task])
    naming = walk.naming
    assert naming is not None
    mains = [main for main in run.mains if identical.place(main.label) is not None]
    walk.out.append(tuple(sorted(walk.memo[id(main)] for main in mains)))

    def name(target: Any) -> str:
        return name_of(target, naming)

    _read(walk, waiting_roots(run, name, name))
    return digest_of(walk), naming


def canonical_options(options: dict[str, Target], naming: Naming) -> dict[str, tuple[str, Target]]:
    """Return what is enabled by the names of a folded state: the name that the run knows it by, and the target."""
    found: dict[str, tuple[str, Target]] = {}
    for key, target in options.items():
        name = base = name_of(target, naming)
        number = 1
        while name in found:
            number += 1
            name = f"{base} #{number}"
        found[name] = (key, target)
    return found


def _begun(run: Run, identical: Identical) -> tuple[list[ExplorerTask], Walk]:
    """Read what is shared and every other task; return the identical ones, and the reading so far."""
    walk = walk_of(run)
    walk.naming = Naming(identical)
    living = run.living()
    tasks = dict.fromkeys([*living, *run.mains])
    folded: list[ExplorerTask] = []
    others: list[ExplorerTask] = []
    for task in tasks:
        # A task of a factory of the program's own keeps its name: it has a hash of its own as well.
        one_of_them = isinstance(task, ExplorerTask) and identical.place(task.label) is not None
        (folded if one_of_them else others).append(task)
    others.sort(key=run.loop.label_of)
    _read(walk, [*shared_roots(run), len(living), *others])
    return folded, walk


def _read(walk: Walk, roots: list[Any]) -> None:
    walk.keep.append(roots)
    walk.stack.extend(roots[::-1])
    try:
        walk.run()
    except Unwalkable as error:
        again = Walk(walk.now, walk.base, walk.declared, walk.horizon)
        again.stack.extend(roots[::-1])
        path = find_path(again, error.subject)
        raise Unwalkable(error.subject, f"{error.reason}: {describe(error.subject)}, reached by {path}") from None


def _by_content(walk: Walk, tasks: list[ExplorerTask]) -> list[ExplorerTask]:
    """Sort the tasks that nothing has led to yet by what each of them is; equal ones stay in any order."""
    unmet = [task for task in tasks if id(task) not in walk.memo]
    if len(unmet) < 2:
        return unmet
    return sorted(unmet, key=lambda task: (_content(walk, task), task.label))


def _content(walk: Walk, value: Any) -> bytes:
    """Return what an object is, seen from what has been read already; the reading itself does not go on."""
    aside = Walk(walk.now, walk.base, walk.declared, walk.horizon)
    aside.hashed = walk.hashed
    aside.memo = dict(walk.memo)
    assert walk.naming is not None
    aside.naming = walk.naming.copy()
    _read(aside, [value])
    walk.keep.append(aside)  # no address that it saw may be used again
    return digest_of(aside)


# ----------------------------------------------------------------------------------------------- are they identical?


def standing_at_their_start(run: Run, identical: Identical) -> list[list[ExplorerTask]] | None:
    """Return the tasks of every group when all of them are there and none has taken a step; else None."""
    labels = run.loop.labels
    groups = []
    for group in identical.groups:
        tasks = [labels.get(member) for member in group]
        if not all(isinstance(task, ExplorerTask) and _is_fresh(task) for task in tasks):
            return None
        groups.append([task for task in tasks if isinstance(task, ExplorerTask)])
    return groups


def _is_fresh(task: ExplorerTask) -> bool:
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def difference(run: Run, identical: Identical) -> str | None:
    """Say what tells tasks of one group apart, in a state where all of them stand at their start."""
    groups = standing_at_their_start(run, identical)
    assert groups is not None
    _, walk = _begun(run, identical)
    for group in groups:
        for task in group:
            if id(task) in walk.memo:
                return _told_apart(run, task)
        contents = [_content(walk, task) for task in group]
        for task, content in zip(group, contents, strict=True):
            if content != contents[0]:
                return _what_differs(walk, group[0], task)
    flat = [task for group in groups for task in group]
    usual, _ = folded_fingerprint(run, flat)
    for group in groups:
        for first, second in itertools.pairwise(group):
            swapped = [second if task is first else first if task is second else task for task in flat]
            if folded_fingerprint(run, swapped)[0] != usual:
                return f"{first.label} and {second.label} cannot be exchanged: what they share is not shared alike"
    return None


def _told_apart(run: Run, task: ExplorerTask) -> str:
    identical = run.loop.identical
    assert identical is not None
    others = [other for other in run.living() if identical.place(run.loop.label_of(other)) is None]
    walk = walk_of(run)
    walk.stack.extend([*shared_roots(run), *others][::-1])
    path = find_path(walk, task)
    return (
        f"{task.label} has a place of its own in an object that others see ({path}); start identical tasks as the main "
        "coroutines of a Subject, or keep no list of them"
    )


def _what_differs(walk: Walk, first: ExplorerTask, second: ExplorerTask) -> str:
    (code, frame), (other_code, other_frame) = frame_of(first.get_coro()), frame_of(second.get_coro())
    if code is not other_code:
        return f"{first.label} runs {code.co_qualname}, {second.label} runs {other_code.co_qualname}"
    mine, theirs = frame.f_locals, other_frame.f_locals
    for name in mine:
        if name not in theirs or _content(walk, mine[name]) != _content(walk, theirs[name]):
            return (
                f"{first.label} and {second.label} run {code.co_qualname} with different {name!r}: "
                f"{describe(mine[name])} and {describe(theirs.get(name))}"
            )
    return f"{first.label} and {second.label} differ in what belongs to the task itself, such as its context"
