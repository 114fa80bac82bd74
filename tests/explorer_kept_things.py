"""Pairs of things that look alike and behave differently later: what a state has to tell apart, one pair an entry.

`make(0)` and `make(1)` differ in one thing alone; `show` says what becomes of it. Each was once taken for the other, or
is near to one that was.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import dataclasses
import enum
import functools
import itertools
import math
import operator
import random
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

Pair = tuple[Callable[[int], Any], Callable[[Any], Any]]
KEPT: dict[str, Pair] = {}


def kept(show: Callable[[Any], Any]) -> Callable[[Callable[[int], Any]], Callable[[int], Any]]:
    """Put a pair into the table: what is decorated makes the thing."""

    def put(make: Callable[[int], Any]) -> Callable[[int], Any]:
        KEPT[make.__name__] = (make, show)
        return make

    return put


def rest(iterator: Iterator[Any]) -> Any:
    """What an iterator still gives, or that it noticed a change."""
    try:
        return list(iterator)
    except RuntimeError:
        return "changed"


def after(change: Callable[[Any], object], look: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change the first of two things and look at the second."""

    def show(two: Any) -> Any:
        change(two[0])
        return look(two[1])

    return show


class Thing:
    pass


class Bits(enum.IntFlag):
    ONE = 1


class NumberedRandom(random.Random):
    number = 0


# ------------------------------------------------------------------------------------------- containers and iterators


@kept(lambda made: (made.append(2), len(made))[1])
def length_of_a_deque(which: int) -> Any:
    return collections.deque([1], maxlen=(None, 1)[which])


@kept(after(lambda table: table.update({3: 3}), rest))
def iterator_over_a_dictionary_or_its_copy(which: int) -> Any:
    table = {1: 1, 2: 2}
    return table, iter(table if which else dict(table))


@kept(after(lambda table: table.update({2: 3}), rest))
def items_of_a_dictionary_or_its_copy(which: int) -> Any:
    table = {1: 1, 2: 2}
    return table, iter((table if which else dict(table)).items())


@kept(after(lambda table: table.update({3: 3}), rest))
def iterator_over_an_ordered_dictionary_or_its_copy(which: int) -> Any:
    table = collections.OrderedDict({1: 1, 2: 2})
    return table, iter(table if which else table.copy())


@kept(after(lambda members: members.add(3), rest))
def iterator_over_a_set_or_its_copy(which: int) -> Any:
    members = {1, 2}
    return members, iter(members if which else set(members))


@kept(after(lambda _: None, rest))
def iterator_over_a_deque_that_has_turned(which: int) -> Any:
    turning = collections.deque([1, 1])
    iterator = iter(turning)
    if which:
        turning.rotate(2)
    return turning, iterator


@kept(after(lambda numbers: numbers.append(3), rest))
def iterator_over_a_list_or_its_copy(which: int) -> Any:
    numbers = [1, 2]
    return numbers, iter(numbers if which else list(numbers))


@kept(after(lambda table: table.update({1: 2}), dict))
def read_only_view_of_a_dictionary_or_its_copy(which: int) -> Any:
    table = {1: 1}
    return table, types.MappingProxyType(table if which else dict(table))


@kept(after(lambda numbers: numbers.append(1), len))
def one_list_or_two(which: int) -> Any:
    numbers: list[int] = []
    return numbers, numbers if which else []


@kept(lambda two: next(two[1]))
def iterators_that_share(which: int) -> Any:
    first, second = itertools.tee(iter([1, 2]))
    next((first, second)[which])
    return first, second


@kept(list)
def order_of_a_set_of_texts(which: int) -> Any:
    def filled(*texts: str) -> set[str]:
        made = set()
        for text in texts:
            made.add(text)
        return made

    one, *others = (str(number) for number in range(1_000))
    # Both want one place of the table. Which two do differs from process to process, as the hashes of texts do.
    other = next(text for text in others if list(filled(one, text)) != list(filled(text, one)))
    return filled(*((one, other), (other, one))[which])


@kept(lambda table: list(table))
def order_of_a_dictionary(which: int) -> Any:
    return ({"a": 1, "b": 1}, {"b": 1, "a": 1})[which]


# ------------------------------------------------------------------------------------------- functions and classes


@kept(lambda cached: cached(1))
def cache(which: int) -> Any:
    calls: list[int] = []

    @functools.lru_cache
    def cached(_: int) -> int:
        return len(calls)

    if which:
        cached(1)
    calls.append(1)
    return cached


def _misses(cached: Any) -> int:
    cached(3)
    before = cached.cache_info().misses
    cached(1)
    return int(cached.cache_info().misses - before)


@kept(_misses)
def cache_that_forgets(which: int) -> Any:
    cached = functools.lru_cache(maxsize=2)(lambda number: number)
    cached(1), cached(2), cached((2, 1)[which])
    return cached


