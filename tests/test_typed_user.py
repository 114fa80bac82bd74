"""The public surface is typed: strict users of it, outside of the repository, are clean, and mistakes are found."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: The blocks of Python in a page: the title, which makes it a file of its own, and the text.
BLOCK = re.compile(r'^```python(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("impl/**/*.md"), *ROOT.glob("*/README.md")})
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


# -- another checker, and every program that a page shows --------------------------------------------------------------

#: What pages name that is not installed, and what of it they take: a page shows how to swap it.
NOT_HERE = {
    "nemo_rl/algorithms/async_utils/replay_buffer.py": "class DataPlaneCheckpointBarrier:\n    pass\n",
    "nemo_rl/algorithms/single_controller.py": (
        "from nemo_rl.algorithms.async_utils.replay_buffer import DataPlaneCheckpointBarrier\n\n\n"
        "class SingleControllerActor:\n    barrier: DataPlaneCheckpointBarrier\n\n"
        "    @classmethod\n    def remote(cls) -> object:\n        return cls()\n"
    ),
}


def defined(text: str) -> set[str]:
    """The functions that a text defines."""
    return set(re.findall(r"^(?:async )?def (\w+)", text, re.MULTILINE))


def programs_of_pages() -> dict[str, str]:
    """The programs that pages show, by file name: a block that defines a function again begins another one."""
    programs: dict[str, str] = {}
    for page in PAGES:
        stem = str(page.relative_to(ROOT).with_suffix("")).replace("/", "_").replace("-", "_")
        text, number = "", 0
        for title, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            if title:
                programs[f"{stem}_{Path(title).name}"] = block
                continue
            if not defined(text).isdisjoint(defined(block)):
                programs[f"{stem}_{number}.py"], text, number = text, "", number + 1
            text += block + "\n"
        if text:
            programs[f"{stem}_{number}.py"] = text
    return programs


def users_in(folder: Path) -> list[str]:
    """Write every program of a page and of `examples/`, and the strict user, as a project of its own."""
    programs = programs_of_pages()
    for name, text in {**programs, **NOT_HERE}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for user in USERS:
        shutil.copy(user, folder)
    shutil.copytree(ROOT / "examples" / "grpo", folder / "grpo", ignore=shutil.ignore_patterns("__pycache__"))
    return sorted(programs)


def checked_by_pyright(folder: Path) -> list[str]:
    """The errors that pyright, in its standard mode, has in a project in which the packages are somebody else's."""
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard", "pythonPlatform": "Linux"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(folder), "--outputjson", "--level", "error"]
    checked = subprocess.run(
        [*command, "--pythonpath", sys.executable], cwd=folder, capture_output=True, text=True, check=False
    )
    report = json.loads(checked.stdout)
    assert report["summary"]["filesAnalyzed"] >= len(USERS), checked.stdout
    return [
        f"{Path(found['file']).name}:{found['range']['start']['line'] + 1}: {found['message']} [{found.get('rule')}]"
        for found in report["generalDiagnostics"]
    ]


@pytest.mark.slow
@pytest.mark.needs("pyright")
def test_case_G44_pyright_is_clean_on_every_program_of_the_pages_and_examples(tmp_path: Path) -> None:
    """A user sees it in the editor at the first line of the tutorial; mypy had nothing to say."""
    assert len(users_in(tmp_path)) > 15
    assert checked_by_pyright(tmp_path) == []


@pytest.mark.slow
def test_case_G44_mypy_is_clean_on_every_program_of_the_pages_and_examples(tmp_path: Path) -> None:
    """Not strict, since pages leave types out where they teach something else; what is there is right."""
    users_in(tmp_path)
    command = [sys.executable, "-m", "mypy", "--check-untyped-defs", "--ignore-missing-imports"]
    cache = ROOT / "build" / "mypy_of_a_page"
    checked = subprocess.run(
        [*command, "--explicit-package-bases", "--config-file", os.devnull, "--cache-dir", str(cache), "."],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line for line in checked.stdout.splitlines() if ": error: " in line] == []
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
@pytest.mark.needs("pyright")
def test_a_sampler_that_pyright_refuses_would_be_noticed(tmp_path: Path) -> None:
    """As it was reported: the class says ClassVar where the protocol reads an attribute of an object."""
    (tmp_path / "user.py").write_text(
        "from typing import ClassVar\nfrom impl import InOrderSampler, Sampler\n\n\n"
        "class Named(InOrderSampler):\n    name: ClassVar[str] = 'mine'\n\n\n"
        "sampler: Sampler = Named(1)\n"
    )
    for number in range(len(USERS)):
        (tmp_path / f"filler_{number}.py").write_text("")
    assert any("incompatible with protocol" in found for found in checked_by_pyright(tmp_path))
