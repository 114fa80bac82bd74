"""How each kind of object is read: one small function a kind, and the table that names them.

A reader writes the object's own atoms to `walk.out` and puts what the object holds on `walk.stack`, last first. It
never recurses, so depth costs nothing, and it writes a tag first, so that no two kinds can be taken for each other.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import ctypes
import gc
import re
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import Unwalkable
from ..runtime.clock_regions import Moment, plain
from ..runtime.frames import RECORDS, code_record, read_frame
from ..runtime.loop import ExplorerHandle, ExplorerLoop, ExplorerTimer, Job
from ..runtime.tasks import STEP_WRAPPER, ExplorerFuture, ExplorerTask, attributes_of, cancel_requests
from .iterators import READERS as ITERATORS
from .iterators import refuse_proxy
from .statics import attributes_kept

if TYPE_CHECKING:
    from interleavings.state.walkers import Walk

Handler: TypeAlias = "Callable[[Walk, Any], None]"

_POINTER = ctypes.sizeof(ctypes.c_void_p)

ATOMS = frozenset({int, str, bytes, bool, float, complex, type(None), type(...)})
# Given the types of some values. What holds atoms alone is written as one tuple, which is what makes states cheap.
only_atoms = ATOMS.issuperset
# Their hashes do not depend on addresses or on PYTHONHASHSEED, so the order a set is iterated in is a part of it.
_STABLE_HASH = frozenset({int, bool, float, ExplorerTask, ExplorerFuture})


def constant(tag: tuple[str, ...]) -> Handler:
    """Make a handler for objects that are the same in every run: only their tag is written."""

    def handle(walk: Walk, value: Any) -> None:
        walk.out.append(tag)

    return handle


def read_named(walk: Walk, value: Any) -> None:
    """Classes, modules, descriptors: constants, told apart by name."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    walk.out.append(("named", str(getattr(value, "__module__", "")), str(name)))


def read_text(walk: Walk, value: Any) -> None:
    """Immutable values whose repr says everything about them."""
    walk.out.append(("text", type(value).__qualname__, repr(value)))


def _list(walk: Walk, value: Any) -> None:
    if only_atoms(map(type, value)):
        walk.out.append((type(value).__qualname__, tuple(value)))
    else:
        walk.out.append((type(value).__qualname__, len(value)))
        walk.stack.extend(list(value)[::-1])


def _deque(walk: Walk, value: Any) -> None:
    walk.out.append(value.maxlen)
    _list(walk, value)


def _dict(walk: Walk, value: Any) -> None:
    kind, keys, held = type(value).__qualname__, tuple(value), tuple(value.values())
    if not only_atoms(map(type, keys)):
        walk.out.append((kind, len(keys)))
        for key, one in zip(reversed(keys), reversed(held), strict=True):
            walk.stack.append(one)
            walk.stack.append(key)
    elif only_atoms(map(type, held)):
        walk.out.append((kind, keys, held))
    else:
        walk.out.append((kind, keys))
        walk.stack.extend(held[::-1])


def _defaultdict(walk: Walk, value: Any) -> None:
    _dict(walk, value)
    walk.stack.append(value.default_factory)


def _set(walk: Walk, value: Any) -> None:
    """Iteration order where hashes are stable; where they are not, sorted, and then who stands where.

    How large the table is and how many members have left it decide in which order the next ones will stand.
    """
    members = list(value)
    walk.out.append(_layout(value))
    if not all(type(member) in _STABLE_HASH for member in members):
        places = {id(member): place for place, member in enumerate(members)}
        members = _sorted_members(walk, members, value)
        walk.out.append(tuple([places[id(member)] for member in members]))  # fixed within a process and its forks
    if only_atoms(map(type, members)):
        walk.out.append((type(value).__qualname__, tuple(members)))
    else:
        walk.out.append((type(value).__qualname__, len(members)))
        walk.stack.extend(members[::-1])


def _layout(value: Any) -> tuple[int, int]:
    """Return the size of a set's table and how many entries were ever used: members that have left count on in it."""
    return value.__sizeof__(), ctypes.c_ssize_t.from_address(id(value) + object.__basicsize__).value


def _sorted_members(walk: Walk, members: list[Any], whole: Any) -> list[Any]:
    try:
        return [member for _, member in sorted(((_order(walk, member), member) for member in members), key=_first)]
    except Unwalkable as error:
        raise Unwalkable(whole, error.reason) from None


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _order(walk: Walk, member: Any) -> tuple[str, str]:
    """Return a key that orders a set's member by what it is; visited objects go by their number."""
    kind = type(member)
    if kind in ATOMS:
        return kind.__name__, repr(member)
    if kind in (tuple, frozenset):
        parts = [_order(walk, part) for part in member]
        return kind.__name__, repr(sorted(parts) if kind is frozenset else parts)
    if isinstance(member, ExplorerTask):
        return "task", member.label if walk.naming is None else walk.naming(member.label)
    if isinstance(member, (type, types.FunctionType)):
        return kind.__name__, f"{member.__module__}.{member.__qualname__}"
    number = walk.memo.get(id(member))
    if number is not None:
        return "visited", f"{number:012d}"
    if hasattr(member, "_member_map_") or hasattr(kind, "_member_map_"):
        return kind.__name__, str(member)
    raise Unwalkable(member, f"a set that holds {kind.__qualname__} objects has no order that every run repeats")


