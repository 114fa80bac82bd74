"""What the program's own modules keep: followed from its code, by the names in it, to all that lasts from run to run.

Followed are globals, attributes of functions, classes and instances, default values, cells, containers, what context
variables and caches hold. Objects of C that hide their content are read as a state is. Of libraries only what the
program's code names is looked at, not what they keep themselves.
"""

from __future__ import annotations

import collections
import contextvars
import dis
import functools
import gc
import itertools
import logging
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from ..errors import Unwalkable
from ..runtime.refusals import is_a_users, namespace_of_module
from .statics import (
    attributes_of,
    c_base_of,
    dictionary_getter,
    is_a_constant,
    is_python_class,
    module_of,
    mro_of,
    namespace_of,
    qualname_of,
)

_ATOMS = frozenset({int, str, bytes, bool, float, complex, type(None), type(...)})
_MOST_OBJECTS = 20_000
Look: TypeAlias = Callable[[], Iterable[Any]]
Thing: TypeAlias = tuple[str, Look, Look | None]
"""A name in words, how to look at it, and what gives a name for each part of that."""

Cache: TypeAlias = tuple[str, Any, Any]
"""The name of a function, its `lru_cache`, and what that said of itself."""


def _items(held: Any) -> tuple[Any, ...]:
    """Return the values in a dictionary or the namespace of a class, and then the names."""
    return (*held.values(), *held)


def _names_of_items(held: Any) -> tuple[Any, ...]:
    return (*held, *[("its name", one) for one in held])


def logger_items(logger: logging.Logger) -> Iterable[Any]:
    """Return what is set on a logger; what it has worked out for itself is left out."""
    held = vars(logger)
    return (*held, *[one for name, one in held.items() if name != "_cache"], *logger.handlers, None, *logger.filters)


def functions_of(program: Any) -> list[types.FunctionType]:
    """Return the functions that a callable is made of: under partials, bound methods and objects that are called."""
    while type(program) is functools.partial:
        program = program.func
    program = getattr(program, "__func__", program)
    if type(program) is types.FunctionType:
        return [program]
    return [one for one in namespace_of(type(program)).values() if type(one) is types.FunctionType]


def _names_in(code: types.CodeType) -> Iterator[tuple[str, bool]]:
    """Yield the names that code refers to, and whether it may put a new thing there: by a statement or as a string."""
    stores = not _STORES.isdisjoint(code.co_code[::2])
    for name in code.co_names:
        yield name, stores
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _names_in(constant)
        elif type(constant) is str and constant.isidentifier() and len(constant) < _LONGEST_NAME:
            yield constant, True


