"""The Ray barrier on a real local Ray: writers are processes that are killed and paused, and so is the host.

A lease here is short, and what is waited for is real time: nothing else shows what a paused process does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_turns import HANG_SECONDS

pytestmark = [pytest.mark.needs("ray"), pytest.mark.slow]
ray = pytest.importorskip("ray", reason="ray: ray is not installed")

from ray_operations import BATCH, PROMPTS, MakeOperations  # noqa: E402
from ray_writers import Counting, remote_part, remote_writer  # noqa: E402

from impl import (  # noqa: E402
    BarrierClosed,
    BarrierReentered,
    DrainTimeout,
    GuardUnreachable,
    HostUnreachable,
    LeaseExpired,
    StaleCut,
    UsageError,
)
from impl.ray import Fence, RayBarrier, RayCut  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
LEASE = 2.0
SLACK = 2.0
"""Seconds on top, on a machine that is not late: the host looks at its leases a few times a second."""
LATE = 20
"""So many times as late as this process is at its worst may all that take part be together."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for the file. Its workers import what the tests import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def writers(cluster: None) -> list[Any]:
    """Processes started together, before they are needed; who kills one takes it out."""
    return [remote_writer() for _ in range(5)]


@pytest.fixture
def barrier(tmp_path: Path) -> Iterator[RayBarrier]:
    started = RayBarrier.start(MakeOperations(tmp_path), lease=LEASE, max_restarts=1, name="tested")
    yield started
    ray.kill(started._actor)


@pytest.fixture
def counting() -> Iterator[RayBarrier]:
    started = RayBarrier.start(Counting, lease=LEASE)
    yield started
    ray.kill(started._actor)


