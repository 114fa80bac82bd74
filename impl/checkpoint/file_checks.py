"""The list of checks goes on: the index of rows, the anchor of a snapshot, the progress of a trainer alone.

They are no part of `CHECKS`, since not every checkpoint has them. Whoever asks those asks these by `refuse_first`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cleancut_leaf.words import counted

from ..rows.index import LENGTHS, OFFSETS, ROWS_FILES, ROWS_INDEX, VALUES, RowsIndex, key_of, part_of
from ..store.manifest import Manifest
from ..store.tensor_format import TensorRecord
from . import documents as doc
from .checks import HIGHEST_COUNT, MANIFEST, Problem, Problems, counts_agree


def progress_is_of_a_run(manifest: Manifest, progress: doc.ProgressDocument) -> Problems:
    """A save without recovery has the progress of a trainer, at the step that the directory is named after."""
    for key, number, least in (
        ("version", progress.version, 0),
        ("step", progress.step, 0),
        ("cursor", progress.cursor, -1),
    ):
        if number is not None and not least <= number <= HIGHEST_COUNT:
            yield Problem(doc.PROGRESS, key, f"{number} is no progress of a run")
    if progress.step != manifest.step:
        what = f"the trainer is at step {progress.step}, and the checkpoint is of step {manifest.step}"
        yield Problem(doc.PROGRESS, "step", what)
    yield from counts_agree(manifest, {"steps": progress.version}, {"steps": "steps"})


def anchor_has_the_trainer(manifest: Manifest, version: int, full: Manifest, full_version: int | None) -> Problems:
    """A rollout snapshot is anchored on the full save of its own run that holds the trainer at its own version.

    With the trainer of any other save a resume would go on at a version whose steps that trainer has not seen.
    `full_version` is None where the other one is no full save.
    """
    if full.kind != "full" or full_version is None:
        yield Problem(MANIFEST, "anchor", f"{full.name} is no full save but of the kind {full.kind}")
    elif full_version != version:
        what = f"{full.name} holds the trainer at version {full_version}, and this snapshot is of version {version}"
        yield Problem(MANIFEST, "anchor", what)
    mine, theirs = manifest.identity, full.identity
    # A run may have been resumed with another digest of its dataset on purpose, and format 1 knew no size of steps.
    for name in ("dataset_length", "seed", "batch_size", "generations", "sampler"):
        if getattr(mine, name) != getattr(theirs, name):
            what = f"it is {getattr(mine, name)!r} here and {getattr(theirs, name)!r} in the full save {full.name}"
            yield Problem(MANIFEST, f"identity.{name}", what)


def rows_are_indexed(manifest: Manifest, slots: Iterable[doc.SlotDocument], index: RowsIndex | None) -> Problems:
    """The index has the buffered groups, each field of them is in a file once, and nothing else is there.

    Without an index the rows are those of another plane, which keeps them in its own way.
    """
    tensors: dict[str, TensorRecord] = {}
    for name, record in manifest.files.items():
        if name.startswith(ROWS_FILES):
            if index is None and record.tensors:
                yield Problem(MANIFEST, f"files.{ROWS_INDEX}", f"it is not listed, and {name} is a file of rows")
            elif index is not None and record.tensors is None:
                yield Problem(MANIFEST, f"files.{name}.tensors", "it is not listed as a file of tensors")
            tensors.update(record.tensors or {})
    if index is None:
        return
    groups = [slot.group for slot in slots]
    strays = set(tensors)
    for group in groups:
        fields = index.fields.get(str(group))
        keys = [str(group)] if fields is None else [key_of(group, name) for name in fields]
        for key in keys:
            if key not in tensors:
                what = f"group {group} is in the buffer index, but its rows are not there ({key!r} is missing)"
                yield Problem(ROWS_INDEX, f"fields.{group}", what)
            elif key not in strays:
                yield Problem(ROWS_INDEX, f"fields.{group}", f"the row {key!r} stands there twice")
            strays.discard(key)
        for field, dimension in index.jagged.get(str(group), {}).items():
            fault = _fault_of_jagged(group, field, dimension, tensors)
            if fault is not None:
                yield Problem(ROWS_INDEX, f"jagged.{group}.{field}", f"{fault}, so its rows cannot be put together")
    known = set(map(str, groups))
    for part, named in (("fields", index.fields), ("jagged", index.jagged)):
        for other in named.keys() - known:
            yield Problem(ROWS_INDEX, f"{part}.{other!r:.80}", "there is no such group in the buffer index")
    for key in strays:
        yield Problem(MANIFEST, f"files: tensor {key!r:.80}", "it is no row of any group")


def _fault_of_jagged(group: int, field: str, dimension: int, tensors: Mapping[str, TensorRecord]) -> str | None:
    """Why torch would not make a nested tensor of the parts of a field; None if it would."""
    values, offsets, lengths = (tensors.get(key_of(group, part_of(field, part))) for part in (VALUES, OFFSETS, LENGTHS))
    if values is None or offsets is None:
        return f"there are no {VALUES if values is None else OFFSETS} of it"
    if not 1 <= dimension <= len(values.shape):
        return f"the dimension {dimension} is ragged, and its values have {counted(len(values.shape), 'dimension')}"
    if len(offsets.shape) != 1 or offsets.shape[0] < 1:
        return f"its offsets have the shape {list(offsets.shape)}"
    if lengths is not None and lengths.shape != (offsets.shape[0] - 1,):
        return f"its lengths have the shape {list(lengths.shape)} with offsets of {list(offsets.shape)}"
    return None