def _function(walk: Walk, value: types.FunctionType) -> None:
    """A function is its code, which is constant, and what it holds: cells and default values."""
    parts = (attributes_kept(value), value.__kwdefaults__, value.__defaults__, value.__closure__)
    which = [part is None for part in parts]
    walk.out.append(("function", str(value.__module__), code_record(value.__code__)[1], *which))
    walk.stack.extend([part for part in parts if part is not None])


def _cell(walk: Walk, value: types.CellType) -> None:
    try:
        content = value.cell_contents
    except ValueError:
        walk.out.append(("empty cell",))
        return
    walk.out.append(("cell",))
    walk.stack.append(content)


def _method(walk: Walk, value: types.MethodType) -> None:
    function: Any = value.__func__
    walk.stack.append(value.__self__)
    if type(function) is types.FunctionType and not (
        function.__closure__ or function.__defaults__ or function.__kwdefaults__ or attributes_kept(function)
    ):
        code = function.__code__
        walk.out.append(("method", (RECORDS.get(id(code)) or code_record(code))[1]))
    else:
        walk.out.append(("method",))
        walk.stack.append(function)


def _builtin(walk: Walk, value: Any) -> None:
    walk.out.append(("builtin", getattr(value, "__module__", None), value.__name__))
    bound = value.__self__
    walk.stack.append(None if isinstance(bound, types.ModuleType) else bound)


def read_referents(walk: Walk, value: Any) -> None:
    """Small C objects whose whole content is what they refer to."""
    held = gc.get_referents(value)
    walk.out.append((type(value).__qualname__, len(held)))
    walk.stack.extend(held[::-1])


def read_step(walk: Walk, value: Any) -> None:
    """What an async generator gives to await for its next step, and whether that has begun or ended."""
    read_referents(walk, value)
    # The last field of all of these: an enumeration, so an int.
    walk.out.append(ctypes.c_int.from_address(id(value) + type(value).__basicsize__ - _POINTER).value)


def _coroutine(walk: Walk, value: Any) -> None:
    walk.stack.extend(read_frame("coroutine", value, value.cr_code, value.cr_frame, walk.out))


def _generator(walk: Walk, value: Any) -> None:
    walk.stack.extend(read_frame("generator", value, value.gi_code, value.gi_frame, walk.out))


def _async_generator(walk: Walk, value: Any) -> None:
    kind = "running async_generator" if value.ag_running else "async_generator"
    walk.stack.extend(read_frame(kind, value, value.ag_code, value.ag_frame, walk.out))


def _number_of(future: ExplorerFuture) -> int | None:
    """Return the number by which sets go through futures; None for one that nobody has hashed."""
    return future.number if hasattr(future, "number") else None


def read_future(walk: Walk, value: Any) -> None:
    state, message = value._state, value._cancel_message
    attributes = attributes_of(value)
    number = _number_of(value) if walk.hashed and isinstance(value, ExplorerFuture) else None
    stack = walk.stack
    if attributes:
        stack.append(attributes)
    if message is not None:
        stack.append(message)
    detail: Any = None
    if state == "PENDING":
        callbacks = value._callbacks or ()
        detail = len(callbacks)
        for callback, context in reversed(callbacks):
            stack.append(walk.made(context))
            stack.append(walk.made(callback))
    elif state == "FINISHED":
        exception = value._exception
        detail = (value._log_traceback, exception is None)
        stack.append(value._result if exception is None else exception)
    walk.out.append(("future", state, bool(attributes), message is None, number, detail))


def read_task(walk: Walk, value: Any) -> None:
    state = value._state
    naming = walk.naming
    if naming is not None and isinstance(value, ExplorerTask) and naming.identical.place(value.label) is not None:
        name = naming(value.label)  # all members have one number, and nobody can ask for their names
    else:
        name = asyncio.Task.get_name(value)
        naming = None
    if state == "PENDING":
        tag: tuple[Any, ...] = ("task", name, value._must_cancel, cancel_requests(value))
        if isinstance(value, ExplorerTask):
            # Label and number name the choices and order sets.
            tag = (*tag, value.looked_at) if naming is not None else (*tag, value.looked_at, value.label, value.number)
        walk.out.append(tag)
        if isinstance(value, ExplorerTask):
            walk.stack.append(value.context)
        walk.stack.append(value._fut_waiter)
        walk.stack.append(value.get_coro())
    else:
        walk.out.append(("ended task", name))
        walk.out.append(isinstance(value, ExplorerTask) and value.looked_at)
        if walk.requests:
            walk.out.append(cancel_requests(value))
    read_future(walk, value)


