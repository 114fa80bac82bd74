"""What a state has not read never makes a verdict complete: generated hidden things, pruned against unpruned."""

from __future__ import annotations

import _random
import asyncio
import collections
import datetime
import decimal
import functools
import io
import queue
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from explorer_hidden_kinds import KINDS
from explorer_hidden_places import CHANGES, PLACES, combinations, hiding, lost

from interleavings import explore
from interleavings.errors import Unwalkable
from interleavings.runtime.loop import ExplorerLoop
from interleavings.state import instances, readers, statics, walkers

EACH = 2
"""Pairs of a place and a change for each kind; `python tests/explorer_hidden_places.py` goes through all of them."""

PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_case_G51_what_an_object_hides_is_state(part: int) -> None:
    """Pruned and unpruned outcomes are the same, or the verdict is not complete and says why."""
    assert [found for one in combinations(EACH)[part::PARTS] if (found := lost(*one))] == []


def test_there_are_kinds_places_and_changes_enough() -> None:
    """At least 400 combinations, 25 kinds, 5 places and 4 changes."""
    print(f"{len(combinations(EACH))} of {len(KINDS)} kinds, {len(PLACES)} places, {len(CHANGES)} changes")
    assert len(combinations(EACH)) >= 400
    assert len(KINDS) >= 25
    assert len(PLACES) >= 5
    assert len(CHANGES) >= 4


def test_hidden_things_decide_the_outcome() -> None:
    """A kind whose programs all end alike would show nothing; and most kinds are read, not refused."""
    alike, complete = [], 0
    for kind in KINDS:
        program = hiding(kind, "closure", "a list")
        if len(explore(program, keep_going=True, prune=False).outcomes) < 2:
            alike.append(kind)
        complete += explore(program, keep_going=True).complete
    assert alike == []
    assert complete >= len(KINDS) * 3 // 4


# ------------------------------------------------------------------------------------------- a mutant for each reader


@pytest.fixture
def fresh_handlers() -> Iterator[None]:
    """Let every type be asked for again, before and after."""
    kept = dict(walkers._handlers)
    walkers._handlers.clear()
    walkers._handlers.update(readers.BUILT_IN)
    yield
    walkers._handlers.clear()
    walkers._handlers.update(kept)


def _is_whole(kind: str) -> bool:
    """Say whether the verdict on a program that hides a thing of this kind is complete, and nothing is lost."""
    return (
        lost(kind, "closure", "a list") is None and explore(hiding(kind, "closure", "a list"), keep_going=True).complete
    )


def _unread(walk: walkers.Walk, value: Any) -> None:
    walk.out.append(("unread",))


