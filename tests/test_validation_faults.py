"""`validate` refuses a trace with a seeded fault at the very line at which it shows first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from traced_runs import Lines, TracedRun, lines_of, nth, two_lives, write

from interleavings.correspondence.refinement import FIGURE_EVENTS
from interleavings.correspondence.validation import Validation, validate

pytestmark = pytest.mark.usefixtures("quiet_library")  # groups that fail on purpose warn of it


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """The trace of a run that is right."""
    path = tmp_path_factory.mktemp("good") / "trace.jsonl"
    lines = two_lives(path)
    assert validate([path]).verdict == "holds"
    return lines


def said(result: Validation) -> str:
    """Everything that the result would tell, for an assertion."""
    return json.dumps(result.document(), indent=1)


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
    if fault is overtaking_claim:
        assert "claim (group 0, group 1)" in result.refusal.enabled, "what it would have been right to take"
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


#: What may be missing without anybody seeing it: the removal of an entry, which the claim makes up for; and the last
#: of its kind, of which nothing later depends on.
MISSED_ALWAYS = {"remove_committed"}
MISSED_AT_THE_END = {"leave_slot", "publish", "finish_step", "dispatch", "drain_pool"}


def test_every_single_event_that_is_doubled_or_missing_shows(tmp_path: Path) -> None:
    """Each event of a run in turn: a second one is refused at its line, a missing one there or where it is needed."""
    path = tmp_path / "trace.jsonl"
    TracedRun(path, prompts=6, batch_size=2, failures={1: -1, 2: 1}, spares=2, data_retries=1).run_to_the_end()
    whole = lines_of(path)
    # The figures of a save are no action: nothing depends on them.
    events = [at for at, line in enumerate(whole) if line["record"] == "event" and line["action"] not in FIGURE_EVENTS]
    assert len(events) > 100
    unseen = set()
    for at in events:
        action = whole[at]["action"]
        doubled: Lines = json.loads(json.dumps(whole))
        doubled.insert(at + 1, json.loads(json.dumps(whole[at])))
        refusal = validate([write(tmp_path / "doubled.jsonl", doubled)]).refusal
        assert refusal is not None, (at, action)
        assert refusal.line == at + 2, (at, action, refusal)
        missing: Lines = json.loads(json.dumps(whole))
        del missing[at]
        refusal = validate([write(tmp_path / "missing.jsonl", missing)]).refusal
        if refusal is None:
            unseen.add(action)
            last = max(i for i in events if whole[i]["action"] == action)
            assert action in MISSED_ALWAYS | MISSED_AT_THE_END, (at, action)
            assert action in MISSED_ALWAYS or at >= last - 12, (at, action, last)
        else:
            assert refusal.line >= at + 1, (at, action, refusal)
    assert unseen >= MISSED_ALWAYS
