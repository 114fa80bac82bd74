"""Resumed runs: every prompt is trained once over all lives of the run, and nothing finished is generated again."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, rows_of, settled_keys
from hypothesis import given, settings
from hypothesis import strategies as st

from impl import CheckpointIncompatible, CheckpointNotFound, ReplayBuffer, UsageError
from impl.barrier import CheckpointBarrier
from impl.controller import Controller, GenerationRequest, RunReport, TrainBatch
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, WeightFifoSampler, WindowedSampler


class Crashing(Record):
    """A record that copies the directory whenever a checkpoint is published: the images a crash could leave."""

    def __init__(self, directory: Path, images: Path) -> None:
        super().__init__()
        self._directory = directory
        self._images = images
        self.images: list[Path] = []

    def trace(self, action: str, /, **fields: object) -> None:
        super().trace(action, **fields)
        if action == "publish":
            image = self._images / f"image-{len(self.images)}"
            # What is being removed may go while it is copied; a crash may find it gone just as well.
            shutil.copytree(self._directory, image, ignore=shutil.ignore_patterns(".deleting-*"))
            self.images.append(image)


async def resume(image: Path, record: Record, **settings: Any) -> tuple[Controller, RunReport]:
    """Run a fresh controller over a crash image, to the end."""
    controller = new_controller(image, record, **settings)
    return controller, await controller.run()


SAMPLERS: list[Callable[[], Any]] = [
    lambda: InOrderSampler(0),
    lambda: InOrderSampler(1),
    lambda: WeightFifoSampler(1),
    lambda: ReadyFirstSampler(1),
    lambda: WindowedSampler(3),
]


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_case_A04_every_image_of_a_run_resumes_to_the_same_end(
    tmp_path: Path, sampler: Callable[[], Any]
) -> None:
    """Also the image right after the last batch was read: the exhausted bit keeps the pass from starting again."""
    record = Crashing(tmp_path / "run", tmp_path)
    settings: dict[str, Any] = {"prompts": 7, "batch_size": 2, "epochs": 2, "capacity": 4}
    await new_controller(tmp_path / "run", record, sampler=sampler(), **settings).run()
    assert len(record.images) == len(record.trained) >= 7
    for number, image in enumerate(record.images):
        again = Record()
        controller, report = await resume(image, again, sampler=sampler(), **settings)
        assert settled_keys(controller) == each_once(7, epochs=2)
        before = Counter(key for _, keys in record.trained[: number + 1] for key in keys)
        assert before + again.trained_keys == each_once(7, epochs=2)
        assert report.restored is not None
        assert report.restored.step == number + 1


@pytest.mark.parametrize("crash", [True, False])
async def test_case_A03_the_tail_of_a_batch_is_used_before_the_next_pull(tmp_path: Path, crash: bool) -> None:
    """One of four dispatched, three parked: with and without a save in between they come next, in their order."""
    record, again = Record(), Record()
    held = asyncio.Event()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 4:
            await held.wait()
        return await record.generate(request)

    settings: dict[str, Any] = {"prompts": 12, "batch_size": 4, "max_in_flight": 1}
    first = new_controller(
        tmp_path, record, generate=generate, save_period=None, max_steps=1 if crash else None, **settings
    )
    run = asyncio.create_task(first.run())
    await record.reaches("dispatch", 5)
    if not crash:
        held.set()
    await run
    if crash:
        resumed, report = await resume(tmp_path, again, **settings)
        assert report.restored is not None
        assert report.restored.admitted == 4
        first = resumed
    events = (again if crash else record).events
    order = [fields["group"] if action == "dispatch" else action for action, fields in events]
    order = [entry for entry in order if entry == "reserve_batch" or entry in (4, 5, 6, 7, 8)]
    assert order[-6:] == [4, 5, 6, 7, "reserve_batch", 8]
    assert settled_keys(first) == each_once(12)


async def test_case_A05_no_finished_group_is_generated_again(tmp_path: Path) -> None:
    """Generation runs far ahead of training; after the restore only what was unfinished is asked for."""
    record = Record()
    blocked = asyncio.Event()

    async def train(batch: TrainBatch) -> None:
        if batch.step == 1:
            blocked.set()
            await asyncio.get_running_loop().create_future()
        await record.train(batch)

    settings: dict[str, Any] = {"prompts": 40, "batch_size": 4, "sampler": InOrderSampler(9), "capacity": 40}
    run = asyncio.create_task(new_controller(tmp_path, record, train=train, **settings).run())
    await blocked.wait()
    await record.reaches("publish", 1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    again = Record()
    _, report = await resume(tmp_path, again, prompts=40, batch_size=4, sampler=InOrderSampler(9), capacity=40)
    restored = report.restored
    assert restored is not None
    assert restored.buffered + len(again.generated) == 36
    assert record.trained_keys + again.trained_keys == each_once(40)


async def test_case_A09_step_labels_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Neither the step nor the version is counted twice by a resume."""
    whole, first, second = Record(), Record(), Record()
    await new_controller(tmp_path / "whole", whole, prompts=12).run()
    await new_controller(tmp_path / "cut", first, prompts=12, max_steps=3).run()
    await resume(tmp_path / "cut", second, prompts=12)
    assert [step for step, _ in first.trained + second.trained] == [step for step, _ in whole.trained]
    assert [set(keys) for _, keys in first.trained + second.trained] == [set(keys) for _, keys in whole.trained]
    assert [fields["step"] for fields in second.named("publish")] == [4, 5, 6]