class Lateness:
    """How late the machine runs what is due, seen by a thread that wants to wake every few milliseconds.

    A limit in seconds would decide a test on a machine that is five times slower; this one moves with the machine.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Lateness:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            due = time.monotonic() + 0.005
            time.sleep(0.005)
            self.worst = max(self.worst, time.monotonic() - due)

    def allows(self, seconds: float, nominal: float) -> bool:
        """Whether so much time is no more than `nominal` on a machine that is as late as this one has been."""
        return seconds <= nominal + SLACK + LATE * self.worst


def test_case_G35_the_limit_of_a_lease_moves_with_the_machine() -> None:
    """On a machine that is not late it is as tight as it was; ten seconds of a stalled machine are no fault."""
    late = Lateness()
    assert late.allows(LEASE + SLACK, LEASE)
    assert not late.allows(LEASE + SLACK + 0.1, LEASE)
    late.worst = 0.5
    assert late.allows(LEASE + SLACK + 10, LEASE)
    assert not late.allows(LEASE + SLACK + 10.1, LEASE)
    with Lateness() as seen:
        time.sleep(0.02)
    assert not seen._thread.is_alive()


async def until(met: Callable[[], Awaitable[bool]], seconds: float = HANG_SECONDS) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(seconds):
        while not await met():
            await asyncio.sleep(0.02)


async def someone_inside(barrier: RayBarrier) -> bool:
    read = (await barrier.statistics()).barrier
    return read.active_mutations > 0 or read.checkpoint_active


async def something_pending(barrier: RayBarrier) -> bool:
    return bool(await barrier.ask("pending"))


async def owners(barrier: RayBarrier) -> tuple[int, int, int]:
    """Handed out, ready, pending, in one cut; every prompt handed out has one owner."""
    async with barrier.checkpoint() as cut:
        read, ready, pending = await cut.call("owners")
    assert ready.isdisjoint(pending)
    assert len(ready | pending) == read
    return read, len(ready), len(pending)


async def counted(barrier: RayBarrier) -> int:
    """One operation in a cut."""
    async with barrier.checkpoint() as cut:
        number: int = await cut.call("count")
    return number


async def forever(cut: RayCut, operation: str) -> None:
    """Again and again, until it is refused."""
    while True:
        await cut.call(operation)


async def test_writers_in_three_processes_and_checkpoints_lose_nothing(barrier: RayBarrier, writers: list[Any]) -> None:
    """Every cut finds one owner for each prompt handed out, whatever the writers are at."""
    work = [writer.write_all.remote(barrier) for writer in writers[:3]]
    all_done = asyncio.ensure_future(asyncio.gather(*work))
    seen = [await owners(barrier)]
    while not all_done.done():
        seen.append(await owners(barrier))
        await asyncio.sleep(0)
    written = [group for groups in await all_done for group in groups]
    assert len(written) == len(set(written)) == PROMPTS
    assert await owners(barrier) == (PROMPTS, PROMPTS, 0)
    assert seen == sorted(seen)
    await until(lambda: nobody(barrier))
    assert (await barrier.statistics()).leases.lapsed == 0


async def test_a_killed_writer_holds_the_cut_for_its_lease_and_no_longer(
    barrier: RayBarrier, writers: list[Any]
) -> None:
    """SIGKILL inside a slot: the checkpoint opens, is durable, and holds what the dead one had taken."""
    writer = writers.pop()
    pid = await writer.process.remote()
    inside = writer.hang_in_slot.remote(barrier)
    await until(lambda: something_pending(barrier))
    (holder,) = (await barrier.statistics()).barrier.holders
    assert f"in process {pid} on" in str(holder.task)
    assert "ray_writers.py:" in holder.place
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    with Lateness() as late:
        async with barrier.checkpoint() as cut:
            waited = time.monotonic() - killed
            in_time = late.allows(waited, LEASE)
            read, ready, pending = await cut.call("owners")
    print(f"the cut opened {waited:.3f} s after the kill, with a lease of {LEASE} s")
    assert (read, len(ready), len(pending)) == (BATCH, 0, BATCH)
    # Its last heartbeat came up to a quarter of the lease before its end.
    assert waited >= LEASE / 2
    assert in_time, waited
    assert (await barrier.statistics()).leases.lapsed == 1
    with pytest.raises(ray.exceptions.RayActorError):
        await inside
    # Another writer generates what it had taken.
    assert (await barrier.ask("save")).startswith("step_0-")
    for group in await barrier.ask("pending"):
        await writers[0].write.remote(barrier, group)
    assert await owners(barrier) == (BATCH, BATCH, 0)


async def test_a_paused_writer_that_wakes_after_its_lease_is_refused_everywhere(
    tmp_path: Path, writers: list[Any]
) -> None:
    """SIGSTOP inside a slot, a checkpoint, SIGCONT: by its own clock, by the host, and by a part elsewhere."""
    part = remote_part()
    barrier = RayBarrier.start(MakeOperations(tmp_path), lease=LEASE, guards=[part])
    async with barrier.mutation("admissions") as cut:
        group, _ = await cut.call("admit_batch")
    writer, started = writers[0], tmp_path / "started"
    pid = await writer.process.remote()
    late = writer.write_late.remote(barrier, group, part, started)
    await until(lambda: asyncio.to_thread(started.exists))
    os.kill(pid, signal.SIGSTOP)
    try:
        paused = time.monotonic()
        with Lateness() as lateness:
            async with barrier.checkpoint() as cut:
                waited = time.monotonic() - paused
                in_time = lateness.allows(waited, LEASE)
                before = await cut.call("owners")
                # It wakes while the cut is open.
                started.with_suffix(".woken").touch()
                os.kill(pid, signal.SIGCONT)
                answers = await late
                assert await cut.call("owners") == before
    finally:
        os.kill(pid, signal.SIGCONT)
    assert answers == ["LeaseExpired"] * 3
    assert waited >= LEASE / 2
    assert in_time, waited
    assert await owners(barrier) == (BATCH, 0, BATCH)
    assert await part.written.remote() == ["in time"]
    # It knows, and does it again in a slot of its own.
    await writer.write.remote(barrier, group)
    assert await owners(barrier) == (BATCH, 1, 1)
    ray.kill(barrier._actor)


async def test_a_killed_checkpointer_holds_the_writers_for_its_lease_and_no_longer(
    barrier: RayBarrier, writers: list[Any]
) -> None:
    """Its cut is closed for it; the writers that waited go on."""
    saver = writers.pop()
    pid = await saver.process.remote()
    inside = saver.hang_in_cut.remote(barrier)
    await until(lambda: someone_inside(barrier))
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    with Lateness() as late:
        async with barrier.mutation("admissions") as cut:
            waited = time.monotonic() - killed
            assert waited >= LEASE / 2
            assert late.allows(waited, LEASE), waited
            await cut.call("admit_batch")
    with pytest.raises(ray.exceptions.RayActorError):
        await inside
    assert await owners(barrier) == (BATCH, 0, BATCH)


async def test_after_a_restart_of_the_host_no_old_lease_is_good_and_nothing_is_lost(
    barrier: RayBarrier, writers: list[Any]
) -> None:
    """The host is killed with a writer inside: a new epoch, the newest checkpoint, and the run ends complete."""
    async with barrier.mutation("admissions") as cut:
        first = await cut.call("admit_batch")
    await writers[0].write.remote(barrier, first[0])
    await barrier.ask("save")
    before = await barrier.statistics()
    async with barrier.mutation("admissions") as cut:
        await cut.call("admit_batch")  # after the checkpoint: undone by the restart
        os.kill(before.host_process, signal.SIGKILL)
        with pytest.raises(LeaseExpired):
            await forever(cut, "admit_batch")
        old = cut.token
    async with barrier.mutation("admissions"):
        pass  # asked again until the new host answers
    after = await barrier.statistics()
    assert after.host_process != before.host_process
    assert after.leases.epoch > before.leases.epoch
    with pytest.raises(LeaseExpired, match="started anew"):
        (await barrier._actor.call.remote(old, "admit_batch", ())).taken()
    assert await owners(barrier) == (BATCH, 1, 1)
    for group in await barrier.ask("pending"):
        await writers[0].write.remote(barrier, group)
    await writers[0].write_all.remote(barrier)
    assert await owners(barrier) == (PROMPTS, PROMPTS, 0)


async def test_sections_are_what_they_are_in_one_process(counting: RayBarrier) -> None:
    """Reentry, stale cuts, drain limits, cancelled waits and misuse: the same errors, and nothing stays behind."""
    barrier = counting
    assert pickle.loads(pickle.dumps(barrier)) is barrier
    async with barrier.mutation("outer") as outer:
        with pytest.raises(BarrierReentered):
            async with barrier.mutation("inner"):
                pass
        with pytest.raises(BarrierReentered):
            barrier.require_outside()
        with barrier.detached():
            saving = asyncio.create_task(counted(barrier))
        with pytest.raises(UsageError, match="operation is"):
            await outer.call("no such operation")
        with pytest.raises(UsageError, match="entered twice"):
            await outer.__aenter__()
        await until(lambda: waiting(barrier))
        with barrier.detached():
            # Behind a checkpoint that waits; cancelled, it leaves no slot taken.
            late = asyncio.create_task(barrier.mutation("late").__aenter__())
        await until(lambda: waiting(barrier, mutations=True))
        late.cancel()
    assert await saving == 1
    with pytest.raises(StaleCut):
        await outer.call("count")
    await until(lambda: nobody(barrier))
    async with barrier.mutation("slow"):
        with barrier.detached():
            limited = asyncio.create_task(barrier.checkpoint(timeout=0.2).__aenter__())
        with pytest.raises(DrainTimeout, match="kind 'slow'") as refused:
            await limited
    (holder,) = refused.value.holders
    assert f"in process {os.getpid()} on" in str(holder.task)
    await barrier.close("the run ends")
    with pytest.raises(BarrierClosed, match="the run ends"):
        async with barrier.mutation():
            pass


async def waiting(barrier: RayBarrier, mutations: bool = False) -> bool:
    read = (await barrier.statistics()).barrier
    return (read.waiting_mutations if mutations else read.waiting_checkpoints) > 0


async def nobody(barrier: RayBarrier) -> bool:
    counts = (await barrier.statistics()).leases
    return counts.held == counts.waiting == 0


async def test_a_blocked_event_loop_is_a_stalled_holder(counting: RayBarrier) -> None:
    """It beats no more; when it goes on, its section is over by its own clock."""
    barrier = counting
    async with barrier.mutation("blocked") as cut:
        time.sleep(LEASE * 1.1)
        with pytest.raises(LeaseExpired, match="event loop was blocked"):
            cut.require(barrier)
    await until(lambda: nobody(barrier))
    assert await counted(barrier) == 1


async def test_the_page_about_leases_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Its blocks, in order; its guard is one, too."""
    page = (ROOT / "docs" / "leases.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/leases.md", "exec"), names)
    await names["main"]()
    assert capsys.readouterr().out.splitlines()[-1] == "2 handed out, 2 owned"
    assert "`2 handed out, 2 owned`" in page
    plane = ray.remote(names["Plane"]).options(num_cpus=0).remote()
    barrier = RayBarrier.start(names["Operations"], guards=[plane])
    async with barrier.mutation() as cut:
        await plane.write.remote(cut.token, 0, "rows")
    assert await names["look"](barrier) == (0, 0)
    with pytest.raises(LeaseExpired):
        await plane.write.remote(cut.token, 0, "rows")
    ray.kill(barrier._actor)