_STORES = frozenset({dis.opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR")})
_LONGEST_NAME = 60
_MOST_FUNCTIONS = 1_000


class WhatModulesKeep:
    """One following. `things()` are compared by identity, `read` by reading, `caches` by what they say."""

    def __init__(self) -> None:
        self.found: list[Thing] = []
        self._classes_of_libraries: list[type] = []
        self.all_names: dict[str, None] = {}
        self._functions: list[types.FunctionType] = []
        self.read: list[Thing] = []
        self.caches: list[Cache] = []
        self._names: dict[int, tuple[Any, str, dict[str, None]]] = {}
        # The generator behind the functions of `random` is a part of states, once it was seeded.
        self._seen: dict[int, Any] = {id(_SHARED_GENERATOR): _SHARED_GENERATOR}
        self._waiting: list[tuple[str, Any]] = []

    def follow(self, programs: Iterable[Any]) -> None:
        """Find all that the code of some callables can reach by name."""
        for program in programs:
            self._code_of(program)
        self._go_on()

    def _code_of(self, value: Any, depth: int = 4) -> None:
        """Follow what an object does, not what it holds: what a run can reach without a name is a part of states."""
        if type(value) in _ATOMS or id(value) in self._seen or not depth:
            return
        kind = type(value)
        if kind is types.FunctionType:
            self._seen[id(value)] = value
            if value.__globals__.get("__name__", "").startswith("interleavings."):
                return  # our own scenarios
            self._function(value, cells=False)
            for cell in value.__closure__ or ():
                for one in _content(cell):
                    self._code_of(one, depth - 1)
        elif kind in (functools.partial, types.MethodType):
            parts = (value.func, *value.args) if kind is functools.partial else (value.__func__, value.__self__)
            for one in parts:
                self._code_of(one, depth)
        elif kind in (list, tuple, dict):
            for one in list(value.values() if kind is dict else value)[:_MOST_FUNCTIONS]:
                self._code_of(one, depth - 1)
        elif issubclass(kind, type):
            self._waiting.append((qualname_of(value), value))
        elif is_a_users(sys.modules.get(module_of(kind))):
            self._waiting.append((qualname_of(kind), kind))

    def follow_object(self, where: str, value: Any) -> None:
        """Find all that an object keeps."""
        self._waiting.append((where, value))
        self._go_on()

    def things(self) -> list[Thing]:
        """Return what is compared by identity; globals of one module together."""
        for get, where, names in self._names.values():
            self._keep(where, functools.partial(_values_of, get, tuple(names)), functools.partial(tuple, names))
        self._names.clear()
        return self.found

    def functions(self) -> list[Thing]:
        """Return what can be put into the place of functions."""
        functions = self._functions
        look = functools.partial(_parts_of, functions, [function.__dict__ for function in functions])
        things: list[Thing] = [("function ", look, functools.partial(_names_of_parts, functions))]
        for one in self._classes_of_libraries:
            names = tuple(self.all_names)
            look_at = functools.partial(_values_of, namespace_of(one).get, names)
            things.append((f"class attribute {qualname_of(one)}", look_at, functools.partial(tuple, names)))
        return things

    def _go_on(self) -> None:
        while self._waiting:
            where, value = self._waiting.pop()
            if type(value) not in _ATOMS and id(value) not in self._seen:
                if len(self._seen) >= _MOST_OBJECTS:
                    raise Unwalkable(value, f"modules keep more than {_MOST_OBJECTS:,} objects, among them {where}")
                self._seen[id(value)] = value
                self._look_into(where, value)

    def _look_into(self, where: str, value: Any) -> None:
        kind = type(value)
        if kind in _CONSTANT:
            return
        if kind is types.FunctionType:
            self._function(value)
        elif issubclass(kind, type):
            self._class(value)
        elif issubclass(kind, types.ModuleType):
            self._module(where, value)
        elif kind in (staticmethod, classmethod, types.MethodType):
            self._waiting.append((where, value.__func__))
            if kind is types.MethodType:
                self._waiting.append((where, value.__self__))
        elif kind is property:
            self._waiting += [(where, part) for part in (value.fget, value.fset, value.fdel)]
        elif kind is functools.partial:
            self._keep(where, lambda: (value.func, *value.args, *_items(value.keywords)))
            self._waiting += [(where, part) for part in (value.func, *value.args, *value.keywords.values())]
        elif kind is functools._lru_cache_wrapper:
            self._cache(where, value)
        elif kind is contextvars.ContextVar:
            self._keep(where, lambda: (value.get(None),))
            self._waiting.append((where, value.get(None)))
        elif kind is types.CellType:
            self._waiting += [(where, one) for one in _content(value)]
            self._keep(where, functools.partial(_content, value))
        elif issubclass(kind, weakref.ref):
            self._keep(where, lambda: (weakref.ref.__call__(value),))
            self._waiting.append((where, weakref.ref.__call__(value)))
        elif issubclass(kind, logging.Logger):
            self._keep(where, functools.partial(logger_items, value))
        elif issubclass(kind, logging.Manager):
            return
        elif (foreign := sys.modules.get("_ctypes")) is not None and issubclass(kind, foreign.CFuncPtr):
            # A function in C: what it is called with may be set anew, where it lies in memory says nothing.
            self._keep(where, lambda: (value.restype, value.argtypes, value.errcheck))
        else:
            self._object(where, value, kind)

    def _object(self, where: str, value: Any, kind: type) -> None:
        base: Any = c_base_of(kind)
        if issubclass(kind, (list, collections.deque, set, tuple, frozenset)):
            self._keep(where, functools.partial(base.__iter__, value))
            self._waiting += [(where, one) for one in base.__iter__(value)]
        elif issubclass(kind, dict):
            self._keep(where, lambda: (*dict.keys(value), *dict.values(value)))
            self._waiting += [(f"{where}[...]", one) for one in (*dict.keys(value), *dict.values(value))]
        elif base is types.SimpleNamespace:
            self._attributes(where, attributes_of(value))
        elif base is not object and not is_a_constant(value) and not self._reads(where, value):
            return
        if not is_python_class(kind) or module_of(kind).partition(".")[0] in _NOT_FOLLOWED:
            return
        getter = dictionary_getter(kind)
        if getter is not None:
            self._attributes(where, getter(value))
        slots = [(name, one) for of in mro_of(kind) for name, one in namespace_of(of).items()]
        members = [(name, one) for name, one in slots if type(one) is types.MemberDescriptorType]
        if members and base is object:
            shown = functools.partial(_slots, value, [member for _, member in members])
            self._keep(where, shown, lambda: [name for name, _ in members])
            self._waiting += [(where, one) for one in shown()]
        self._waiting.append((qualname_of(kind), kind))

    def _attributes(self, where: str, held: dict[str, Any]) -> None:
        self._keep(where, functools.partial(_items, held), functools.partial(_names_of_items, held))
        self._waiting += [(f"{where}.{name}", one) for name, one in held.items()]

    def _reads(self, where: str, value: Any) -> bool:
        """Look at an object of C as a state does. One that shows nothing cannot be kept outside of a run."""
        from .walkers import Walk  # it reads what this file follows

        def reading() -> list[Any]:
            walk = Walk(0.0, {}, declared=False)
            walk.stack.append(value)
            walk.run()
            return walk.out

        try:
            reading()
        except Unwalkable as error:
            raise Unwalkable(value, f"{where} is kept by a module, and {error.reason}") from None
        self.read.append((where, reading, None))
        return True

    def _class(self, value: type) -> None:
        if not is_python_class(value):
            return
        held = namespace_of(value)
        if not is_a_users(sys.modules.get(module_of(value))):
            self._classes_of_libraries.append(value)
        else:
            where = f"class attribute {qualname_of(value)}"
            self._keep(where, functools.partial(_items, held), functools.partial(_names_of_items, held))
            held = {name: one for name, one in held.items() if name not in _OF_CLASSES_THEMSELVES}
            self._waiting += [(f"{qualname_of(value)}.{name}", one) for name, one in held.items()]
            self._waiting += [(qualname_of(base), base) for base in mro_of(value)[1:]]
            if is_python_class(type(value)):
                self._waiting.append((qualname_of(type(value)), type(value)))

    def _module(self, where: str, value: types.ModuleType) -> None:
        """A module that can be imported by the names in the code (`_function`), any other by all that it has."""
        held = namespace_of_module(value)
        if sys.modules.get(held.get("__name__")) is not value:
            self._attributes(where, held)

    def _cache(self, where: str, value: Any) -> None:
        self.caches.append((where, value, value.cache_info()))
        self._attributes(where, value.__dict__)
        self._waiting += [(f"what {where} remembers", one) for one in _remembered(value)]

    def _function(self, function: types.FunctionType, *, cells: bool = True) -> None:
        name, held = function.__qualname__, function.__globals__
        self._functions.append(function)
        if function.__kwdefaults__:
            self._keep(f"a default of {name}", functools.partial(_items, function.__kwdefaults__))
        module = sys.modules.get(held.get("__name__", ""))
        if module is not None and vars(module) is held and not is_a_users(module):
            if held.get("__name__") in _WRAPPING:
                self._waiting += [
                    (f"a cell of {name}", cell)
                    for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
                    if cell_name not in _OWN_TO_WRAPPING
                ]
            return
        self._waiting += [(f"an attribute of {name}", one) for one in function.__dict__.values()]
        self._waiting += [(f"a default of {name}", one) for one in function.__defaults__ or ()]
        self._waiting += [(f"a default of {name}", one) for one in (function.__kwdefaults__ or {}).values()]
        if cells:
            for of, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                self._waiting.append((f"{of} of {name}", cell))
        names = dict(sorted(_names_in(function.__code__)))  # those that may come last, so that they count
        self.all_names |= dict.fromkeys(names)
        self._use(held, f"global {held.get('__name__')}", names)
        imported = [module for name in names if is_a_users(module := sys.modules.get(name))]
        for found in [*[held.get(name) for name in names], *imported]:
            if issubclass(type(found), types.ModuleType):
                inside = namespace_of_module(found)
                self._use(inside, f"global {inside.get('__name__')}", names)

    def _use(self, held: dict[str, Any], where: str, names: dict[str, bool]) -> None:
        known = self._names.setdefault(id(held), (held.get, where, {}))[2]
        for name, may_come in names.items():
            if name not in known and (name in held or may_come):
                known[name] = None
                self._waiting.append((f"{where}.{name}", held.get(name)))

    def _keep(self, name: str, look: Look, names: Look | None = None) -> None:
        self.found.append((name, look, names))


_SHARED_GENERATOR: Any = random.getstate.__self__  # type: ignore[attr-defined]
# What classes fill by themselves: an enumeration of flags with each combination that somebody asks for (its members are
# named beside it), an abstract class with what it has answered. Its registry is a setting of the process.
_OF_CLASSES_THEMSELVES = frozenset({"_value2member_map_", "_unhashable_values_", "_abc_impl"})
# Whoever wraps functions holds on to them in cells; the tables that `singledispatch` fills by itself are left out.
_WRAPPING = frozenset({"functools", "contextlib"})
_OWN_TO_WRAPPING = frozenset({"dispatch_cache", "cache_token"})
# Instances of their classes keep what all of the process shares, or what never changes.
_NOT_FOLLOWED = frozenset({"typing", "importlib", "abc", "numpy", "torch", "ray"})
_CONSTANT = frozenset({
    types.CodeType, types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.GenericAlias, types.UnionType, range, slice,
})  # fmt: skip


_FUNCTION: dict[str, Any] = dict(vars(types.FunctionType))
_PARTS = ("__code__", "__defaults__", "__kwdefaults__", "__dict__")
_PART_OF = [_FUNCTION[name].__get__ for name in _PARTS]


def _parts_of(functions: list[types.FunctionType], attributes: list[dict[str, Any]]) -> list[Any]:
    """Return what can be put into the place of functions: their code, default values and attributes."""
    found: list[Any] = []
    for part in _PART_OF:
        found += map(part, functions)
    for held in attributes:
        found += held.values()
    return found


def _names_of_parts(functions: list[types.FunctionType]) -> list[str]:
    names = [f"{function.__qualname__}.{part}" for part in _PARTS for function in functions]
    return names + [f"{function.__qualname__}.{name}" for function in functions for name in function.__dict__]


def _content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _remembered(cache: Any) -> list[Any]:
    return [one for one in gc.get_referents(cache) if type(one) is not type and type(one) is not types.FunctionType]


def _slots(value: Any, members: list[Any]) -> list[Any]:
    found: list[Any] = []
    for member in members:
        try:
            found.append(member.__get__(value))
        except AttributeError:
            found.append(_slots)  # unset
    return found


def _values_of(get: Callable[..., Any], names: tuple[str, ...]) -> Iterable[Any]:
    return map(get, names, itertools.repeat(_values_of))
