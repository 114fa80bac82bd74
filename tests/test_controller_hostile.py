"""Callables that misbehave, and runs cut off at every turn: the run ends, and what it saved goes on to the end."""

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, rows_of, settled_keys
from loop_turns import HANG_SECONDS, turns, until

from impl import StoreBusy, UsageError
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import Controller, GenerationRequest, TrainBatch
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, Sampler, WeightFifoSampler, WindowedSampler
from impl.store import DirectoryReader, DirectoryWriter, Handle, PosixFiles


async def test_a_generation_that_answers_its_cancellation_with_an_error_is_not_tried_again() -> None:
    """Clients wrap what interrupts them; the closing would wait for backoff and retry, and count a failure."""
    started: list[int] = []

    async def generate(request: GenerationRequest) -> Any:
        started.append(request.attempt)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise ConnectionError("the request was interrupted") from None

    controller = new_controller(None, Record(), prompts=2, generate=generate)
    run = asyncio.create_task(controller.run())
    await until(lambda: len(started) == 2)
    run.cancel()
    await turns(200)
    assert run.done()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert started == [0, 0]
    assert [entry.attempt for entry in controller.ledger.entries.values()] == [0, 0]


async def test_a_train_step_that_swallows_its_cancellation_is_counted_and_is_the_last(tmp_path: Path) -> None:
    """`wait_for` of CPython 3.11 can lose one; the pump would train on, or wait for ever for groups nobody makes."""
    record, steps = Record(), []

    async def train(batch: TrainBatch) -> None:
        steps.append(batch.step)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await record.train(batch)

    controller = new_controller(tmp_path, record, prompts=8, train=train)
    run = asyncio.create_task(controller.run())
    await until(lambda: bool(steps))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(HANG_SECONDS):
            await run
    assert steps == [0]
    assert controller.progress.version == 1, "the model has seen the step"
    assert sum(settled_keys(controller).values()) == 2


class OddShape:
    shape = None

    def __repr__(self) -> str:
        return "OddShape()"


@pytest.mark.parametrize("rows", [None, {}, [], 3, {"tokens": 3}, {"tokens": OddShape()}, {1: OddShape()}], ids=repr)
async def test_rows_of_a_wrong_form_end_the_run_with_what_is_wrong(rows: object) -> None:
    """Retrying a mistake in the program would drop every prompt as failed."""
    controller = new_controller(None, Record(), prompts=2, generate=lambda request: rows)
    with pytest.raises(UsageError, match="generate returned"):
        await controller.run()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["generate", "generate in a thread", "train", "train in a thread"])
def test_a_stop_raised_in_a_callable_closes_the_run_and_passes_out(
    tmp_path: Path, where: str, stop: type[BaseException]
) -> None:
    """It breaks off the event loop; asyncio.run then cancels everything, and that must leave no lock and no hang."""
    record = Record()

    def stopping(argument: object) -> None:
        raise stop("stop")

    async def stopping_task(argument: object) -> None:
        raise stop("stop")

    name, _, in_thread = where.partition(" ")
    callables: dict[str, Any] = {name: stopping if in_thread else stopping_task}

    async def first() -> None:
        await new_controller(tmp_path, record, prompts=6, **callables).run()

    with pytest.raises(stop):
        asyncio.run(first())

    async def second() -> Controller:
        controller = new_controller(tmp_path, record, prompts=6)
        await controller.run()
        return controller

    assert settled_keys(asyncio.run(second())) == each_once(6)