# How an object of each type of C hides something from who leaves out its reader.
UNREAD: dict[str, tuple[type, ...]] = {
    "lying_list": (list,),
    "lying_deque": (collections.deque,),
    "lying_dictionary": (dict,),
    "lying_ordered_dictionary": (collections.OrderedDict,),
    "lying_default_dictionary": (collections.defaultdict,),
    "lying_set": (set,),
    "lying_frozenset": (frozenset,),
    "lying_tuple": (tuple,),
    "lying_int": (int,),
    "lying_float": (float,),
    "lying_complex": (complex,),
    "lying_str": (str,),
    "lying_bytes": (bytes,),
    "lying_bytearray": (bytearray,),
    "lying_Decimal": (decimal.Decimal,),
    "lying_Random": (_random.Random,),
    "module_of_the_run": (types.ModuleType,),
    "text_in_memory": (io.StringIO,),
    "queue_of_an_executor": (queue.SimpleQueue,),
    "match_of_a_pattern": (re.Match,),
    "zone_of_a_time": (datetime.datetime,),
    "function_of_a_property": (property,),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_a_type_of_c_that_is_not_read_is_noticed(
    kind: str, monkeypatch: pytest.MonkeyPatch, fresh_handlers: None
) -> None:
    """Control: without its reader two different objects are one; an outcome is lost, or two runs do not agree."""
    assert _is_whole(kind)
    for base in UNREAD[kind]:
        monkeypatch.setitem(instances.CONTENT, base, _unread)
    for known in [known for known in walkers._handlers if known not in readers.BUILT_IN]:
        del walkers._handlers[known]
    assert not _is_whole(kind)


# What the readers once did, or left out: owner, name, the wrong version, and a kind that shows it.
Wrong = tuple[Any, str, Callable[..., Any], str]
WRONG: dict[str, Wrong] = {
    "the list is asked itself": (readers, "_list", lambda walk, value: walk.stack.append(tuple(value)), "lying_list"),
    "the dictionary is asked itself": (
        readers,
        "_dict",
        lambda walk, value: walk.stack.append(tuple(value.items())),
        "lying_dictionary",
    ),
    "a class is its name": (instances, "read_class", _unread, "class_of_the_run"),
    "attributes are asked for": (instances, "dictionary_getter", lambda kind: _asked, "attributes_behind_a_property"),
    "a class is a constant": (statics, "is_a_class_of_the_run", lambda kind: False, "metaclass"),
    "a class of builtins is C's": (instances, "is_a_class_of_the_run", lambda kind: False, "class_of_an_instance"),
    "functions are constants": (readers, "is_of_the_run", lambda function: False, "attribute_of_executed_code"),
    "globals are constants": (readers, "globals_of_the_run", lambda own: None, "globals_of_executed_code"),
    "dunder slots are left out": (instances, "_slots_of", lambda kind: [], "slot_with_underscores"),
    "nothing is put on the loop": (ExplorerLoop, "attributes_of_the_program", lambda loop: {}, "the_loop"),
    "an enumeration is its names": (instances, "_member_handler", lambda kind: _unread, "member_of_an_enumeration"),
    "an error is its arguments": (readers, "_characters_written", lambda error: 0, "characters_that_an_error_counts"),
    "an executor is the world's": (instances, "_simple_queue", _unread, "queue_of_an_executor"),
}


def _asked(value: Any) -> Any:
    return value.__dict__


@pytest.mark.parametrize("name", WRONG)
def test_case_G52_a_reader_that_asks_the_object_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch, fresh_handlers: None
) -> None:
    """Control: each wrong reader loses an outcome of a kind that the right one keeps, or two runs do not agree."""
    owner, attribute, wrong, kind = WRONG[name]
    assert _is_whole(kind)
    right = getattr(owner, attribute)
    monkeypatch.setattr(owner, attribute, wrong)
    for table in (readers.BUILT_IN, instances.CONTENT, walkers._handlers):
        for known in [known for known, handler in table.items() if handler is right]:
            monkeypatch.setitem(table, known, wrong)
    for known in [known for known in walkers._handlers if known not in readers.BUILT_IN]:
        del walkers._handlers[known]
    assert not _is_whole(kind)


# ------------------------------------------------------------------------------------------- what nobody can read


def test_what_no_type_shows_is_named() -> None:
    """An open file, memory that is viewed, and a type of C of somebody else: bounded, with the name and the way."""

    async def main() -> None:
        held = memoryview(bytearray(b"a"))
        await asyncio.sleep(0)
        assert held

    result = explore(main)
    assert result.verdict == "bounded"
    assert "memoryview" in str(result.why)


def test_case_G53_a_logger_of_all_that_is_changed_is_named() -> None:
    """Loggers with names outlive the run; the handler that was put on one collects what the program looks at."""
    import logging

    async def main() -> None:
        logger = logging.getLogger("test_explorer_hidden_kinds")
        handler = logging.NullHandler()
        logger.addHandler(handler)
        await asyncio.sleep(0)
        logger.removeHandler(handler)

    result = explore(main)
    assert result.verdict == "bounded"
    assert "logger 'test_explorer_hidden_kinds' was changed" in str(result.why)


