"""What a file may be whose first line is none of a trace, and what to do with it."""

from __future__ import annotations

import msgspec

from .schema import SCHEMA, VERSION

#: How compressed files begin, with the command that unpacks them to its standard output.
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gzip -dc"),
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}
_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class _AnyHeader(msgspec.Struct):
    """What a header of any version tells."""

    record: str
    schema: str
    version: int


def what_it_is_instead(line: bytes) -> tuple[str, str] | None:
    """From the first line of a file: what it is, and the advice; None if nobody can tell."""
    for magic, (name, command) in _COMPRESSED.items():
        if line.startswith(magic):
            return f"it is compressed with {name}", f"Unpack it first: {command} FILE > TRACE.jsonl."
    for mark, name in _MARKS.items():
        if line.startswith(mark):
            return f"it begins with the byte order mark of {name}", "An editor saved it anew; use the original."
    try:
        header = msgspec.json.decode(line, type=_AnyHeader)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if header.record == "header" and (header.schema, header.version) != (SCHEMA, VERSION):
        return (
            f"it is of schema {header.schema!r}, version {header.version}; this version of the library reads "
            f"{SCHEMA!r}, version {VERSION}",
            "Read it with the version of the library that wrote it.",
        )
    return None