async def test_a_host_that_is_gone_for_good_is_said_to_be() -> None:
    """Nobody waits for ever for what does not come back."""
    barrier = RayBarrier.start(Counting, lease=LEASE, patience=0.5)
    async with barrier.mutation("x"):
        pass
    ray.kill(barrier._actor)
    with pytest.raises(HostUnreachable, match="newest checkpoint"):
        async with barrier.mutation("x"):
            pass
    with pytest.raises(HostUnreachable):
        await barrier.statistics()
    with pytest.raises(HostUnreachable, match="no barrier 'nowhere'"):
        await RayBarrier.connect("nowhere")
    other = remote_part("something else")
    with pytest.raises(HostUnreachable, match="no barrier 'something else'"):
        await RayBarrier.connect("something else")
    ray.kill(other)


async def test_a_part_that_was_written_wrong_is_named_to_whoever_asks_first() -> None:
    """Nobody waits for a part to come back that is there; and no error of Ray hides which one it is."""
    part = remote_part()
    barrier = RayBarrier.start(Counting, lease=LEASE, guards=[part])
    await part.forget.remote()
    with pytest.raises(GuardUnreachable, match=r"answered None.*return fence.obey"):
        await counted(barrier)
    ray.kill(barrier._actor)


async def test_a_barrier_with_a_name_is_found_from_anywhere() -> None:
    """By the name it was started with; in one process it is one object, or two sections of it could nest."""
    started = RayBarrier.start(Counting, name="found", lease=LEASE, lifetime="detached", namespace="tests")
    found = await RayBarrier.connect("found", "tests")
    assert found is started
    assert (found.name, found.lease) == ("found", LEASE)
    assert await counted(found) == 1
    ray.kill(started._actor)


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("lease", 0),
        ("longest_hold", -1),
        ("drain_timeout", "1"),
        ("name", 7),
        ("guard_timeout", 0),
        ("guard_timeout", None),
        ("patience", float("nan")),
        ("guards", 7),
        ("guards", [Fence()]),
    ],
)
async def test_bad_arguments_are_refused_before_anything_is_started(argument: str, wrong: object) -> None:
    """By name, and not out of an actor that died at its start."""
    with pytest.raises(UsageError, match=f"{argument} is"):
        RayBarrier.start(Counting, **{argument: wrong})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="make_operations is"):
        RayBarrier.start(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="patience is"):
        await RayBarrier.connect("nowhere", patience=-1)
