"""The embedded data plane: rows are torch tensors, on whichever device they were made.

A committed record is immutable by rule. The rule cannot be enforced on a tensor, so it is watched: the version counter
of every tensor is compared when a checkpoint is written (a tripwire: it misses writes through numpy, dlpack and
`.data`), and `verify` adds a digest taken when the rows are staged and compared when they are written. Tensors whose
counter cannot be read (inference tensors) are counted as `unchecked`.

A view that keeps more than twice its own bytes alive is cloned when it is staged; otherwise a small slice of a large
batch would hold the whole batch in memory and, worse, in the checkpoint.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from .arguments import require_cut, require_group, require_groups, require_kind
from .errors import CheckpointCorrupt, CommittedTensorModified, InvariantViolated, UsageError
from .plane import CaptureMode, Rows, RowsReader, RowsWriter
from .store.tensor_format import QUANTISED, as_bits, row_major

if TYPE_CHECKING:
    from .barrier import Cut
    from .keys import GroupId

Verify = Literal["off", "sampled", "digest"]

_log = logging.getLogger("cleancut.plane")

#: With verify="sampled" one group in this many is digested.
SAMPLED_ONE_IN = 16
#: Digesting less than this is quicker than a trip to an executor thread.
_DIGEST_INLINE_BYTES = 1 << 20
#: Rows are split over files of about this size: a restore has a few of them in memory beside the rows themselves.
_BYTES_PER_FILE = 64 << 20
_LONGEST_FIELD = 900
_INDEX = "rows.json"


@dataclass(frozen=True)
class Record:
    """One group's rows as they were committed. Never changed; a change is another record."""

    group: GroupId
    tensors: Mapping[str, torch.Tensor]
    versions: Mapping[str, int | None]
    digests: Mapping[str, str] | None = None
    ready: tuple[Any, ...] = ()


@dataclass
class TensorCapture:
    """The records of one cut, by reference."""

    records: dict[GroupId, Record]
    groups: tuple[GroupId, ...]

    def drop(self) -> None:
        self.records = {}


def nbytes(tensor: torch.Tensor) -> int:
    """The bytes a tensor's own elements take."""
    return tensor.numel() * tensor.element_size()


def _checked(field: str, tensor: object, argument: str = "rows") -> torch.Tensor:
    """Return the detached tensor, or refuse with the field and the reason."""
    if not isinstance(field, str) or not field or len(field) > _LONGEST_FIELD or "\0" in field:
        raise UsageError(
            f"{argument}: the field name {field!r} cannot be stored; it must be a text of 1 to {_LONGEST_FIELD} "
            "characters without NUL."
        )
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(
            f"{argument}['{field}'] is a {type(tensor).__name__}, not a torch.Tensor. A group's rows map field names "
            "to tensors; convert it with torch.as_tensor, or keep it out of the rows."
        )
    reason = ""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        reason = f"is a subclass of tensor ({type(tensor).__name__}); its storage does not hold all of it"
    elif tensor.layout is not torch.strided:
        reason = f"is sparse ({tensor.layout})"
    elif tensor.is_quantized or str(tensor.dtype).removeprefix("torch.") in QUANTISED:
        reason = "is quantised"
    elif tensor.is_nested:
        reason = "is nested"
    elif tensor.is_meta:
        reason = "is on the meta device and has no data"
    if reason:
        raise UsageError(
            f"{argument}['{field}'] {reason}. Only dense, plain tensors can be kept; store dense parts (such as values "
            "and indices, or values and offsets) in fields of their own."
        )
    plain = tensor.detach()
    if plain.untyped_storage().nbytes() > 2 * nbytes(plain):
        # By way of integers: some types can be viewed and not be copied.
        plain = as_bits(plain).clone().view(plain.dtype)
    return plain


