"""What the explorer can read of an object graph: equal graphs read alike, different ones do not."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import itertools
import marshal
import pathlib
import threading
import types
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from interleavings import ExplorerUsageError, explore, register_walker
from interleavings.errors import Unwalkable
from interleavings.state import Walk


def read(value: Any, *, declared: bool = False) -> list[Any]:
    """Read one value into its list of atoms."""
    walk = Walk(0.0, {}, declared)
    walk.stack.append(value)
    walk.run()
    return walk.out


def identity(value: Any) -> bytes:
    """Write what was read as a state's identity does: unlike `==` it keeps 1, True and 1.0 apart."""
    return marshal.dumps(read(value), 2)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int = 0
    y: Any = None


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def show(self) -> str:
        return str(self.__dict__)


class Numbers(dict[str, int]):
    pass


def closure(value: int) -> Callable[[], int]:
    return lambda: value


def unset() -> Slotted:
    made = Slotted()
    del made.x
    return made


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "integer and boolean": (lambda: 1, lambda: True),
    "integer and float": (lambda: 1, lambda: 1.0),
    "text and bytes": (lambda: "a", lambda: b"a"),
    "none and its text": (lambda: None, lambda: "None"),
    "list and tuple": (lambda: [1, 2], lambda: (1, 2)),
    "nesting": (lambda: [[1], 2], lambda: [[1, 2]]),
    "empty containers": (list, dict),
    "order of a dictionary": (lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}),
    "content of a set": (lambda: {"a", "b"}, lambda: {"a", "c"}),
    "set and frozenset": (lambda: {"a"}, lambda: frozenset({"a"})),
    "enumeration": (lambda: Colour.RED, lambda: Colour.BLUE),
    "named tuple": (lambda: Point(1, 2), lambda: Point(2, 1)),
    "named tuple and tuple": (lambda: Point(1, 2), lambda: (1, 2)),
    "slots": (lambda: Slotted(1), lambda: Slotted(2)),
    "unset slot": (unset, lambda: Slotted(0)),
    "attributes": (lambda: Plain(a=1), lambda: Plain(a=2)),
    "attribute names": (lambda: Plain(a=1), lambda: Plain(b=1)),
    "subclass of dict": (lambda: Numbers(a=1), lambda: Numbers(a=2)),
    "default dictionary": (lambda: collections.defaultdict(int), lambda: collections.defaultdict(list)),
    "deque": (lambda: collections.deque([1, 2]), lambda: collections.deque([2, 1])),
    "closure": (lambda: closure(1), lambda: closure(2)),
    "partial": (lambda: functools.partial(print, 1), lambda: functools.partial(print, 2)),
    "bound method": (lambda: Plain(a=1).show, lambda: Plain(a=2).show),
    "bound method of C": (lambda: [1].append, lambda: [2].append),
    "exception": (lambda: ValueError(1), lambda: ValueError(2)),
    "cause of an exception": (lambda: chained(1), lambda: chained(2)),
    "date": (lambda: datetime.date(2024, 1, 1), lambda: datetime.date(2024, 1, 2)),
    "decimal": (lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00")),
    "path": (lambda: pathlib.PurePosixPath("a"), lambda: pathlib.PurePosixPath("b")),
    "identifier": (lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2)),
    "array": (lambda: bytearray(b"a"), lambda: bytearray(b"b")),
    "range": (lambda: range(3), lambda: range(4)),
    "counter": (lambda: itertools.count(1), lambda: itertools.count(2)),
    "locked thread lock": (lambda: threading.Lock(), lambda: taken()),
    "namespace": (lambda: types.SimpleNamespace(a=1), lambda: types.SimpleNamespace(a=2)),
}  # fmt: skip


def chained(number: int) -> Exception:
    error = ValueError("outer")
    error.__cause__ = KeyError(number)
    return error


def taken() -> Any:
    lock = threading.Lock()
    lock.acquire()
    return lock


