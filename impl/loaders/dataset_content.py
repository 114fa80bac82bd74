"""Rows of a dataset as JSON that tells different content apart, for the digest by which a restore knows its dataset.

Beside what JSON has, it knows arrays and tensors (type, shape and elements, wherever they are and however they are
strided), records of fields, mappings, sequences and sets, and the types of the standard library whose `repr` is their
whole value. A tuple counts as a list, and the key of a dictionary as its text. Of anything else only the `repr` counts,
which need not show everything: the types of such objects are collected in `unchecked`. An object whose `repr` is an
address has nothing that would be the same in another process.
"""

from __future__ import annotations

import array
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import pathlib
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import sha256
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

#: Types whose `repr` is their whole value.
EXACT_REPR: tuple[type, ...] = (
    complex,
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    decimal.Decimal,
    fractions.Fraction,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    pathlib.PurePath,
    range,
    uuid.UUID,
)


class Content:
    """Encodes rows; remembers whether a row needed more than JSON, and of which types only the `repr` was seen."""

    def __init__(self) -> None:
        self.unchecked: set[str] = set()
        self.beyond_text = False

    def encoded(self, row: object) -> bytes:
        """One row as a line of ASCII: escaped text has no raw newline, so rows cannot run into each other."""
        return json.dumps(row, sort_keys=True, separators=(",", ":"), default=self._stand_in).encode()

    def _stand_in(self, value: Any) -> object:
        """What stands for a value that JSON does not have. What is in it is encoded in turn."""
        if isinstance(value, bytes | bytearray):
            return ["bytes", value.hex()]
        if isinstance(value, set | frozenset):
            return ["set", self._sorted(value)]
        if type(value) in EXACT_REPR or (isinstance(value, pathlib.PurePath) and type(value).__module__ == "pathlib"):
            return [type(value).__name__, repr(value)]
        # From here on a shortened text stood for the content, in checkpoints from before.
        self.beyond_text = True
        if isinstance(value, type):
            return ["type", f"{value.__module__}.{value.__qualname__}"]
        name = type(value).__qualname__  # without its module, which another start of the program may name otherwise
        return [name, self._inside(value, name)]

    def _inside(self, value: Any, name: str) -> object:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(value, torch.Tensor):
            from .torch_dataset_content import tensor_content

            return self._or_unchecked(tensor_content(value), value, name)
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            return self._of_array(numpy, value)
        if isinstance(value, enum.Enum):
            return [value.name, value.value]
        if (fields := _fields_of(type(value))) is not None:
            return {field: getattr(value, field, None) for field in fields}
        if isinstance(value, memoryview):
            return [value.format, value.shape, sha256(value.tobytes()).hexdigest()]
        if isinstance(value, array.array):
            return [value.typecode, value.tobytes().hex()]
        if isinstance(value, Mapping):
            return [[self.encoded(key).decode(), value[key]] for key in sorted(value, key=self.encoded)]
        if isinstance(value, Set):
            return self._sorted(value)
        if isinstance(value, Sequence):
            return list(value)
        return self._or_unchecked(None, value, name)

    def _of_array(self, numpy: Any, value: Any) -> object:
        """Type, shape and elements of an array or a numpy scalar."""
        masked = value if isinstance(value, numpy.ma.MaskedArray) else None
        found = numpy.asarray(value if masked is None else masked.filled())
        if found.dtype.names is not None:
            # By field: what lies between the fields of a record is no content.
            elements: object = {name: found[name] for name in found.dtype.names}
        elif found.dtype.hasobject or found.dtype.char in "gGT":
            # Objects and long texts are references; a long double has bytes that mean nothing.
            plain = found.dtype.char not in "gG"
            elements = [item if plain else repr(item) for item in found.reshape(-1).tolist()]
        else:
            elements = sha256(found.tobytes()).hexdigest()
        mask = None if masked is None else numpy.ma.getmaskarray(masked)
        return [str(found.dtype), found.shape, elements, mask]

    def _or_unchecked(self, found: object, value: object, name: str) -> object:
        """What was found, or the `repr`, with a note that it is no more."""
        if found is not None:
            return found
        text = repr(value)
        if _ADDRESS.search(text):
            raise TypeError(f"the repr of a {type(value).__name__} is an address in memory")
        self.unchecked.add(name)
        return text

    def _sorted(self, items: Iterable[object]) -> list[str]:
        """Encoded and sorted: the own order of a set differs from process to process."""
        return sorted(json.dumps(item, sort_keys=True, default=self._stand_in) for item in items)


def _fields_of(kind: type) -> list[str] | None:
    """The fields of a record: of a dataclass, a msgspec struct, or a class of attrs or pydantic; None for others."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    for name in ("__struct_fields__", "model_fields"):
        if (fields := getattr(kind, name, None)) is not None:
            return list(fields)
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def shortened(row: object) -> bytes:
    """A row as it was encoded before arrays were read: objects that are not JSON stand there as their `repr`."""
    return json.dumps(row, sort_keys=True, separators=(",", ":"), default=_shortened).encode()


def _shortened(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.hex()]
    if isinstance(value, set | frozenset):
        return ["set", sorted(json.dumps(item, sort_keys=True, default=_shortened) for item in value)]
    text = repr(value)
    if _ADDRESS.search(text):
        raise TypeError(f"the repr of a {type(value).__name__} is an address in memory")
    return [type(value).__name__, text]
