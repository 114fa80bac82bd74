"""The digest by which a restore knows that the dataset is the one of the save.

By default it covers the content: every row is read once, when the loader is made, and hashed as canonical JSON, with
bytes, sets and other objects standing as text. That costs about 2 µs a row plus the reading. Its limit is that an
object which is not JSON counts as far as its `repr` shows it; the repr of a large array leaves out the middle.

Where reading everything is too dear, or rows are not stable text, the caller gives a fingerprint, any text that
changes when the dataset does: a revision, a file's digest, the fingerprint that a dataset library keeps.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any, Protocol

from .errors import UsageError

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Dataset(Protocol):
    """A map-style dataset: rows by number, and how many there are. A list is one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def dataset_digest(dataset: Dataset, fingerprint: str | None) -> str:
    """The identity of a dataset as hexadecimal text: of its length with its fingerprint, or with all its rows."""
    length = len(dataset)
    if fingerprint is not None:
        if not isinstance(fingerprint, str) or not fingerprint:
            raise UsageError(f"fingerprint is {fingerprint!r}, but must be a text that names the dataset's content.")
        return sha256(json.dumps(["fingerprint", length, fingerprint]).encode()).hexdigest()
    digest = sha256(json.dumps(["content", length]).encode())
    for index in range(length):
        digest.update(b"\n")
        digest.update(_canonical(_row(dataset, index, length), index))
    return digest.hexdigest()


def _row(dataset: Dataset, index: int, length: int) -> object:
    try:
        return dataset[index]
    except LookupError as error:
        raise UsageError(
            f"dataset: it has a length of {length}, but no row {index} ({error!r}). Rows must be reachable by the "
            "numbers from 0 to its length; a dictionary with other keys is no dataset, give its values as a list."
        ) from error


def _canonical(row: object, index: int) -> bytes:
    try:
        # Escaped text has no raw newline, so rows cannot run into each other.
        return json.dumps(row, sort_keys=True, separators=(",", ":"), default=_stand_in).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"row {index} of the dataset ({type(row).__name__}) cannot be told apart from others across restarts: "
            f"{error}. Give the loader `fingerprint=`, a text that changes when the dataset does."
        ) from error


def _stand_in(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.hex()]
    if isinstance(value, set | frozenset):
        # Their own order differs from process to process.
        return ["set", sorted(json.dumps(item, sort_keys=True, default=_stand_in) for item in value)]
    text = repr(value)
    if _ADDRESS.search(text):
        raise TypeError(f"the repr of a {type(value).__name__} is an address in memory")
    return [type(value).__name__, text]
