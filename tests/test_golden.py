"""What earlier versions wrote goes on restoring, passing `fsck` and `inspect`, and being followed by `validate`."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from golden_runs import GOLDEN, RUNS, digests, fresh, restored_state

from impl.__main__ import main as impl_main
from interleavings.correspondence.validation import validate

pytestmark = [
    pytest.mark.usefixtures("quiet_library"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

#: The digest of each format's list of digests. A line is added for a new format; none is ever changed.
PINNED = {"format-1": "831682083b37954094edd010056c95b1cdf31d8cfd8173dc916fee16bb6190cd"}

KEPT = [(form, kind) for form in PINNED for kind in sorted(RUNS)]
CHECKPOINTS = [
    (form, kind, path.name)
    for form, kind in KEPT
    for path in sorted((GOLDEN / form / kind / "checkpoints").glob("step_*"))
]


@pytest.mark.parametrize("form", PINNED)
def test_golden_files_are_those_that_were_written(form: str) -> None:
    """Somebody who writes them anew would test the library of today against itself."""
    listed = (GOLDEN / form / "SHA256SUMS").read_bytes()
    assert hashlib.sha256(listed).hexdigest() == PINNED[form]
    lines = [line.split("  ", 1) for line in listed.decode().splitlines()]
    assert digests(GOLDEN / form) == {name: digest for digest, name in lines}


def test_every_golden_format_and_run_is_pinned() -> None:
    """A folder that no test names would not be checked."""
    assert {path.name for path in GOLDEN.iterdir() if path.is_dir()} == PINNED.keys()
    for form in PINNED:
        assert {path.name for path in (GOLDEN / form).iterdir() if path.is_dir()} == RUNS.keys()


def test_golden_checkpoints_hold_every_kind_of_state() -> None:
    """A golden file without a spare, a failure or a payload would show nothing about them."""
    states = [
        state
        for form, kind in KEPT
        for state in json.loads((GOLDEN / form / kind / "expected.json").read_bytes()).values()
    ]
    for part in ("spares", "ledger", "trained", "dropped", "slots", "trainer"):
        assert any(state[part] for state in states), part
    assert any(state["sampler"]["shortfalls"] for state in states)
    entries = [entry for state in states for entry in state["ledger"]]
    assert {entry[3] for entry in entries} == {"reserved", "admitted"}
    assert any(entry[6] > 0 for entry in entries), "a failed attempt"
    assert any(isinstance(entry[7], dict) for entry in entries), "a payload of its own"
    assert any(isinstance(spare[2], dict) for state in states for spare in state["spares"])
    kinds = {
        json.loads((GOLDEN / f / k / "checkpoints" / n / "manifest.json").read_bytes())["kind"]
        for f, k, n in CHECKPOINTS
    }
    assert kinds == {"full", "rollout", "trainer"}


@pytest.mark.parametrize(("form", "kind", "name"), CHECKPOINTS)
def test_a_golden_checkpoint_restores_to_what_was_saved(form: str, kind: str, name: str) -> None:
    """The format is a promise to whoever has checkpoints on a disk."""
    folder = GOLDEN / form / kind
    expected = json.loads((folder / "expected.json").read_bytes())
    assert restored_state(kind, folder / "checkpoints", name) == expected[name]


@pytest.mark.parametrize(("form", "kind"), KEPT)
@pytest.mark.parametrize("command", ["fsck", "inspect"])
def test_golden_checkpoints_are_found_whole(tmp_path: Path, form: str, kind: str, command: str) -> None:
    """Whoever looks into an old directory must not be told that it is damaged."""
    report = tmp_path / "report.json"
    assert impl_main([command, str(GOLDEN / form / kind / "checkpoints"), "--json", str(report)]) == 0
    found: dict[str, Any] = json.loads(report.read_bytes())
    assert found["verdict"] == "holds"
    assert [each["state"] for each in found["checkpoints"]] == ["whole"] * sum(
        (f, k) == (form, kind) for f, k, _ in CHECKPOINTS
    )


@pytest.mark.parametrize(("form", "kind"), KEPT)
def test_a_golden_trace_is_followed_to_its_end(form: str, kind: str) -> None:
    """The machines change with the library; what a right run once wrote stays right."""
    result = validate([GOLDEN / form / kind / "trace.jsonl"])
    assert result.verdict == "holds", json.dumps(result.document(), indent=1)
    assert (result.segments, result.restores) == (2, 1)
    assert not result.foreign


@pytest.mark.parametrize(("form", "kind"), KEPT)
async def test_a_golden_run_goes_on_to_new_saves(tmp_path: Path, form: str, kind: str) -> None:
    """A restore that a save cannot follow would end the run one save later."""
    shutil.copytree(GOLDEN / form / kind / "checkpoints", tmp_path / "checkpoints")
    await fresh(kind, tmp_path / "checkpoints").run()
    assert impl_main(["fsck", str(tmp_path / "checkpoints")]) == 0
