"""`validate` follows real traces to the end, and refuses a trace with a seeded fault at the very line of it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memory_runs import SAMPLERS
from traced_runs import TracedRun, cut_after, random_lives

from impl import CheckpointBarrier, JsonlTracer
from impl.errors import TraceUnreadable
from interleavings.command_line import main
from interleavings.validation import Validation, validate

ROOT = Path(__file__).parent.parent
Lines = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Groups that fail on purpose warn of it."""
    logging.getLogger("cleancut").setLevel(logging.CRITICAL)


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, lines: Lines) -> Path:
    """Write the records, numbered anew in each segment: a fault is in what happened, not in how it was counted."""
    number = 0
    for line in lines:
        number = 0 if line["record"] == "header" else number
        if line["record"] == "event":
            line["number"], number = number, number + 1
        elif line["record"] == "end":
            line["events"] = number
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


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


def test_the_random_runs_take_nearly_every_action_of_the_library(tmp_path: Path) -> None:
    """What no run takes, nobody has seen being accepted; the two that are given up for their age have a test below."""
    taken = set()
    for sampler, seeds in (("in_order", (1, 2, 5, 6, 8, 9)), ("weight_fifo", (1, 3))):
        for seed in seeds:
            path = tmp_path / f"{sampler}-{seed}.jsonl"
            random_lives(path, sampler, seed)
            taken |= set(validate([path]).actions)
    assert {"borrow", "substitute", "shrink", "drain_pool", "divert_batch", "retry", "skip_snapshot"} <= taken


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


# -- seeded faults are refused, each at its line


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """The trace of a run of two processes, in order, with two steps ahead."""
    path = tmp_path_factory.mktemp("good") / "trace.jsonl"
    settings: dict[str, Any] = {"prompts": 12, "batch_size": 2}
    run = TracedRun(path, sampler=SAMPLERS["in_order"](2), delays=dict.fromkeys(range(0, 12, 2), 15), **settings)
    run.run_to_the_end()
    cut_after(path, 2)
    TracedRun(path, run.images[2].disk, sampler=SAMPLERS["in_order"](2), **settings).run_to_the_end()
    assert validate([path]).verdict == "holds"
    return lines_of(path)


def nth(lines: Lines, action: str, number: int = 0) -> int:
    """The place of the n-th event of an action."""
    return [i for i, line in enumerate(lines) if line.get("action") == action][number]


def dropped_commit(lines: Lines) -> int:
    """Without its commit the group's next step is impossible: the removal of its ledger entry."""
    at = nth(lines, "commit_group", 2)
    group = lines.pop(at)["fields"]["group"]
    return next(
        i for i, x in enumerate(lines) if x.get("action") == "remove_committed" and x["fields"]["group"] == group
    )


def dropped_enter(lines: Lines) -> int:
    """What happens inside a section that was never entered."""
    at = nth(lines, "dispatch", 3) - 1
    assert lines[at]["action"] == "enter_slot"
    del lines[at]
    return at


def doubled_commit(lines: Lines) -> int:
    """In the same section, right after the first."""
    at = nth(lines, "commit_group", 1)
    lines.insert(at + 1, json.loads(json.dumps(lines[at])))
    return at + 1


def overtaking_claim(lines: Lines) -> int:
    """The groups of a later step are taken first."""
    first, second = nth(lines, "claim", 0), nth(lines, "claim", 1)
    lines[first]["fields"]["groups"], lines[second]["fields"]["groups"] = (
        lines[second]["fields"]["groups"],
        lines[first]["fields"]["groups"],
    )
    return first


def skipping_stamp(lines: Lines) -> int:
    """An admission gets the stamp after the next."""
    at = nth(lines, "commit_admission", 1)
    lines[at]["fields"]["step"] += 1
    return at


def open_gate(lines: Lines) -> int:
    """The gate is passed a step before it opens: the trainer has not finished the one before."""
    gate = nth(lines, "pass_gate", 3)
    before = nth(lines, "finish_step", 0)
    assert nth(lines, "reserve_batch", 3) < before < gate
    lines.insert(before, lines.pop(gate))
    return before


