"""The first historical failure, by its own numbers: prompts behind the cursor that no checkpoint had.

Reported publicly as NVIDIA-NeMo/RL #3429 and #3594. The two settings run in real processes that are dropped without
clean-up; the loss itself is shown on the naive controller.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from history_process import FINISHED, IN_FLIGHT, NEVER_DISPATCHED
from naive_controller import NaiveController

HERE = Path(__file__).parent


def live(part: str, tmp_path: Path, life: int) -> list[dict[str, Any]]:
    """Let one process live, and return the lines of its log."""
    log = tmp_path / "log.jsonl"
    process = subprocess.run(
        [sys.executable, str(HERE / "history_process.py"), part, str(tmp_path / "run"), str(log), str(life)],
        cwd=HERE.parent,
        env={"PYTHONPATH": str(HERE.parent), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert process.returncode == (9 if life == 1 else 0), process.stderr
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if line["life"] == life]


def events(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The lines of one kind."""
    return [line for line in lines if line["event"] == name]


def test_case_A01_a_batch_of_thirty_survives_the_loss_of_its_process(tmp_path: Path) -> None:
    """20 finished, 6 in flight, 4 never dispatched: the 10 are generated once more, the 20 are not, none is lost."""
    first = live("a", tmp_path, 1)
    assert {line["group"] for line in events(first, "generated")} == FINISHED
    second = live("a", tmp_path, 2)
    (restored,) = events(second, "restored")
    assert set(restored["ready"]) == FINISHED, "the non-contiguous set of finished groups is kept as it was"
    assert {int(group) for group in restored["pending"]} == IN_FLIGHT | NEVER_DISPATCHED
    again = Counter(line["group"] for line in events(second, "generated"))
    assert again == Counter(IN_FLIGHT | NEVER_DISPATCHED)
    (trained,) = events(second, "trained")
    assert sorted(trained["rows"]) == list(range(30))
    assert Counter(trained["made_in_life"]) == {1: 20, 2: 10}, "the 20 are trained with the rows of the first process"
    (ended,) = events(second, "ended")
    assert (ended["outcome"], ended["trained"], ended["dropped"]) == ("exhausted", 30, {})


def test_case_A01_four_prompts_of_two_batches_survive_a_windowed_save(tmp_path: Path) -> None:
    """Capacity 4, save period 2: batch 3 ready, batch 4 generating, batch 5 parked, batch 6 is the next to be read."""
    first = live("b", tmp_path, 1)
    assert [line["step"] for line in events(first, "trained")] == [0, 1]
    second = live("b", tmp_path, 2)
    (restored,) = events(second, "restored")
    assert restored["ready"] == [4, 5], "batch 3, groups counted from 0"
    assert {int(group): phase for group, phase in restored["pending"].items()} == {
        6: "admitted", 7: "admitted", 8: "admitted", 9: "admitted",
    }  # fmt: skip
    assert restored["next_batch"] == 6
    assert Counter(line["group"] for line in events(second, "generated")) == Counter(range(6, 16))
    trained = Counter(row for line in events(first + second, "trained") for row in line["rows"])
    assert trained == Counter(range(16))
    (ended,) = events(second, "ended")
    assert (ended["trained"], ended["dropped"]) == (16, {})


# ------------------------------------------------------------------------------------------- the naive controller

BATCHES, BATCH_SIZE, CAPACITY, IN_FLIGHT_LIMIT = 12, 4, 8, 3


class Loss:
    """One seeded run of the naive controller with a save and a crash: what was lost, and how long each would take."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = random.Random(seed)
        # Long tails, as generation has them.
        self.durations = [1 + int(chance.expovariate(0.25)) for _ in range(BATCHES * BATCH_SIZE)]
        self._save_at = chance.randrange(8, 40)
        self.lost: list[int] = []
        self.finished: list[int] = []

    async def run(self) -> Loss:
        controller = NaiveController(batches=BATCHES, batch_size=BATCH_SIZE, sampler=3, capacity=CAPACITY)
        left: dict[int, int] = {}
        for _ in range(self._save_at):
            if not controller.reserved and not controller.parked and controller.cursor < BATCHES:
                await controller.reserve_batch()
                await controller.pass_gate()
                await controller.commit_admission()
            while controller.parked and controller.permits and len(controller.generating) < IN_FLIGHT_LIMIT:
                group = controller.parked[0]
                await controller.dispatch(group)
                left[group] = self.durations[group]
            for group in list(controller.generating):
                left[group] -= 1
                if not left[group]:
                    await controller.commit_group(group)
            if len(controller.ready) >= BATCH_SIZE:
                await controller.claim()
                await controller.finish_step()
        # The prompts of the last batch that were not dispatched are there by their place, not by their length.
        in_flight = list(controller.generating)
        for action in ("request_cut", "open_cut", "read_sampler", "read_loader", "read_buffer", "read_ledger"):
            await getattr(controller, action)()
        await controller.read_trainer()
        await controller.publish()
        permits = controller.permits + len(controller.ready) + len(controller.generating)
        assert permits == CAPACITY, "permits balance: nothing shows that anything is wrong"
        self.lost = controller.lost_on_disk
        assert len(set(self.lost)) == len(self.lost)
        assert set(in_flight) <= set(self.lost)
        self.finished = [group for group in range(controller.cursor * BATCH_SIZE) if group not in self.lost]
        await controller.restore()
        remaining = {
            *controller.trained,
            *controller.ready,
            *range(controller.cursor * BATCH_SIZE, BATCHES * BATCH_SIZE),
        }
        assert remaining == set(range(BATCHES * BATCH_SIZE)) - set(self.lost), "the restored run never sees them again"
        return self


@pytest.fixture(scope="module")
def losses() -> list[Loss]:
    """Many seeded runs."""

    async def all_runs() -> list[Loss]:
        return [await Loss(seed).run() for seed in range(200)]

    return asyncio.run(all_runs())


def test_the_naive_loss_is_at_most_one_batch_and_the_in_flight_limit_a_save(losses: list[Loss]) -> None:
    """A property of the fault: the pump holds one batch, and so many generations run."""
    assert max(len(run.lost) for run in losses) <= BATCH_SIZE + IN_FLIGHT_LIMIT
    assert sum(bool(run.lost) for run in losses) > 0.9 * len(losses), "nearly every save loses something"


def test_the_naive_loss_is_biased_to_long_generations(losses: list[Loss]) -> None:
    """A prompt is lost while it generates, so the longer it takes the likelier it is lost: the data is skewed."""
    lost = [run.durations[group] for run in losses for group in run.lost]
    finished = [run.durations[group] for run in losses for group in run.finished]
    assert statistics.mean(lost) > 1.3 * statistics.mean(finished)


def test_a_seeded_run_of_the_naive_controller_repeats(losses: list[Loss]) -> None:
    """Same seed, same run: the figures above are no accident."""
    again = asyncio.run(Loss(17).run())
    assert (again.lost, again.durations) == (losses[17].lost, losses[17].durations)
