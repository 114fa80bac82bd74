"""`validate` on right traces with one event changed: each is refused, or is a trace that a right run could have left.

Every kind of change of every field of every action, at its first and its last event: what passes stands in a table,
with the reason why it may.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traced_runs import Lines, lines_of, nth, random_lives, two_lives, write

from impl import TraceUnreadable
from interleavings.correspondence.refinement import FIGURE_EVENTS
from interleavings.correspondence.validation import validate

pytestmark = pytest.mark.usefixtures("quiet_library")

#: (change, action, field) of what may pass: `*` stands for any.
MAY_PASS = {
    ("*", "*", "task"): "names of tasks are the program's own, and it may change them",
    ("*", "*", "reason"): "reasons are the program's own words",
    ("*", "*", "cause"): "and so are causes",
    ("reordered", "*", "groups"): "the groups of one step or admission have no order",
    ("reordered", "reserve_batch", "keys"): "any of the prompts may be any of the groups",
    ("reordered", "restore", "pending"): "the ledger has no order",
    ("missing", "remove_committed", ""): "the claim makes up for it",
    ("missing", "skip_snapshot", ""): "nothing depends on it",
    ("missing", "leave_slot", ""): "the last of a process: it was killed inside",
    ("missing", "end_epoch", ""): "at the end of the data, which no trace tells",
    ("missing", "publish", ""): "the last of a process: it was killed before it said so",
    ("missing", "finish_step", ""): "the same",
    ("missing", "dispatch", ""): "the same",
    ("missing", "drain_pool", ""): "what is left in the pool is dropped, or is not",
    ("doubled", "restore", ""): "a process may restore several times",
    ("doubled", "skip_snapshot", ""): "nothing depends on it",
    ("changed", "publish", "kind"): "a full save that could have been a snapshot, or the other way round",
    ("changed", "restore", "dropped"): "null and zero are one",
    ("changed", "restore", "shortfalls"): "null and none are one",
    ("changed", "restore", "loader.2"): "whether the data is exhausted: no trace tells how many epochs there are",
    ("changed", "restore", "pending.*.4"): "the id of an admission that has passed the gate",
    ("changed", "restore", "fence"): "another process may have written it, which no trace shows",
    ("changed", "publish", "fence"): "the first of a process",
    ("changed", "fail_attempt", "attempt"): "the first that fails after a restore: earlier ones are in the checkpoint",
    ("changed", "reserve_batch", "admission"): "of prompts that are dropped, which have none",
    ("changed", "drain_pool", "admission"): "the same",
}


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if path and not isinstance(value, dict):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*path, key))


def others(value: Any) -> list[tuple[str, Any]]:
    """Other values of the same type, each with the name of the change."""
    match value:
        case bool():
            return [("changed", not value)]
        case int():
            return [("changed", value + 1), ("changed", value - 1), ("changed", value + 50)]
        case None:
            return [("changed", 0), ("changed", 1)]
        case str():
            kinds = ("full", "rollout") if value in ("full", "rollout") else ()
            return [("changed", other) for other in ("elsewhere", *kinds) if other != value]
        case [first, *rest]:
            turned = [("reordered", value[::-1])] if value[::-1] != value else []
            return [("shorter", rest), ("longer", [*value, first]), *turned]
    return []


def mutations(lines: Lines) -> Iterator[tuple[tuple[str, str, str], int, Lines]]:
    """Each with what was changed, and the place of its event."""
    events = [at for at, line in enumerate(lines) if line.get("action") not in (None, *FIGURE_EVENTS)]
    of_action: dict[str, list[int]] = {}
    for at in events:
        of_action.setdefault(lines[at]["action"], []).append(at)
    for action, places in of_action.items():
        for at in sorted({places[0], places[-1]}):
            event = lines[at]
            yield ("missing", action, ""), at, [*lines[:at], *lines[at + 1 :]]
            yield ("doubled", action, ""), at, [*lines[:at], event, *lines[at:]]
            for path, value in leaves(event["fields"]):
                row = None if path[0] == "loader" else 1
                field = ".".join("*" if place == row else str(key) for place, key in enumerate(path))
                for change, other in others(value):
                    changed = json.loads(json.dumps(event))
                    inner = changed["fields"]
                    for key in path[:-1]:
                        inner = inner[key]
                    if inner[path[-1]] == other and type(other) is type(value):
                        continue
                    inner[path[-1]] = other
                    yield (change, action, field), at, [*lines[:at], changed, *lines[at + 1 :]]


def may_pass(mutation: tuple[str, str, str]) -> bool:
    return any(
        all(pattern in ("*", part) for pattern, part in zip(pattern, mutation, strict=True)) for pattern in MAY_PASS
    )


@pytest.mark.parametrize(("sampler", "seed"), [("in_order", 4), ("weight_fifo", 5)])
def test_one_changed_event_is_refused_or_is_what_a_right_run_could_have_left(
    tmp_path: Path, sampler: str, seed: int
) -> None:
    """Failures, spares, short batches, epochs, snapshots, kills and restores are in the runs."""
    random_lives(tmp_path / "trace.jsonl", sampler, seed, lives=2)
    lines = lines_of(tmp_path / "trace.jsonl")
    tried, holes = 0, set()
    for mutation, at, changed in mutations(lines):
        tried += 1
        path = write(tmp_path / "changed.jsonl", json.loads(json.dumps(changed)))
        try:
            verdict = validate([path]).verdict
        except TraceUnreadable:
            continue
        if verdict == "holds" and not may_pass(mutation):
            holes.add((*mutation, at, json.dumps(changed[at])[:200]))
    assert tried > 300
    assert not holes


def after_all(lines: Lines, action: str, number: int, **fields: Any) -> Lines:
    changed: Lines = json.loads(json.dumps(lines))
    changed[nth(changed, action, number)]["fields"].update(fields)
    return changed


def test_a_prompt_that_was_trained_is_not_handed_out_again_in_its_epoch(tmp_path: Path) -> None:
    """Nothing is left of it in the state of the machine; that it was handed out is kept, one bit a row."""
    lines = two_lives(tmp_path / "trace.jsonl")
    first, later = (lines[nth(lines, "reserve_batch", number)]["fields"]["keys"] for number in (0, 4))
    assert first[0][0] == later[0][0], "or the two are of different epochs"
    trained = nth(lines, "finish_step", 0)
    assert trained < nth(lines, "reserve_batch", 4), "or it is alive yet"
    assert first[0][1] not in [key[1] for key in later]
    again = after_all(lines, "reserve_batch", 4, keys=[first[0], *later[1:]])
    refusal = validate([write(tmp_path / "again.jsonl", again)]).refusal
    assert refusal is not None
    assert (refusal.line, "a second time in its epoch" in refusal.why) == (nth(lines, "reserve_batch", 4) + 1, True)
