"""A save of rows on an accelerator, against everything that goes on around it: kernels, copies, a clear, new tensors.

Two finished groups, each a row that a kernel may still be writing, are saved by the real checkpointer over the real
data plane and store. Right after the window they are trained and cleared, and a new tensor takes their memory. The
device is simulated: when each kernel has run is a choice, and so is whether the device is quick (it does everything it
may as soon as it is asked, also in the middle of the writer's work) or slow (nothing before somebody waits for it).
Every schedule must find in the checkpoint what the rows held at the cut. No machine is followed: this is about bytes.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from impl.barrier import CheckpointBarrier
from impl.checkpoint.checkpointer import Checkpointer
from impl.loaders.prompt_loader import PromptLoader
from impl.run.buffer import ReplayBuffer
from impl.run.ledger import Ledger
from impl.run.samplers import InOrderSampler
from impl.run.slots import Claim
from impl.store.checkpoint_store import CheckpointStore
from impl.store.lock import WriterIdentity

from ..correspondence.follower import Coverage
from ..runtime.subject import Subject
from ..state.walkers import register_walker
from .fake_disk import FakeDisk
from .readings import register_barrier, register_tensors
from .scenario import Pinned, Scenario
from .simulated_device import Operation, SimulatedDevice

if TYPE_CHECKING:
    import torch

DIRECTORY = "/checkpoints"
GROUPS = 2
BYTES = 8


class Run:
    """The parts of a run without a controller, on a device with a block for each group and one more."""

    def __init__(self) -> None:
        from impl.rows.tensor_plane import TensorPlane

        self.device = SimulatedDevice(blocks=GROUPS + 1)
        self.device.launched = self.may_happen_from_now_on
        self.disk = FakeDisk(DIRECTORY)
        self.barrier = CheckpointBarrier()
        self.ledger = Ledger(self.barrier)
        self.loader = PromptLoader(list(range(GROUPS)), batch_size=GROUPS, seed=0)
        self.sampler = InOrderSampler(lookahead=1)
        self.sampler.bind(GROUPS)
        # Two files of one group each, and two pieces of pinned memory.
        self.plane = TensorPlane(accelerator=self.device, staging_bytes=512, bytes_per_file=BYTES)
        self.buffer = ReplayBuffer(self.barrier, GROUPS, self.plane, self.ledger)
        self.checkpointer = Checkpointer(
            DIRECTORY, self.barrier, verify="off", files=self.disk, executor=None, identity=identity()
        )
        self.checkpointer.attach(ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer)

    def may_happen_from_now_on(self, operation: Operation) -> None:
        """Make it a choice when a kernel runs. What the writer's job begins, it waits for, or the device is quick."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # in a job of the writer
            return
        loop.call_soon(self.device.allow, operation)

    async def hurry(self) -> None:
        """From some moment on the device is quick."""
        self.device.ahead = True
        self.device.run_ahead()

    def kernel(self, value: int) -> torch.Tensor:
        """A tensor that will be filled."""
        return self.device.fill(self.device.empty(BYTES), value)

    def train(self, claim: Claim) -> None:
        """Use the rows, as a train step does."""
        for group in claim.groups:
            claim.rows(group)

    async def main(self) -> None:
        """Admit, generate and commit; save; train, clear and go on, while the save is written."""
        hurry = asyncio.create_task(self.hurry(), name="hurry")
        async with self.barrier.mutation() as cut:
            batch = self.loader.next_batch(cut)
            assert batch is not None
            admission = self.ledger.reserve(cut, batch.keys)
            step = self.sampler.commit_admission(cut)
            self.ledger.admit(cut, admission, step)
        for group in admission.groups:
            entry = self.ledger.entries[group]
            permit = await self.buffer.acquire_permit()
            staged = await self.plane.stage(group, {"tokens": self.kernel(group + 1)})
            async with self.barrier.mutation() as cut:
                self.buffer.reserve(cut, group, entry.key, entry.step, 0, permit)
                self.buffer.commit(cut, group, staged)
            del staged
        pending = await self.checkpointer.begin_save()
        async with self.barrier.mutation() as cut:
            claim = self.buffer.claim(cut, admission.groups, 0)
            self.train(claim)
            self.buffer.finish(cut, claim)
        churn = [self.kernel(9)]
        await pending.durable()
        churn.clear()
        await self.checkpointer.close()
        await hurry

    def finish(self) -> str | None:
        """What the checkpoint holds, read back with all its digests."""
        store = CheckpointStore(DIRECTORY, self.disk, 3, identity())
        name = self.disk.listdir(DIRECTORY)[-1]
        reader = store.reader(name).reader()
        rows = {
            key: bytes(tensor.numpy())
            for file in reader.names()
            if file.startswith("rows-")
            for key, tensor in reader.read_tensors(file).items()
        }
        expected = {f"{group}/tokens": bytes([group + 1]) * BYTES for group in range(GROUPS)}
        return None if rows == expected else f"{name} holds {rows} where the rows at the cut were {expected}"


def identity() -> WriterIdentity:
    """A writer whose names repeat from run to run."""
    tokens = itertools.count()
    return WriterIdentity("the scenario", lambda: str(next(tokens)))


def register_device() -> None:
    """The device is its memory, its queues and who has which block; a lock and torch's view of the arena are none."""

    def operation(each: Operation) -> tuple[Any, ...]:
        return each.what, each.offset, each.data, str(each.source), each.target, each.event, each.allowed

    def device(simulated: SimulatedDevice) -> tuple[Any, ...]:
        queues = tuple((stream, tuple(queue)) for stream, queue in sorted(simulated.queues.items()))
        blocks = simulated.free, simulated.fresh, simulated.held, {o: sorted(s) for o, s in simulated.users.items()}
        return bytes(simulated.arena), queues, blocks, simulated.current, simulated.ahead

    register_walker(Operation, operation)
    register_walker(SimulatedDevice, device)


def program_of(coverage: Coverage) -> Subject:
    """A fresh run."""
    register_barrier()
    register_tensors()
    register_device()
    run = Run()
    return Subject(run.main(), finish=run.finish)


SCENARIO = Scenario(
    name="device",
    sentence="a save of 2 rows on a simulated device, against kernels, a clear and new tensors in their memory",
    machine=None,
    scope=None,
    cancels=0,
    program_of=program_of,
    claims=("finish", "deadlock"),
    pinned=Pinned(states=257, schedules=104_790),
)
