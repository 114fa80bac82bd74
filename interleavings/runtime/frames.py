"""Reads suspended coroutines: where they stand, and everything their frames hold.

`f_locals` misses what lies on the value stack (`s.v = s.v + await f()`), which `gc.get_referents` shows; it in turn
does not say which local is unset, which the frame's own memory does. `f_locals` itself is never asked: until Python
3.12 it writes into the very dictionary that a program was given by `locals()`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import marshal
import sys
import types
from asyncio import base_events
from collections.abc import Iterator
from typing import Any, TypeAlias

_ASYNCIO_FOLDER = base_events.__file__.rpartition("/")[0] + "/"
_INTERNAL_FILES = frozenset({contextlib.__file__})

_KEPT_CODES = 10_000

CodeRecord: TypeAlias = tuple[types.CodeType, tuple[str, bytes], tuple[str, ...], Any, str, str, list[Any]]
"""A code object, the constant that stands for it, the names of its locals, cells and free variables, in the order in
which a frame has them, how so many pointers lie in memory, its names, and the globals of a module that it was
met with."""

# By address, for speed; a record keeps its code alive, so no address is used twice while it is here.
RECORDS: dict[int, CodeRecord] = {}
# By value: code that a program compiles anew in every run (a namedtuple, a dataclass) is the same code.
_tags: dict[tuple[types.CodeType, str], tuple[str, bytes]] = {}


def code_record(code: types.CodeType) -> CodeRecord:
    """Return what is known of a code object. It is called by its content: other processes call it the same."""
    record = RECORDS.get(id(code))
    if record is None:
        if len(RECORDS) >= _KEPT_CODES:
            RECORDS.clear()
        tag = _tags.get((code, code.co_filename))
        if tag is None:
            content = marshal.dumps((code.co_qualname, code), 2)
            tag = _tags[code, code.co_filename] = ("code", hashlib.blake2b(content, digest_size=16).digest())
        names = tuple(dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)))
        record = RECORDS[id(code)] = (
            code,
            tag,
            names,
            ctypes.c_ssize_t * len(names),
            code.co_qualname,
            code.co_name,
            [None],
        )
    return record


# Of modules, and of the program that is explored, by address: constants. Whatever else code was executed in is read.
KNOWN_GLOBALS: dict[int, dict[str, Any]] = {}


def globals_of_the_run(own: dict[str, Any]) -> dict[str, Any] | None:
    """Return the globals of a function or frame unless a module has them: those that `exec` was given in a run."""
    if id(own) in KNOWN_GLOBALS:
        return None
    name = own.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    if type(module) is types.ModuleType and module.__dict__ is own:
        KNOWN_GLOBALS[id(own)] = own
        return None
    return own


def frame_of(awaitable: Any) -> tuple[types.CodeType, Any]:
    """Return code and frame of a coroutine, generator or async generator; the frame is None when it has ended."""
    kind = type(awaitable)
    if kind is types.CoroutineType:
        return awaitable.cr_code, awaitable.cr_frame
    if kind is types.AsyncGeneratorType:
        return awaitable.ag_code, awaitable.ag_frame
    return awaitable.gi_code, awaitable.gi_frame


def read_frame(kind: str, awaitable: Any, code: types.CodeType, frame: Any, out: list[Any]) -> list[Any]:
    """Append kind, position and unset locals to `out`; return all a frame refers to, values on the stack included.

    These come last first. `code` and `frame` are as `frame_of` has them. It is the hottest function of a search, which
    is why what it writes is one atom.
    """
    record = RECORDS.get(id(code)) or code_record(code)
    if frame is None:
        out.append((kind, record[1]))
        return []
    pointers = record[3].from_address(id(awaitable) + _LOCALS)[:]
    unset = bytes(map(bool, pointers)) if 0 in pointers else None
    referents = gc.get_referents(awaitable)
    # The frame object exists, for it was asked for. Before it come the coroutine's name and code; after it the
    # dictionary that the program was given by `locals()` (until 3.12), the frame's own function and its code; then
    # locals, cells and the stack.
    start, end = 1, len(referents)
    while referents[start - 1] is not frame:
        start += 1
    renamed = referents[start - 2] is not record[4] or referents[start - 3] is not record[5]
    given = referents[start] if start < end and type(referents[start]) is dict and _SHARED_LOCALS else None
    if given is not None:
        start += 1
    if start < end and type(referents[start]) is types.FunctionType and referents[start].__code__ is code:
        start += 1
    if start < end and referents[start] is code:
        start += 1
    if start < end and referents[-1] is None:
        del referents[-1]  # the exception being handled: None says that there was one, once
    out.append((kind, record[1], frame.f_lasti, unset, len(referents) - start))
    held = referents[: start - 1 : -1]
    if renamed:
        out.append((awaitable.__name__, awaitable.__qualname__))
    if given is not None:
        out.append("locals")
        held.append(given)
    if frame.f_globals is not record[6][0]:
        if globals_of_the_run(frame.f_globals) is None:
            record[6][0] = frame.f_globals
        else:
            out.append("globals")
            held.append(frame.f_globals)
    return held


# Until 3.12 `locals()` gives a dictionary that the frame keeps.
_SHARED_LOCALS = sys.version_info < (3, 13)
# Where the locals of a suspended frame begin: behind everything else of the object that runs it.
_LOCALS = types.CoroutineType.__basicsize__
assert {types.GeneratorType.__basicsize__, types.AsyncGeneratorType.__basicsize__} == {_LOCALS}


def locals_of(awaitable: Any, code: types.CodeType) -> dict[str, Any]:
    """Return the locals of a suspended coroutine or generator by name, those in cells too, and change nothing of it."""
    _, _, names, layout, *_ = code_record(code)
    in_cells = {*code.co_cellvars, *code.co_freevars}
    found: dict[str, Any] = {}
    for name, pointer in zip(names, layout.from_address(id(awaitable) + _LOCALS), strict=True):
        if not pointer:
            continue
        held = ctypes.cast(pointer, ctypes.py_object).value
        if name in in_cells and type(held) is types.CellType:
            try:
                held = held.cell_contents
            except ValueError:
                continue
        found[name] = held
    return found


def frames_inwards(awaitable: Any) -> Iterator[tuple[types.CodeType, Any, Any]]:
    """Walk from a task's coroutine to the innermost one it awaits: (code, frame, the coroutine itself).

    Awaitables of C (an async generator's `__anext__`, a coroutine's `__await__`) hide the next frame; it is looked
    for among what they refer to.
    """
    seen = 0
    while awaitable is not None and seen < 1000:
        seen += 1
        kind = type(awaitable)
        if kind is types.CoroutineType:
            frame, inner = awaitable.cr_frame, awaitable.cr_await
        elif kind is types.AsyncGeneratorType:
            frame, inner = awaitable.ag_frame, awaitable.ag_await
        elif kind is types.GeneratorType:
            frame, inner = awaitable.gi_frame, awaitable.gi_yieldfrom
        else:
            hidden = (types.CoroutineType, types.AsyncGeneratorType, types.GeneratorType)
            inner = next((value for value in gc.get_referents(awaitable) if type(value) in hidden), None)
            frame = None
        if frame is not None:
            yield frame.f_code, frame, awaitable
        awaitable = inner


def is_internal(code: types.CodeType) -> bool:
    """Say whether code belongs to asyncio or contextlib, where a user would not look for a cause."""
    return code.co_filename.startswith(_ASYNCIO_FOLDER) or code.co_filename in _INTERNAL_FILES


def place_of(coroutine: Any) -> str:
    """Return `file.py:12 in function` of the innermost frame of the user's, or of the innermost at all."""
    place = ""
    for code, frame, _ in frames_inwards(coroutine):
        if not place or not is_internal(code):
            place = describe_place(code, frame.f_lineno)
    return place or "already ended"


def describe_place(code: types.CodeType, line: int | None) -> str:
    """Return `file.py:12 in function`."""
    return f"{code.co_filename.rpartition('/')[2]}:{line or code.co_firstlineno} in {code.co_qualname}"


def function_in(place: str) -> str:
    """Return the part of a place that survives edits elsewhere in the file: file and function, without the line."""
    head, separator, function = place.partition(" in ")
    return f"{head.partition(':')[0]} in {function}" if separator else place
