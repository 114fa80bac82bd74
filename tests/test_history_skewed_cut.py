"""The second historical failure: values of one save read at different instants.

Reported publicly as NVIDIA-NeMo/RL #3480: a cursor was read, the producer went on, the buffer was read; on resume a
guard against duplicates dropped a whole fresh batch. Here an admission is attempted in every gap of a save, with the
reported numbers: lookahead 1, four prompts a step, trainer at 7, dispatch cursor at 6.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, settled_keys
from disk_owners import dispatch_cursor, handed_out_count, newest, owners, stamps
from loop_turns import HANG_SECONDS
from naive_controller import SkewedController
from run_situations import forge

from impl import Admission, BarrierReentered, CheckpointCorrupt, InvariantViolated, WouldBlock
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import Controller, GenerationRequest
from impl.run.samplers import InOrderSampler, SamplerState
from impl.store import PosixFiles

PROMPTS, PER_STEP, TRAINER_AT, CURSOR_AT = 40, 4, 7, 6
#: Every event between asking for the window and the durable image, and the instant before.
GAPS = [
    "before", "request_cut", "open_cut", "read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger",
    "read_trainer", "close_cut", "publish",
]  # fmt: skip


async def take_to_the_recorded_place(controller: Controller, record: Record) -> None:
    """Seven steps, one after the other: trainer at 7, dispatch cursor at 6."""
    rollout, train = controller.rollout_pump, controller.train_pump
    for step in range(TRAINER_AT):
        admission = await rollout.reserve_batch()
        assert admission is not None
        await rollout.admit(admission)
        await record.reaches("remove_committed", PER_STEP * (step + 1))
        claim = await train.claim()
        assert claim is not None
        await train.finish_step(claim)
    assert controller.progress.version == TRAINER_AT
    assert dict(controller.ledger.entries) == {}


class Intruder(Record):
    """Attempts an admission the moment a given event happens: at once, or as soon as the barrier lets it."""

    def __init__(self, gap: str) -> None:
        super().__init__()
        self._gap = gap
        self.controller: Controller | None = None
        self.admission: Admission | None = None
        self.entered_at_once: list[str] = []
        self.attempt: asyncio.Task[None] | None = None

    def trace(self, action: str, /, **fields: object) -> None:
        super().trace(action, **fields)
        if action == self._gap and self.controller is not None:
            self.intrude()

    def intrude(self) -> None:
        """In a context of its own: a task that holds no section, as the rollout pump would be."""
        outside = contextvars.Context()
        assert self.controller is not None
        try:
            outside.run(self._enter_now)
            self.entered_at_once.append(self._gap)
        except WouldBlock:
            pass
        self.attempt = asyncio.get_running_loop().create_task(self._admit(), context=outside)
        self.controller = None

    def _enter_now(self) -> None:
        assert self.controller is not None
        with self.controller.barrier.mutation_nowait("intruder"):
            pass

    def _admit(self) -> Coroutine[Any, Any, None]:
        rollout = self.controller.rollout_pump if self.controller is not None else None

        async def admit() -> None:
            assert rollout is not None
            admission = self.admission or await rollout.reserve_batch()
            assert admission is not None
            await rollout.admit(admission)

        return admit()


@pytest.mark.parametrize("reserved_before", [True, False])
@pytest.mark.parametrize("gap", GAPS)
async def test_case_A02_an_admission_in_any_gap_of_a_save_leaves_cursor_and_buffer_agreed(
    tmp_path: Path, gap: str, reserved_before: bool
) -> None:
    """The admission falls wholly before the cut or wholly after it; resume drops nothing."""
    record = Intruder(gap)
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), verify="digest")
    controller = new_controller(None, record, prompts=PROMPTS, batch_size=PER_STEP, checkpointer=checkpointer)
    await take_to_the_recorded_place(controller, record)
    assert controller.rollout_pump._parts.sampler.cursor == CURSOR_AT
    if reserved_before:
        record.admission = await controller.rollout_pump.reserve_batch()
    record.controller = controller
    if gap == "before":
        record.intrude()
    await checkpointer.save()
    assert record.attempt is not None
    await record.attempt
    assert record.entered_at_once == ([gap] if gap in ("before", "close_cut", "publish") else [])
    await controller.generation.close()
    await checkpointer.close()

    image = newest(tmp_path)
    on_disk = owners(image)
    assert {key: len(who) for key, who in on_disk.items()} == dict.fromkeys(on_disk, 1)
    assert len(on_disk) == handed_out_count(image)
    cursor = dispatch_cursor(image)
    assert cursor in (CURSOR_AT, CURSOR_AT + 1)
    assert stamps(image).count(TRAINER_AT) == (PER_STEP if cursor == TRAINER_AT else 0)
    assert max(stamps(image), default=-1) <= cursor

    again = Record()
    resumed = new_controller(tmp_path, again, prompts=PROMPTS, batch_size=PER_STEP)
    report = await resumed.run()
    assert settled_keys(resumed) == each_once(PROMPTS)
    assert (report.trained, report.dropped) == (PROMPTS, {})
    assert [step for step, _ in again.trained] == list(range(TRAINER_AT, PROMPTS // PER_STEP))


async def test_the_gap_is_reached_in_the_order_of_the_protocol(tmp_path: Path) -> None:
    """The test above is only as good as its gaps: all of them happen, once, in this order."""
    record = Record()
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace))
    new_controller(None, record, prompts=PROMPTS, batch_size=PER_STEP, checkpointer=checkpointer)
    await checkpointer.save()
    await checkpointer.close()
    assert [action for action, _ in record.events if action in GAPS] == GAPS[1:]


async def test_the_same_admission_drops_a_batch_on_a_controller_that_reads_at_different_instants() -> None:
    """The naive way: cursor read, admission, buffer read. On resume the guard drops four prompts in silence."""
    naive = SkewedController(batches=PROMPTS // PER_STEP, batch_size=PER_STEP, lookahead=1)

    async def admit_and_finish_generating() -> None:
        await naive.reserve_batch()
        await naive.pass_gate()
        await naive.commit_admission()
        for group in list(naive.parked):
            await naive.dispatch(group)
            await naive.commit_group(group)

    for _ in range(TRAINER_AT):
        await admit_and_finish_generating()
        await naive.claim()
        await naive.finish_step()
    await naive.read_sampler()
    await admit_and_finish_generating()
    for read in (naive.read_loader, naive.read_buffer, naive.read_ledger, naive.read_trainer, naive.publish):
        await read()
    assert naive.lost_on_disk == [], "every prompt has its owner on disk: only the cursor is wrong"
    await naive.restore()
    await admit_and_finish_generating()
    assert naive.dropped == [32, 33, 34, 35], "a whole fresh batch"


async def test_case_A02_an_image_whose_cursor_and_buffer_disagree_is_refused_by_name(tmp_path: Path) -> None:
    """Such an image is not published from here; one made by force is never reconciled by dropping prompts."""
    record = Record()
    first = new_controller(tmp_path, record, prompts=PROMPTS, batch_size=PER_STEP, max_steps=TRAINER_AT)
    sampler = first.rollout_pump._parts.sampler
    honest = sampler.state

    def one_behind() -> SamplerState:
        state = honest()
        return SamplerState(state.name, state.cursor - 1, state.shortfalls, state.dropped)

    sampler.state = one_behind  # type: ignore[method-assign]
    with pytest.raises(InvariantViolated, match=r"no restore would take it: sampler.json: state.cursor"):
        await first.run()
    sampler.state = honest  # type: ignore[method-assign]
    await new_controller(tmp_path, Record(), prompts=PROMPTS, batch_size=PER_STEP, max_steps=TRAINER_AT).run()
    newest = max((path.name for path in tmp_path.glob("step_*")), key=lambda name: int(name.rpartition("-")[2]))
    forge(tmp_path, "sampler.json", lambda document: document["state"].update(cursor=0), newest)
    again = Record()
    with pytest.raises(CheckpointCorrupt, match=r"cursor"):
        await new_controller(tmp_path, again, prompts=PROMPTS, batch_size=PER_STEP).run()
    assert (again.generated, again.trained) == ([], [])


class BlockingFiles(PosixFiles):
    """A disk that stops at the first write, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.blocked = asyncio.Event()
        self.go_on = threading.Event()
        self._loop = asyncio.get_running_loop()

    def write(self, handle: Any, data: Any) -> None:
        if self.armed:
            self.armed = False
            self._loop.call_soon_threadsafe(self.blocked.set)
            assert self.go_on.wait(HANG_SECONDS)
        super().write(handle, data)


