"""The second historical failure, exhaustively: one admission against one save, in every schedule of the real library.

The reported numbers: lookahead 1, four prompts a step, trainer at 7, dispatch cursor at 6. Each schedule restores the
run at that place, then lets an admission and a save loose on each other. In every one of them cursor and buffer agree
on disk and every prompt handed out has one owner; from every image that can come about, the run resumes and drops
nothing.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from typing import Any

import pytest
from controller_runs import Record

import interleavings
from impl import CheckpointBarrier, Checkpointer, Controller, ControllerConfig, InOrderSampler, PromptLoader
from impl.store import WriterIdentity
from interleavings.conformance import InlineExecutor
from interleavings.correspondence.refinement import owners_of_files
from interleavings.scenarios import FakeDisk, register_barrier, register_tensors

PROMPTS, PER_STEP, TRAINER_AT, CURSOR_AT = 40, 4, 7, 6
DIRECTORY = "/run"
# Every image that some schedule wrote. Written by the runs and read by none, so it is no part of their state, as the
# names of a module are not.
IMAGES: dict[tuple[int, int, tuple[str, ...]], FakeDisk] = {}


def controller_on(disk: FakeDisk, record: Record, *, inline: bool) -> Controller:
    """A controller whose checkpoints lie on this disk; names repeat, so that runs do."""
    tokens = itertools.count()
    checkpointer = Checkpointer(
        DIRECTORY,
        CheckpointBarrier(trace=record.trace),
        files=disk,
        executor=InlineExecutor() if inline else None,
        identity=WriterIdentity("the test", lambda: str(next(tokens))),
    )
    return Controller(
        loader=PromptLoader(list(range(PROMPTS)), batch_size=PER_STEP, seed=0),
        generate=record.generate,
        train=record.train,
        sampler=InOrderSampler(lookahead=1),
        checkpointer=checkpointer,
        config=ControllerConfig(save_period=None, stall_warning=None),
    )


async def seven_steps(disk: FakeDisk) -> None:
    """Train seven steps one after the other and save: trainer at 7, dispatch cursor at 6, nothing pending."""
    record = Record()
    controller = controller_on(disk, record, inline=True)
    for step in range(TRAINER_AT):
        admission = await controller.rollout_pump.reserve_batch()
        assert admission is not None
        await controller.rollout_pump.admit(admission)
        await record.reaches("remove_committed", PER_STEP * (step + 1))
        claim = await controller.train_pump.claim()
        assert claim is not None
        await controller.train_pump.finish_step(claim)
    checkpointer = controller._checkpointer
    assert checkpointer is not None
    await checkpointer.save()
    await checkpointer.close()


def newest_of(disk: FakeDisk) -> dict[str, Any]:
    """The JSON files of the newest checkpoint."""
    names = [name for name in disk.listdir(DIRECTORY) if name.startswith("step_")]
    return disk.documents(f"{DIRECTORY}/{max(names, key=lambda name: int(name.rpartition('-')[2]))}")


def check_image(documents: dict[str, Any]) -> int:
    """Cursor and buffer agree, and each prompt handed out has one owner; the dispatch cursor found."""
    owners = owners_of_files(documents)
    assert {key: len(who) for key, who in owners.items()} == dict.fromkeys(owners, 1)
    assert len(owners) == documents["loader.json"]["state"]["position"]
    cursor: int = documents["sampler.json"]["state"]["cursor"]
    stamps = [entry["step"] for entry in documents["ledger.json"]["entries"] if entry["step"] is not None]
    assert stamps == ([TRAINER_AT] * PER_STEP if cursor == TRAINER_AT else [])
    return cursor


def kind_of(documents: dict[str, Any]) -> tuple[int, int, tuple[str, ...]]:
    """What tells two images apart: loader position, dispatch cursor, phases."""
    phases = tuple(entry["phase"] for entry in documents["ledger.json"]["entries"])
    position: int = documents["loader.json"]["state"]["position"]
    return position, documents["sampler.json"]["state"]["cursor"], phases


@pytest.fixture(scope="module")
def at_seven() -> FakeDisk:
    """A disk with the run at the reported place."""
    disk = FakeDisk(DIRECTORY)
    asyncio.run(seven_steps(disk))
    assert kind_of(newest_of(disk)) == (TRAINER_AT * PER_STEP, CURSOR_AT, ())
    return disk


def test_case_A02_in_every_schedule_cursor_and_buffer_agree_and_resume_drops_nothing(at_seven: FakeDisk) -> None:
    """Complete: no schedule of an admission and a save writes an image that disagrees with itself."""
    register_barrier()
    register_tensors()

    def program() -> interleavings.Subject:
        disk = copy.deepcopy(at_seven)
        controller = controller_on(disk, Record(), inline=False)
        checkpointer = controller._checkpointer
        assert checkpointer is not None

        async def admit() -> None:
            # A turn of the loop between the actions, so that a save may fall into every gap of the admission too.
            admission = await controller.rollout_pump.reserve_batch()
            assert admission is not None
            await asyncio.sleep(0)
            await controller.rollout_pump.pass_gate(admission)
            await asyncio.sleep(0)
            await controller.rollout_pump.commit_admission(admission)

        async def main() -> None:
            await checkpointer.restore()
            assert controller.progress.version == TRAINER_AT
            loop = asyncio.get_running_loop()
            admission = loop.create_task(admit(), name="admission")
            await checkpointer.save()
            await admission
            await checkpointer.close()

        def look_at_the_disk() -> None:
            documents = newest_of(disk)
            check_image(documents)
            IMAGES.setdefault(kind_of(documents), disk)

        return interleavings.Subject(main(), finish=look_at_the_disk)

    result = interleavings.explore(program)
    result.assert_holds()
    assert result.schedules is not None
    assert result.schedules > 50
    # Before the admission, between its two slots, and after it: the three images there are.
    assert {(position, cursor) for position, cursor, _ in IMAGES} == {(28, 6), (32, 6), (32, 7)}
    for kind, disk in IMAGES.items():
        record = Record()
        resumed = controller_on(disk, record, inline=True)
        report = asyncio.run(resumed.run())
        assert (report.trained, report.dropped) == (PROMPTS, {}), kind
        assert [step for step, _ in record.trained] == list(range(TRAINER_AT, PROMPTS // PER_STEP))
