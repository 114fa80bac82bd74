"""The Prometheus collector: names with units, the figures of the parts, and a scrape from another thread."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, new_controller
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from run_situations import Run

from impl import BarrierStatistics, CheckpointBarrier, Checkpointer, Key, Ledger, UsageError
from impl.controller import GenerationRequest
from impl.prometheus import CleancutCollector

HOLDER_SECONDS = "cleancut_newest_save_slowest_holder_seconds"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def registry(collector: CleancutCollector) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(collector)
    return made


def samples(text: bytes) -> Samples:
    """Every sample of a scrape, by name and labels other than the run."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = tuple(sorted(item for item in sample.labels.items() if item[0] != "run"))
            assert (sample.name, labels) not in found
            found[sample.name, labels] = sample.value
    return found


async def test_a_finished_run_shows_what_its_report_says(tmp_path: Path) -> None:
    """Scraped as text and parsed by the client's own parser; one prompt failed for good."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.key.index == 3:
            raise ValueError("the data")
        return await record.generate(request)

    controller = new_controller(tmp_path, record, prompts=8, generate=generate)
    report = await controller.run()
    found = samples(generate_latest(registry(CleancutCollector.of(controller, run="mine"))))
    assert found["cleancut_prompts_trained_total", ()] == report.trained == 7
    assert found["cleancut_prompts_dropped_total", (("reason", "failed"),)] == 1
    assert found["cleancut_prompts_pending", (("phase", "admitted"),)] == 0
    assert found["cleancut_trainer_version", ()] == report.steps
    assert found["cleancut_saves_total", (("outcome", "completed"),)] == report.saves
    assert found["cleancut_windows_total", ()] == report.windows.count
    assert found["cleancut_window_seconds", (("quantile", "0.5"),)] == report.windows.p50
    assert found["cleancut_mutations_total", ()] == controller.barrier.mutation_version
    assert found["cleancut_buffer_permits", (("state", "free"),)] == controller.buffer.capacity
    assert found["cleancut_generation_permits", (("state", "free"),)] == controller.config.max_in_flight
    newest = controller.checkpointer.statistics().saves[-1] if controller.checkpointer is not None else None
    assert newest is not None
    assert found["cleancut_newest_save_bytes", ()] == newest.bytes
    assert found["cleancut_newest_save_artifact_seconds", (("artifact", "ledger"),)] == newest.artifacts["ledger"]
    assert found["cleancut_scrape_success", ()] == 1
    seconds = controller.checkpointer.statistics().seconds if controller.checkpointer is not None else {}
    assert set(seconds) == {"queue", "drain", "window", "stage", "persist"}
    for phase, taken in newest.seconds.items():
        assert found["cleancut_newest_save_seconds", (("phase", phase),)] == taken
        assert found["cleancut_save_seconds_total", (("phase", phase),)] == seconds[phase] >= taken
    assert found["cleancut_save_bytes_total", ()] >= newest.bytes


async def test_a_save_shows_who_held_it_up_and_whom_it_blocked(tmp_path: Path) -> None:
    """By kind; a label for each place in the code would be a series for each."""
    run = Run(tmp_path)
    made = registry(CleancutCollector(run.barrier, checkpointer=run.checkpointer))

    async def write() -> None:
        async with run.barrier.mutation("clears"):
            pass

    async with run.barrier.mutation("group_commits"):
        with run.barrier.detached():
            saving = asyncio.create_task(run.checkpointer.save())
            while not run.barrier.statistics().waiting_checkpoints:
                await asyncio.sleep(0)
            writing = asyncio.create_task(write())
            await asyncio.sleep(0)
    await asyncio.gather(saving, writing)
    found = samples(generate_latest(made))
    assert found["cleancut_newest_save_blocked", (("kind", "clears"),)] == 1
    assert found["cleancut_newest_save_slowest_holder_seconds", (("kind", "group_commits"),)] > 0
    await run.checkpointer.save()
    found = samples(generate_latest(made))
    assert not [name for name, _ in found if name in ("cleancut_newest_save_blocked", HOLDER_SECONDS)]
    await run.checkpointer.close()


def test_a_scrape_costs_the_same_however_many_prompts_were_dropped() -> None:
    """It runs on the event loop: with the drops of a long run it must not walk through them."""

    class Watched(list[tuple[Key, str]]):
        def __iter__(self) -> Any:
            raise AssertionError("the scrape walks through every dropped prompt")

        def __getitem__(self, place: Any) -> Any:
            raise AssertionError("the scrape looks at a dropped prompt")

    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    for index in range(50):
        ledger.accounts.drop(Key(0, index), "failed" if index % 5 else "remainder")
    ledger.accounts._dropped.drops = Watched(ledger.accounts._dropped.drops)
    found = samples(generate_latest(registry(CleancutCollector(barrier, ledger=ledger))))
    assert found["cleancut_scrape_success", ()] == 1
    assert found["cleancut_prompts_dropped_total", (("reason", "failed"),)] == 40
    assert found["cleancut_prompts_dropped_total", (("reason", "remainder"),)] == 10


async def test_every_name_says_its_unit_and_every_metric_its_run(tmp_path: Path) -> None:
    """Counters end in _total, times in _seconds, sizes in _bytes, as Prometheus wants them."""
    controller = new_controller(tmp_path, Record())
    await controller.run()
    text = generate_latest(registry(CleancutCollector.of(controller, run="mine"))).decode()
    kinds = {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        assert family.documentation
        for sample in family.samples:
            assert sample.labels["run"] == "mine"
            assert re.fullmatch(r"cleancut_[a-z_]+", sample.name)
            assert sample.name.endswith("_total") == (family.type == "counter")
    assert set(kinds.values()) == {"counter", "gauge"}
    assert {"cleancut_window_seconds", "cleancut_drain_seconds", "cleancut_newest_save_bytes"} <= kinds.keys()


async def test_a_barrier_alone_can_be_shown() -> None:
    """Each part is usable alone. Waiting and open sections show while they are there."""
    barrier = CheckpointBarrier()
    made = registry(CleancutCollector(barrier))
    async with barrier.mutation("group_commits"):
        with barrier.detached():
            saving = asyncio.create_task(take_a_window(barrier))
        while not barrier.statistics().waiting_checkpoints:
            await asyncio.sleep(0)
        found = samples(generate_latest(made))
        assert (found["cleancut_mutations_active", ()], found["cleancut_checkpoints_waiting", ()]) == (1, 1)
        assert found["cleancut_oldest_section_seconds", ()] > 0
    await saving
    assert not any(name.startswith(("cleancut_saves", "cleancut_buffer")) for name, _ in found)


async def take_a_window(barrier: CheckpointBarrier) -> None:
    async with barrier.checkpoint():
        pass


async def test_a_scrape_from_another_thread_is_read_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the thread it would see slots and permits in the middle of a change."""
    barrier = CheckpointBarrier()
    async with barrier.mutation():
        pass
    threads: list[int] = []
    collector = CleancutCollector(barrier)
    statistics = barrier.statistics

    def watched() -> BarrierStatistics:
        threads.append(threading.get_ident())
        return statistics()

    monkeypatch.setattr(barrier, "statistics", watched)
    found = samples(await asyncio.to_thread(generate_latest, registry(collector)))
    assert threads == [threading.get_ident()]
    assert found["cleancut_mutations_total", ()] == 1