def writer_in_the_window(lines: Lines) -> int:
    """A slot is entered while the cut is open."""
    at = nth(lines, "read_pool", 1)
    section = {"section": 9999, "task": "late", "kind": "group_commits"}
    for action in ("enter_slot", "request_slot"):
        lines.insert(at, {**lines[at], "action": action, "task": "late", "fields": section})
    return at + 1


def missing_read(lines: Lines) -> int:
    """One artifact is not read; the next one comes too early."""
    at = nth(lines, "read_buffer", 0)
    del lines[at]
    return at


def published_twice(lines: Lines) -> int:
    """A checkpoint without a window of its own."""
    at = nth(lines, "publish", 0)
    lines.insert(at + 1, json.loads(json.dumps(lines[at])))
    return at + 1


def lost_on_restore(lines: Lines) -> int:
    """The restore forgets a prompt that the checkpoint held."""
    at = nth(lines, "restore")
    fields = lines[at]["fields"]
    (fields["pending"] or fields["ready"]).pop()
    return at


def doubled_on_restore(lines: Lines) -> int:
    """A group is in the ledger and in the buffer after the restore: nobody saved that."""
    at = nth(lines, "restore")
    fields = lines[at]["fields"]
    if fields["pending"]:
        group, epoch, index, _, _, step = fields["pending"][0]
        fields["ready"].append([group, epoch, index, step, 0])
    else:
        group, epoch, index, step, _ = fields["ready"][0]
        fields["pending"].append([group, epoch, index, "admitted", 0, step])
    return at


def handed_out_again(lines: Lines) -> int:
    """The loader gives a batch that is still in the run."""
    first, second = nth(lines, "reserve_batch", 0), nth(lines, "reserve_batch", 1)
    lines[second]["fields"]["keys"] = lines[first]["fields"]["keys"]
    return second


def trained_too_many(lines: Lines) -> int:
    """A step ends with a group that it did not claim."""
    at = nth(lines, "finish_step", 0)
    lines[at]["fields"]["groups"] = [
        *lines[at]["fields"]["groups"],
        lines[nth(lines, "claim", 1)]["fields"]["groups"][0],
    ]
    return at


FAULTS: list[Callable[[Lines], int]] = [
    dropped_commit, dropped_enter, doubled_commit, overtaking_claim, skipping_stamp, open_gate, writer_in_the_window,
    missing_read, published_twice, lost_on_restore, doubled_on_restore, handed_out_again, trained_too_many,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_seeded_fault_is_refused_at_its_line(tmp_path: Path, good: Lines, fault: Callable[[Lines], int]) -> None:
    """Each fault says where it shows first; the refusal names that line, its event, and what was allowed there."""
    lines: Lines = json.loads(json.dumps(good))
    place = fault(lines)
    result = validate([write(tmp_path / "trace.jsonl", lines)])
    assert result.refusal is not None
    assert result.refusal.line == place + 1, said(result)
    assert result.refusal.event.startswith(lines[place]["action"])
    assert result.refusal.why
    assert result.refusal.enabled


def test_half_of_an_action_is_refused_where_its_slot_ends(tmp_path: Path) -> None:
    """A group that fails for good is dropped and its step shrunk in one slot."""
    path = tmp_path / "trace.jsonl"
    TracedRun(path, prompts=4, batch_size=2, failures=dict.fromkeys(range(4), -1), data_retries=0).run_to_the_end()
    for action, other in (("shrink", "leave_slot"), ("drop", "shrink")):
        lines = lines_of(path)
        at = nth(lines, action)
        del lines[at]
        place = next(i for i in range(at, len(lines)) if lines[i]["action"] == other)
        result = validate([write(tmp_path / "broken.jsonl", lines)])
        assert result.refusal is not None
        assert result.refusal.line == place + 1, said(result)


def test_a_snapshot_past_its_anchor_is_refused(tmp_path: Path, good: Lines) -> None:
    """A later one would count work that the restored trainer has not done."""
    lines: Lines = json.loads(json.dumps(good))
    at = nth(lines, "publish", 1)
    lines[at]["fields"]["kind"] = "rollout"
    result = validate([write(tmp_path / "trace.jsonl", lines)])
    assert result.refusal is not None
    assert result.refusal.line == at + 1
    assert "newest durable full save" in result.refusal.why


# -- what is open, and what is no trace


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
    assert f"line {at + 1}: 1 events are missing" in result.open_because[0]


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
    place = skipping_stamp(lines)
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
