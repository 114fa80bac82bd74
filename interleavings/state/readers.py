"""How each kind of object is read: one small function a kind, and the table that names them.

A reader writes the object's own atoms to `walk.out` and puts what the object holds on `walk.stack`, last first. It
never recurses, so depth costs nothing, and it writes a tag first, so that no two kinds can be taken for each other.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import ctypes
import enum
import gc
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import Unwalkable
from ..runtime.clock_regions import Moment, plain
from ..runtime.frames import RECORDS, code_record, globals_of_the_run, read_frame
from ..runtime.loop import ExplorerHandle, ExplorerLoop, ExplorerTimer, Job
from ..runtime.tasks import STEP_WRAPPER, ExplorerFuture, ExplorerTask, cancel_requests
from .iterators import READERS as ITERATORS
from .iterators import refuse_proxy
from .statics import CONSTANT_FUNCTIONS, attributes_of, is_of_the_run, module_of, qualname_of

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


def read_text(walk: Walk, value: Any) -> None:
    """Immutable values whose repr says everything about them."""
    walk.out.append(("text", type(value).__qualname__, repr(value)))


def _values(walk: Walk, kind: type, held: Sequence[Any]) -> None:
    if only_atoms(map(type, held)):
        walk.out.append((kind.__qualname__, tuple(held)))
    else:
        walk.out.append((kind.__qualname__, len(held)))
        walk.stack.extend(held[::-1])


def _list(walk: Walk, value: Any) -> None:
    if only_atoms(map(type, list.__iter__(value))):
        walk.out.append(("list", tuple(list.__iter__(value))))
    else:
        walk.out.append(("list", list.__len__(value)))
        walk.stack.extend(list.__reversed__(value))


def read_tuple(walk: Walk, value: Any) -> None:
    walk.stack.append(tuple.__getitem__(value, slice(None)))


def _deque(walk: Walk, value: Any) -> None:
    walk.out.append(_maxlen(value))
    _values(walk, collections.deque, list(collections.deque.__iter__(value)))


def _dict(walk: Walk, value: Any) -> None:
    keys, held = tuple(_KEYS(value)), tuple(_HELD(value))
    if only_atoms(map(type, keys)):
        if only_atoms(map(type, held)):
            walk.out.append(("dict", keys, held))
        else:
            walk.out.append(("dict", keys))
            walk.stack.extend(held[::-1])
    else:
        _table(walk, "dict", keys, held)


_KEYS, _HELD = dict.keys, dict.values


def _table(walk: Walk, kind: str, keys: tuple[Any, ...], held: tuple[Any, ...]) -> None:
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


def _ordered_dict(walk: Walk, value: Any) -> None:
    """An ordered dictionary has an order of its own beside the one that every dictionary has, and attributes."""
    keys = tuple(_KEYS(value))
    _table(walk, "OrderedDict", keys, tuple(_HELD(value)))
    ordered = tuple(collections.OrderedDict.keys(value))
    if len(ordered) != len(keys) or any(one is not other for one, other in zip(keys, ordered, strict=True)):
        places = {id(key): place for place, key in enumerate(keys)}
        walk.out.append(tuple([places.get(id(key)) for key in ordered]))
    if type(value) is collections.OrderedDict and attributes_of(value):
        walk.out.append(("attributes",))
        walk.stack.append(attributes_of(value))


def _defaultdict(walk: Walk, value: Any) -> None:
    _table(walk, "defaultdict", tuple(dict.keys(value)), tuple(dict.values(value)))
    walk.stack.append(_default_factory(value))


def _set(walk: Walk, value: Any) -> None:
    """Iteration order where hashes are stable; where they are not, sorted, and then who stands where.

    How large the table is and how many members have left it decide in which order the next ones will stand.
    """
    base = set if issubclass(type(value), set) else frozenset
    members = list(base.__iter__(value))
    walk.out.append(_layout(value))
    if not all(type(member) in _STABLE_HASH for member in members):
        places = {id(member): place for place, member in enumerate(members)}
        members = _sorted_members(walk, members, value)
        walk.out.append(tuple([places[id(member)] for member in members]))  # fixed within a process and its forks
    _values(walk, base, members)


def _layout(value: Any) -> tuple[int, int]:
    """Return the size of a set's table and how many entries were ever used: members that have left count on in it."""
    base = set if issubclass(type(value), set) else frozenset
    return base.__sizeof__(value), ctypes.c_ssize_t.from_address(id(value) + object.__basicsize__).value


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
    if issubclass(kind, ExplorerTask):
        return "task", member.label if walk.naming is None else walk.naming(member.label)
    if issubclass(kind, weakref.ref):
        thing = weakref.ref.__call__(member)
        return "weak", "dead" if thing is None else " ".join(_order(walk, thing))
    if issubclass(kind, type):
        return "type", f"{module_of(member)}.{qualname_of(member)}"
    if kind is types.FunctionType:
        return "function", f"{member.__module__}.{member.__qualname__}"
    number = walk.memo.get(id(member))
    if number is not None:
        return "visited", f"{number:012d}"
    if issubclass(kind, enum.Enum):
        held = attributes_of(member)
        return f"{module_of(kind)}.{qualname_of(kind)}", f"{held.get('_name_')} {held.get('_sort_order_')}"
    raise Unwalkable(member, f"a set that holds {kind.__qualname__} objects has no order that every run repeats")


