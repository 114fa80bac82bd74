"""`validate` follows real traces to the end, says what it could not follow, and is a command."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from memory_runs import SAMPLERS
from traced_runs import Lines, TracedRun, cut_after, lines_of, nth, random_lives, two_lives, write

from impl import (
    CheckpointBarrier,
    Checkpointer,
    HeldCounters,
    InOrderSampler,
    JsonlTracer,
    Ledger,
    PromptLoader,
    ReplayBuffer,
    TensorPlane,
    TraceUnreadable,
    steps,
)
from impl.tracing import FIELDS
from interleavings.command_line import main
from interleavings.correspondence.refinement import FIGURE_EVENTS
from interleavings.correspondence.validation import Validation, validate

ROOT = Path(__file__).parent.parent


pytestmark = pytest.mark.usefixtures("quiet_library")  # groups that fail on purpose warn of it


def said(result: Validation) -> str:
    """Everything that the result would tell, for an assertion."""
    return json.dumps(result.document(), indent=1)


# -- real runs are accepted


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("seed", range(4))
def test_runs_with_everything_in_them_are_accepted(tmp_path: Path, sampler: str, seed: int) -> None:
    """Failures, retries, spares, borrows, snapshots, short batches, replay-free restores; three processes in a file."""
    path = tmp_path / "trace.jsonl"
    random_lives(path, sampler, seed)
    result = validate([path])
    assert result.verdict == "holds", said(result)
    assert result.segments == 3
    assert result.restores == result.restores_compared == 2
    assert result.events == sum(line["record"] == "event" for line in lines_of(path))


def test_a_life_that_was_killed_before_it_wrote_is_cut_short(tmp_path: Path) -> None:
    """One file a process: the empty one among them is no damage, and alone it is no trace."""
    path, nothing = tmp_path / "trace.jsonl", tmp_path / "killed_at_once.jsonl"
    nothing.touch()
    random_lives(path, "in_order", 0)
    alone, both = validate([path]), validate([nothing, path])
    assert (both.verdict, both.events, both.cut_short) == ("holds", alone.events, alone.cut_short + 1), said(both)
    assert validate([nothing, nothing]).verdict == "inconclusive"
    with pytest.raises(TraceUnreadable, match="the file is empty"):
        validate([nothing])


@pytest.mark.parametrize("named", [True, False])
def test_a_controller_of_ones_own_is_followed_once_its_run_has_a_name(tmp_path: Path, named: bool) -> None:
    """`attach` names it to the tracer, if that comes before the first event; else its sections alone are followed."""
    path = tmp_path / "trace.jsonl"

    async def run() -> None:
        tracer = JsonlTracer(path, flush_seconds=0.0)
        barrier, sampler = CheckpointBarrier(trace=tracer), InOrderSampler(lookahead=0)
        ledger, loader, counters = Ledger(barrier), PromptLoader(list(range(3)), 2, seed=0), HeldCounters()
        sampler.bind(2)
        buffer = ReplayBuffer(barrier, 2, TensorPlane(), ledger)
        if not named:
            async with barrier.mutation():
                pass
        async with Checkpointer(tmp_path / "checkpoints", barrier) as checkpointer:
            checkpointer.attach(ledger=ledger, loader=loader, sampler=sampler, buffer=buffer, counters=counters)
            while (admission := await steps.reserve(ledger, loader)) is not None:
                await steps.admit(ledger, sampler, admission, 2)
                for number, group in enumerate(admission.groups):
                    await steps.dispatch(ledger, buffer, group, counters.version)
                    assert await steps.fail_attempt(ledger, group, "data") == 1
                    if number == 0:  # with the last batch, all that there is
                        await steps.give_up(ledger, buffer, sampler, group)
                    else:
                        await steps.retry(ledger, group)
                        await steps.commit(ledger, buffer, group, {"tokens": torch.zeros(2)})
                await steps.finish(
                    buffer, sampler, counters, await steps.claim(buffer, sampler, counters.version, loader)
                )
                await checkpointer.save()
        tracer.close()

    asyncio.run(run())
    result = validate([path])
    assert result.verdict == ("holds" if named else "inconclusive"), said(result)
    assert named or "Checkpointer.attach" in result.open_because[0]
    assert not named or (result.actions["shrink"], result.actions["empty_step"]) == (2, 1)
    assert not result.foreign, "the figures of a save are the library's own"


def test_the_random_runs_take_every_action_of_the_library_but_four(tmp_path: Path) -> None:
    """What no run takes, nobody has seen being accepted; the four have tests of their own."""
    taken = set()
    for sampler, seeds in (("in_order", (0, 1, 3)), ("windowed", (0,))):
        for seed in seeds:
            path = tmp_path / f"{sampler}-{seed}.jsonl"
            random_lives(path, sampler, seed)
            taken |= set(validate([path]).actions)
    in_no_such_run = FIGURE_EVENTS | {"expire_lease"}  # a run of one process has no leases
    assert set(FIELDS) - in_no_such_run - taken == {"withdraw_slot", "withdraw_cut", "write_back", "fail_save"}


@pytest.mark.parametrize("sampler", ["windowed", "weight_fifo"])
def test_groups_given_up_for_their_age_are_accepted(tmp_path: Path, sampler: str) -> None:
    """Slow groups become stale in flight, and ready ones in the buffer."""
    path = tmp_path / "trace.jsonl"
    slow = dict.fromkeys(range(0, 24, 5), 90)
    run = TracedRun(
        path, prompts=24, batch_size=2, sampler=SAMPLERS[sampler](1), delays=slow, capacity=12, save_period=3
    )
    run.run_to_the_end()
    result = validate([path])
    assert result.verdict == "holds", said(result)
    if sampler == "windowed":
        assert result.actions["abort_stale"] == result.actions["drop"] > 0


def test_a_run_without_recovery_is_followed_but_for_its_saves(tmp_path: Path) -> None:
    """It saves the trainer alone; the protocol of the prompts is the same."""
    path = tmp_path / "trace.jsonl"
    TracedRun(path, prompts=8, batch_size=2, recovery=False).run_to_the_end()
    result = validate([path])
    assert result.verdict == "holds", said(result)
    assert result.actions["publish"] > 1


KILLS = 3


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_run_killed_anywhere_and_resumed_is_accepted(tmp_path: Path, sampler: str) -> None:
    """SIGKILL at three chosen events, of which some is lost; then to the end. All in one file."""
    for life in range(KILLS + 1):
        kill = [str(70 + 91 * life)] if life < KILLS else []
        command = [sys.executable, str(ROOT / "tests/traced_child.py"), str(tmp_path), "1", sampler, *kill]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == (-9 if kill else 0), ended.stderr
    result = validate([tmp_path / "trace.jsonl"])
    assert result.verdict == "holds", said(result)
    assert (result.segments, result.cut_short) == (KILLS + 1, KILLS)


def killed_after(directory: Path, first: Lines, second: Lines, line: int) -> Path:
    """A run of two processes, of whose first the kill left only the lines up to one."""
    return write(directory / "killed.jsonl", first[: line + 1] + second)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_kill_may_take_the_events_of_several_saves(tmp_path: Path, sampler: str) -> None:
    """The tracer writes some times a second, and rollout snapshots come quicker: the last window that is seen is then
    not that of the checkpoint which the run goes on from, though its version may be the same."""
    settings: dict[str, Any] = {"prompts": 14, "batch_size": 2, "max_in_flight": 8, "save_period": 1, "capacity": 8}
    run = TracedRun(tmp_path / "first.jsonl", chance=6, sampler=SAMPLERS[sampler](1), **settings)
    run.run_to_the_end()
    first = lines_of(tmp_path / "first.jsonl")
    places = [[i for i, x in enumerate(first) if x.get("action") == action] for action in ("close_cut", "publish")]
    names = [first[i]["fields"]["name"] for i in places[1]]
    assert len({name.partition("-")[0] for name in names}) < len(names), "or no two are of one version"
    for image, (name, published) in enumerate(zip(names, places[1], strict=True)):
        path = tmp_path / f"{image}.jsonl"
        TracedRun(path, run.images[image].disk, sampler=SAMPLERS[sampler](1), **settings).run_to_the_end()
        second = lines_of(path)
        assert second[nth(second, "restore")]["fields"]["name"] == name
        window = max(i for i in places[0] if i < published)
        # What the kill may have left: up to each window and publication, and up to the line before.
        ends = {i - before for of_one in places for i in of_one if i <= published for before in (0, 1)}
        for end in sorted(ends):
            result = validate([killed_after(tmp_path, first, second, end)])
            assert result.verdict == "holds", (name, end, said(result))
            if end >= window:
                assert result.restores_compared == 1, (name, end)


def test_segments_in_several_files_are_one_run(tmp_path: Path) -> None:
    """The restore of the second file is compared with what the first one saved."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    run = TracedRun(first, prompts=8, batch_size=2)
    run.run_to_the_end()
    cut_after(first, 1)
    TracedRun(second, run.images[1].disk, prompts=8, batch_size=2).run_to_the_end()
    together = validate([first, second])
    assert (together.verdict, together.restores_compared) == ("holds", 1)
    alone = validate([second])
    assert (alone.verdict, alone.restores, alone.restores_compared) == ("holds", 1, 0)