@pytest.mark.parametrize(
    "kind", ["handler_that_collects", "executor", "thread_that_never_started", "the_loop", "a_future"]
)
def test_case_G53_what_collects_beside_the_program_is_state(kind: str) -> None:
    """Read with what it has collected, not taken for the world's."""
    assert lost(kind, "closure", "a list") is None
    assert explore(hiding(kind, "closure", "a list"), keep_going=True).complete


def test_case_G55_an_exception_through_an_exit_that_awaits_keeps_the_search_complete() -> None:
    """A traceback lies in the frame of the exit; it once switched pruning off."""

    class Managed:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *error: object) -> bool:
            await asyncio.sleep(0)
            return True

    async def main() -> int:
        async def fails(number: int) -> int:
            async with Managed():
                await asyncio.sleep(0)
                raise ValueError(number)
            return number

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fails(number)) for number in range(2)]
        return sum(task.result() for task in tasks)

    result = explore(main)
    assert result.complete
    assert result.outcomes == explore(main, prune=False).outcomes


def test_case_G56_tensors_are_state_by_content_and_shared_memory() -> None:
    """A view and its copy hold equal numbers, and one of them sees a later change."""
    torch = pytest.importorskip("torch")

    def program(view: bool) -> Callable[[], Any]:
        async def main() -> list[float]:
            whole = torch.zeros(2)
            part = whole[:1] if view else whole[:1].clone()

            async def add() -> None:
                seen = whole[0].clone()
                await asyncio.sleep(0)
                whole[0] = seen + 1

            await asyncio.gather(add(), add())
            return [float(part[0]), float(whole[0])]

        return main

    for view in (True, False):
        pruned, enumerated = explore(program(view)), explore(program(view), prune=False)
        assert pruned.complete
        assert pruned.outcomes == enumerated.outcomes
    assert _identity(torch.ones(2)) != _identity(torch.zeros(2))
    assert _identity(torch.zeros(2)) != _identity(torch.zeros(2, dtype=torch.float64))
    whole = torch.zeros(2)
    assert _identity((whole, whole[:1])) != _identity((whole, whole[:1].clone()))


def test_case_G56_arrays_that_share_memory_are_told_from_copies() -> None:
    """The same for numpy."""
    numpy = pytest.importorskip("numpy")
    whole = numpy.zeros(2)
    assert _identity((whole, whole[:1])) != _identity((whole, whole[:1].copy()))
    assert _identity((whole, whole[:1])) != _identity((whole, whole[1:]))
    assert _identity(numpy.zeros(2)) == _identity(numpy.zeros(2))


def _identity(value: Any) -> Any:
    walk = walkers.Walk(0.0, {}, declared=False)
    walk.stack.append(value)
    walk.run()
    return walk.out


def test_case_G59_the_dictionary_of_locals_is_the_programs() -> None:
    """Until Python 3.12 reading a frame by `f_locals` emptied it."""

    async def main() -> dict[str, int]:
        first = 1
        given = locals()
        given["second"] = 2
        await asyncio.sleep(0)
        del first
        await asyncio.sleep(0)
        return dict(given)

    result = explore(main)
    assert result.complete
    assert result.outcomes == {"returned {'first': 1, 'second': 2}"} == explore(main, prune=False).outcomes


def test_weak_reference_is_asked_by_its_own_type() -> None:
    """A class that says it refers to nothing refers to something."""

    class Thing:
        number = 0

    class Ref(weakref.ref[Any]):
        def __call__(self) -> None:
            return None

    one, other = Thing(), Thing()
    other.number = 1
    assert _identity([Ref(one)]) != _identity([Ref(other)])


def test_object_of_c_is_rebuilt_by_its_own_type() -> None:
    """A partial whose class overrides `__reduce__` is read by what partial itself says."""
    lying = type("Lying", (functools.partial,), {"__reduce__": lambda self: "nothing"})
    assert _identity(lying(print, 1)) != _identity(lying(print, 2))
    with pytest.raises(Unwalkable, match="does not show its content"):
        _identity(memoryview(b"a"))
