"""The manifest: what one checkpoint consists of, with the length and digest of every byte of it.

A directory is a checkpoint when its manifest is whole and each listed file has the listed length and sha256. A file
that the manifest does not list is not part of the checkpoint and is never opened. `manifest.sha256` beside it holds the
manifest's own digest in the form of `sha256sum`, so that a flipped bit in the manifest shows like one anywhere else.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from ..errors import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible
from . import names, strict_json

SCHEMA = 1
#: A manifest of a million tensors has some 100 MB; more than this is no manifest, and is refused before it is read.
MANIFEST_LIMIT = 512 << 20

Plain = str | int | float | bool | None
#: "full": the whole run. "rollout": everything but the trainer, for the full save that is its anchor. "trainer": the
#: trainer and its version alone, by a run without recovery.
Kind = Literal["full", "rollout", "trainer"]


class Count(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number with its unit, so that nobody has to guess whether 30 are groups, prompts or bytes."""

    value: int
    unit: str


class SamplerIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which sampler wrote the checkpoint; another one would read its stamps differently."""

    name: str
    parameters: dict[str, Plain]


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run must have in common with the one that wrote the checkpoint."""

    dataset_length: int
    dataset_digest: str
    seed: int
    batch_size: int
    generations: int | None
    sampler: SamplerIdentity


class TensorRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The logical type and shape of one tensor; the file may hold it in another form of the same bits."""

    dtype: str
    shape: tuple[int, ...]


class FileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Length in bytes and digest of one file; `tensors` when it is a safetensors file."""

    length: int
    sha256: str
    tensors: dict[str, TensorRecord] | None


class AcceptedDataset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of the dataset that a restore was told to accept: of which checkpoint, and the digest it had."""

    checkpoint: str
    dataset_digest: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One checkpoint. `sequence` orders checkpoints; `step` does not, since a run may go back and save it again.

    `parent` is the checkpoint that was newest in the writing run; `anchor` is the full save whose trainer state belongs
    to a rollout snapshot, None for a full save. `run` is common to all that one run has saved, over its restores;
    `attempt` is the token of the staging directory in which this one was written. Both are None in what an older
    version wrote: unchecked.
    """

    schema: int
    step: int
    sequence: int
    kind: Kind
    parent: str | None
    anchor: str | None
    fence: int
    identity: Identity
    counts: dict[str, Count]
    files: dict[str, FileRecord]
    #: Of the runs that this one goes on from, oldest first. Rows in the buffer may be of a dataset from before.
    accepted: tuple[AcceptedDataset, ...] = ()
    run: str | None = None
    attempt: str | None = None

    @property
    def name(self) -> str:
        """The name of the directory this manifest was published under."""
        return names.checkpoint_name(self.step, self.sequence)

    def directories(self) -> frozenset[str]:
        """Every directory in which a listed file lies, at any depth."""
        return frozenset(
            "/".join(parts[:end])
            for parts in (member.split("/") for member in self.files)
            for end in range(1, len(parts))
        )


def encode_manifest(manifest: Manifest) -> tuple[bytes, bytes]:
    """The contents of manifest.json and of manifest.sha256."""
    data = strict_json.encode(manifest, names.MANIFEST)
    return data, _digest_line(data)


def _digest_line(data: bytes) -> bytes:
    return f"{hashlib.sha256(data).hexdigest()}  {names.MANIFEST}\n".encode("ascii")


def decode_manifest(data: bytes, digest_line: bytes, name: str) -> Manifest:
    """The manifest of the directory `name`, or the reason why it is none.

    CheckpointDamaged: not the bytes that were published under this name. CheckpointIncompatible: whole, but of another
    format version. CheckpointCorrupt: whole, and wrong. A restore passes over the first kind only.
    """
    where = f"{name}/{names.MANIFEST}"
    if digest_line != _digest_line(data):
        raise CheckpointDamaged(
            f"{where} does not match {names.MANIFEST_DIGEST}: one of the two is damaged. Restore an older checkpoint."
        )
    plain = strict_json.decode_plain(data, where)
    _check_schema(plain, where)
    manifest = strict_json.convert(plain, Manifest, where)
    if names.parse_checkpoint_name(name) != (manifest.step, manifest.sequence):
        raise CheckpointDamaged(
            f"{where} belongs to {manifest.name}: the directory was renamed or its files were mixed with another's. "
            "Give it its own name back, or restore an older checkpoint."
        )
    for related in (manifest.parent, manifest.anchor):
        if related is not None and names.parse_checkpoint_name(related) is None:
            raise CheckpointCorrupt(
                f"{where} names {related!r} as its parent or anchor, which is no name of a checkpoint. It was edited. "
                "Do not trust it; restore another checkpoint."
            )
    if (manifest.kind == "rollout") != (manifest.anchor is not None):
        raise CheckpointCorrupt(
            f"{where} is of the kind {manifest.kind} and {'has no anchor' if manifest.anchor is None else 'has one'}; "
            "a rollout snapshot has one, and nothing else has. It was edited; restore another checkpoint."
        )
    for member in manifest.files:
        if not names.is_listed_name(member) or member in (names.MANIFEST, names.MANIFEST_DIGEST):
            raise CheckpointCorrupt(
                f"{where} lists {member!r}, which is no name of a file inside the checkpoint. It was edited. "
                "Do not trust it; restore another checkpoint."
            )
    return manifest


def decode_unnamed(data: bytes, digest_line: bytes, where: str) -> Manifest | None:
    """The manifest of a directory that is under no name of a checkpoint; None if it does not match its digest."""
    if digest_line != _digest_line(data):
        return None
    plain = strict_json.decode_plain(data, where)
    _check_schema(plain, where)
    return decode_manifest(data, digest_line, strict_json.convert(plain, Manifest, where).name)


def _check_schema(plain: object, where: str) -> None:
    """Refuse every schema version but ours, before the fields are looked at: they may mean something else."""
    if not isinstance(plain, dict):
        raise CheckpointCorrupt(f"{where} is no JSON object. It was edited. Restore an older checkpoint.")
    found = plain.get("schema", "none")
    if type(found) is not int or found != SCHEMA:
        raise CheckpointIncompatible(
            f"{where} has schema version {found!r}; this version reads {SCHEMA} only. It was written by another "
            "version of the library. Use that version, or name another checkpoint with step=."
        )
