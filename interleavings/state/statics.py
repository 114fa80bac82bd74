"""What is kept beside objects: by functions, classes, modules and caches that a run made, and by finalizers.

A function, a class or a cache that its module names is a constant, as module globals are: every run shares it. What
the program makes anew in each run (a class in a coroutine, a cache around an inner function, a module, what `exec` was
given) belongs to the run, and what it keeps is state. Nothing here asks the object itself: what a class or a metaclass
overrides would answer.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import inspect
import sys
import weakref
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import Unwalkable
from ..runtime.refusals import namespace_of_module

if TYPE_CHECKING:
    from interleavings.state.walkers import Walk

_NESTED = inspect.CO_NESTED
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8
_TYPE: dict[str, Any] = dict(vars(type))
namespace_of = _TYPE["__dict__"].__get__
"""The attributes of a class, whatever its metaclass says."""
bases_of = _TYPE["__bases__"].__get__
mro_of = _TYPE["__mro__"].__get__
base_of = _TYPE["__base__"].__get__
flags_of = _TYPE["__flags__"].__get__
module_of = _TYPE["__module__"].__get__
qualname_of = _TYPE["__qualname__"].__get__
_short_name_of = _TYPE["__name__"].__get__
_basicsize_of = _TYPE["__basicsize__"].__get__
_subclasses_of = type.__subclasses__
_abc: Any = sys.modules["_abc"]  # what `abc` is made of
_of_a_module = namespace_of_module
# What would lead back to the class itself, and what is read by a way of its own.
_NOT_READ = frozenset({"__dict__", "__weakref__", "_abc_impl"})

# `tp_dealloc` of a type: classes that a class statement made have the interpreter's own, those of C mostly theirs.
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_DEALLOCATOR = object.__basicsize__ + 4 * _POINTER


def _deallocator(kind: type) -> int | None:
    return ctypes.c_void_p.from_address(id(kind) + _DEALLOCATOR).value


class _Probe:
    pass


_OF_CLASS_STATEMENTS = _deallocator(_Probe)


def is_python_class(kind: type) -> bool:
    """Say whether a class statement, or `type(...)`, made this type: its slots are then all that it has added."""
    if not flags_of(kind) & _HEAP_TYPE or _deallocator(kind) != _OF_CLASS_STATEMENTS:
        return False
    own = namespace_of(kind)
    shown = sum(type(one) is MemberDescriptorType and one.__objclass__ is kind for one in own.values())
    shown += ("__dict__" in own) + ("__weakref__" in own)
    return bool(_basicsize_of(kind) - _basicsize_of(base_of(kind)) <= shown * _POINTER)


def c_base_of(kind: type) -> type:
    """Return the type of C that an object's hidden part belongs to; `object` when there is none."""
    while is_python_class(kind):
        kind = base_of(kind)
    return kind


def has_nothing_of_its_own(base: type) -> bool:
    """Say whether objects of a type of C are no larger than plain ones: it adds methods, and classes add the slots."""
    sizes = (_basicsize_of(base), _TYPE["__itemsize__"].__get__(base), _TYPE["__dictoffset__"].__get__(base))
    return sizes == (object.__basicsize__, 0, 0)


CONSTANT_FUNCTIONS: dict[int, FunctionType] = {}
_KEPT_FUNCTIONS = 10_000


def is_of_the_run(function: FunctionType) -> bool:
    """Say whether a run made this function: inside another one, or by `exec`. Modules name all others."""
    if function.__code__.co_flags & _NESTED:
        return True
    if id(function) in CONSTANT_FUNCTIONS:
        return False
    if not is_a_constant(function):
        return True
    if len(CONSTANT_FUNCTIONS) >= _KEPT_FUNCTIONS:
        CONSTANT_FUNCTIONS.clear()
    CONSTANT_FUNCTIONS[id(function)] = function
    return False


def is_a_constant(value: Any) -> bool:
    """Say whether a module names this class, function or cache, so that all runs share it."""
    if issubclass(type(value), type):
        if not flags_of(value) & _HEAP_TYPE or flags_of(value) & _IMMUTABLE_TYPE:
            return True  # nobody can change it, named or not: iterators, views
        module, qualified = module_of(value), qualname_of(value)
    else:
        module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(module) is not str or type(qualified) is not str:
        return False
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        if issubclass(type(found), ModuleType):
            found = _of_a_module(found).get(part)
        elif issubclass(type(found), type):
            found = namespace_of(found).get(part)
        else:
            return False
    return found is value or any(part is value for part in _wrapped_in(found))


def _wrapped_in(found: Any) -> tuple[Any, ...]:
    """Return the functions that a class attribute is made of, and the one that `functools.wraps` has wrapped."""
    if type(found) in (classmethod, staticmethod):
        return (found.__func__,)
    if type(found) is property:
        return (found.fget, found.fset, found.fdel)
    if type(found) is functools.cached_property:
        return (found.func,)
    return (found.__dict__.get("__wrapped__"),) if type(found) is FunctionType else ()


