"""Reads suspended coroutines: where they stand, and everything their frames hold.

`f_locals` misses what lies on the value stack (`s.v = s.v + await f()`), which `gc.get_referents` shows; it in turn
does not say which local is unset. Both together are the whole frame.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import marshal
import types
from asyncio import base_events
from collections.abc import Iterator
from typing import Any, TypeAlias

_ASYNCIO_FOLDER = base_events.__file__.rpartition("/")[0] + "/"
_INTERNAL_FILES = frozenset({contextlib.__file__})

_KEPT_CODES = 10_000

CodeRecord: TypeAlias = tuple[types.CodeType, tuple[str, bytes], tuple[str, ...]]
"""A code object, the constant that stands for it, and the names of its locals, cells and free variables."""

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
        record = RECORDS[id(code)] = (code, tag, names)
    return record


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
    names = record[2]
    held = frame.f_locals
    unset = None if len(held) == len(names) else tuple([name for name in names if name not in held])
    if type(held) is dict:  # until 3.12 the frame keeps it, and with it what its locals once held
        held.clear()
    referents = gc.get_referents(awaitable)
    # The frame object exists, f_locals made it. Before it come the coroutine's name and code; after it the dictionary
    # f_locals has filled (until 3.12), the frame's own function and its code; then locals, cells and the stack.
    start, end = 1, len(referents)
    while referents[start - 1] is not frame:
        start += 1
    if start < end and referents[start] is held:
        start += 1
    if start < end and type(referents[start]) is types.FunctionType and referents[start].__code__ is code:
        start += 1
    if start < end and referents[start] is code:
        start += 1
    if start < end and referents[-1] is None:
        del referents[-1]  # the exception being handled: None says that there was one, once
    out.append((kind, record[1], frame.f_lasti, unset, len(referents) - start))
    return referents[: start - 1 : -1]


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
