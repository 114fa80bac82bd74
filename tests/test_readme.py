"""The README as a newcomer uses it: its example runs and says what it promises, and what it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_and_prints_what_its_last_line_says() -> None:
    """The first thing a user tries."""
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    promised = block.strip().splitlines()[-1].split("#")[-1].strip()
    ran = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == promised


def test_every_file_and_folder_that_the_readme_links_exists() -> None:
    """A link to nothing sends the reader away."""
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert len(links) > 5
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_every_command_that_the_readme_names_is_known() -> None:
    """Modules, subcommands and make targets in the README are those there are."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", TEXT, flags=re.MULTILINE)) <= targets
    for module, command in re.findall(r"python -m ([a-z]+) ([a-z]+)", TEXT):
        if module == "pytest":
            continue
        helped = subprocess.run([sys.executable, "-m", module, command, "--help"], cwd=ROOT, capture_output=True)
        assert helped.returncode == 0, (module, command)
