"""The embedded data plane: rows are torch tensors, on whichever device they were made.

A committed record is immutable by rule. The rule cannot be enforced on a tensor, so it is watched: the version counter
of every tensor is compared when a checkpoint is written (a tripwire: it misses writes through numpy, dlpack and
`.data`), and `verify` adds a digest taken when the rows are staged and compared when they are written. What neither of
the two watches over is counted as `unchecked` (`torch_immutability`).

A view that keeps more than twice its own bytes alive is cloned: on the host when it is staged, on a device when it is
committed. Otherwise a small slice of a large batch would hold the whole batch in memory and, worse, in the checkpoint.

Rows on a device are written behind the event of whoever produced them, and stay referred to until their copy is done
(`torch_staging`, `device`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

# torch reads the memory of tensors by way of it, and without it would fail at the first digest or the first save.
import numpy  # noqa: F401
import torch

from ..arguments import require_cut, require_group, require_groups, require_kind
from ..errors import InvariantViolated, UsageError
from .device import Device
from .index import key_of
from .pinned_pool import PinnedPool
from .plane import CaptureMode, Rows, RowsBehind, RowsReader, RowsWriter
from .torch_cuda_device import CudaDevice
from .torch_immutability import digest_of, is_tracked, version_of
from .torch_jagged import put_together
from .torch_readiness import cloned, events_behind, hand_over, is_small_view, nbytes, owned
from .torch_record import Record, TensorCapture
from .torch_rows import checked_rows, derived, require_rows
from .torch_rows_files import BYTES_PER_FILE, file_name, in_batches, read_rows, write_index
from .torch_staging import Row, RowsFile, staged_files

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..keys import GroupId

__all__ = ["Record", "TensorCapture", "TensorPlane", "Verify"]

Verify = Literal["off", "sampled", "digest"]

_log = logging.getLogger("cleancut.plane")

#: With verify="sampled" one group in this many is digested.
SAMPLED_ONE_IN = 16
#: Digesting less than this is quicker than a trip to an executor thread.
_DIGEST_INLINE_BYTES = 1 << 20
#: Pinned memory for copies from devices: room for files being written and the next being copied.
STAGING_BYTES = 256 << 20


class TensorPlane:
    """Keeps each group's rows as plain torch tensors, in this process.

    `verify` is "off", "sampled" (one group in sixteen) or "digest" (every group). `device` is where restored rows go;
    committed rows stay where they are. `staging_bytes` bounds the pinned memory that rows on devices are saved through.
    `accelerator` replaces CUDA, `bytes_per_file` the size of the files that rows are split over.
    """

    capture_mode: ClassVar[CaptureMode] = "references"

    # Invariant: an index of immutable records, so that `dict.copy()` is a snapshot.
    _records: dict[GroupId, Record]

    def __init__(
        self,
        *,
        verify: Verify = "sampled",
        device: str | torch.device = "cpu",
        staging_bytes: int = STAGING_BYTES,
        accelerator: Device | None = None,
        bytes_per_file: int | None = None,
    ) -> None:
        self.verify: Verify
        self.set_verification(verify)
        self.device = _there(device)
        self._accelerator: Device = CudaDevice() if accelerator is None else accelerator
        self._pool = PinnedPool(self._accelerator.host_buffer, staging_bytes)
        self._bytes_per_file = bytes_per_file
        self._records = {}
        self._open_captures = 0
        self._cloned_views = 0
        self._unchecked = 0
        self._undigested = 0
        self._expanded = 0

    def set_verification(self, mode: Verify) -> None:
        """Set how committed rows are watched from the next stage on; a checkpointer calls it with its own `verify`."""
        if mode not in ("off", "sampled", "digest"):
            raise UsageError(f"verify is {mode!r}; it must be 'off', 'sampled' or 'digest'.")
        self.verify = mode

    def _wants_digest(self, group: GroupId) -> bool:
        return self.verify == "digest" or (self.verify == "sampled" and group % SAMPLED_ONE_IN == 0)

    # -- commit ---------------------------------------------------------------------------------------------------

    async def stage(self, group: GroupId, rows: Rows, ready: Any = None) -> Record:
        """Check, detach and, where `verify` asks for it, digest the rows. Outside any slot; no index names them yet.

        `ready` is the event that `commit` will be given, if any: a digest is taken behind it. `RowsBehind` brings it
        along, and `commit` need not be given it again.
        """
        require_group("group", group)
        require_rows(group, rows)
        tensors, jagged = checked_rows(rows)
        if ready is None and isinstance(rows, RowsBehind):
            ready = rows.ready
        if ready is not None:
            self._accelerator.check_ready(ready)
        for field, tensor in tensors.items():
            if is_small_view(tensor):
                self._cloned_views += 1
                # One on a device is cloned by `commit`, which knows behind what.
                if self._accelerator.where(tensor) is None:
                    tensors[field] = cloned(tensor)
        self._note_expanded(group, tensors)
        versions = {field: version_of(tensor) for field, tensor in tensors.items()}
        # Before the digest, which reads the memory by way of numpy and so leaves the same mark.
        untracked = sum(not is_tracked(tensor) for tensor in tensors.values())
        behind = () if ready is None else (ready,)
        digests = await self._digests(group, tensors, behind)
        return Record(
            group,
            MappingProxyType(tensors),
            MappingProxyType(versions),
            digests,
            behind,
            jagged=MappingProxyType(jagged),
            untracked=untracked,
        )

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

    async def _digests(
        self, group: GroupId, tensors: Mapping[str, torch.Tensor], behind: tuple[Any, ...]
    ) -> Mapping[str, str] | None:
        if not self._wants_digest(group):
            return None
        ready, filled = events_behind(self._accelerator, tensors, behind)

        def digest_all() -> dict[str, str]:
            rows = [Row(field, tensor, self._accelerator.where(tensor), ()) for field, tensor in tensors.items()]
            for row in rows:
                row.after = filled if row.where is None else ready
            with closing(staged_files([("", rows)], self._accelerator, self._pool)) as files:
                for file in files:
                    with file:
                        return {field: digest_of(tensor) for field, tensor in file.tensors.items()}
            return {}

        if not ready and not filled and sum(nbytes(tensor) for tensor in tensors.values()) < _DIGEST_INLINE_BYTES:
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
        if ready is not None:
            self._accelerator.check_ready(ready)
        record = owned(self._accelerator, self._behind(staged, ready))
        if record.digests is None:
            self._unchecked += record.untracked
        self._records[group] = record

    def _behind(self, staged: Record, ready: Any) -> Record:
        """The record with its events."""
        given = staged.ready if ready is None else (ready,)
        late = ready is not None and not any(event is ready for event in staged.ready)
        digests = staged.digests
        if late and digests is not None:
            # Taken before the rows are known to have been complete. The tripwire stays.
            self._undigested += 1
            digests = None
        on_device, on_host = events_behind(self._accelerator, staged.tensors, given)
        return replace(staged, digests=digests, ready=on_device, filled=on_host)

    def rows(self, group: GroupId) -> Mapping[str, torch.Tensor]:
        """A group's rows, safe to use on this thread's current stream, also after they were cleared."""
        require_group("group", group)
        record = self._records.get(group)
        if record is None:
            raise InvariantViolated(f"group {group} has no rows. It was cleared, or never committed.")
        hand_over(self._accelerator, record)
        return put_together(record.tensors, record.jagged)

    def derive(self, rows: Rows, columns: Rows) -> Mapping[str, torch.Tensor]:
        return derived(rows, columns)

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
        """Write the captured rows; on the writer thread. A record changed since its commit fails the save.

        Rows on devices are let go as they are copied, those on the host with the capture.
        """
        fields: dict[GroupId, list[str]] = {}
        jagged = {group: capture.records[group].jagged for group in capture.groups if group in capture.records}
        being_written: dict[str, RowsFile] = {}
        with closing(staged_files(self._files(capture, fields), self._accelerator, self._pool)) as files:

            def handed_out() -> Iterator[tuple[str, Mapping[str, torch.Tensor]]]:
                for file in files:
                    being_written[file.name] = file
                    yield file.name, file.tensors

            try:
                # Several at a time; the memory of each goes back as soon as that one is durable.
                writer.write_tensor_files(handed_out(), lambda name: being_written.pop(name).give_back())
            finally:
                # After an error: the writer has seen to the end of what was under way, so nobody reads these now.
                for file in being_written.values():
                    file.give_back()
        write_index(writer, fields, jagged)
        # After the writing, so that a change in the middle of it is seen as well as one before.
        for group in capture.groups:
            record = capture.records[group]
            for field, tensor in record.tensors.items():
                record.watched(field).check(tensor, tensor)

    def _files(self, capture: TensorCapture, fields: dict[GroupId, list[str]]) -> Iterator[tuple[str, list[Row]]]:
        """The captured rows in files of about equal size; notes the fields of each group."""
        missing = [group for group in capture.groups if group not in capture.records]
        if missing:
            raise InvariantViolated(
                f"group {missing[0]} is ready in the buffer index and has no rows in the data plane. Index and plane "
                "must change in one section."
            )
        capture.records = {group: capture.records[group] for group in capture.groups}

        def rows() -> Iterator[Row]:
            for group in capture.groups:
                fields[group] = list(capture.records[group].tensors)
                yield from self._rows_of(capture, group)

        batches = in_batches(rows(), lambda row: row.room, self._bytes_per_file or BYTES_PER_FILE)
        for number, batch in enumerate(batches):
            yield file_name(number), batch

    def _rows_of(self, capture: TensorCapture, group: GroupId) -> list[Row]:
        """A group's rows; of those on devices the capture lets go, since they are compared when they are copied."""
        record = capture.records[group]
        rows: list[Row] = []
        for field, tensor in record.tensors.items():
            where = self._accelerator.where(tensor)
            on_host = where is None
            after = record.filled if on_host else record.ready
            rows.append(Row(key_of(group, field), tensor, where, after, None if on_host else record.watched(field)))
        capture.records[group] = record.only(
            field for field, row in zip(record.tensors, rows, strict=True) if row.where is None
        )
        return rows

    def release(self, capture: TensorCapture) -> None:
        self._open_captures -= 1

    def read(self, reader: RowsReader, groups: Iterable[GroupId]) -> dict[GroupId, Record]:
        """Read the rows of `groups`; on an executor thread. Changes nothing here."""
        records: dict[GroupId, Record] = {}
        for group, rows, jagged in read_rows(reader, groups):
            digests = (
                {field: digest_of(tensor) for field, tensor in rows.items()} if self._wants_digest(group) else None
            )
            # Blocking, so that no event is needed; where a row was saved from does not matter.
            placed = {field: tensor.to(self.device) for field, tensor in rows.items()}
            records[group] = Record(
                group,
                MappingProxyType(placed),
                MappingProxyType({field: version_of(tensor) for field, tensor in placed.items()}),
                digests,
                jagged=MappingProxyType(jagged),
            )
        return records

    def load(self, cut: Cut, loaded: Mapping[GroupId, Record]) -> None:
        """Replace every record by what `read` returned."""
        require_cut(cut, exclusive=True)
        require_kind("loaded", loaded, Mapping, "what `read` returned")
        for record in loaded.values():
            require_kind("a record of loaded", record, Record, "what `read` returned")
        self._records = dict(loaded)

    def statistics(self) -> Mapping[str, int]:
        """`groups`, `bytes` and `open_captures` of this instant, and how the pinned memory is used.

        Since the beginning: `cloned_views`; `unchecked`, the rows committed that neither counter nor digest watches
        over; `undigested`, the groups whose digest came too early to be used.
        """
        return {
            "groups": len(self._records),
            "bytes": sum(nbytes(tensor) for record in self._records.values() for tensor in record.tensors.values()),
            "open_captures": self._open_captures,
            "cloned_views": self._cloned_views,
            "unchecked": self._unchecked,
            "expanded": self._expanded,
            "undigested": self._undigested,
            **self._pool.statistics(),
        }


def _there(device: str | torch.device) -> torch.device:
    """The device, unless torch does not know it or this process has none of that name."""
    # None would be the current default device, which is not the one that this plane says.
    if not isinstance(device, str | int | torch.device) or isinstance(device, bool):
        raise UsageError(f"device is {device!r}; it must be a torch.device or its name, like 'cpu' or 'cuda:0'.")
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"device is {device!r}, which torch does not know: {error}") from error
    # Counted without initialising CUDA.
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device={str(device)!r}: this process sees {torch.cuda.device_count()} CUDA devices. Rows are restored to "
            "where `device` says, whatever they were saved from; leave it out to have them on the CPU."
        )
    return wanted