def _context(walk: Walk, value: contextvars.Context) -> None:
    """Only what differs from the context the run started in: the rest is the same in every run."""
    base, missing = walk.base, walk
    changed = [(name, held) for name, held in value.items() if base.get(name, missing) is not held]
    walk.out.append(("context", len(changed)))
    if len(changed) > 1:
        changed.sort(key=lambda pair: _order_in_context(walk, *pair))
    for name, held in reversed(changed):
        walk.stack.append(held)
        walk.stack.append(name)


def _order_in_context(walk: Walk, variable: Any, held: Any) -> tuple[str, int, str]:
    """A context goes through its variables by address: those of one name by who was met first, or by what they hold."""
    return variable.name, walk.memo.get(id(variable), len(walk.memo)), repr(held) if type(held) in ATOMS else ""


def _token(walk: Walk, value: Any) -> None:
    """A token may be used once, and only in the context that it was made in."""
    walk.out.append(("token", ctypes.c_int.from_address(id(value) + object.__basicsize__ + 3 * _POINTER).value))
    read_referents(walk, value)


def _context_variable(walk: Walk, value: Any) -> None:
    """A variable by its name and its default, which every context that lacks the variable shares."""
    walk.out.append(("context variable", value.name))
    walk.stack.append(tuple(held for held in gc.get_referents(value) if held is not value.name))


def read_handle(walk: Walk, value: Any) -> None:
    walk.out.append((type(value).__qualname__, value._cancelled))
    if value._cancelled:
        return
    walk.stack.append(value._context)
    walk.stack.append(value._args)
    walk.stack.append(value._callback)


def read_timer(walk: Walk, value: Any) -> None:
    """A timer by its distance from now; one that has fired or was cancelled has no time any more."""
    read_handle(walk, value)
    walk.out.append(value._when - walk.now if value._scheduled and not value._cancelled else None)


def _timeout(walk: Walk, value: Any) -> None:
    """`asyncio.timeout()`: its deadline by the distance from now."""
    walk.out.append(("timeout",))
    for name in sorted(value.__dict__):
        held = value.__dict__[name]
        if name == "_when" and held is not None:
            held = plain(held) - walk.now
        walk.stack.append(held)
        walk.stack.append(name)
    walk.out.append(len(value.__dict__))


def _moment(walk: Walk, value: Moment) -> None:
    """A moment by its age. Not numbered: whether two equal ones are one object says nothing."""
    del walk.memo[id(value)]
    age = walk.now - plain(value)
    walk.out.append(("moment", "old" if walk.horizon is not None and age > walk.horizon else age))


def _job(walk: Walk, value: Job) -> None:
    walk.out.append(("job",))
    walk.stack.append(value.future)
    walk.stack.append(value.args)
    walk.stack.append(value.function)


def read_exception(walk: Walk, value: BaseException) -> None:
    walk.out.append(("exception", type(value).__module__, type(value).__qualname__))
    walk.stack.append(walk.made(value.__dict__))
    walk.stack.append(value.__cause__)
    walk.stack.append(value.__context__)
    walk.stack.append(value.args)


def read_weak(walk: Walk, value: Any) -> None:
    walk.out.append(("weak reference",))
    walk.stack.append(value.__callback__)
    walk.stack.append(value())


def read_lock(walk: Walk, value: Any) -> None:
    """A lock by whether it is taken; one that may be taken again, by how often."""
    taken = re.search(r"count=\d+", repr(value))
    walk.out.append(("thread lock", taken[0] if taken is not None else repr(value).split()[0]))


BUILT_IN: dict[type, Handler] = {
    list: _list,
    collections.deque: _deque,
    bytearray: lambda walk, value: walk.out.extend((("bytearray",), bytes(value))),
    dict: _dict,
    collections.OrderedDict: _dict,
    collections.Counter: _dict,
    collections.defaultdict: _defaultdict,
    types.MappingProxyType: read_referents,
    set: _set,
    frozenset: _set,
    range: read_text,
    types.FunctionType: _function,
    types.CellType: _cell,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: _builtin,
    types.CoroutineType: _coroutine,
    types.GeneratorType: _generator,
    types.AsyncGeneratorType: _async_generator,
    STEP_WRAPPER: read_referents,
    ExplorerTask: read_task,
    asyncio.Task: read_task,
    ExplorerFuture: read_future,
    asyncio.Future: read_future,
    contextvars.Context: _context,
    contextvars.Token: _token,
    contextvars.ContextVar: _context_variable,
    ExplorerHandle: read_handle,
    ExplorerTimer: read_timer,
    Job: _job,
    Moment: _moment,
    BaseException: read_exception,
    weakref.ref: read_weak,
    weakref.ProxyType: refuse_proxy,
    weakref.CallableProxyType: refuse_proxy,
    **ITERATORS,
    ExplorerLoop: constant(("loop",)),
    type(NotImplemented): constant(("not implemented",)),
}
if hasattr(asyncio, "Timeout"):
    BUILT_IN[asyncio.Timeout] = _timeout