async def test_a_loop_that_does_not_answer_gives_a_scrape_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """And holds no scraper up; the metrics of other collectors still come."""
    barrier = CheckpointBarrier()
    async with barrier.mutation():
        pass
    scraped: list[bytes] = []
    scraper = threading.Thread(
        target=lambda: scraped.append(generate_latest(registry(CleancutCollector(barrier, patience=0.0))))
    )
    scraper.start()
    scraper.join()
    assert samples(scraped[0]) == {("cleancut_scrape_success", ()): 0}
    assert "did not answer within 0.0 s" in caplog.text
    assert [entry.name for entry in caplog.records] == ["cleancut.prometheus"]


def test_before_and_after_a_run_nothing_is_waited_for(tmp_path: Path) -> None:
    """No loop runs then, so the thread that scrapes reads."""
    barrier = CheckpointBarrier()
    collector = CleancutCollector(barrier, checkpointer=Checkpointer(tmp_path, barrier))
    assert samples(generate_latest(registry(collector)))["cleancut_saves_total", (("outcome", "failed"),)] == 0
    asyncio.run(take_a_window(barrier))
    assert samples(generate_latest(registry(collector)))["cleancut_windows_total", ()] == 1


def test_two_runs_in_one_registry_are_told_apart() -> None:
    """By their label."""
    made = CollectorRegistry()
    for name in ("first", "second"):
        made.register(CleancutCollector(CheckpointBarrier(), run=name))
    text = generate_latest(made).decode()
    assert 'cleancut_mutations_total{run="first"} 0.0' in text
    assert 'cleancut_mutations_total{run="second"} 0.0' in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"patience": -1}, "patience is -1"), ({"patience": None}, "patience is None"), ({"run": 3}, "run is 3")],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    """When the collector is made."""
    with pytest.raises(UsageError, match=named):
        CleancutCollector(CheckpointBarrier(), **arguments)
