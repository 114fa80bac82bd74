"""What is kept beside objects: by functions, classes and caches that a run made, and by finalizers.

A function, a class or a cache that its module names is a constant, as module globals are: every run shares it. What
the program makes anew in each run (a class in a coroutine, a cache around an inner function) belongs to the run, and
what it keeps is state.
"""

from __future__ import annotations

import enum
import gc
import inspect
import sys
import weakref
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..errors import Unwalkable

if TYPE_CHECKING:
    from interleavings.state.walkers import Walk

_NESTED = inspect.CO_NESTED
# What the class statement, ABCs, dataclasses, typing and enumerations note, and nobody changes afterwards.
_NOTES = frozenset({
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__", "__dict__",
    "__dataclass_fields__", "__dataclass_params__", "__doc__", "__firstlineno__", "__match_args__", "__module__",
    "__orig_bases__", "__parameters__", "__protocol_attrs__", "__qualname__", "__slots__", "__static_attributes__",
    "__type_params__", "__weakref__", "_abc_impl",
})  # fmt: skip


def attributes_kept(function: FunctionType) -> dict[str, Any] | None:
    """Return the attributes of a function that a run made; None when it has none, or its module made it."""
    if function.__code__.co_flags & _NESTED:
        return function.__dict__ or None
    return None


def is_a_constant(value: Any) -> bool:
    """Say whether a module names this class or cache, so that all runs share it."""
    module = getattr(value, "__module__", None)
    qualified = getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualified, str):
        return False
    if "<locals>" not in qualified and module.partition(".")[0] in sys.stdlib_module_names:
        return True  # also those that no module names: iterators, views
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found is value


def is_a_class_of_the_run(kind: type) -> bool:
    """Say whether the program made this class: by a class statement inside a function, or by `type(...)`."""
    named = kind.__module__ == "builtins" or issubclass(kind, enum.Enum) or is_a_constant(kind)
    return not named and ("__dict__" in vars(kind) or "__module__" in vars(kind))


def read_class(walk: Walk, value: type) -> None:
    """A class by its name; one that the run made also by what it holds."""
    if not is_a_class_of_the_run(value):
        walk.out.append(("named", value.__module__, value.__qualname__))
        return
    kept = [(name, held) for name, held in vars(value).items() if name not in _NOTES]
    walk.out.append(("class", value.__module__, value.__qualname__, tuple(name for name, _ in kept)))
    walk.stack.extend(held for _, held in reversed(kept))
    walk.stack.append(value.__bases__)


def read_property(walk: Walk, value: property) -> None:
    """A property by its functions."""
    walk.out.append(("property",))
    walk.stack.extend((value.fget, value.fset, value.fdel))


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
