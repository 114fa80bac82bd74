"""The public surface is typed: strict users of it, outside of the repository, are clean, and mistakes are found."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
USERS = [ROOT / "tests" / "typed_user.py", *sorted((ROOT / "examples").glob("*.py"))]

# Each line is wrong in the way that the code behind it names.
MISTAKES = """
import asyncio

from impl import CheckpointBarrier, Checkpointer, Ledger, PromptLoader
from impl.nemo import DataPlaneCheckpointBarrier

barrier = CheckpointBarrier(drain_timeout="60")  # [arg-type]
loader = PromptLoader(7, batch_size=1, seed=0)  # [arg-type]
Checkpointer("run", barrier, verify="sometimes")  # [arg-type]
Ledger(DataPlaneCheckpointBarrier()).reserve(None, [])  # [arg-type]


async def main() -> None:
    async with barrier.mutation() as cut:
        cut.require_live()  # [attr-defined]
    with barrier.mutation():  # [attr-defined]
        pass
    await barrier.statistics()  # [misc]
    barrier.checkpoint(seconds=3)  # [call-arg]


asyncio.run(main())
"""


def strictly_checked(folder: Path) -> subprocess.CompletedProcess[str]:
    """mypy --strict on a project of its own, in which the packages are somebody else's; without our configuration."""
    cache = ROOT / "build" / "mypy_of_a_user"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(cache), "."]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_strict_type_check_of_users_of_the_surface_is_clean(tmp_path: Path) -> None:
    """The examples, and one user that asserts the type of what it gets: nothing is `Any`, no name is private."""
    for user in USERS:
        shutil.copy(user, tmp_path)
    checked = strictly_checked(tmp_path)
    assert checked.stdout.splitlines()[-1] == f"Success: no issues found in {len(USERS)} source files", checked.stdout
    assert checked.returncode == 0


@pytest.mark.slow
def test_mistakes_of_a_user_are_found(tmp_path: Path) -> None:
    """Or the check above would be clean because nothing is checked."""
    (tmp_path / "mistaken_user.py").write_text(MISTAKES)
    found = [line for line in strictly_checked(tmp_path).stdout.splitlines() if ": error: " in line]
    assert all(line.startswith("mistaken_user.py:") for line in found), found
    lines = MISTAKES.splitlines()
    expected = {number: line.partition("# ")[2] for number, line in enumerate(lines, 1) if "# [" in line}
    codes = {int(line.split(":")[1]): f"[{line.rpartition('[')[2]}" for line in found}
    assert codes == expected