def _device(device: str | torch.device) -> torch.device:
    try:
        # None would be the current default device, which is not the one that this plane says.
        if isinstance(device, str | int | torch.device) and not isinstance(device, bool):
            return torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"device is {device!r}, which torch does not know: {error}") from error
    raise UsageError(f"device is {device!r}; it must be a torch.device or its name, like 'cpu' or 'cuda:0'.")


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _digest(tensor: torch.Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(row_major(tensor))
    return digest.hexdigest()


def _events_now(tensors: Iterable[torch.Tensor]) -> tuple[Any, ...]:
    """One event for each CUDA device the tensors are on, recorded on this thread's current stream."""
    devices = {tensor.device: None for tensor in tensors if tensor.is_cuda}
    events = []
    for device in devices:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        events.append(event)
    return tuple(events)


class TensorPlane:
    """Keeps each group's rows as plain torch tensors, in this process.

    `verify` is "off", "sampled" (one group in sixteen) or "digest" (every group). `device` is where restored rows go;
    committed rows stay where they are.
    """

    capture_mode: ClassVar[CaptureMode] = "references"

    # Invariant: an index of immutable records, so that `dict.copy()` is a snapshot.
    _records: dict[GroupId, Record]

    def __init__(self, *, verify: Verify = "sampled", device: str | torch.device = "cpu") -> None:
        self.verify: Verify
        self.set_verification(verify)
        self.device = _device(device)
        self._records = {}
        self._open_captures = 0
        self._cloned_views = 0
        self._unchecked = 0
        self._expanded = 0

    def set_verification(self, mode: Verify) -> None:
        """Set how committed rows are watched from the next stage on; a checkpointer calls it with its own `verify`."""
        if mode not in ("off", "sampled", "digest"):
            raise UsageError(f"verify is {mode!r}; it must be 'off', 'sampled' or 'digest'.")
        self.verify = mode

    def _wants_digest(self, group: GroupId) -> bool:
        return self.verify == "digest" or (self.verify == "sampled" and group % SAMPLED_ONE_IN == 0)

    # -- commit ---------------------------------------------------------------------------------------------------

    async def stage(self, group: GroupId, rows: Rows) -> Record:
        """Check, detach and, where `verify` asks for it, digest the rows. Outside any slot; no index names them yet."""
        require_group("group", group)
        if not isinstance(rows, Mapping) or not rows:
            raise UsageError(
                f"rows of group {group}: {type(rows).__name__} given; a group's rows are a mapping of at least one "
                "field name to a tensor."
            )
        tensors = {field: _checked(field, tensor) for field, tensor in rows.items()}
        self._cloned_views += sum(
            tensor.untyped_storage().data_ptr() != rows[field].untyped_storage().data_ptr()
            for field, tensor in tensors.items()
        )
        self._note_expanded(group, tensors)
        versions = {field: _version(tensor) for field, tensor in tensors.items()}
        self._unchecked += sum(version is None for version in versions.values())
        digests = await self._digests(group, tensors)
        return Record(group, MappingProxyType(tensors), MappingProxyType(versions), digests)

    def _note_expanded(self, group: GroupId, tensors: Mapping[str, torch.Tensor]) -> None:
        """Count rows that repeat their memory (`expand`): a checkpoint holds them written out. Said once."""
        larger = [field for field, tensor in tensors.items() if tensor.untyped_storage().nbytes() < nbytes(tensor)]
        if larger and not self._expanded:
            field, tensor = larger[0], tensors[larger[0]]
            _log.warning(
                "group %s, field %r repeats %d bytes of memory as %d bytes of rows, and a checkpoint writes them out; "
                "keep the small tensor and expand it where it is used. Further ones are counted as `expanded`.",
                group, field, tensor.untyped_storage().nbytes(), nbytes(tensor),
            )  # fmt: skip
        self._expanded += len(larger)

    async def _digests(self, group: GroupId, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, str] | None:
        if not self._wants_digest(group):
            return None
        events = _events_now(tensors.values())

        def digest_all() -> dict[str, str]:
            for event in events:
                event.synchronize()
            return {field: _digest(tensor) for field, tensor in tensors.items()}

        if not events and sum(nbytes(tensor) for tensor in tensors.values()) < _DIGEST_INLINE_BYTES:
            return MappingProxyType(digest_all())
        return MappingProxyType(await asyncio.get_running_loop().run_in_executor(None, digest_all))

    def commit(self, cut: Cut, group: GroupId, staged: Record, ready: Any = None) -> None:
        """Make staged rows visible. `ready` is the event of the stream that produced them.

        Without it an event is recorded on the committing thread's current stream, which is right when that thread
        also launched the work that wrote the tensors.
        """
        require_cut(cut)
        require_group("group", group)
        require_kind("staged", staged, Record, "what `stage` returned")
        if staged.group != group or group in self._records:
            raise InvariantViolated(
                f"group {group}: rows staged for group {staged.group} were to be committed"
                f"{', and it has rows already' if group in self._records else ''}. Each group is staged and committed "
                "once, under its own id."
            )
        events = (ready,) if ready is not None else _events_now(staged.tensors.values())
        self._records[group] = Record(group, staged.tensors, staged.versions, staged.digests, events)

    def rows(self, group: GroupId) -> Mapping[str, torch.Tensor]:
        """A group's rows, safe to use on this thread's current stream."""
        require_group("group", group)
        record = self._records.get(group)
        if record is None:
            raise InvariantViolated(f"group {group} has no rows. It was cleared, or never committed.")
        for event in record.ready:
            event.wait()
        return record.tensors

    def derive(self, rows: Rows, columns: Rows) -> Mapping[str, torch.Tensor]:
        if not isinstance(columns, Mapping) or not columns:
            raise UsageError(
                f"columns: {type(columns).__name__} given; they are a mapping of at least one field name to a tensor."
            )
        checked = {field: _checked(field, tensor, "columns") for field, tensor in columns.items()}
        return MappingProxyType({**rows, **checked})

    def groups(self) -> Iterable[GroupId]:
        return self._records.keys()

    def clear(self, group: GroupId) -> None:
        """Forget a group's rows. A capture that holds them keeps the tensors alive until it is dropped."""
        require_group("group", group)
        self._records.pop(group, None)

    # -- checkpoint -----------------------------------------------------------------------------------------------

    def capture(self, cut: Cut, groups: Iterable[GroupId]) -> TensorCapture:
        """References to the rows of `groups` as of this instant."""
        require_cut(cut, exclusive=True)
        wanted = require_groups("groups", groups)
        self._open_captures += 1
        return TensorCapture(self._records.copy(), wanted)

    def persist(self, capture: TensorCapture, writer: RowsWriter) -> None:
        """Write the captured rows; on the writer thread. A record changed since its commit fails the save."""
        fields: dict[str, list[str]] = {}
        writer.write_tensor_files(self._files(capture, fields))
        writer.write_json(_INDEX, {"fields": fields})
        # After the writing, so that a change in the middle of it is seen as well as one before.
        for group in capture.groups:
            self._check_unmodified(capture.records[group])

    def _files(
        self, capture: TensorCapture, fields: dict[str, list[str]]
    ) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
        """The captured rows in files of about equal size, each made when it is asked for; notes the fields of each."""
        pending: dict[str, torch.Tensor] = {}
        pending_bytes = files = 0
        for group in capture.groups:
            record = capture.records.get(group)
            if record is None:
                raise InvariantViolated(
                    f"group {group} is ready in the buffer index and has no rows in the data plane. Index and plane "
                    "must change in one section."
                )
            for event in record.ready:
                event.synchronize()
            fields[str(group)] = list(record.tensors)
            for field, tensor in record.tensors.items():
                if pending and pending_bytes + nbytes(tensor) > _BYTES_PER_FILE:
                    yield f"rows-{files:03d}.safetensors", pending
                    pending, pending_bytes, files = {}, 0, files + 1
                pending[f"{group}/{field}"] = tensor
                pending_bytes += nbytes(tensor)
        if pending:
            yield f"rows-{files:03d}.safetensors", pending

    def _check_unmodified(self, record: Record) -> None:
        for field, tensor in record.tensors.items():
            version = record.versions[field]
            changed = version is not None and _version(tensor) != version
            if not changed and record.digests is not None:
                changed = _digest(tensor) != record.digests[field]
            if changed:
                raise CommittedTensorModified(
                    f"group {record.group}, field '{field}': the tensor was changed in place after its commit. "
                    "Committed rows are shared with the checkpoint being written. Train on a copy, or write derived "
                    "columns with write_back, which makes a new record."
                )

    def release(self, capture: TensorCapture) -> None:
        self._open_captures -= 1

    def read(self, reader: RowsReader, groups: Iterable[GroupId]) -> dict[GroupId, Record]:
        """Read the rows of `groups`; on an executor thread. Changes nothing here."""
        fields = reader.read_json(_INDEX)["fields"]
        tensors: dict[str, torch.Tensor] = {}
        for read in reader.read_tensor_files(name for name in reader.names() if name.startswith("rows-")):
            tensors.update(read)
        records: dict[GroupId, Record] = {}
        for group in groups:
            try:
                rows = {field: tensors[f"{group}/{field}"].to(self.device) for field in fields[str(group)]}
            except KeyError as missing:
                raise CheckpointCorrupt(
                    f"group {group} is in the buffer index of the checkpoint, but its rows are not there "
                    f"({missing.args[0]!r} is missing). The checkpoint was damaged or edited; restore an earlier one."
                ) from missing
            versions = {field: _version(tensor) for field, tensor in rows.items()}
            digests = {field: _digest(tensor) for field, tensor in rows.items()} if self._wants_digest(group) else None
            records[group] = Record(group, MappingProxyType(rows), MappingProxyType(versions), digests)
        return records

    def load(self, cut: Cut, loaded: Mapping[GroupId, Record]) -> None:
        """Replace every record by what `read` returned."""
        require_cut(cut, exclusive=True)
        require_kind("loaded", loaded, Mapping, "what `read` returned")
        for record in loaded.values():
            require_kind("a record of loaded", record, Record, "what `read` returned")
        self._records = dict(loaded)

    def statistics(self) -> Mapping[str, int]:
        return {
            "groups": len(self._records),
            "bytes": sum(nbytes(tensor) for record in self._records.values() for tensor in record.tensors.values()),
            "open_captures": self._open_captures,
            "cloned_views": self._cloned_views,
            "unchecked": self._unchecked,
            "expanded": self._expanded,
        }