async def test_a_real_commit_during_a_blocked_write_lands_with_one_owner(tmp_path: Path) -> None:
    """The image is of the cut: the group is the ledger's there, however far the run has gone when it is published."""
    record, files = Record(), BlockingFiles()
    finish = asyncio.Event()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 1:
            await finish.wait()
        return await record.generate(request)

    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), verify="digest", files=files)
    controller = new_controller(None, record, prompts=4, generate=generate, checkpointer=checkpointer)
    await checkpointer.prepare()
    rollout = controller.rollout_pump
    admission = await rollout.reserve_batch()
    assert admission is not None
    await rollout.admit(admission)
    await record.reaches("remove_committed", 1)
    files.armed = True
    pending = await checkpointer.begin_save()
    await files.blocked.wait()
    finish.set()
    await record.reaches("remove_committed", 2)
    assert sorted(slot.group for slot in controller.buffer.slots.values() if slot.ready) == [0, 1]
    assert not pending.done
    files.go_on.set()
    await pending.durable()
    await controller.generation.close()
    await checkpointer.close()
    keys = dict(zip(admission.groups, admission.keys, strict=True))
    assert owners(newest(tmp_path)) == {tuple(keys[0]): ["buffer"], tuple(keys[1]): ["ledger"]}
    again = Record()
    resumed = new_controller(tmp_path, again, prompts=4)
    await resumed.run()
    assert [request.group for request in again.requests].count(0) == 0, "finished before the cut: not generated again"
    assert [request.group for request in again.requests].count(1) == 1, "finished after it: generated once more"
    assert settled_keys(resumed) == each_once(4)


async def test_an_admission_from_inside_the_window_is_refused(tmp_path: Path) -> None:
    """The checkpointing context itself cannot slip a write into its own cut."""
    controller = new_controller(None, Record(), prompts=4, sampler=InOrderSampler(0))
    async with controller.barrier.checkpoint():
        with pytest.raises(BarrierReentered):
            await controller.rollout_pump.reserve_batch()
    assert dict(controller.ledger.entries) == {}