async def test_a_trace_of_a_barrier_alone_is_followed_and_events_of_the_program_are_counted(tmp_path: Path) -> None:
    """Nobody names a run; the barrier's machine needs none."""
    tracer = JsonlTracer(tmp_path / "trace.jsonl")
    barrier = CheckpointBarrier(trace=tracer)
    async with barrier.mutation("a"):
        barrier.emit("mine", what=1)
    async with barrier.checkpoint():
        pass
    tracer.close()
    result = validate([tmp_path / "trace.jsonl"])
    assert (result.verdict, result.events, dict(result.foreign)) == ("holds", 7, {"mine": 1})


# -- what is open, and what is no trace


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """The trace of a run that is right."""
    path = tmp_path_factory.mktemp("good") / "trace.jsonl"
    lines = two_lives(path)
    assert validate([path]).verdict == "holds"
    return lines


def test_after_a_gap_nothing_is_concluded_until_the_next_segment(tmp_path: Path, good: Lines) -> None:
    """Events that the disk did not take are missing, so what comes behind them cannot be judged."""
    lines: Lines = json.loads(json.dumps(good))
    at = nth(lines, "dispatch", 2)
    lost = lines[at]["number"]
    lines[at] = {"record": "gap", "number": lost, "lost": 1}
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = validate([path])
    assert result.verdict == "inconclusive"
    assert result.restores == 1, "the second process is followed from its restore"
    assert f"line {at + 1}: 1 event is missing" in result.open_because[0]