def is_a_class_of_the_run(kind: type) -> bool:
    """Say whether the program made this class: by a class statement inside a function, or by `type(...)`."""
    return not is_a_constant(kind) and is_python_class(kind)


def read_class(walk: Walk, value: type) -> None:
    """A class by its name; one that the run made also by what it holds, and by who inherits from it."""
    if not is_a_class_of_the_run(value):
        walk.out.append(("named", module_of(value), qualname_of(value)))
        return
    kept = [(name, held) for name, held in namespace_of(value).items() if name not in _NOT_READ]
    metaclass = type(value)
    own = is_a_class_of_the_run(metaclass)
    called = (module_of(value), qualname_of(value), _short_name_of(value))
    walk.out.append(("class", *called, tuple([name for name, _ in kept]), own))
    walk.stack.extend([held for _, held in reversed(kept)])
    walk.stack.append(bases_of(value))
    walk.stack.append(walk.made(tuple(_subclasses_of(value))))
    if own:
        walk.stack.append(metaclass)
    if "_abc_impl" in namespace_of(value):
        walk.stack.append(walk.made(_registered_with(value)))


def _registered_with(value: type) -> tuple[Any, ...]:
    """Return the classes that an abstract one takes for its own, by their names: the registry is a set of addresses."""
    registry = [ref() for ref in _abc._get_dump(value)[0]]
    classes = sorted((one for one in registry if one is not None), key=lambda one: (module_of(one), qualname_of(one)))
    names = {(module_of(one), qualname_of(one)) for one in classes}
    if len(names) < len(classes):
        raise Unwalkable(value, "classes of one name, registered with an abstract class, have no order")
    return tuple(classes)


def read_module(walk: Walk, value: ModuleType) -> None:
    """A module by its name; one that the run made by all it holds."""
    held = _of_a_module(value)
    name = held.get("__name__")
    if type(name) is str and sys.modules.get(name) is value:
        walk.out.append(("module", name))
        return
    walk.out.append(("module of the run",))
    walk.stack.append(held)


def read_named(walk: Walk, value: Any) -> None:
    """Descriptors of C: constants, told apart by name and by whose they are."""
    owner = value.__objclass__
    walk.out.append(("named", module_of(owner), qualname_of(owner), value.__name__))


def dictionary_getter(kind: type) -> Any:
    """Return what gives an object's attributes, also where a class attribute stands before them; None without any."""
    if not _TYPE["__dictoffset__"].__get__(kind):
        return None
    for base in mro_of(kind):
        found = namespace_of(base).get("__dict__")
        if type(found) is GetSetDescriptorType and found.__objclass__ is base:
            return found.__get__
    return attributes_of


_generic_dict = ctypes.pythonapi.PyObject_GenericGetDict
_generic_dict.argtypes = [ctypes.py_object, ctypes.c_void_p]
_generic_dict.restype = ctypes.py_object


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that has a dictionary and does not show it, as asyncio's C types."""
    attributes: dict[str, Any] = _generic_dict(value, None)
    return attributes


def finalizers_of(value: Any) -> list[Any]:
    """Return the finalizers that wait for an object to go; the object itself does not know them."""
    refs = [ref for ref in weakref.getweakrefs(value) if type(ref) is weakref.ref]  # proxies stand among them
    return [ref.__callback__ for ref in refs if type(ref.__callback__) is weakref.finalize]


def read_finalizer(walk: Walk, value: weakref.finalize[Any, Any]) -> None:
    """`weakref.finalize`: what it will call, as long as it has not."""
    waiting: Any = walk.made(value.peek())  # made for us, its keywords too
    walk.out.append(("finalizer", waiting is not None))
    if waiting is not None:
        walk.stack.extend(waiting[:0:-1])  # the object itself is whose finalizer this is
        walk.stack.append(waiting[0])


def read_cache(walk: Walk, value: Any) -> None:
    """`functools.lru_cache`: what it remembers, the least recently used first, and what it has counted."""
    if is_a_constant(value):
        walk.out.append(("named", value.__module__, value.__qualname__))
        return
    about = value.cache_info()
    # Its own type, each entry with the type of its link, then: table, function, three types and marks, attributes.
    _, *entries, table, function, _, _, _, attributes = gc.get_referents(value)
    if type(attributes) is not dict or len(entries) != (0 if about.maxsize is None else 3 * about.currsize):
        raise Unwalkable(value, "a cache that this Python lays out differently")
    walk.out.append(("cache", *about))
    walk.stack.extend((attributes, function))
    walk.stack.append(table if about.maxsize is None else [*entries[0::3], *entries[1::3]])
    walk.keep.append(walk.stack[-1])