class Model:
    """A trainer whose state is the list of what it was trained on, so that a resumed run can be checked."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def stage(self) -> list[int]:
        await asyncio.sleep(0)
        return list(self.seen)

    def persist(self, staged: list[int], writer: DirectoryWriter) -> None:
        writer.write_json("seen.json", staged)

    def load(self, reader: DirectoryReader) -> None:
        seen = reader.read_json("seen.json")
        assert isinstance(seen, list)
        self.seen = seen


SETTINGS: dict[str, dict[str, Any]] = {
    "in order": {"prompts": 9, "batch_size": 2},
    "no lookahead": {"prompts": 5, "batch_size": 2, "lookahead": 0},
    "two epochs": {"prompts": 3, "batch_size": 2, "epochs": 2, "save_period": 2},
    "batch above data": {"prompts": 2, "batch_size": 5},
    "windowed": {"prompts": 9, "batch_size": 2, "sampler": WindowedSampler(1), "capacity": 4},
    "windowed, one wide": {"prompts": 7, "batch_size": 3, "sampler": WindowedSampler(0)},
    "by weight": {"prompts": 9, "batch_size": 2, "sampler": WeightFifoSampler(1)},
    "ready first": {"prompts": 9, "batch_size": 2, "sampler": ReadyFirstSampler(1)},
    "spares": {"prompts": 9, "batch_size": 2, "spares": 2, "fails_for_good": True},
    "spares, by weight": {
        "prompts": 9,
        "batch_size": 2,
        "sampler": WeightFifoSampler(1),
        "spares": 2,
        "fails_for_good": True,
    },
    "remainder dropped": {"prompts": 7, "batch_size": 3, "remainder": "drop"},
    "windowed, remainder dropped": {"prompts": 7, "batch_size": 3, "sampler": WindowedSampler(1), "remainder": "drop"},
    "one in flight": {"prompts": 6, "batch_size": 2, "max_in_flight": 1},
    "without the buffer": {"prompts": 6, "batch_size": 2, "load_buffer": False},
}


class AtOnce(Executor):
    """Runs each job where it is submitted, so that a run takes the same turns every time."""

    def submit(self, job: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(job(*arguments, **options))
        except BaseException as error:
            future.set_exception(error)
        return future


class Undurable(PosixFiles):
    """No power fails here, and a disk that is waited for is most of the time of a small run."""

    def fsync(self, handle: Handle) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


def build(directory: Path, setting: dict[str, Any], model: Model) -> Controller:
    """A run whose third group fails at first or for good, and whose trainer notes every prompt."""
    options = dict(setting)
    example: Sampler = options.pop("sampler", InOrderSampler(options.pop("lookahead", 1)))
    sampler = type(example)(*example.parameters().values())
    fails_for_good = options.pop("fails_for_good", False)
    checkpointer = Checkpointer(directory, CheckpointBarrier(), files=Undurable(), executor=AtOnce())

    async def generate(request: GenerationRequest) -> Any:
        await turns(request.group % 3)
        if request.group == 2 and fails_for_good:
            raise ValueError("every time")
        if request.group == 2 and request.attempt == 0:
            raise ConnectionError("once")
        return rows_of(request)

    async def train(batch: TrainBatch) -> None:
        await asyncio.sleep(0)
        model.seen += [group.key.epoch * 100 + group.key.index for group in batch]

    return new_controller(
        None,
        Record(),
        checkpointer=checkpointer,
        sampler=sampler,
        generate=generate,
        train=train,
        trainer=model,
        **options,
    )


@pytest.mark.parametrize("victims", ["the run", "every task"])
@pytest.mark.parametrize("name", SETTINGS)
async def test_a_run_cut_off_at_any_turn_resumes_and_settles_every_prompt_once(
    tmp_path: Path, name: str, victims: str
) -> None:
    """Cancelled after ever more turns, until it ends by itself; model and accounts agree at the end.

    Every task at once is what the end of `asyncio.run` cancels.
    """
    setting = SETTINGS[name]
    everything = each_once(setting["prompts"], setting.get("epochs", 1))
    resumed_at: set[int] = set()
    finished = False
    for wait in itertools.count():
        directory = tmp_path / str(wait)
        run = asyncio.create_task(build(directory, setting, Model()).run())
        await turns(wait)
        finished = run.done()
        for task in asyncio.all_tasks() - {asyncio.current_task()} if victims == "every task" else {run}:
            task.cancel()
        await asyncio.wait((run,))
        if finished:
            run.result()
        else:
            # A save whose task is cancelled before it writes is told instead of the cancellation.
            assert run.cancelled() or "was not published" in str(run.exception())
        model = Model()
        controller = build(directory, setting, model)
        report = await controller.run()
        if report.restored is not None:
            resumed_at.add(report.restored.step)
        assert settled_keys(controller) == everything
        trained = {key for key in everything if key not in controller.ledger.accounts.dropped}
        assert sorted(model.seen) == sorted(key.epoch * 100 + key.index for key in trained)
        assert report.trained == len(trained)
        assert controller.buffer.statistics()["free"] == controller.buffer.capacity
        assert controller.buffer.plane.statistics()["open_captures"] == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        if finished:
            break
    assert max(resumed_at) == report.steps, "the last one resumed from the end"
    assert len(resumed_at) > 1 or report.steps < 2


async def test_a_second_run_in_a_directory_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    """It has consumed nothing, closes cleanly, and the first run goes on to its end."""
    record, second = Record(), Record()
    first = new_controller(tmp_path, record, prompts=6)
    run = asyncio.create_task(first.run())
    await record.reaches("publish", 1)
    other = new_controller(None, second, prompts=6, checkpointer=Checkpointer(tmp_path, CheckpointBarrier()))
    with pytest.raises(StoreBusy):
        await other.run()
    assert second.generated == []
    assert other.ledger.next_group == 0
    await run
    assert settled_keys(first) == each_once(6)
