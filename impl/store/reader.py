"""Reads one checkpoint: every byte is compared with the manifest as it is read, and nothing outside is touched.

No memory maps: a file that is cut short under a map kills the process instead of raising.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from cleancut_leaf.words import counted

from ..errors import CheckpointCorrupt, CheckpointDamaged, CleancutError
from . import names, strict_json
from .failures import DAMAGE, READING, store_error
from .files import Files, FileStat
from .manifest import MANIFEST_LIMIT, FileRecord, Manifest, decode_manifest
from .parallel import Job, in_parallel
from .tensor_assembly import READ_BYTES, TensorAssembly
from .tensor_header import HeaderCollector

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_DIGEST_LIMIT = 1024


class CheckpointReader:
    """The files of one published checkpoint. Opening it reads the manifest; `verify` reads everything."""

    def __init__(self, files: Files, root: str, name: str) -> None:
        self.name = name
        self._files = files
        self._path = f"{root}/{name}"
        self._way_out = f"Restore another checkpoint; `python -m impl fsck {root}` shows which are whole."
        # Members whose digest was found right.
        self._verified: set[str] = set()
        self._check_directory("")
        data = self._read_whole(names.MANIFEST, MANIFEST_LIMIT)
        digest_line = self._read_whole(names.MANIFEST_DIGEST, _DIGEST_LIMIT)
        self.manifest: Manifest = decode_manifest(data, digest_line, name)

    def check_lengths(self) -> None:
        """Check that every listed file is there, is a regular file and has its length, without reading any."""
        for member, record in self.manifest.files.items():
            self._check_present(member, record)

    def verify(self, below: str = "") -> None:
        """Compare length and digest of every listed file not read so far; CheckpointDamaged names the first bad one.

        Of a file of tensors also the header with the manifest; CheckpointCorrupt says what differs.

        `below` limits it to the members whose names begin with that.
        """
        self.check_lengths()
        for member in self.manifest.files:
            if member.startswith(below) and member not in self._verified:
                for _ in self.verified_chunks(member):
                    pass

    def is_verified(self, member: str) -> bool:
        """Whether this object has read the whole file and found its digest right."""
        return member in self._verified

    def reader(self, subdirectory: str | None = None) -> MemberReader:
        """The files of one participant, under the names it gave them."""
        return MemberReader(self, f"{subdirectory}/" if subdirectory else "")

    def folder(self, directory: str) -> str:
        """The path of a directory that others filled, with every file in it found as listed, and none besides."""
        below = f"{directory}/"
        if not any(member.startswith(below) for member in self.manifest.files):
            raise CheckpointCorrupt(
                f"{self.name} has no folder {directory}: the manifest lists nothing in it. The checkpoint was written "
                "by something else, or edited; restore another one."
            )
        self.verify(below)
        self._require_listed(directory, self.manifest.directories())
        return f"{self._path}/{directory}"

    def _require_listed(self, directory: str, directories: frozenset[str]) -> None:
        """Whoever is given the path may open whatever lies there."""
        try:
            entries = self._files.listdir(f"{self._path}/{directory}")
        except OSError as error:
            raise self.unreadable(error, directory) from error
        for entry in entries:
            member = f"{directory}/{entry}"
            if member in self.manifest.files:
                continue
            if member not in directories:
                raise CheckpointDamaged(
                    f"{self.name}/{member} is not listed in the manifest: somebody put it there, and it is not part of "
                    f"the checkpoint. Take it away if you know what it is. {self._way_out}"
                )
            self._require_listed(member, directories)

    def read(self, member: str) -> bytes:
        """The contents of a listed file."""
        return b"".join(map(bytes, self.verified_chunks(member)))

    def record(self, member: str) -> FileRecord:
        """What the manifest says of a file; CheckpointCorrupt if it does not list it."""
        record = self.manifest.files.get(member)
        if record is None:
            raise CheckpointCorrupt(
                f"{self.name} has no {member}: the manifest does not list it. The checkpoint was written by something "
                "else, or edited; restore another one."
            )
        return record

    def verified_chunks(self, member: str, room: Callable[[], memoryview] | None = None) -> Iterator[memoryview]:
        """The file in pieces; raises after the last one if digest or tensors are not those listed.

        Each is the front of a `room`, which is asked for before it is read; without one, all are made in the same
        memory, and each is good until the next one is asked for.
        """
        record = self.record(member)
        self._check_present(member, record)
        digest = hashlib.sha256()
        length = 0
        # Whoever gives the room puts tensors together, and looks at the header itself.
        header = HeaderCollector() if record.tensors is not None and room is None else None
        for chunk in self._chunks(member, room):
            digest.update(chunk)
            if header is not None:
                header.take(chunk)
            length += len(chunk)
            if length > record.length:
                break
            yield chunk
        if length != record.length or digest.hexdigest() != record.sha256:
            raise CheckpointDamaged(
                f"{self.name}/{member} is damaged: {counted(length, 'byte was', 'bytes were')} read, and the sha256 is "
                f"not the one in the manifest. The disk or a tool changed it after it was published. {self._way_out}"
            )
        if header is not None and record.tensors is not None:
            header.check(record.length, record.tensors, f"{self.name}/{member}")
        self._verified.add(member)

    def _check_present(self, member: str, record: FileRecord) -> None:
        for depth in range(member.count("/")):
            self._check_directory("/".join(member.split("/")[: depth + 1]))
        size = self._regular_size(member)
        if size != record.length:
            raise CheckpointDamaged(
                f"{self.name}/{member} is damaged: it has {counted(size, 'byte')}, the manifest says {record.length}. "
                f"It was cut short or changed after it was published. {self._way_out}"
            )

    def _check_directory(self, directory: str) -> None:
        path = f"{self._path}/{directory}" if directory else self._path
        where = f"{self.name}/{directory}" if directory else self.name
        try:
            found = self._stat(path)
        except FileNotFoundError:
            raise CheckpointDamaged(f"{where} is not there. Files were removed. {self._way_out}") from None
        if found.kind != "directory":
            raise CheckpointDamaged(
                f"{where} is no directory but a file or a link, which could lead anywhere. Somebody put it there; it "
                f"is not followed. {self._way_out}"
            )

    def _regular_size(self, member: str) -> int:
        try:
            found = self._stat(f"{self._path}/{member}")
        except FileNotFoundError:
            raise CheckpointDamaged(
                f"{self.name}/{member} is not there. The checkpoint is incomplete: an interrupted copy, or files were "
                f"removed. {self._way_out}"
            ) from None
        if found.kind != "file":
            raise CheckpointDamaged(
                f"{self.name}/{member} is no regular file but a directory, a link, a fifo or a device. Somebody put it "
                f"there; it is not opened. {self._way_out}"
            )
        return found.size

    def _stat(self, path: str) -> FileStat:
        """What a name is; FileNotFoundError if it is not there, another error if that could not be found out."""
        try:
            return self._files.stat(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.unreadable(error, path.removeprefix(f"{self._path}").strip("/")) from error

    def unreadable(self, error: OSError, member: str) -> CleancutError:
        """The error for a name in here that could not be read: damaged, unless that says nothing about the file."""
        path = "/".join(filter(None, (self._path, member)))
        if error.errno not in DAMAGE:
            return store_error(error, f"{READING}{path}")
        return CheckpointDamaged(
            f"{'/'.join(filter(None, (self.name, member)))} cannot be read: {error.strerror or error} (errno "
            f"{error.errno}). The disk has lost it, or it was replaced by something that is no file. {self._way_out}"
        )

    def _read_whole(self, member: str, limit: int) -> bytes:
        size = self._regular_size(member)
        if size > limit:
            raise CheckpointDamaged(
                f"{self.name}/{member} has {size} bytes, more than any real one ({limit}). It was not read. "
                f"{self._way_out}"
            )
        data = bytearray()
        for chunk in self._chunks(member):
            data += chunk
            if len(data) > limit:
                raise CheckpointDamaged(f"{self.name}/{member} grew while it was read. {self._way_out}")
        return bytes(data)

    def _chunks(self, member: str, room: Callable[[], memoryview] | None = None) -> Iterator[memoryview]:
        next_room = room or repeat(memoryview(bytearray(READ_BYTES))).__next__
        try:
            handle = self._files.open_read(f"{self._path}/{member}")
            try:
                while filled := self._files.read_into(handle, place := next_room()):
                    yield place[:filled]
            finally:
                self._files.close(handle)
        except OSError as error:
            raise self.unreadable(error, member) from error


class MemberReader:
    """The `DirectoryReader` of one participant: it sees its own files only."""

    def __init__(self, checkpoint: CheckpointReader, prefix: str) -> None:
        self._checkpoint = checkpoint
        self._prefix = prefix

    def names(self) -> tuple[str, ...]:
        """The names of the files here, sorted; not those of deeper directories."""
        start = len(self._prefix)
        return tuple(
            sorted(
                member[start:]
                for member in self._checkpoint.manifest.files
                if member.startswith(self._prefix) and "/" not in member[start:]
            )
        )

    def folder(self, name: str) -> str:
        """The path of a folder, for others to read in; every byte in it is compared with the manifest first."""
        return self._checkpoint.folder(self._prefix + name)

    def read_bytes(self, name: str) -> bytes:
        """The contents of a file."""
        return self._checkpoint.read(self._prefix + name)

    def read_json(self, name: str) -> object:
        """The value of a JSON file."""
        return strict_json.decode_plain(self.read_bytes(name), self._where(name))

    def read_document(self, name: str, kind: type[T]) -> T:
        """The msgspec struct in a JSON file, every field of its exact type."""
        return strict_json.decode(self.read_bytes(name), kind, self._where(name))

    def read_tensors(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of a safetensors file: on the CPU, each owning its memory."""
        return next(self.read_tensor_files((name,)))

    def read_tensor_files(self, names: Iterable[str]) -> Iterator[dict[str, torch.Tensor]]:
        """The tensors of many files, in that order; several are read at a time."""
        return in_parallel(
            Job(partial(self._read_tensors, name), self._checkpoint.record(self._prefix + name).length)
            for name in names
        )

    def _read_tensors(self, name: str) -> dict[str, torch.Tensor]:
        member = self._prefix + name
        described = self._checkpoint.record(member).tensors
        if described is None:
            raise CheckpointCorrupt(
                f"{self._where(name)} is not listed as a file of tensors. The checkpoint was edited; restore another."
            )
        length = self._checkpoint.record(member).length
        assembly = TensorAssembly(length, described, self._where(name))
        for chunk in self._checkpoint.verified_chunks(member, assembly.room):
            assembly.take(chunk)
        return assembly.tensors()

    def _where(self, name: str) -> str:
        return f"{self._checkpoint.name}/{self._prefix}{name}"
