"""A deliberately naive controller: a save keeps the moved cursor and the finished groups, and nothing else.

This is how the first failure came about in the field. The loader's cursor moves a whole batch the instant it is
yielded; dispatch inside the batch goes prompt by prompt. What still generates or is still parked at a save is behind
the cursor and in no file: silent, nothing corrupt, nothing doubled, permits in balance.

Everything lives in memory, the disk too. Each action of the protocol is one async method, so that a counterexample of
the state machine can be driven on it and on the real controller alike. Prompts are named by their index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Key = tuple[int, int]


class NotEnabled(AssertionError):
    """The action is not possible where the controller stands."""


def require(condition: bool, what: str) -> None:
    """Raise NotEnabled unless the action's guard holds."""
    if not condition:
        raise NotEnabled(f"{what} is not enabled here")


@dataclass
class Image:
    """What a save of this controller consists of."""

    dispatch_cursor: int = -1
    cursor: int = 0
    ready: tuple[int, ...] = ()
    stamps: tuple[tuple[int, int], ...] = ()
    trained: tuple[int, ...] = ()
    version: int = 0


class NaiveController:
    """Driven action by action. `refusals` are what it raises for an action that is not enabled."""

    refusals = (NotEnabled,)

    def __init__(
        self,
        *,
        batches: int = 2,
        batch_size: int = 1,
        lookahead: int = 0,
        saves: int = 1,
        crashes: int = 1,
        capacity: int | None = None,
        **features: int,
    ) -> None:
        self.batches = batches
        self.batch_size = batch_size
        self.lookahead = lookahead
        # Named as the scopes of the cut machine name it: sampler 0 is the in-order one, which stamps.
        self.stamped = features.get("sampler", 0) == 0
        self.capacity = capacity if capacity is not None else batch_size * (lookahead + 1)
        self._disk = Image()
        self._start(self._disk)

    def _start(self, image: Image) -> None:
        """Begin a process from an image: the finished groups are there, the cursor is where it was."""
        self.cursor = image.cursor
        self.dispatch_cursor = image.dispatch_cursor
        self.version = image.version
        self.trained = set(image.trained)
        self.ready = list(image.ready)
        self.stamp = dict(image.stamps)
        self.reserved: list[int] = []
        self.parked: list[int] = []
        self.generating: list[int] = []
        self.claimed: list[int] = []
        self.permits = self.capacity - len(self.ready)
        self._gate_passed = False
        self._reading = Image()

    # -- the rollout pump

    async def reserve_batch(self) -> None:
        """The cursor moves a whole batch; the prompts are in the pump's hands, and in nobody's file."""
        require(self.cursor < self.batches and not self.reserved and not self.parked, "reserve_batch")
        first = self.cursor * self.batch_size
        self.reserved = list(range(first, first + self.batch_size))
        self.cursor += 1

    async def pass_gate(self) -> None:
        """The sampler admits one step ahead of the trainer, and `lookahead` more."""
        require(bool(self.reserved) and self._gate_open(), "pass_gate")
        self._gate_passed = True

    async def commit_admission(self) -> None:
        """The dispatch cursor moves and the batch is stamped."""
        require(self._gate_passed and self._gate_open(), "commit_admission")
        self._gate_passed = False
        if self.stamped:
            self.dispatch_cursor += 1
            self.stamp.update(dict.fromkeys(self.reserved, self.dispatch_cursor))
        self.parked, self.reserved = self.reserved, []

    def _gate_open(self) -> bool:
        return not self.stamped or self.dispatch_cursor < self.version + self.lookahead

    async def dispatch(self, group_index: int) -> None:
        """One prompt takes a permit and begins to generate."""
        require(group_index in self.parked and self.permits > 0, f"dispatch({group_index})")
        self.parked.remove(group_index)
        self.permits -= 1
        self.generating.append(group_index)

    # -- generation

    async def commit_group(self, group_index: int) -> None:
        """A generation has ended; the group is in the buffer."""
        require(group_index in self.generating, f"commit_group({group_index})")
        self.generating.remove(group_index)
        self.ready.append(group_index)

    async def remove_committed(self, group_index: int) -> None:
        """There is no ledger, so there is nothing to remove."""

    # -- the train pump

    async def claim(self) -> None:
        """A train step takes its groups: those stamped for it, or the first that are ready."""
        if self.stamped:
            chosen = [group for group in self.ready if self.stamp[group] == self.version]
        else:
            chosen = self.ready[: self.batch_size]
        require(not self.claimed and len(chosen) == self.batch_size, "claim")
        self.claimed = chosen
        self.ready = [group for group in self.ready if group not in chosen]

    async def finish_step(self) -> None:
        """The groups are trained, their permits back."""
        require(bool(self.claimed), "finish_step")
        self.trained.update(self.claimed)
        self.permits += len(self.claimed)
        self.claimed = []
        self.version += 1

    # -- the save: no barrier; each value is read when its turn comes

    async def request_cut(self) -> None:
        """A save begins. Nobody is held back."""
        self._reading = Image()

    async def open_cut(self) -> None:
        """There is no window to open."""

    async def read_sampler(self) -> None:
        """The dispatch cursor, as it is now."""
        self._reading.dispatch_cursor = self.dispatch_cursor

    async def read_loader(self) -> None:
        """The loader's cursor, which is ahead of what was dispatched."""
        self._reading.cursor = self.cursor

    async def read_buffer(self) -> None:
        """The finished groups, those being trained included."""
        self._reading.ready = (*self.claimed, *self.ready)
        self._reading.stamps = tuple((group, self.stamp.get(group, -1)) for group in self._reading.ready)

    async def read_ledger(self) -> None:
        """Pending prompts are not saved: this is the fault."""

    async def read_trainer(self) -> None:
        """Version and what was trained."""
        self._reading.version = self.version
        self._reading.trained = tuple(sorted(self.trained))

    async def publish(self) -> None:
        """The image is on disk."""
        self._disk = self._reading

    async def restore(self) -> None:
        """The process is dropped; a new one starts from the disk."""
        self._start(self._disk)

    async def crash_and_restore(self) -> None:
        """The image under way is durable, then the process is dropped."""
        await self.publish()
        await self.restore()

    # -- what is on disk

    def handed_out(self) -> Sequence[Key]:
        """The keys behind the cursor of the newest image."""
        return [(0, index) for index in range(self._disk.cursor * self.batch_size)]

    def owners_on_disk(self) -> dict[Key, list[str]]:
        """Who has each key in the newest image: buffer or accounts; there is nobody else."""
        owners: dict[Key, list[str]] = {key: [] for key in self.handed_out()}
        for name, groups in (("buffer", self._disk.ready), ("trained", self._disk.trained)):
            for group in groups:
                owners.setdefault((0, group), []).append(name)
        return owners

    @property
    def lost_on_disk(self) -> list[int]:
        """Prompts behind the cursor of the newest image that nobody has."""
        return [key[1] for key, owners in self.owners_on_disk().items() if not owners]


class SkewedController(NaiveController):
    """Another naive one: it keeps every prompt, but reads its values at different instants and trusts the cursor.

    On resume a guard against duplicates finds groups stamped for the step that the saved cursor says is still to come,
    and drops the fresh batch without a word: the second failure in the field.
    """

    def __init__(self, **bounds: int) -> None:
        self.dropped: list[int] = []
        super().__init__(**bounds)

    async def commit_admission(self) -> None:
        """As above; but a step that the buffer has already is not admitted twice: its batch is dropped."""
        step = self.dispatch_cursor + 1
        occupied = any(self.stamp.get(group) == step for group in (*self.ready, *self.claimed, *self.generating))
        admitted = list(self.reserved)
        await super().commit_admission()
        if occupied:
            self.dropped += admitted
            self.parked = []
