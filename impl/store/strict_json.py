"""Strict JSON for everything that is not a tensor: what was written is what is read, or it is refused.

Refused on writing, with the path of the value: keys that are not text, NaN and infinities, tuples, bytes, sets and
objects, integers beyond 64 bits, lone surrogates, deep nesting. Refused on reading: any encoding but UTF-8, duplicate
keys, NaN and infinities spelled as words or as numbers that no float holds, integers beyond 64 bits, lone surrogates,
deep nesting, unknown or missing fields, a wrong type (a number as text, 2.0 or true for 2).

Reading costs time and memory in proportion to the bytes, whatever they say.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeVar

import msgspec

from cleancut_leaf.words import counted

from ..errors import CheckpointCorrupt, UsageError

_DEPTH = 64
#: The deepest of our documents, with a value of that depth in it, is no deeper.
_DEPTH_READ = _DEPTH + 16
_INTEGER_LIMIT = 2**63
# Eighteen digits are no integer beyond 64 bits. A digest may hold more in a row, and then costs the longer look.
_MANY_DIGITS = re.compile(rb"\d{19}")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
#: More digits than any number of ours has; to read an integer costs the square of them.
_MOST_DIGITS = 400
#: What a number may be that is too large to be read, or is no finite one; most often it is within a text.
_LARGE_NUMBER = re.compile(rb"[0-9.]{40}|[0-9.][eE][+]?[0-9]{3}")

T = TypeVar("T")


def checked(value: object, where: str) -> object:
    """Return `value` if JSON can hold it exactly; otherwise a UsageError that says which part cannot be held.

    Dictionaries and lists are returned as they are, not copied: the caller hands over what will not change.
    """
    _check(value, where, 0)
    return value


def _check(value: object, where: str, depth: int) -> None:
    if depth > _DEPTH:
        raise _refusal(where, f"it is nested more than {_DEPTH} deep", "flatten it")
    # Exact types: a subclass (an IntEnum, a NamedTuple, an ordered dictionary) would come back as something else.
    kind = type(value)
    if value is None or kind is bool:
        return
    if kind is int:
        if not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:  # type: ignore[operator]
            raise _refusal(where, "the integer needs more than 64 bits", "store it as text")
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise _refusal(where, f"{value!r} is no JSON number", "store None, or a text")
    elif kind is str:
        _check_text(value, where)  # type: ignore[arg-type]
    elif kind is list:
        for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
            _check(item, f"{where}[{index}]", depth + 1)
    elif kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str:
                raise _refusal(where, f"the key {key!r} is no text and would become one", "use a text as the key")
            _check_text(key, where)
            _check(item, f"{where}.{key}", depth + 1)
    else:
        raise _refusal(where, f"a {kind.__name__} does not come back from JSON", "use text, numbers, lists, dicts")


def _check_text(value: str, where: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise _refusal(where, f"the text {value!r} holds half a surrogate pair", "store proper text") from None


def _refusal(where: str, reason: str, way_out: str) -> UsageError:
    return UsageError(f"{where} cannot be saved exactly: {reason}. Nothing was written for it; {way_out}.")


def encode(document: object, where: str) -> bytes:
    """The bytes of a document built from msgspec structs and checked values; one line, ending in a newline."""
    try:
        return msgspec.json.encode(document) + b"\n"
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"{where} cannot be saved: {error}. Nothing was written for it; use plain values.") from error


def encode_readable(document: msgspec.Struct, where: str) -> bytes:
    """As `encode`, and proven to be readable: every value has the type that its field declares.

    Encoding does not look at declared types, so a float in the place of an integer would only show at the restore.
    """
    data = encode(document, where)
    try:
        msgspec.json.decode(data, type=type(document))
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{where} could be written and not read again: {error}. Some part of the run has a value of the wrong type "
            "in its state; nothing was published."
        ) from error
    return data


def decode_plain(data: bytes, where: str) -> Any:
    """The value in strict JSON text, as dicts, lists, text and numbers; CheckpointCorrupt says what is wrong."""
    try:
        # Decoded here: given bytes, `json` guesses among UTF-8, UTF-16 and UTF-32, and lets half surrogate pairs pass.
        text = data.decode("utf-8")
        numbers: dict[str, Any] = (
            {"parse_int": _integer, "parse_float": _finite} if _LARGE_NUMBER.search(data) is not None else {}
        )
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_constant, **numbers)
        if _MANY_DIGITS.search(data):
            _require_64_bits(value, where)
        if _ESCAPED_SURROGATE.search(data):
            # Half a pair that was escaped: no file name, no terminal and no other JSON could take it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        if data.count(b"[") + data.count(b"{") > _DEPTH_READ and _deeper(value, _DEPTH_READ):
            # What is written is no deeper; whoever walks it later by recursion must not run out of stack.
            raise RecursionError
    except RecursionError:
        raise CheckpointCorrupt(f"{where} is nested too deeply to be ours. Restore an older checkpoint.") from None
    except ValueError as error:
        raise CheckpointCorrupt(
            f"{where} is not strict JSON: {error}. It was damaged, or written by another tool. "
            "Restore an older checkpoint."
        ) from error
    return value


def decode(data: bytes, kind: type[T], where: str) -> T:
    """The document of type `kind` in strict JSON text; every field present, none unknown, each of its exact type."""
    return convert(decode_plain(data, where), kind, where)


def convert(value: object, kind: type[T], where: str) -> T:
    """The document of type `kind` in a plain value."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise CheckpointCorrupt(
            f"{where} does not have the form this version writes: {error}. It was edited, or written by another "
            "version. Restore an older checkpoint, or use the version that wrote it."
        ) from error


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name[:200]!r} stands twice in one object")
            seen.add(name)
    return found


def _deeper(value: object, depth: int) -> bool:
    """Whether lists and objects are nested deeper than this; level by level, so without recursion."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for outer in level
            for item in (outer.values() if type(outer) is dict else outer)  # type: ignore[attr-defined]
            if type(item) in (list, dict)
        ]
        if not level:
            return False
    return True


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer has {counted(len(digits), 'digit')}")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits:.40} is larger than any number of JSON that comes back")
    return number


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON number")


def _require_64_bits(value: object, where: str) -> None:
    """ValueError names the place of an integer that no writer can have written; deep nesting is a RecursionError."""
    if isinstance(value, dict):
        for key, item in value.items():
            _require_64_bits(item, f"{where}: {key}" if where.endswith(".json") else f"{where}.{key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            _require_64_bits(item, f"{where}[{place}]")
    elif type(value) is int and not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        raise ValueError(f"{where} is an integer of {value.bit_length()} bits, and 64 is the most")
