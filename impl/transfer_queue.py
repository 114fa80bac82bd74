"""The data plane over TransferQueue (extra `transferqueue`): rows lie in its storage units, for other processes too.

    stage      puts a group's rows under a fresh name that no index knows, off the loop, with a digest of each
    commit     makes that name the group's; the queue is not asked
    capture    the names; the rows are fetched as they are written, behind the window
    clear      forgets the name; the rows leave the queue once no capture needs them

The queue has neither checksums nor an fsync, and its own checkpoint is pickled and written inside whatever window its
caller holds. So this plane does not use it: rows go into the checkpoint by way of the store, in the very files that
`TensorPlane` writes, and each is compared with its digest whenever it comes back from the queue. The capture holds
references only (`capture_mode`), since a name is never put twice and outlives every capture that knows it.

A name holds one group as one sample, each field one tensor with memory of its own: the queue's storage units keep the
storage behind a view, and its checkpoint would write that once for each view of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cleancut_leaf.extras import with_its_extra

try:
    import torch
    import transfer_queue
except ModuleNotFoundError as missing:
    raise with_its_extra(missing, "impl.transfer_queue") from missing

from .arguments import require_cut, require_group, require_groups, require_kind
from .errors import CommittedTensorModified, InvariantViolated, StoreFailed, UsageError
from .rows.index import key_of
from .rows.plane import CaptureMode, Rows, RowsBehind, RowsReader, RowsWriter
from .rows.torch_immutability import digest_of
from .rows.torch_jagged import put_together
from .rows.torch_readiness import is_small_view, nbytes
from .rows.torch_rows import checked_rows, derived, require_rows
from .rows.torch_rows_files import BYTES_PER_FILE, file_name, in_batches, read_rows, write_index
from .store.tensor_format import as_bits

if TYPE_CHECKING:
    from .barrier import Cut
    from .keys import GroupId

__all__ = ["QueuedCapture", "QueuedRows", "TransferQueuePlane"]

T = TypeVar("T")

_log = logging.getLogger("cleancut.plane")

#: Calls of the queue under way at once.
_CALLS = 4


@dataclass(frozen=True)
class QueuedRows:
    """One group's rows in the queue: under which name, and what each field was like when it was put.

    Until it is committed or loaded, the rows leave the queue with this object.
    """

    group: GroupId
    name: str
    digests: Mapping[str, str]
    sizes: Mapping[str, int]
    jagged: Mapping[str, int]


@dataclass
class QueuedCapture:
    """The names of one cut. The rows stay in the queue until it is released."""

    records: dict[GroupId, QueuedRows]
    groups: tuple[GroupId, ...]
    names: tuple[str, ...]

    def drop(self) -> None:
        """Forget the names; the queue gives up their rows when the capture is released."""
        self.records = {}


class TransferQueuePlane:
    """Keeps each group's rows in TransferQueue, in a partition that belongs to this plane alone.

    `transfer_queue.init()` comes first, with Ray; give Ray at least six logical CPUs, or the queue waits for ever for
    its actors. `partition` is the queue's name for a set of rows: one run, one partition. What another process of the
    same run left in it is removed by the restore that resumes the run.

    Rows are on the host. `rows` and `load` ask the queue and wait for its answer on the calling thread.
    """

    capture_mode: ClassVar[CaptureMode] = "references"

    # Invariant: an index of immutable records, so that `dict.copy()` is a snapshot.
    _records: dict[GroupId, QueuedRows]

    def __init__(self, *, partition: str = "cleancut", bytes_per_file: int = BYTES_PER_FILE) -> None:
        if not isinstance(partition, str) or not partition:
            raise UsageError(f"partition is {partition!r}; it must be the name of a partition of this run's own.")
        if transfer_queue.get_client() is None:
            raise UsageError(
                "TransferQueue is not there. Call ray.init() with at least six logical CPUs, then "
                "transfer_queue.init(), before the plane is made."
            )
        self.partition = partition
        self._bytes_per_file = bytes_per_file
        self._calls = ThreadPoolExecutor(_CALLS, "cleancut-transfer-queue")
        # Names that no process has used before.
        self._life, self._numbers = uuid.uuid4().hex[:12], itertools.count()
        self._records = {}
        # How many open captures know a name, and the names whose rows go when none does any more.
        self._captured: Counter[str] = Counter()
        self._cleared: set[str] = set()
        # What removes the rows of a name that is in no index yet, when nobody refers to them any more.
        self._unowned: dict[str, weakref.finalize[Any, QueuedRows]] = {}
        self._open_captures = 0
        self._cloned_views = 0
        self._removal_failures = 0

    # -- commit ---------------------------------------------------------------------------------------------------

    async def stage(self, group: GroupId, rows: Rows) -> QueuedRows:
        """Put the rows into the queue under a name that no index knows. Outside any slot."""
        require_group("group", group)
        require_rows(group, rows)
        if isinstance(rows, RowsBehind):
            raise UsageError(
                f"rows of group {group} come with an event. The queue takes rows on the host: wait for the event, and "
                "copy them with .cpu()."
            )
        tensors, jagged = checked_rows(rows)
        for field, tensor in tensors.items():
            if tensor.device.type != "cpu":
                raise UsageError(
                    f"rows['{field}'] of group {group} are on {tensor.device}. The queue takes rows on the host: copy "
                    "them with .cpu() first."
                )
            self._cloned_views += is_small_view(tensor)
        return await asyncio.wrap_future(self._calls.submit(self._put, group, tensors, jagged))

    def commit(self, cut: Cut, group: GroupId, staged: QueuedRows, ready: Any = None) -> None:
        """Make staged rows visible."""
        require_cut(cut)
        require_group("group", group)
        require_kind("staged", staged, QueuedRows, "what `stage` returned")
        if ready is not None:
            raise UsageError("ready: rows in the queue are on the host and complete; leave it out.")
        if staged.group != group or group in self._records:
            raise InvariantViolated(
                f"group {group}: rows staged for group {staged.group} were to be committed"
                f"{', and it has rows already' if group in self._records else ''}. Each group is staged and committed "
                "once, under its own id."
            )
        self._own(staged)
        self._records[group] = staged

    def rows(self, group: GroupId) -> Rows:
        """A group's rows, fetched from the queue now and compared with their digests."""
        require_group("group", group)
        record = self._records.get(group)
        if record is None:
            raise InvariantViolated(f"group {group} has no rows. It was cleared, or never committed.")
        return put_together(self._fetch(record), record.jagged)

    def derive(self, rows: Rows, columns: Rows) -> Rows:
        return derived(rows, columns)

    def groups(self) -> Iterable[GroupId]:
        return self._records.keys()

    def clear(self, group: GroupId) -> None:
        """Forget a group's rows; they leave the queue once no capture needs them."""
        require_group("group", group)
        record = self._records.pop(group, None)
        if record is not None:
            self._give_up(record.name)

    # -- checkpoint -----------------------------------------------------------------------------------------------

    def capture(self, cut: Cut, groups: Iterable[GroupId]) -> QueuedCapture:
        """The names of the rows of `groups` as of this instant."""
        require_cut(cut, exclusive=True)
        wanted = require_groups("groups", groups)
        missing = [group for group in wanted if group not in self._records]
        if missing:
            raise InvariantViolated(
                f"group {missing[0]} is ready in the buffer index and has no rows in the data plane. Index and plane "
                "must change in one section."
            )
        records = {group: self._records[group] for group in wanted}
        names = tuple(record.name for record in records.values())
        self._captured.update(names)
        self._open_captures += 1
        return QueuedCapture(records, wanted, names)

    def persist(self, capture: QueuedCapture, writer: RowsWriter) -> None:
        """Fetch the captured rows and write them; on the writer thread."""
        records = [capture.records[group] for group in capture.groups]

        def files() -> Iterator[tuple[str, Mapping[str, torch.Tensor]]]:
            batches = in_batches(records, lambda record: sum(record.sizes.values()), self._bytes_per_file)
            for number, batch in enumerate(batches):
                fetched = self._calls.map(self._fetch, batch)
                yield (
                    file_name(number),
                    {
                        key_of(record.group, field): tensor
                        for record, rows in zip(batch, fetched, strict=True)
                        for field, tensor in rows.items()
                    },
                )

        writer.write_tensor_files(files())
        write_index(
            writer,
            {record.group: list(record.digests) for record in records},
            {record.group: record.jagged for record in records},
        )

    def release(self, capture: QueuedCapture) -> None:
        """Let go of the rows that only this capture still needed."""
        self._open_captures -= 1
        for name in capture.names:
            self._captured[name] -= 1
            if not self._captured[name]:
                del self._captured[name]
                if name in self._cleared:
                    self._give_up(name)

    def read(self, reader: RowsReader, groups: Iterable[GroupId]) -> dict[GroupId, QueuedRows]:
        """Read the rows of `groups` and put them into the queue under fresh names; on an executor thread.

        No index knows them before `load`, and what is not loaded leaves the queue again.
        """
        return {group: self._put(group, tensors, jagged) for group, tensors, jagged in read_rows(reader, groups)}

    def load(self, cut: Cut, loaded: Mapping[GroupId, QueuedRows]) -> None:
        """Replace every record by what `read` returned; whatever else is in the partition leaves the queue."""
        require_cut(cut, exclusive=True)
        require_kind("loaded", loaded, Mapping, "what `read` returned")
        for record in loaded.values():
            require_kind("a record of loaded", record, QueuedRows, "what `read` returned")
        found = self._asked("list its names", transfer_queue.kv_list, self.partition)
        for record in loaded.values():
            self._own(record)
        self._records = dict(loaded)
        kept = {record.name for record in self._records.values()} | set(self._unowned) | set(self._captured)
        self._remove([name for name in found.get(self.partition, {}) if name not in kept])

    def statistics(self) -> Mapping[str, int]:
        """`groups`, `bytes` and `open_captures` of this instant; `staged` and not committed; `cleared` and not removed.

        Since the beginning: `cloned_views`, and `removal_failures`, the names that the queue did not give up. Every
        row has a digest, so `unchecked` is 0.
        """
        return {
            "groups": len(self._records),
            "bytes": sum(size for record in self._records.values() for size in record.sizes.values()),
            "open_captures": self._open_captures,
            "staged": len(self._unowned),
            "cleared": len(self._cleared),
            "cloned_views": self._cloned_views,
            "unchecked": 0,
            "removal_failures": self._removal_failures,
        }

    def close(self) -> None:
        """Wait until what was cleared has left the queue. The rows of the index stay."""
        self._calls.shutdown(wait=True)

    # -- the queue ------------------------------------------------------------------------------------------------

    def _put(self, group: GroupId, tensors: Mapping[str, torch.Tensor], jagged: Mapping[str, int]) -> QueuedRows:
        """Put rows under a name that no process has used before."""
        name = f"{self._life}-{group}-{next(self._numbers)}"
        own = {
            field: as_bits(tensor).clone(memory_format=torch.contiguous_format).view(tensor.dtype)
            for field, tensor in tensors.items()
        }
        rows = QueuedRows(
            group,
            name,
            MappingProxyType({field: digest_of(tensor) for field, tensor in own.items()}),
            MappingProxyType({field: nbytes(tensor) for field, tensor in own.items()}),
            MappingProxyType(dict(jagged)),
        )
        # Also where the queue fails half way.
        self._unowned[name] = removal = weakref.finalize(rows, self._remove, [name])
        removal.atexit = False  # the queue ends with the run
        self._asked(f"take the rows of group {group}", transfer_queue.kv_put, name, self.partition, own)
        return rows

    def _own(self, rows: QueuedRows) -> None:
        """From now on an index knows the rows."""
        removal = self._unowned.pop(rows.name, None)
        if removal is not None:
            removal.detach()

    def _fetch(self, record: QueuedRows) -> dict[str, torch.Tensor]:
        """The rows as they were put, each compared with its digest."""
        answer = self._asked(
            f"give back the rows of group {record.group} ({record.name})",
            transfer_queue.kv_batch_get, record.name, self.partition, list(record.digests),
        )  # fmt: skip
        rows: dict[str, torch.Tensor] = {}
        for field, digest in record.digests.items():
            rows[field] = answer[field][0].contiguous()
            if digest_of(rows[field]) != digest:
                raise CommittedTensorModified(
                    f"group {record.group}, field '{field}': what the queue gives back under {record.name!r} is not "
                    "what was put there. Somebody wrote into the partition of this run, or the memory of a storage "
                    "unit is damaged. The checkpoints before are whole; restore the newest."
                )
        return rows

    def _asked(self, what: str, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except Exception as error:
            raise StoreFailed(
                f"TransferQueue did not {what}: {error!r}. A storage unit or the controller of the queue has ended, or "
                f"somebody cleared partition {self.partition!r}. Nothing was changed here; look at the queue's log, "
                "and restore the newest checkpoint into a fresh queue."
            ) from error

    def _give_up(self, name: str) -> None:
        """Remove the rows of a name now, or when the last capture that knows it is released."""
        if name in self._captured:
            self._cleared.add(name)
            return
        self._cleared.discard(name)
        self._remove([name])

    def _remove(self, names: list[str]) -> None:
        """Remove rows from the queue, off the loop. A failure is counted: nobody reads them any more."""
        for name in names:
            self._unowned.pop(name, None)
        if not names:
            return

        def note(done: Future[None]) -> None:
            if (error := done.exception()) is not None:
                self._removal_failures += len(names)
                _log.warning("%d names were not removed from the queue and keep their memory: %r", len(names), error)

        try:
            self._calls.submit(transfer_queue.kv_clear, names, self.partition).add_done_callback(note)
        except RuntimeError:  # closed, or the interpreter ends: the queue ends with the run
            self._removal_failures += len(names)
