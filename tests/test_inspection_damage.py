"""fsck against a restore: whatever befalls a directory, both say the same of each checkpoint, and fsck never breaks."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspection_damage import DAMAGES, checkpoints, contents, every_kind, recounted, restored

from impl.__main__ import main
from impl.store import PosixFiles, listing

#: What only the run itself knows, and no look at a directory can: which run it is, its epochs, torch and trainer.
OF_THE_RUN = re.compile(
    r"written by another run|but this one has 2 epochs|with other fields|this torch does not know"
    r"|has no (folder )?trainer/"
)
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which all is well."""
    return asyncio.run(every_kind(tmp_path_factory.mktemp("sound") / "run"))


def strict(text: str) -> Any:
    """JSON as the strictest of readers takes it."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def never(word: str) -> None:
        raise AssertionError(word)

    document = json.loads(text, object_pairs_hook=once, parse_constant=never)
    json.dumps(document, ensure_ascii=False).encode("utf-8")
    return document


def looked_at(root: Path, report: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any, str]:
    """What fsck says, to a program and to a person; it has changed nothing, and neither have the others."""
    before = contents(root)
    report.unlink(missing_ok=True)
    status = main(["fsck", str(root), "--json", str(report)])
    text = capsys.readouterr().out
    assert main(["inspect", str(root)]) in (0, 1, 2, 3)
    assert main(["watch", str(root), "--seconds", "0.01", "--interval", "0.01"]) in (0, 1, 3)
    assert contents(root) == before
    said = text + "".join(capsys.readouterr())
    assert (found := INVISIBLE.search(said)) is None, found
    return status, strict(report.read_text("utf-8")) if report.exists() else None, text


def check_owners(said: Any, counted: dict[str, int] | None) -> None:
    """Against a count of one's own; where nobody can count, none is made up."""
    if counted is None:
        owners = said["owners"]
        assert said["state"] == "whole"
        assert [owners[name] for name in ("handed_out", "lost", "ahead_of_the_loader")] == [None] * 3
        return
    theirs = {name: said["owners"][name]["count"] for name in ("lost", "doubled", "ahead_of_the_loader")}
    assert {"handed_out": said["owners"]["handed_out"], **theirs} == counted
    assert (said["state"] == "whole") == (not any(theirs.values()))


async def check(root: Path, report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found, text = looked_at(root, report, capsys)
    if found is None:
        assert status == 2
        assert not list(root.glob("step_*-*")) or not root.is_dir()
        return
    assert status == {"holds": 0, "fails": 1, "inconclusive": 3}[found["verdict"]]
    summary = re.search(r"(\d+) checkpoints?, .*, (\d+) problems?, (\d+) not checked: (\w+)", text)
    assert summary is not None
    counts = [str(len(found[each])) for each in ("checkpoints", "problems", "not_checked")]
    assert list(summary.groups()) == [*counts, found["verdict"]]
    listed = listing(PosixFiles(), str(root))
    candidates = listed.candidates
    assert [each["name"] for each in found["checkpoints"]] == [each.name for each in candidates]
    resumes: str | None = ""
    for said, candidate in zip(found["checkpoints"], candidates, strict=True):
        state, reason, owners = await restored(root, candidate)
        if said["state"] != state:
            assert OF_THE_RUN.search(reason), (said, state, reason)
            state = said["state"]
        if resumes == "" and state != "damaged":
            resumes = candidate.name if state == "whole" else None
        if owners:
            assert {name: said["owners"][name] for name in owners} == owners
        if state == "whole" and said["kind"] != "trainer":
            check_owners(said, recounted(root / candidate.name))
        assert candidate.name in text
        assert all(problem in found["problems"] + found["not_checked"] for problem in said["problems"])
    if listed.clash is not None:
        assert listed.clash in found["problems"]
        resumes = None
    assert found["resume"]["name"] == (resumes or None)


@pytest.mark.parametrize("damage", dict.fromkeys(DAMAGES), ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 40), marks=pytest.mark.slow)], ids=["some", "many"])
def test_fsck_says_of_every_damaged_directory_what_a_restore_says(
    sound: Path,
    tmp_path: Path,
    damage: Callable[[random.Random, Path], None],
    seeds: range,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never a traceback, nothing changed, nothing that a terminal obeys; states, owners, the resume: all are right."""
    root = tmp_path / "run"
    for seed in seeds:
        chance = random.Random(f"{damage.__name__}/{seed}")
        shutil.copytree(sound, root, symlinks=True)
        monkeypatch.setenv("COLUMNS", chance.choice(("40", "60", "80", "200")))
        damage(chance, root)
        asyncio.run(check(root, tmp_path / "out.json", capsys))
        shutil.rmtree(root)


def test_the_directory_has_what_the_others_damage(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both kinds of checkpoint, every kind of owner, and all of it whole."""
    status, found, _ = looked_at(sound, tmp_path / "out.json", capsys)
    assert status == 0
    assert {each["kind"] for each in found["checkpoints"]} == {"full", "rollout"}
    newest = found["checkpoints"][0]["owners"]
    assert all(newest[owner] for owner in ("trained", "dropped", "buffered", "pending", "spare"))
    assert len(checkpoints(sound)) == 4
    asyncio.run(check(sound, tmp_path / "out.json", capsys))
