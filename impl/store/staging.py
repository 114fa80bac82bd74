"""A checkpoint while it is built: a directory beside its target, written file by file, each one durable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ..errors import UsageError
from . import names, strict_json, tensor_format
from .durable_file import CHUNK_BYTES, in_chunks, write_durably
from .files import Buffer, Files
from .manifest import FileRecord, Manifest, TensorRecord, encode_manifest
from .parallel import COMPUTING, Job, in_parallel

if TYPE_CHECKING:
    import torch


class StagedDirectory:
    """One attempt. Used on the writer thread alone (it has helpers); after an error it is abandoned, never continued.

    `writer()` gives participants their part of it. OSErrors pass through: whoever publishes translates them.
    """

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._records: dict[str, FileRecord] = {}
        self._directories: list[str] = []
        self._folders: list[str] = []
        files.mkdir(path)

    @property
    def records(self) -> Mapping[str, FileRecord]:
        """Every file written so far, by name."""
        return self._records

    def writer(self, subdirectory: str | None = None) -> StagedWriter:
        """A writer for the files of one participant, at the top or in a directory of its own."""
        return StagedWriter(self, f"{subdirectory}/" if subdirectory else "")

    def add(self, name: str, pieces: Iterable[Buffer], described: dict[str, TensorRecord] | None = None) -> None:
        """Write one file durably, piece by piece, and list it for the manifest."""
        self._make_room(name)
        self._records[name] = self._written(name, pieces, described)

    def add_tensors(
        self,
        files: Iterable[tuple[str, Mapping[str, torch.Tensor]]],
        written: Callable[[str], None] | None = None,
    ) -> None:
        """Write safetensors files, large ones several at a time; all are durable when this returns.

        `files` is taken from as there is room, so of a lazy one only a few are in memory. `written` is told of each
        file as soon as that one is durable, on the thread that wrote it.
        """
        started: list[str] = []

        def write(name: str, pieces: Iterable[Buffer], described: dict[str, TensorRecord]) -> FileRecord:
            record = self._written(name, pieces, described)
            if written is not None:
                written(name)
            return record

        def jobs() -> Iterator[Job[FileRecord]]:
            for name, tensors in files:
                pieces, described = tensor_format.to_pieces(tensors, name)
                if name in started:
                    raise _written_twice(name)
                self._make_room(name)
                started.append(name)
                size = sum(tensor.nbytes for tensor in tensors.values())
                yield Job(partial(write, name, pieces, described), size)

        for number, record in enumerate(in_parallel(jobs())):
            self._records[started[number]] = record

    def folder(self, name: str) -> str:
        """Make a directory that others fill by themselves, and return its path."""
        names.check_member_name(name)
        if name in self._directories or name in self._records:
            raise _written_twice(name)
        self._make_directories(f"{name}/")
        self._folders.append(name)
        return f"{self.path}/{name}"

    def take_in_folders(self) -> None:
        """Make durable what others have written into the folders, and list it for the manifest."""
        found = [file for folder in self._folders for file in self._files_below(folder)]
        jobs = (Job(partial(self._taken_in, name, size), size) for name, size in found)
        for (name, _), record in zip(found, in_parallel(jobs), strict=True):
            self._records[name] = record

    def _files_below(self, directory: str) -> Iterator[tuple[str, int]]:
        """The files in a folder, and their sizes."""
        for entry in self._files.listdir(f"{self.path}/{directory}"):
            name = f"{directory}/{entry}"
            found = self._files.stat(f"{self.path}/{name}")
            if not names.is_listed_name(name) or found.kind == "other":
                raise UsageError(
                    f"{name!r} was put into a folder of a checkpoint and cannot be part of one. Only directories and "
                    "regular files can, no links, under at most eight parts of letters, digits, '_', '-' and '.'."
                )
            if found.kind == "directory":
                if name not in self._directories:
                    self._directories.append(name)
                yield from self._files_below(name)
            elif name in self._records:
                raise _written_twice(name)
            else:
                yield name, found.size

    def _taken_in(self, name: str, size: int) -> FileRecord:
        """Sync and digest a file that somebody else wrote; on any thread."""
        digest = hashlib.sha256()
        length = 0
        handle = self._files.open_read(f"{self.path}/{name}")
        try:
            self._files.fsync(handle)
            room = memoryview(bytearray(max(1, min(size, CHUNK_BYTES))))
            while filled := self._files.read_into(handle, room):
                with COMPUTING:
                    digest.update(room[:filled])
                length += filled
        finally:
            self._files.close(handle)
        return FileRecord(length, digest.hexdigest(), None)

    def _make_room(self, name: str) -> None:
        """Check the name and make the directories above it; on the writer thread alone."""
        names.check_member_name(name)
        if name in self._records:
            raise _written_twice(name)
        self._make_directories(name)

    def _written(self, name: str, pieces: Iterable[Buffer], described: dict[str, TensorRecord] | None) -> FileRecord:
        """Write a file and digest it on the way; on any thread."""
        digest = hashlib.sha256()
        length = 0

        def digested() -> Generator[memoryview, None, None]:
            nonlocal length
            for chunk in in_chunks(pieces):
                with COMPUTING:
                    digest.update(chunk)
                length += len(chunk)
                yield chunk

        with closing(digested()) as chunks:
            self._write(name, chunks)
        return FileRecord(length, digest.hexdigest(), described)

    def seal(self, manifest: Manifest) -> None:
        """Write the manifest last, then make every directory durable, the innermost first."""
        data, digest_line = encode_manifest(manifest)
        self._write(names.MANIFEST, (data,))
        self._write(names.MANIFEST_DIGEST, (digest_line,))
        for directory in sorted(self._directories, key=lambda path: path.count("/"), reverse=True):
            self._files.fsync_dir(f"{self.path}/{directory}")
        self._files.fsync_dir(self.path)

    def _make_directories(self, name: str) -> None:
        parts = name.split("/")[:-1]
        for depth in range(len(parts)):
            directory = "/".join(parts[: depth + 1])
            if directory not in self._directories:
                self._files.mkdir(f"{self.path}/{directory}")
                self._directories.append(directory)

    def _write(self, name: str, chunks: Iterable[Buffer]) -> None:
        write_durably(self._files, f"{self.path}/{name}", chunks)


def _written_twice(name: str) -> UsageError:
    return UsageError(
        f"{name!r} was written twice into one checkpoint. Two participants use the same file name; give one of them "
        "another."
    )


class StagedWriter:
    """The `DirectoryWriter` of one participant: its names are relative to its own part of the checkpoint."""

    def __init__(self, staged: StagedDirectory, prefix: str) -> None:
        self._staged = staged
        self._prefix = prefix

    def folder(self, name: str) -> str:
        """Make a directory that others fill by themselves, and return its path."""
        return self._staged.folder(self._prefix + name)

    def write_bytes(self, name: str, data: Buffer) -> None:
        """Write a file."""
        self._staged.add(self._prefix + name, (data,))

    def write_json(self, name: str, document: object) -> None:
        """Write strict JSON from plain values; UsageError names the part that cannot be held."""
        where = self._prefix + name
        self._staged.add(where, (strict_json.encode(strict_json.checked(document, where), where),))

    def write_document(self, name: str, document: msgspec.Struct) -> None:
        """Write strict JSON from a msgspec struct whose free-form parts were checked when it was built."""
        where = self._prefix + name
        self._staged.add(where, (strict_json.encode_readable(document, where),))

    def write_tensors(self, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write a safetensors file."""
        self.write_tensor_files([(name, tensors)])

    def write_tensor_files(
        self,
        files: Iterable[tuple[str, Mapping[str, torch.Tensor]]],
        written: Callable[[str], None] | None = None,
    ) -> None:
        """Write safetensors files, several at a time; `written` is told of each as soon as it is durable."""
        length = len(self._prefix)
        self._staged.add_tensors(
            ((self._prefix + name, tensors) for name, tensors in files),
            None if written is None else lambda name: written(name[length:]),
        )
