"""`.ci/setup` makes .venv once, keeps it current, and never trusts a half-made one.

The interpreter here is a stand-in that writes down how it is called, so that the tests are about the script alone.
PATH holds nothing but that and POSIX_TOOLS: a fresh machine promises no more.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
POSIX_TOOLS = ("sh", "cat", "cmp", "cp", "dirname", "kill", "mkdir", "rm", "tail")

STAND_IN = """#!/bin/sh
echo "$*" >>calls
case "$*" in
    "--version") echo "Python 3.10.13" ;;
    "-c import sys"*) [ ! -e unsupported ] || exit 1 ;;
    "-c import pip") ;;
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip install"*"-r requirements.lock")
        if [ -e die ]; then signal=$(cat die); rm die; kill -$signal $PPID; exit 1; fi
        if [ -e refuse ]; then echo "ERROR: No matching distribution found"; exit 1; fi ;;
esac
"""


@dataclass
class Tree:
    """A working tree with nothing in it but what the script reads, and a PATH with one Python."""

    folder: Path

    def set_up(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "bin" / "sh", ".ci/setup"],
            cwd=self.folder,
            env={"PATH": str(self.folder / "bin")},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        """What the interpreter was asked since the last time, shortened to the step it stands for."""
        log = self.folder / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        steps = {"-m venv .venv": "venv", "-r requirements.lock": "lock", "-e .": "project"}
        return [step for line in lines for ending, step in steps.items() if line.endswith(ending)]

    def write(self, name: str, text: str = "") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def add_python(self, name: str) -> None:
        self.write(f"bin/{name}", STAND_IN).chmod(0o755)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.add_python("python3")
    for tool in POSIX_TOOLS:
        place = shutil.which(tool)
        assert place is not None
        (tmp_path / "bin" / tool).symlink_to(place)
    tree.write(".ci/setup", (ROOT / ".ci" / "setup").read_text())
    tree.write("pyproject.toml", "[project]\n")
    tree.write("requirements.lock", "msgspec==1\n")
    return tree


def test_first_run_makes_the_environment_and_the_second_does_nothing(tree: Tree) -> None:
    """Every target runs the script, so once all is in place it must cost next to nothing."""
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["venv", "lock", "project"]
    again = tree.set_up()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert tree.calls() == []


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml"])
def test_changed_wishes_update_the_environment_in_place(tree: Tree, changed: str) -> None:
    """After a pull the environment follows by itself, without a minute of making it anew."""
    tree.set_up()
    tree.calls()
    tree.write(changed, "# another text\n")
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["lock", "project"]
    tree.set_up()
    assert tree.calls() == []


def test_moved_tree_is_installed_again(tree: Tree, tmp_path: Path) -> None:
    """An editable install holds the folder's path: a copy would go on importing the original."""
    tree.set_up()
    tree.calls()
    copy = Tree(shutil.copytree(tree.folder, tmp_path / "copy", symlinks=True))
    assert copy.set_up().returncode == 0
    assert copy.calls() == ["lock", "project"]


@pytest.mark.parametrize("signal", ["KILL", "INT", "TERM"])
def test_interrupted_set_up_is_made_anew(tree: Tree, signal: str) -> None:
    """What an interrupted pip leaves behind may import and still be wrong: nothing of it is kept."""
    tree.write("die", signal)
    assert tree.set_up().returncode != 0
    half_made = tree.write(".venv/half-made")
    tree.calls()
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["venv", "lock", "project"]
    assert not half_made.exists()


@pytest.mark.parametrize("signal", ["KILL", "INT", "TERM"])
def test_interrupted_update_is_made_anew(tree: Tree, signal: str) -> None:
    """The stamp of the last good state must not vouch for a state that an update left half-way."""
    tree.set_up()
    tree.write("requirements.lock", "msgspec==2\n")
    tree.write("die", signal)
    assert tree.set_up().returncode != 0
    tree.write("requirements.lock", "msgspec==1\n")
    tree.calls()
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["venv", "lock", "project"]


def test_environment_without_python_is_made_anew(tree: Tree) -> None:
    """The interpreter that .venv links to may be gone after an upgrade of the system."""
    tree.set_up()
    tree.calls()
    (tree.folder / ".venv" / "bin" / "python").unlink()
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["venv", "lock", "project"]


def test_environment_made_by_hand_is_kept(tree: Tree) -> None:
    """Somebody's own .venv may hold more than we know of; deleting it would be rude."""
    shutil.copy(tree.folder / "bin" / "python3", tree.write(".venv/bin/python"))
    (tree.folder / ".venv" / "bin" / "python").chmod(0o755)
    own = tree.write(".venv/lib/own-package")
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["lock", "project"]
    assert own.exists()


def test_failed_install_shows_the_log_and_is_tried_again(tree: Tree) -> None:
    """pip's output is kept off the screen until it is the news."""
    refuse = tree.write("refuse")
    failed = tree.set_up()
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-2:] == [
        "ERROR: No matching distribution found",
        "setup: failed at: .venv/bin/python -m pip install --disable-pip-version-check -r requirements.lock"
        " (all output: build/setup.log). Mend the cause and run make again.",
    ]
    refuse.unlink()
    tree.calls()
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["lock", "project"]


def test_failed_update_keeps_the_environment_and_trusts_no_old_stamp(tree: Tree) -> None:
    """A network that is down must not cost the whole environment, nor may a change taken back hide what pip did."""
    tree.set_up()
    tree.write("requirements.lock", "msgspec==2\n")
    refuse = tree.write("refuse")
    assert tree.set_up().returncode == 1
    refuse.unlink()
    tree.write("requirements.lock", "msgspec==1\n")
    tree.calls()
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["lock", "project"]


def test_unsupported_python_is_named_with_what_is_wanted(tree: Tree) -> None:
    """The one thing that the script cannot install itself must be said in words."""
    tree.write("unsupported")
    refused = tree.set_up()
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "setup: no supported Python: python3 is Python 3.10.13, and none of python3.11, python3.12, python3.13 runs.",
        "setup: install CPython 3.11, 3.12 or 3.13 with its venv module"
        " (Debian: python3 and python3-venv); run make again.",
    ]
    assert not (tree.folder / ".venv").exists()


def test_another_supported_python_is_found_beside_an_old_one(tree: Tree) -> None:
    """On many machines python3 is old and python3.12 stands beside it."""
    tree.write("bin/python3", "#!/bin/sh\nexit 1\n").chmod(0o755)
    tree.add_python("python3.12")
    assert tree.set_up().returncode == 0
    assert tree.calls() == ["venv", "lock", "project"]