async def test_case_A10_the_step_after_a_complete_restored_one_gets_a_producer(tmp_path: Path) -> None:
    """The image holds all of step 1 and nothing of step 2; training goes on to the end."""
    record = Crashing(tmp_path / "run", tmp_path)
    await new_controller(tmp_path / "run", record, prompts=8, sampler=InOrderSampler(0), max_steps=1).run()
    # Lookahead 0: the step after the saved one is admitted when the gate opens, and is complete at the last save.
    image = record.images[-1]
    again = Record()
    controller, report = await resume(image, again, prompts=8, sampler=InOrderSampler(0))
    assert [step for step, _ in again.trained] == [1, 2, 3]
    assert settled_keys(controller) == each_once(8)
    assert report.outcome == "exhausted"


async def resume_with_three_of_four_ready(directory: Path, load_buffer: bool) -> tuple[Record, RunReport]:
    """Save with groups 4, 5 and 7 of step 1 ready and 6 generating; resume, and finish the epoch."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 6:
            await asyncio.get_running_loop().create_future()
        return await record.generate(request)

    first = new_controller(directory, record, prompts=8, batch_size=4, generate=generate, save_period=None, max_steps=1)
    run = asyncio.create_task(first.run())
    await record.reaches("commit_group", 7)
    assert (await run).outcome == "steps_reached"
    again = Record()
    controller, report = await resume(directory, again, prompts=8, batch_size=4, load_buffer=load_buffer)
    assert settled_keys(controller) == each_once(8)
    assert {request.step for request in again.requests} == {1}
    return again, report


async def test_case_A15_the_ready_groups_of_a_partly_filled_step_are_kept(tmp_path: Path) -> None:
    """3 of 4 ready: only the fourth is generated."""
    again, report = await resume_with_three_of_four_ready(tmp_path, load_buffer=True)
    assert report.restored is not None
    assert (report.restored.buffered, report.restored.admitted) == (3, 1)
    assert [request.group for request in again.requests] == [6]


async def test_case_A16_without_the_buffer_everything_pending_is_generated_again(tmp_path: Path) -> None:
    """The stored rows are not used, and no prompt behind them is lost: all four are issued once more."""
    again, report = await resume_with_three_of_four_ready(tmp_path, load_buffer=False)
    assert report.restored is not None
    assert (report.restored.buffered, report.restored.admitted) == (0, 4)
    assert sorted(request.group for request in again.requests) == [4, 5, 6, 7]


async def test_case_A13_a_smaller_buffer_is_refused_and_the_store_is_untouched(tmp_path: Path) -> None:
    """Both numbers and the ways out are in the message; with the old capacity it still resumes."""
    record = Record()
    settings: dict[str, Any] = {"prompts": 16, "batch_size": 2, "sampler": WindowedSampler(9)}

    async def train(batch: TrainBatch) -> None:
        await record.reaches("commit_group", 8)
        await record.train(batch)

    first = new_controller(tmp_path, record, capacity=8, max_steps=1, train=train, **settings)
    await first.run()
    before = sorted(path.name for path in tmp_path.iterdir())
    smaller = new_controller(tmp_path, Record(), capacity=2, **{**settings, "sampler": WindowedSampler(9)})
    with pytest.raises(CheckpointIncompatible, match=r"\d+ buffered groups .* capacity of 2.*load_buffer=False"):
        await smaller.run()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name in before) == before
    with pytest.raises(UsageError, match="second time"):
        await smaller.run()
    controller, report = await resume(tmp_path, Record(), capacity=8, **{**settings, "sampler": WindowedSampler(9)})
    assert report.restored is not None
    assert 6 <= report.restored.buffered <= 8
    assert settled_keys(controller) == each_once(16)


class FailsToLoad:
    """A trainer state that saves, and breaks while it is loaded."""

    async def stage(self) -> None:
        return None

    def persist(self, staged: None, writer: Any) -> None:
        writer.write_json("state.json", {})

    def load(self, reader: Any) -> None:
        raise MemoryError("not enough memory for the model")


class Loads(FailsToLoad):
    """The same, in a process with more memory."""

    def load(self, reader: Any) -> None:
        assert reader.read_json("state.json") == {}


async def test_case_A18_after_a_failed_restore_nothing_is_admitted(tmp_path: Path) -> None:
    """No half-restored run that accepts work; a good one in a new object still resumes."""
    await new_controller(tmp_path, Record(), prompts=8, max_steps=2, trainer=FailsToLoad()).run()
    record = Record()
    broken = new_controller(tmp_path, record, prompts=8, trainer=FailsToLoad())
    with pytest.raises(MemoryError):
        await broken.run()
    assert (record.generated, record.trained) == ([], [])
    with pytest.raises(UsageError, match="restore failed"):
        await broken.run()
    with pytest.raises(UsageError, match="trainer: none was given"):
        await resume(tmp_path, record, prompts=8)
    assert (record.generated, record.trained) == ([], [])
    controller, _ = await resume(tmp_path, Record(), prompts=8, trainer=Loads())
    assert settled_keys(controller) == each_once(8)


async def test_admitted_groups_come_back_before_reserved_ones_and_those_before_fresh_data(tmp_path: Path) -> None:
    """The admitted ones may be all that opens the gate; their stamp stays, and each reserved one is admitted once."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.step == 1:
            await asyncio.get_running_loop().create_future()
        return await record.generate(request)

    first = new_controller(tmp_path, record, prompts=10, generate=generate, max_steps=1, save_period=None)
    run = asyncio.create_task(first.run())
    await record.reaches("reserve_batch", 3)
    await run
    again = Record()
    _, report = await resume(tmp_path, again, prompts=10)
    restored = report.restored
    assert restored is not None
    assert (restored.admitted, restored.reserved) in {(2, 2), (4, 0)}
    pumped = [
        (action, fields)
        for action, fields in again.events
        if action in ("dispatch", "commit_admission", "reserve_batch")
    ]
    assert [action for action, _ in pumped[:2]] == ["dispatch", "dispatch"]
    assert [fields["group"] for _, fields in pumped[:2]] == [2, 3]
    assert [fields["step"] for fields in again.named("commit_admission")] == sorted(
        {fields["step"] for fields in again.named("commit_admission")}
    )
    assert record.trained_keys + again.trained_keys == each_once(10)


