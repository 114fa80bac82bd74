"""The data plane: where the payload rows of finished groups live.

The buffer index says which groups are ready; a plane holds their rows. Rows are immutable once committed: a change is a
new record in the place of the old one, so a checkpoint needs references only and its window does not grow with bytes.

    stage(group, rows)      outside any slot; may take its time, nothing names the result yet
    commit(cut, ...)        synchronous, inside the slot that makes the buffer slot ready
    capture(cut, groups)    synchronous, inside the window; references only
    persist(capture, ...)   on the writer thread, after the window
    release(capture)        on the loop, after the writer; ends the deferral of clears
    read(reader, groups)    on an executor thread; changes nothing, so that a restore can be refused as a whole
    load(cut, loaded)       synchronous, replaces everything: rows that no index names do not survive a restore

`clear` during a capture is deferred for its groups: the rows leave the index at once, their memory only with the
capture. A plane that cannot hold on to references (it writes inside the window) says `capture_mode = "blocking"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..keys import GroupId

#: One group's payload: field name → tensor (whatever the plane takes for a tensor).
Rows = Mapping[str, Any]


class RowsBehind(dict[str, Any]):
    """Rows that hold their values behind an event: what `generate` returns when it uses a stream of its own.

    `ready` is what `ReplayBuffer.commit` takes under that name. Without it an event is recorded on the current stream
    of the thread that commits, which knows nothing of other streams.
    """

    def __init__(self, rows: Rows, ready: Any) -> None:
        super().__init__(rows)
        self.ready = ready


CaptureMode = Literal["references", "blocking"]


class Staged(Protocol):
    """Rows checked and detached, named by no index yet. Dropping the object discards them."""

    @property
    def group(self) -> GroupId: ...


class Capture(Protocol):
    """References to the rows of one cut."""

    def drop(self) -> None:
        """Forget the payload; called on the writer thread, so that freeing it never happens on the loop."""


class RowsWriter(Protocol):
    """The part of the store's directory writer that a plane needs."""

    def write_tensors(self, name: str, tensors: Mapping[str, Any]) -> None: ...
    def write_tensor_files(
        self, files: Iterable[tuple[str, Mapping[str, Any]]], written: Callable[[str], None] | None = None
    ) -> None:
        """Write files; `written` is told of each as soon as it is durable, on any thread. Here, one after another."""
        for name, tensors in files:
            self.write_tensors(name, tensors)
            if written is not None:
                written(name)

    def write_json(self, name: str, document: Any) -> None: ...


class RowsReader(Protocol):
    """The part of the store's directory reader that a plane needs."""

    def names(self) -> tuple[str, ...]: ...
    def read_tensors(self, name: str) -> dict[str, Any]: ...
    def read_tensor_files(self, names: Iterable[str]) -> Iterable[dict[str, Any]]: ...
    def read_json(self, name: str) -> Any: ...


@runtime_checkable
class DataPlane(Protocol):
    """What the replay buffer and the checkpointer ask of a store of rows."""

    capture_mode: ClassVar[CaptureMode]

    async def stage(self, group: GroupId, rows: Rows) -> Staged: ...
    def commit(self, cut: Cut, group: GroupId, staged: Any, ready: Any = None) -> None: ...
    def rows(self, group: GroupId) -> Rows: ...
    def derive(self, rows: Rows, columns: Rows) -> Rows:
        """`rows` with `columns` added or replaced, checked like staged rows; nothing is stored."""

    def groups(self) -> Iterable[GroupId]:
        """The groups that have rows now."""

    def clear(self, group: GroupId) -> None:
        """Forget a group's rows; tolerates absence. Deferred while a capture holds them."""

    def capture(self, cut: Cut, groups: Iterable[GroupId]) -> Any: ...
    def persist(self, capture: Any, writer: RowsWriter) -> None: ...
    def release(self, capture: Any) -> None: ...
    def read(self, reader: RowsReader, groups: Iterable[GroupId]) -> Any: ...
    def load(self, cut: Cut, loaded: Any) -> None: ...
    def statistics(self) -> Mapping[str, int]: ...