def test_a_sampler_that_the_machine_does_not_know_is_said(tmp_path: Path, good: Lines) -> None:
    """The barrier is followed all the same."""
    lines: Lines = json.loads(json.dumps(good))
    for line in lines:
        if line["record"] == "header":
            line["run"]["sampler"]["name"] = "mine"
    result = validate([write(tmp_path / "trace.jsonl", lines)])
    assert result.verdict == "inconclusive"
    assert "its sampler is 'mine'" in result.open_because[0]
    assert result.actions["leave_slot"] > 0


def test_what_is_no_trace_is_wrong_use_and_a_damaged_line_a_refusal(tmp_path: Path, good: Lines) -> None:
    """The first line decides what a file is; from there on a line that cannot be read is damage."""
    path = tmp_path / "other.jsonl"
    path.write_text("no trace\n")
    with pytest.raises(TraceUnreadable):
        validate([path])
    path.write_text("".join(json.dumps(line) + "\n" for line in good).replace('"dispatch"', '"dispatch', 1))
    result = validate([path])
    assert result.refusal is not None
    assert result.refusal.line == nth(good, "dispatch") + 1


# -- the command


def test_the_command_says_line_event_reason_and_what_was_allowed(
    tmp_path: Path, good: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, and a JSON file with the same."""
    lines: Lines = json.loads(json.dumps(good))
    place = nth(lines, "commit_admission", 1)
    lines[place]["fields"]["step"] += 1
    path = write(tmp_path / "trace.jsonl", lines)
    assert main(["validate", str(path), "--json", str(tmp_path / "result.json")]) == 1
    shown = capsys.readouterr().out
    assert f"{path}, line {place + 1}" in shown
    assert "commit_admission says step 2, and by the machine it is 1" in shown
    assert "allowed there:" in shown
    document = json.loads((tmp_path / "result.json").read_text())
    assert (document["verdict"], document["refused"]["line"]) == ("fails", place + 1)


def test_the_exit_status_says_what_came_of_it(tmp_path: Path, good: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    """0 accepted, 2 no trace, 3 not all of it followed; and what no trace can show is said each time."""
    path = write(tmp_path / "trace.jsonl", json.loads(json.dumps(good)))
    assert main(["validate", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1].startswith("validate: holds, ")
    assert "a trace does not show" in shown
    assert main(["validate", str(tmp_path / "not-there.jsonl")]) == 2
    headless: Lines = json.loads(json.dumps(good))
    for line in headless:
        if line["record"] == "header":
            line["run"] = None
    assert main(["validate", str(write(path, headless))]) == 3
    assert "nobody named the run" in capsys.readouterr().out