async def test_case_A24_what_the_run_changes_after_the_cut_is_not_in_the_image(tmp_path: Path) -> None:
    """Index, ledger and accounts go on while the image is written; on disk is the state of the window."""
    record = Crashing(tmp_path / "run", tmp_path)
    first = new_controller(tmp_path / "run", record, prompts=12, sampler=InOrderSampler(2), capacity=6)
    at_the_cut: list[tuple[Any, ...]] = []
    snapshot = ReplayBuffer.snapshot

    def remember(buffer: ReplayBuffer, cut: Any) -> Any:
        taken = snapshot(buffer, cut)
        pending = {group: entry for group, entry in first.ledger.entries.items() if group not in taken}
        ready = {slot.group for slot in buffer.slots.values() if slot.ready}
        at_the_cut.append((set(pending), ready, settled_keys(first), first.progress.version))
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplayBuffer, "snapshot", remember)
        await first.run()
    assert len(record.images) == len(at_the_cut) >= 6
    for image, (pending, ready, settled, version) in zip(record.images, at_the_cut, strict=True):
        again = new_controller(image, Record(), prompts=12, sampler=InOrderSampler(2), capacity=6)
        assert again._checkpointer is not None
        await again._checkpointer.restore()
        assert set(again.ledger.entries) == pending
        assert set(again.buffer.slots) == ready
        assert settled_keys(again) == settled
        assert again.progress.version == version
        await again._checkpointer.close()