@pytest.mark.parametrize("name", PAIRS)
def test_different_values_read_differently_and_equal_ones_alike(name: str) -> None:
    """Both directions: a difference that is missed is unsound, one that is invented makes the search endless."""
    left, right = PAIRS[name]
    assert identity(left()) == identity(left())
    assert identity(left()) != identity(right())


def test_sharing_is_told_from_copying() -> None:
    """Two names for one list and two equal lists behave differently later."""
    shared: list[int] = []
    assert read([shared, shared]) != read([[], []])


def test_circles_are_read() -> None:
    """A structure that holds itself ends."""
    circle: list[Any] = []
    circle.append(circle)
    other: list[Any] = []
    other.append(other)
    assert read(circle) == read(other)


def test_deep_structures_need_no_recursion() -> None:
    """A linked list longer than Python's recursion limit."""
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    assert len(read(deep)) == 20_001


def test_primitives_of_asyncio_are_read() -> None:
    """Flags and waiter queues of the real primitives are state."""
    event, other = asyncio.Event(), asyncio.Event()
    other.set()
    assert read(event) != read(other)
    full: asyncio.Queue[int] = asyncio.Queue()
    full.put_nowait(1)
    assert read(asyncio.Queue()) != read(full)


def test_what_cannot_be_read_is_refused() -> None:
    """No guess: an object of C that hides its content stops the reading."""
    with open(__file__) as file, pytest.raises(Unwalkable, match="does not show its content"):
        read([1, {"inside": file}])


def test_declared_state_makes_user_objects_opaque_and_keeps_the_rest() -> None:
    """Instances of the user's classes count by type and order of visit; containers and scalars are read as ever."""
    assert read(Plain(a=1), declared=True) == read(Plain(a=2), declared=True)
    assert read([1, Plain(a=1)], declared=True) != read([2, Plain(a=1)], declared=True)
    one = Plain()
    assert read([one, one], declared=True) != read([one, Plain()], declared=True)
    assert read(asyncio.Event(), declared=True)[0][0] == ("instance", "asyncio.locks", "Event")


def test_registered_walker_reads_what_the_explorer_cannot() -> None:
    """A provider says what is inside; until then the search is bounded."""

    class Hidden:
        """Stands for an object of C: it pickles to nothing."""

        __slots__ = ("content",)

        def __init__(self, content: int) -> None:
            self.content = content

    register_walker(Hidden, lambda hidden: ("hidden", hidden.content))
    assert read(Hidden(1)) == read(Hidden(1))
    assert read(Hidden(1)) != read(Hidden(2))
    assert read(Hidden(1), declared=True) != read(Hidden(2), declared=True)
    assert read(Hidden(1))[0][0] == "registered"


def test_registered_walker_goes_before_built_in_knowledge() -> None:
    """A provider for a base class holds for its subclasses, even when one of them was read before."""

    class Base:
        pass

    class Derived(Base):
        pass

    before = read(Derived())
    register_walker(Base, lambda value: "base")
    assert read(Derived()) != before


def test_register_walker_refuses_what_is_no_class() -> None:
    """The two arguments are easily swapped."""
    wrong: Any = "Tensor"
    with pytest.raises(ExplorerUsageError, match="the first is a class"):
        register_walker(wrong, print)


def test_numpy_arrays_are_read_by_their_content() -> None:
    """Arrays say themselves how to rebuild them, so a program may keep its state in them."""
    numpy = pytest.importorskip("numpy")

    async def main() -> list[int]:
        cells = numpy.zeros(2, dtype=int)

        async def add(index: int) -> None:
            seen = cells[0]
            await asyncio.sleep(0)
            cells[index] = seen + 1

        await asyncio.gather(add(0), add(1))
        return [int(cell) for cell in cells]

    assert explore(main).outcomes == explore(main, prune=False).outcomes == {"returned [1, 1]", "returned [1, 2]"}
