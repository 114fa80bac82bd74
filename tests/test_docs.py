"""The pages of docs/ as a reader uses them: their blocks run in order and print what stands below them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

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


def printed_by_block(blocks: list[str], folder: Path) -> list[str]:
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
        [sys.executable, "-W", "error", "-c", runner],
        input=json.dumps(blocks),
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TMPDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed: list[str] = json.loads(ran.stdout)
    return printed


def test_there_are_pages() -> None:
    """A glob that finds nothing would check nothing."""
    assert {page.name for page in PAGES} >= {"adopting.md", "swap-nemo-rl.md"}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_blocks_of_a_page_run_and_print_what_stands_below_them(page: Path, tmp_path: Path) -> None:
    """A page that is only read goes stale; this one is run. A `text` block is the output of the block above it."""
    blocks: list[str] = []
    expected: list[str] = []
    for language, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            blocks.append(body)
            expected.append("")
        else:
            assert language == "text"
            expected[-1] = body
    assert len(blocks) >= 3
    assert printed_by_block(blocks, tmp_path) == expected


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_file_that_a_page_links_or_names_exists(page: Path) -> None:
    """Links are relative to the page; tests and examples are named from the root."""
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []
    named = re.findall(r"\b(?:tests|examples)/\w+\.py", text)
    named += [f"tests/{name}" for name in re.findall(r"`(test_\w+\.py)`", text)]
    assert [name for name in named if not (ROOT / name).exists()] == []