async def test_resume_must_wants_a_checkpoint_and_never_wants_none(tmp_path: Path) -> None:
    """A run meant to go on must not begin anew by a typing error, nor the other way round."""
    with pytest.raises(CheckpointNotFound, match="resume='must'"):
        await new_controller(tmp_path, Record(), prompts=4, resume="must").run()
    await new_controller(tmp_path, Record(), prompts=4, resume="never", max_steps=1).run()
    with pytest.raises(UsageError, match="resume='never'"):
        await new_controller(tmp_path, Record(), prompts=4, resume="never").run()
    assert (await new_controller(tmp_path, Record(), prompts=4, resume="must").run()).trained == 4


async def test_case_A33_the_directory_of_another_run_stops_before_training(tmp_path: Path) -> None:
    """Other data, other sampler: both identities are named, nothing is generated, the files stay."""
    await new_controller(tmp_path, Record(), prompts=8, max_steps=2).run()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.parent != tmp_path}
    others: list[dict[str, Any]] = [
        {"prompts": 9},
        {"prompts": 8, "sampler": WindowedSampler(1)},
        {"prompts": 8, "batch_size": 4},
    ]
    for other in others:
        record = Record()
        with pytest.raises(CheckpointIncompatible):
            await new_controller(tmp_path, record, **other).run()
        assert record.generated == []
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.parent != tmp_path}
    assert after == before


@settings(max_examples=20)
@given(
    prompts=st.integers(1, 9),
    batch_size=st.integers(1, 3),
    sampler=st.sampled_from(SAMPLERS),
    durations=st.lists(st.integers(0, 6), min_size=9, max_size=9),
    failing=st.sets(st.integers(0, 8), max_size=2),
    crashes=st.lists(st.integers(1, 3), max_size=3),
)
def test_any_chain_of_crashes_trains_or_drops_every_prompt_once(
    tmp_path_factory: pytest.TempPathFactory,
    prompts: int,
    batch_size: int,
    sampler: Callable[[], Any],
    durations: list[int],
    failing: set[int],
    crashes: list[int],
) -> None:
    """Random durations, failures and crash points, over several lives: the last life's accounts hold each key once."""
    directory = tmp_path_factory.mktemp("chain")

    async def generate(request: GenerationRequest) -> Any:
        for _ in range(durations[request.key.index]):
            await asyncio.sleep(0)
        if request.key.index in failing:
            raise ValueError("no")
        return rows_of(request)

    def life(image: Path, record: Record, name: str) -> Controller:
        return new_controller(
            image, record, prompts=prompts, batch_size=batch_size, sampler=sampler(), generate=generate,
            capacity=2 * batch_size, barrier=CheckpointBarrier(name, trace=record.trace),
        )  # fmt: skip

    async def lives() -> tuple[Controller, RunReport]:
        image = directory / "life-0"
        for number, saves in enumerate(crashes):
            record = Crashing(image, directory / f"images-{number}")
            await life(image, record, f"life-{number}").run()
            image = record.images[min(saves, len(record.images)) - 1]
        last = life(image, Record(), "last")
        return last, await last.run()

    last, report = asyncio.run(lives())
    assert settled_keys(last) == each_once(prompts)
    accounts = last.ledger.accounts.dropped
    assert {key.index for key, reason in accounts.items() if reason == "failed"} == failing & set(range(prompts))
    assert report.trained + sum(report.dropped.values()) == prompts
    assert last.buffer.permits == last.buffer.capacity
