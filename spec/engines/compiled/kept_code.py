"""Compiled code kept on disk, and looked at before any of it is executed.

numba keeps machine code beside the text as two pickles a function, the index and the data, and executes what it finds.
A power cut leaves such files empty, short or full of zeros, and a copy may put those of another function there. So each
file here begins with a digest of its own name and of what follows, is durable before it has its name, and one that does
not fit is as good as none: the function is compiled anew. The digest has no key: whoever may write into the directory
can still have code executed, as by writing into the sources. Keep it where nobody else writes.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from numba.core.caching import IndexDataCacheFile

_DIGEST: Final = hashlib.sha256().digest_size


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody sees half of it, not after a power cut either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def looked_at(dispatcher: Any) -> Any:
    """The same numba function, whose cache is a `LookedAtFile` from now on; as it is where numba compiles nothing."""
    cache = getattr(dispatcher, "_cache", None)
    file = getattr(cache, "_cache_file", None)
    if cache is not None and type(file) is IndexDataCacheFile:
        base = file._index_name.removesuffix(".nbi")
        of: Any = LookedAtFile
        cache._cache_file = of(file._cache_path, base, file._source_stamp)
    return dispatcher


class LookedAtFile(IndexDataCacheFile):
    """numba's cache of one function; nothing is unpickled whose digest does not fit."""

    def _load_index(self) -> dict[Any, str]:
        data = self._contents(self._index_name)
        if data is None:
            return {}
        stream = io.BytesIO(data)
        if pickle.load(stream) != self._version:
            return {}
        stamp, overloads = pickle.load(stream)
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        data = self._contents(name)
        if data is None:
            # To numba: the file is gone, so the function is compiled.
            raise FileNotFoundError(name)
        return pickle.loads(data)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        buffer = io.BytesIO()
        yield buffer
        path = Path(filepath)
        write_whole(path, _digest(path.name, buffer.getvalue()) + buffer.getvalue())

    def _contents(self, name: str) -> bytes | None:
        """What a file holds behind its digest; None if it is not there or does not fit."""
        try:
            data = Path(self._cache_path, name).read_bytes()
        except OSError:
            return None
        return data[_DIGEST:] if data[:_DIGEST] == _digest(name, data[_DIGEST:]) else None


def _digest(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).digest()
