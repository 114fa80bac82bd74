"""The manifest: what one checkpoint consists of, with the length and digest of every byte of it.

A directory is a checkpoint when its manifest is whole and each listed file has the listed length and sha256. A file
that the manifest does not list is not part of the checkpoint and is never opened. `manifest.sha256` beside it holds the
manifest's own digest in the form of `sha256sum`, so that a flipped bit in the manifest shows like one anywhere else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from ..errors import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible
from . import names, strict_json, tensor_format
from .tensor_format import TensorRecord as TensorRecord

SCHEMA = 1
#: More prompts than any dataset has; what counts so many is no account of a run, and counting them would never end.
MOST_PROMPTS = 1 << 32
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
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
    #: Groups in a whole train step. None where the run had not said, as no run did before this field; unchecked then.
    groups_per_step: int | None = None


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
    for key, problem in manifest_problems(manifest):
        raise CheckpointCorrupt(
            f"{where}: {key}: {problem}. It was edited, or written by a faulty version. Do not trust it; restore "
            "another checkpoint."
        )
    return manifest


# -- the list of checks: each yields the key and what is wrong with it ------------------------------------------------

Problems = Iterator[tuple[str, str]]


def manifest_problems(manifest: Manifest) -> Problems:
    """What is wrong with a manifest of the right form, in order; nothing for one that this version writes.

    Every reader of a checkpoint asks by `decode_manifest`, and a save before it publishes.
    """
    for check in MANIFEST_CHECKS:
        yield from check(manifest)


def numbers_are_counts(manifest: Manifest) -> Problems:
    """Nothing that counts is below 0, and the name of the directory can carry step and sequence."""
    highest = names.HIGHEST_SEQUENCE
    counts = [
        ("step", manifest.step, highest),
        ("sequence", manifest.sequence, highest),
        ("fence", manifest.fence, None),
    ]
    counts += [(f"counts.{name}.value", count.value, None) for name, count in manifest.counts.items()]
    counts += [(f"files.{name}.length", record.length, None) for name, record in manifest.files.items()]
    for key, number, most in counts:
        if number < 0 or (most is not None and number > most):
            yield key, f"{number} is no count{'' if most is None else f' of at most {most}'}"


def identity_is_one(manifest: Manifest) -> Problems:
    """A run has a dataset, and its batches, groups and steps are not empty."""
    identity = manifest.identity
    if not 0 < identity.dataset_length <= MOST_PROMPTS:
        yield "identity.dataset_length", f"there is no dataset of {identity.dataset_length} prompts"
    for name in ("batch_size", "generations", "groups_per_step"):
        number = getattr(identity, name)
        if number is not None and not 0 < number <= MOST_PROMPTS:
            yield f"identity.{name}", f"there is no run with {number}"
    if not identity.sampler.name:
        yield "identity.sampler.name", "there is no sampler without a name"


def relatives_came_before(manifest: Manifest) -> Problems:
    """Parent and anchor are checkpoints that were there before this one."""
    for name in ("parent", "anchor"):
        related = getattr(manifest, name)
        if related is None:
            continue
        numbers = names.parse_checkpoint_name(related)
        if numbers is None:
            yield name, f"{related!r} is no name of a checkpoint"
        elif numbers[1] >= manifest.sequence:
            yield name, f"{related} was not there yet when sequence {manifest.sequence} was written"


def rollouts_alone_have_an_anchor(manifest: Manifest) -> Problems:
    """A rollout snapshot belongs to a full save, and nothing else does."""
    if (manifest.kind == "rollout") != (manifest.anchor is not None):
        yield (
            "anchor",
            f"the kind is {manifest.kind} and it {'has no anchor' if manifest.anchor is None else 'has one'}; a "
            "rollout snapshot has one, and nothing else has",
        )


def files_have_names(manifest: Manifest) -> Problems:
    """Every name leads to a file inside, and none is a directory of another one."""
    directories = {name[:end] for name in manifest.files for end, letter in enumerate(name) if letter == "/"}
    for name in manifest.files:
        if not names.is_listed_name(name) or name in (names.MANIFEST, names.MANIFEST_DIGEST):
            yield f"files.{name!r}", "this is no name of a file inside the checkpoint"
        elif name in directories:
            yield f"files.{name!r}", "another file is listed below it, and a file is no directory"


def digests_are_digests(manifest: Manifest) -> Problems:
    """The digest of a file is a sha256 as sha256sum writes it."""
    for name, record in manifest.files.items():
        if not _SHA256.fullmatch(record.sha256):
            yield f"files.{name}.sha256", f"{record.sha256!r:.80} is no sha256"


def tensors_can_be_held(manifest: Manifest) -> Problems:
    """Every tensor has a name, a type and a shape that this version writes."""
    for name, record in manifest.files.items():
        for key, tensor in (record.tensors or {}).items():
            fault = tensor_format.fault_of_key(key) or tensor_format.fault_of(tensor)
            if fault is not None:
                yield f"files.{name}.tensors.{key!r:.80}", fault


MANIFEST_CHECKS = (
    numbers_are_counts,
    identity_is_one,
    relatives_came_before,
    rollouts_alone_have_an_anchor,
    files_have_names,
    digests_are_digests,
    tensors_can_be_held,
)


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