@kept(lambda function: function.calls)
def attribute_of_a_function(which: int) -> Any:
    def function() -> None: ...

    function.calls = which  # type: ignore[attr-defined]
    return function


@kept(lambda function: function())
def default_that_changes(which: int) -> Any:
    def function(seen: list[int] = []) -> int:  # noqa: B006
        seen.append(1)
        return len(seen)

    return function if not which else (function(), function)[1]


@kept(lambda made: made.number)
def attribute_of_a_class(which: int) -> Any:
    class Local:
        number = 0

    Local.number = which
    return Local()


@kept(lambda made: made().number)
def class_made_by_hand(which: int) -> Any:
    return type("Local", (), {"number": which})


@kept(lambda made: made.ask())
def closure_of_a_method(which: int) -> Any:
    class Local:
        def ask(self) -> int:
            return which

    return Local()


@kept(lambda made: made.number)
def closure_of_a_property(which: int) -> Any:
    class Local:
        @property
        def number(self) -> int:
            return which

    return Local()


@kept(lambda made: made.ask())
def default_of_a_method(which: int) -> Any:
    class Local:
        def ask(self, seen: list[int] = []) -> int:  # noqa: B006
            seen.append(1)
            return len(seen)

    made = Local()
    if which:
        made.ask()
    return made


@kept(lambda made: made.number)
def default_of_a_dataclass(which: int) -> Any:
    @dataclasses.dataclass
    class Local:
        number: int = which

    return Local()


@kept(lambda error: error.number)
def class_of_an_exception(which: int) -> Any:
    class LocalError(Exception):
        number = which

    return LocalError()


@kept(lambda function: function(2, 2))
def functions_of_one_name(which: int) -> Any:
    return (math.pow, operator.pow)[which]


@kept(lambda made: made.extra)
def attribute_beside_what_c_keeps(which: int) -> Any:
    made: Any = NumberedRandom(1)
    made.extra = which
    return made


@kept(lambda chance: chance.random())
def place_of_a_generator_of_random_numbers(which: int) -> Any:
    chance = random.Random(1)
    for _ in range(which):
        chance.random()
    return chance


# ------------------------------------------------------------------------------------------- single values


@kept(lambda error: error.filename)
def file_of_an_error(which: int) -> Any:
    return OSError(2, "missing", ("a", "b")[which])


@kept(lambda error: error.name)
def module_of_an_error(which: int) -> Any:
    return ImportError("missing", name=("a", "b")[which])


@kept(lambda error: error.__suppress_context__)
def context_of_an_error_that_is_not_shown(which: int) -> Any:
    error = ValueError()
    error.__suppress_context__ = bool(which)
    return error


@kept(int)
def bits_without_a_name(which: int) -> Any:
    return Bits(8 << which)


@kept(lambda made: made.pattern[-1])
def end_of_a_long_pattern(which: int) -> Any:
    return re.compile("a" * 300 + str(which))


@kept(lambda lock: (lock.release(), repr(lock).split()[0])[1])
def lock_that_was_taken_again(which: int) -> Any:
    lock = threading.RLock()
    for _ in range(1 + which):
        lock.acquire()
    return lock


# ------------------------------------------------------------------------------------------- contexts, weak references


@kept(lambda variable: len(variable.get()))
def default_of_a_context_variable(which: int) -> Any:
    variable: contextvars.ContextVar[list[int]] = contextvars.ContextVar("variable", default=[])  # noqa: B039
    if which:
        variable.get().append(1)
    return variable


def _reset(two: Any) -> str:
    variable, token = two
    try:
        variable.reset(token)
    except RuntimeError:
        return "was used"
    return "was not"


@kept(_reset)
def token_that_was_used(which: int) -> Any:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    token = variable.set(1)
    if which:
        variable.reset(token)
        variable.set(1)
    return variable, token


@kept(after(list.clear, lambda parts: len(parts[0])))
def callback_of_a_weak_reference(which: int) -> Any:
    thing, log = Thing(), list[Any]()
    return [thing], (log, weakref.ref(thing, log.append if which else None))


@kept(after(list.clear, len))
def finalizer(which: int) -> Any:
    thing, log = Thing(), list[int]()
    if which:
        weakref.finalize(thing, log.append, 1)
    return [thing], log


@kept(lambda made: made.alive)
def finalizer_that_has_run(which: int) -> Any:
    made = weakref.finalize(asyncio.current_task(), len, "")
    if which:
        made.detach()
    return made


@kept(after(lambda _: None, lambda ref: ref() is None))
def thing_that_is_gone(which: int) -> Any:
    thing = Thing()
    return [thing] if which else [], weakref.ref(thing)


def _first(step: Any) -> Any:
    try:
        step.send(None)
    except StopIteration as stopped:
        return stopped.value
    except RuntimeError:
        return "used up"
    return "waits"


@kept(_first)
def step_of_an_async_generator(which: int) -> Any:
    async def numbers() -> Any:
        yield 1

    step = numbers().__anext__()
    if which:
        step.close()
    return step
