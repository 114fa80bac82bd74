"""Situations for tests of rows on a simulated device: one save, and every order in which the device may be at work."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from typing import Any

import torch

from impl import TensorPlane
from impl.barrier import CheckpointBarrier
from impl.rows import RowsWriter
from interleavings.scenarios import SimulatedDevice

#: Pinned memory in the tests: two pieces of 256 bytes, one for the file being written and one for the next.
STAGING = 512
BYTES = 8


class KnownState(BaseException):
    """From here on everything has been seen already."""


class Choices:
    """The choices of one run: first those it is told to make, then the first of each."""

    def __init__(self, beginning: list[int], known: set[Hashable], *, prune: bool) -> None:
        self.taken: list[int] = []
        self.widths: list[int] = []
        self._beginning = beginning
        self._known = known
        self._prune = prune

    def choose(self, width: int, state: Hashable) -> int:
        """A number below `width`. Raises KnownState where another run came to the same state by other choices."""
        place = len(self.taken)
        if place >= len(self._beginning):
            if self._prune and state in self._known:
                raise KnownState
            self._known.add(state)
        self.taken.append(self._beginning[place] if place < len(self._beginning) else 0)
        self.widths.append(width)
        return self.taken[-1]


class HostFiles(RowsWriter):
    """A writer that reads what it is given as slowly as a disk: the device may do anything before and after."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.documents: dict[str, Any] = {}
        self._pause = pause

    def write_tensors(self, name: str, tensors: Mapping[str, Any]) -> None:
        self._pause()
        for key, tensor in tensors.items():
            self.tensors[key] = tensor.clone()
        self._pause()

    def write_json(self, name: str, document: Any) -> None:
        self.documents[name] = document

    def values(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The different bytes of each tensor: one each, if it was copied whole."""
        return tuple((key, tuple(sorted(set(tensor.reshape(-1).tolist())))) for key, tensor in self.tensors.items())


class Saving:
    """A plane over a simulated device, with one method for each thing that happens around a save."""

    def __init__(self, choices: Choices | None = None, *, verify: Any = "off", block_bytes: int = 16) -> None:
        self.device = SimulatedDevice(4, block_bytes)
        self.barrier = CheckpointBarrier()
        self.plane = TensorPlane(verify=verify, accelerator=self.device, staging_bytes=STAGING, bytes_per_file=BYTES)
        self.files = HostFiles(self._let_happen)
        self._choices = choices
        self._calls = 0
        self.device.between = self._let_happen

    def _let_happen(self) -> None:
        """Anything the device may do here, in any order: each is a choice."""
        self._calls += 1
        while self._choices is not None and (streams := self.device.runnable()):
            try:
                chosen = self._choices.choose(
                    1 + len(streams), (self._calls, self.device.contents(), self.files.values())
                )
            except KnownState:
                self._choices = None
                raise
            if chosen == 0:
                return
            self.device.advance(streams[chosen - 1])

    def produce(self, value: int) -> torch.Tensor:
        """A row that a kernel on the current stream will have filled."""
        return self.device.fill(self.device.empty(BYTES), value)

    async def commit(self, group: int, rows: Mapping[str, torch.Tensor], ready: Any = None) -> None:
        """Stage outside, commit inside."""
        staged = await self.plane.stage(group, rows)
        async with self.barrier.mutation() as cut:
            self.plane.commit(cut, group, staged, ready)

    async def capture(self, *groups: int) -> Any:
        """The window."""
        async with self.barrier.checkpoint() as cut:
            return self.plane.capture(cut, groups)

    def write(self, capture: Any) -> None:
        """What the writer thread does."""
        try:
            self.plane.persist(capture, self.files)
        finally:
            capture.drop()
            self.plane.release(capture)


def every_order(program: Callable[[Choices], Coroutine[Any, Any, None]], *, prune: bool = True) -> int:
    """Run a program until each choice was made in every state that it can come to; return how many states there are.

    The program is the same for the same choices. Without `prune` every order of choices is taken, states or not.
    """
    beginning: list[int] = []
    known: set[Hashable] = set()
    with asyncio.Runner() as runner:
        while True:
            choices = Choices(beginning, known, prune=prune)
            with suppress(KnownState):
                runner.run(program(choices))
            taken, widths = choices.taken, choices.widths
            while taken and taken[-1] + 1 == widths[-1]:
                taken.pop()
                widths.pop()
            if not taken:
                return len(known)
            beginning = [*taken[:-1], taken[-1] + 1]