def _function(walk: Walk, value: types.FunctionType) -> None:
    """A function is its code, which is constant, and what it holds: cells and default values.

    One that a run made is also what it keeps beside them, and what it was executed in where no module is that.
    """
    parts: tuple[Any, ...] = (value.__kwdefaults__, value.__defaults__, value.__closure__)
    tag = code_record(value.__code__)[1]
    if is_of_the_run(value):
        about = value.__name__, value.__qualname__, value.__module__
        parts = (
            globals_of_the_run(value.__globals__),
            value.__dict__ or None,
            value.__doc__,
            value.__annotations__ or None if _ANNOTATIONS_ARE_VALUES else None,
            *parts,
        )
        walk.out.append(("function of the run", tag, *about, *[part is None for part in parts]))
    else:
        walk.out.append(("function", str(value.__module__), tag, *[part is None for part in parts]))
    walk.stack.extend([part for part in parts if part is not None])


# From 3.14 on to ask for them runs the program's own code.
_ANNOTATIONS_ARE_VALUES = sys.version_info < (3, 14)


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
        function.__closure__
        or function.__defaults__
        or function.__kwdefaults__
        or (id(function) not in CONSTANT_FUNCTIONS and is_of_the_run(function))
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
    """Arguments, cause and context, and its attributes; fields of other names are read as slots are."""
    kind = type(value)
    walk.out.append(("exception", module_of(kind), qualname_of(kind)))
    if issubclass(kind, OSError):
        try:
            walk.out.append(_characters_written(value))
        except AttributeError:
            walk.out.append(("nothing was written",))
    if walk.tracebacks:
        traceback = _traceback(value)
        while traceback is not None:  # where it was raised and has passed; what those frames held is left out
            walk.out.append((code_record(traceback.tb_frame.f_code)[1], traceback.tb_lasti))
            traceback = traceback.tb_next
        walk.out.append(("raised",))
    walk.stack.append(walk.made(_exception_attributes(value)))
    walk.stack.append(_cause(value))
    walk.stack.append(_exception_context(value))
    walk.stack.append(_arguments(value))


def read_traceback(walk: Walk, value: types.TracebackType) -> None:
    """A traceback by the places that it names, and what the frames that have ended held.

    An exception on its way through the exit of an `async with` lies in frames with its traceback.
    """
    frame = value.tb_frame
    walk.out.append(("traceback", code_record(frame.f_code)[1], value.tb_lasti, value.tb_lineno))
    walk.stack.append(value.tb_next)
    walk.stack.append(frame)


def read_ended_frame(walk: Walk, value: types.FrameType) -> None:
    """A frame that a traceback or the program keeps. A coroutine is read with its own; the explorer's are constants."""
    name = value.f_globals.get("__name__", "")
    own = type(name) is str and name.startswith("interleavings.") and not name.startswith("interleavings.scenarios")
    walk.out.append(("frame", code_record(value.f_code)[1], value.f_lasti, own))
    if not own:
        held = [one for one in gc.get_referents(value) if type(one) not in (types.FrameType, types.CodeType)]
        walk.out.append(len(held))
        walk.stack.extend(held[::-1])


def read_weak(walk: Walk, value: Any) -> None:
    walk.out.append(("weak reference",))
    walk.stack.append(_weak_callback(value))
    walk.stack.append(weakref.ref.__call__(value))


def read_lock(walk: Walk, value: Any) -> None:
    """A lock by whether it is taken; one that may be taken again, by how often."""
    shown = _shown_rlock(value) if issubclass(type(value), _RLOCK) else repr(value)
    taken = re.search(r"count=\d+", shown)
    walk.out.append(("thread lock", taken[0] if taken is not None else shown.split()[0]))


def _getter(kind: type, name: str) -> Any:
    """Return what reads a field of a type of C, whatever a subclass puts before it."""
    return kind.__dict__[name].__get__


_maxlen = _getter(collections.deque, "maxlen")
_default_factory = _getter(collections.defaultdict, "default_factory")
_arguments = _getter(BaseException, "args")
_cause = _getter(BaseException, "__cause__")
_exception_context = _getter(BaseException, "__context__")
_traceback = _getter(BaseException, "__traceback__")
_exception_attributes = _getter(BaseException, "__dict__")
_characters_written = _getter(OSError, "characters_written")
_weak_callback = _getter(weakref.ref, "__callback__")
_RLOCK = type(threading.RLock())
_shown_rlock = _RLOCK.__repr__


BUILT_IN: dict[type, Handler] = {
    list: _list,
    collections.deque: _deque,
    bytearray: lambda walk, value: walk.out.extend((("bytearray",), bytes(bytearray.copy(value)))),
    dict: _dict,
    collections.OrderedDict: _ordered_dict,
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
    types.TracebackType: read_traceback,
    types.FrameType: read_ended_frame,
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
