"""The pages of docs/ as a reader uses them: blocks run and print what stands below them, commands do what is said."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from impl import errors
from impl.checkpoint import Ownership
from impl.inspection import State, Survey

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
#: Language, title, body. A `python` block with a title is a file; a `text` block with one is for those versions.
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: Pages that teach by example.
GUIDES = ("adopting", "swap-nemo-rl", "exploring", "changing-the-protocol", "store", "operations")

# As much of NeMo-RL as a page touches: the module that has the names, and the one that takes them from there.
STAND_IN = {
    "nemo_rl/algorithms/async_utils/replay_buffer.py": "class DataPlaneCheckpointBarrier:\n    pass\n",
    "nemo_rl/algorithms/single_controller.py": (
        "from nemo_rl.algorithms.async_utils.replay_buffer import DataPlaneCheckpointBarrier\n\n\n"
        "class SingleControllerActor:\n"
        "    def __init__(self):\n"
        "        self.barrier = DataPlaneCheckpointBarrier()\n"
    ),
}


def printed_by_block(blocks: list[str], folder: Path, python: Path = Path(sys.executable)) -> list[str]:
    """Run blocks in one namespace in a fresh process; what each of them prints."""
    for name, text in STAND_IN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    runner = (
        "import contextlib, io, json, sys\n"
        "names, printed = {'__name__': '__main__'}, []\n"
        "for number, block in enumerate(json.load(sys.stdin)):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as output:\n"
        "        exec(compile(block, f'block {number}', 'exec'), names)\n"
        "    printed.append(output.getvalue())\n"
        "json.dump(printed, sys.stdout)\n"
    )
    ran = subprocess.run(
        [python, "-W", "error", "-c", runner],
        input=json.dumps(blocks),
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TMPDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed: list[str] = json.loads(ran.stdout)
    return printed


def test_there_are_pages() -> None:
    """A glob that finds nothing would check nothing; and whoever adds a page puts it where a reader finds it."""
    assert {page.stem for page in PAGES} >= {
        *GUIDES,
        "index",
        "tutorial",
        "protocol",
        "runbook",
        "figures",
        "neighbours",
    }
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    assert [page for page in PAGES if page.relative_to(DOCS).as_posix() not in nav] == []


def blocks_of(page: Path, version: str = f"3.{sys.version_info.minor}") -> tuple[list[str], list[str]]:
    """The blocks of Python on a page, and what each is to print on a version."""
    blocks: list[str] = []
    expected: list[str] = []
    for language, title, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python" and not title:
            blocks.append(body)
            expected.append("")
        elif language == "text" and (not title or version in re.findall(r"3\.\d+", title)):
            expected[-1] = body
        else:
            assert (language, bool(title)) in {("python", True), ("text", True), ("console", False)}, (page, language)
    return blocks, expected


WITH_BLOCKS = [page for page in PAGES if blocks_of(page)[0]]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=[page.stem for page in WITH_BLOCKS])
def test_the_blocks_of_a_page_run_and_print_what_stands_below_them(page: Path, tmp_path: Path) -> None:
    """A page that is only read goes stale; this one is run. A `text` block is the output of the block above it."""
    blocks, expected = blocks_of(page)
    assert len(blocks) >= 3 or page.stem not in GUIDES
    assert printed_by_block(blocks, tmp_path) == expected


@pytest.mark.needs("other-python")
def test_the_page_about_the_explorer_is_right_on_every_python(other_pythons: list[Path], tmp_path: Path) -> None:
    """A notification of asyncio is lost until 3.12 and kept from 3.13 on; the page tells each version its own."""
    for python in other_pythons:
        version = python.name.removeprefix("python")
        blocks, expected = blocks_of(DOCS / "exploring.md", version)
        assert "pytest" in blocks[-1]  # which is not installed there
        assert printed_by_block(blocks[:-1], tmp_path, python) == expected[:-1], version


def test_every_guide_has_blocks() -> None:
    """The list above is made from the pages; one whose blocks were renamed would silently drop out."""
    assert {page.stem for page in WITH_BLOCKS} >= {*GUIDES, "index"}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_file_that_a_page_links_or_names_exists(page: Path) -> None:
    """Links are relative to the page; tests, examples and scripts are named from the root."""
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert links or page.stem == "operations"
    assert [link for link in links if not (page.parent / link).exists()] == []
    named = re.findall(r"\b(?:tests|examples|bench)/\w+\.py", text)
    named += [f"tests/{name}" for name in re.findall(r"`(test_\w+\.py)`", text)]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_command_that_a_page_names_is_one() -> None:
    """In running text and in indented lines, which are not run: modules, subcommands, targets of make."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named: set[tuple[str, str]] = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"(?:`|^ +)make ([a-z]+)", text, flags=re.MULTILINE)) <= targets, page
        named |= set(re.findall(r"python -m (spec|interleavings|proofs|impl|cleancut) ([a-z]+|--[a-z-]+)", text))
    assert len(named) > 8
    for module, word in sorted(named):
        shown = ["--help"] if word.startswith("--") else [word, "--help"]
        command = [sys.executable, "-m", module, *shown]
        helped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert helped.returncode == 0, (module, word)
        assert not word.startswith("--") or word in helped.stdout, (module, word)


def run_as_shown(page: Path, folder: Path) -> list[tuple[str, list[str], str]]:
    """Every command of a page with what is to be seen and what was, in one shell, its files where it goes."""
    place = folder / "build" / "tutorial"
    place.mkdir(parents=True)
    commands: list[tuple[str, list[str]]] = []
    for language, title, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title.endswith(".py"):
            (place / title).write_text(body, encoding="utf-8")
        for line in body.splitlines() if language == "console" else ():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                commands[-1][1].append(line)
    (folder / ".venv").symlink_to(sys.prefix)
    script = "\n".join(f"echo '@@@'; {{ {command}\n}} 2>&1" for command, _ in commands)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3000,
        check=False,
    )
    said = ran.stdout.split("@@@\n")[1:]
    assert len(said) == len(commands), ran.stdout
    return [(command, expected, output) for (command, expected), output in zip(commands, said, strict=True)]


def unshown(expected: list[str], output: str) -> list[str]:
    """The lines that are to be seen and are not, in this order. `…` is anything, and lines may be broken elsewhere."""
    rest = " ".join(output.split())
    missing = []
    for line in expected:
        found = re.search(".*?".join(map(re.escape, " ".join(line.split()).split("…"))), rest)
        if found:
            rest = rest[found.end() :]
        else:
            missing.append(line)
    return missing


def test_what_is_not_in_an_output_is_missed() -> None:
    """A control: a line that is not there, and one that comes too early."""
    assert unshown(["b c", "d"], "a b\nc\nd e") == []
    assert unshown(["d", "b"], "a b c d") == ["b"]
    assert unshown(["x"], "a b c d") == ["x"]
    assert unshown(["a … c", "a … x"], "a b c d") == ["a … x"]


@pytest.mark.slow
def test_a_newcomer_who_follows_the_tutorial_sees_what_it_says(tmp_path: Path) -> None:
    """From a killed run and its resumption to a replayed counterexample: every command, in one shell, in order."""
    ran = run_as_shown(DOCS / "tutorial.md", tmp_path)
    assert len(ran) >= 12
    wrong = {command: output for command, expected, output in ran if unshown(expected, output)}
    assert wrong == {}
    killed, resumed = [output for command, _, output in ran if command.startswith("python my_run.py")][:2]
    assert "Traceback" not in killed
    assert "trained" not in killed
    assert "resumed from step_" in resumed


def entries(text: str) -> dict[str, str]:
    """The entries of a part of the runbook by their names."""
    pieces = re.split(r"^### `(\w+)`\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


ERRORS, _, FINDINGS = (DOCS / "runbook.md").read_text(encoding="utf-8").partition("\n## Findings of `fsck`\n")


def test_every_error_has_an_entry_in_the_runbook_and_every_entry_an_error() -> None:
    """Whoever is paged looks up the name in the traceback."""
    public = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CleancutError) and not name.startswith("_")
    }
    assert set(entries(ERRORS)) == public
    assert public >= {"DrainTimeout", "StoreFull", "InvariantViolated"}


def test_every_finding_of_fsck_has_an_entry_in_the_runbook() -> None:
    """The states of a checkpoint, what may be wrong with its owners, and what may lie around."""
    no_findings = {"root", "at", "seconds", "checkpoints", "resume", "problems", "notices", "not_checked"}
    around = {field.name for field in dataclasses.fields(Survey)} - no_findings
    # Handed out once more: the runbook tells it with what has two owners, since both are trained twice.
    owners = {field.name for field in dataclasses.fields(Ownership)} - {"handed_out", "owned", "ahead"}
    found = {name.lower() for name in entries(FINDINGS)}
    assert found == {*get_args(State), *around, *owners, "probe"}


@pytest.mark.parametrize("part", [ERRORS, FINDINGS], ids=["errors", "findings"])
def test_every_entry_says_what_happened_what_to_check_and_what_to_do(part: str) -> None:
    """In this order, each in a paragraph of its own."""
    for name, text in entries(part).items():
        beginnings = re.findall(r"(?:^|\n\n)\*\*([A-Z][a-z ]+)\.\*\* .", text.strip())
        assert beginnings == ["What happened", "Check", "Do"], name
