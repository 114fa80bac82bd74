"""`watch`: what it says of a run while that saves, and that it changes nothing."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from run_situations import NumberTrainer, Run, mixed

from impl.__main__ import main
from impl.inspection import Watch, picture, run_watch


def piped() -> Console:
    """A console that is no terminal, and keeps what it was told."""
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


async def test_every_save_is_a_line_and_so_is_what_retention_removes(tmp_path: Path) -> None:
    """From before the run to after it: the lock, each publication with the owners in it, each removal, the summary."""
    root = tmp_path / "run"
    watch = Watch(root)
    assert watch.look() == [f"{root} is not there yet"]
    assert watch.look() == [], "and that is said once"
    run = Run(root, keep=1)
    await run.checkpointer.save(NumberTrainer(1))
    first = watch.look()
    assert re.fullmatch(r"lock held by .+", first[0])
    assert re.fullmatch(r"there: step_0-1 \(full, whole\), [\d.]+ \w+, \d+ s", first[1])
    assert watch.look() == [], "nothing has changed"
    await mixed(run)
    await run.checkpointer.save(NumberTrainer(2))
    await run.checkpointer.save(NumberTrainer(3))
    news = watch.look()
    assert any(
        re.fullmatch(r"published: step_1-3 \(full, whole\), .*, 4 trained, 2 buffered, 6 pending", line)
        for line in news
    )
    assert "removed: step_0-1" in news
    await run.checkpointer.close()
    assert watch.look() == ["lock free"]
    assert watch.summary().endswith(f"{watch.published} published, {len(list(root.glob('step_*')))} there now")
    assert not watch.troubled


async def test_damage_is_trouble_once_and_the_exit_status_tells(tmp_path: Path) -> None:
    """A file that has become shorter shows without reading the payload."""
    root = tmp_path / "run"
    run = Run(root)
    await run.checkpointer.save(NumberTrainer(1))
    await run.checkpointer.close()
    watch = Watch(root)
    watch.look()
    ledger = root / "step_0-1" / "ledger.json"
    ledger.write_bytes(ledger.read_bytes()[:-1])
    news = watch.look()
    assert "step_0-1 is damaged now" in news
    assert sum(line.startswith("TROUBLE: ") and "ledger.json" in line for line in news) == 1
    assert watch.look() == []
    console = piped()
    assert run_watch(root, console, 0.01, 0.02) == 1
    assert said(console)[-1].endswith("there was trouble, see fsck")


async def test_an_interruption_is_the_way_to_end_it_and_says_what_was_watched(tmp_path: Path) -> None:
    """Ctrl-C between two looks; exit status 0."""
    run = Run(tmp_path / "run")
    await run.checkpointer.save(NumberTrainer(1))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}

    def interrupted(seconds: float) -> None:
        assert seconds == 5.0
        raise KeyboardInterrupt

    console = piped()
    assert run_watch(tmp_path / "run", console, 5.0, None, interrupted) == 0
    assert [line.split()[0] for line in said(console)] == ["lock", "there:", "watched"]
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    await run.checkpointer.close()


async def test_a_terminal_shows_a_table(tmp_path: Path) -> None:
    """Rendered as a terminal would show it: newest first, with the owners of each."""
    run = await mixed(Run(tmp_path / "run"))
    await run.checkpointer.save(NumberTrainer(2))
    watch = Watch(tmp_path / "run")
    console = Console(file=io.StringIO(), width=140)
    console.print(picture(watch, console))
    watch.look()
    console.print(picture(watch, console))
    lines = said(console)
    assert lines[0].endswith("no sign of a run that saves yet")
    (row,) = [line.split() for line in lines if line.strip().startswith("step_1-1")]
    assert row[:3] == ["step_1-1", "full", "whole"]
    assert row[-5:] == ["4", "0", "2", "6", "0"]
    await run.checkpointer.close()


def test_the_command_ends_by_itself_when_asked_to(tmp_path: Path) -> None:
    """As an operator would put it into a script; nothing else comes out when it is piped."""
    (tmp_path / "run").mkdir()
    command = [sys.executable, "-m", "impl", "watch", str(tmp_path / "run"), "--interval", "0.05", "--seconds", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"watched .*/run for \d+ s: 0 published, 0 there now\n", done.stdout)
    assert json.dumps(done.stdout).isascii()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere/run"], "nowhere/run is not a directory"),
        ([__file__], "is not a directory"),
        ([".", "--interval", "0"], "'0' is no number of seconds"),
        ([".", "--seconds", "soon"], "'soon' is no number of seconds"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2."""
    try:
        status = main(["watch", *arguments])
    except SystemExit as ended:
        status = int(str(ended.code))
    error = capsys.readouterr().err
    assert status == 2
    assert message in error
    assert error.count("\n") == 1
