"""The digest by which a restore knows that the dataset is the one of the save.

By default it covers the content: every row is read once, when the loader is made, and hashed as `content` has it. That
costs about 2 µs for a row of text and numbers, plus the reading; for arrays and tensors a pass over their elements.

Where reading everything is too dear, or rows are not stable, the caller gives a fingerprint, any text that changes when
the dataset does: a revision, a file's digest, the fingerprint that a dataset library keeps.

A digest is a text in one of two forms. Where every row is text, numbers and bytes it is 64 hexadecimal digits. Where
there is more it is `2:CONTENT:TEXT`, or `2:CONTENT:TEXT:unchecked` if part of some row is known by its `repr` alone;
TEXT is the digest that earlier versions took, over shortened texts of arrays, and is empty where they took none. It is
there so that their checkpoints are restored: against one of those, TEXT is all there is to compare.
"""

from __future__ import annotations

import json
import logging
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from ..errors import UsageError
from .dataset_content import Content, shortened

_log = logging.getLogger("cleancut.loader")

_BY_CONTENT = "2:"


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
    content, text = Content(), None
    text_known = True
    for index in range(length):
        row = _row(dataset, index, length)
        encoded = _encoded(content, row, index)
        if content.beyond_text and text is None:
            text = digest.copy()
        if text is not None and text_known:
            text_known = _update_text(text, row)
        digest.update(b"\n")
        digest.update(encoded)
    if text is None:
        return digest.hexdigest()
    earlier = text.hexdigest() if text_known else ""
    if content.unchecked:
        _log.warning(
            "of some objects in the rows of the dataset only the repr is known, which need not show everything: %s. A "
            "change of what it does not show goes unnoticed; give the loader `fingerprint=`, a text that changes when "
            "the dataset does.",
            ", ".join(sorted(content.unchecked)),
        )
    return f"{_BY_CONTENT}{digest.hexdigest()}:{earlier}{':unchecked' if content.unchecked else ''}"


def same_dataset(saved: str, now: str) -> bool:
    """Whether two digests are of one dataset, as far as the older of them can tell."""
    if saved == now:
        return True
    theirs, mine = _parts(saved), _parts(now)
    if theirs.content and mine.content:
        return theirs.content == mine.content
    return bool(theirs.text) and theirs.text == mine.text


class _Parts(NamedTuple):
    content: str
    text: str


def _parts(digest: str) -> _Parts:
    if not isinstance(digest, str) or not digest.startswith(_BY_CONTENT):
        return _Parts("", digest)
    _, content, text, *_unchecked = digest.split(":")
    return _Parts(content, text)


def _update_text(text: Any, row: object) -> bool:
    """Add a row to the digest of earlier versions; False where they refused it."""
    try:
        text.update(b"\n" + shortened(row))
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _row(dataset: Dataset, index: int, length: int) -> object:
    try:
        return dataset[index]
    except LookupError as error:
        raise UsageError(
            f"dataset: it has a length of {length}, but no row {index} ({error!r}). Rows must be reachable by the "
            "numbers from 0 to its length; a dictionary with other keys is no dataset, give its values as a list."
        ) from error


def _encoded(content: Content, row: object, index: int) -> bytes:
    try:
        return content.encoded(row)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"row {index} of the dataset ({type(row).__name__}) cannot be told apart from others across restarts: "
            f"{error}. Give the loader `fingerprint=`, a text that changes when the dataset does."
        ) from error
