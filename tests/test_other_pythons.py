"""The parts that need no torch, on every other supported CPython of this machine, with the locked packages.

Each interpreter gets a virtual environment in build/other-python, which a stamp keeps between runs, and in it the files
named here run as they do everywhere else. Eager tasks are tested there alone: they came with CPython 3.12.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SUPPORTED_PYTHONS, find_python
from progress import output_while_it_moves

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "build" / "other-python"

# What the files below import, in the versions of requirements.lock; pip adds what these need, from the same list.
PACKAGES = ("hypothesis", "msgspec", "pytest", "pytest-asyncio", "rich", "trio")

# What runs there, in groups that are each a pytest of its own: on a slow machine one run of all would meet the limit
# for hangs. The barrier on both front ends, the ledger, the loader, the permits; the samplers; the explorer; the text
# of the machines and the reference engine; the store short of tensors.
GROUPS: dict[str, tuple[str, ...]] = {
    "barrier": ("accounts", "barrier_*", "buffer_permits", "ledger*", "loader", "loader_identity"),
    "samplers": ("samplers", "samplers_by_count", "samplers_gate"),
    "explorer": ("explorer_*",),
    "spec": ("spec_actions", "spec_cases*", "spec_counterexample", "spec_engine"),
    "store": (
        "store_files",
        "store_kill",
        "store_lock",
        "store_manifest",
        "store_names",
        "store_publication",
        "store_reading",
        "store_retention",
        "store_strict_json",
    ),
}
# What may be skipped there, by the reason it gives. Anything else that does not run is a failure.
SKIPPED_FOR_GOOD = (
    "other-python: wait_for was rewritten in Python 3.12",
    "could not import 'numpy'",
)
EAGER = "tests/test_barrier_asyncio.py::test_an_eager_child_is_refused_like_any_other"

pytestmark = [pytest.mark.slow, pytest.mark.needs("other-python")]


def files(group: str) -> list[str]:
    """The files of a group, by name; a pattern that matches nothing is a mistake."""
    found = {pattern: sorted((ROOT / "tests").glob(f"test_{pattern}.py")) for pattern in GROUPS[group]}
    assert [pattern for pattern, paths in found.items() if not paths] == []
    return [path.relative_to(ROOT).as_posix() for paths in found.values() for path in paths]


def version_of(python: Path) -> str:
    program = "import platform; print(platform.python_version())"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def environment_of(python: Path) -> Path:
    """The interpreter of a virtual environment with the locked packages; made once, until they or the Python change."""
    version = version_of(python)
    home = ENVIRONMENTS / version
    wanted = "\n".join((str(python), version, *PACKAGES, (ROOT / "requirements.lock").read_text()))
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with open(ENVIRONMENTS / f"{version}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = home / "cleancut-stamp"
        if not stamp.is_file() or stamp.read_text() != wanted:
            shutil.rmtree(home, ignore_errors=True)
            step(python, "-m", "venv", home)
            pip = (home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            step(*pip, "-c", ROOT / "requirements.lock", *PACKAGES)
            # Last, so that whatever interrupts this is seen by the next run.
            stamp.write_text(wanted)
    return home / "bin" / "python"


def step(*command: str | Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (
        f"{' '.join(map(str, command))} failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
    )


@pytest.fixture(params=[each for each in SUPPORTED_PYTHONS if each != f"{sys.version_info[0]}.{sys.version_info[1]}"])
def python(request: pytest.FixtureRequest) -> Path:
    """Each of the other interpreters, in an environment of its own."""
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"there is no CPython {request.param} here")
    return environment_of(found)


def output_of(python: Path, *what: str) -> str:
    """What pytest prints under an interpreter, a line a test; it may take as long as it likes while it goes on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    # The plugin of the explorer is loaded by name: the project itself is not installed there, only looked at.
    options = ["-v", "-rs", "--tb=short", "-p", "no:cacheprovider", "-p", "interleavings.pytest_plugin"]
    process = subprocess.Popen(
        [str(python), "-m", "pytest", *options, *what],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return output_while_it_moves(process)


@pytest.mark.parametrize("group", GROUPS)
def test_case_G35_the_parts_without_torch_pass_on_every_other_python(python: Path, group: str) -> None:
    """All of them: a test that did not run would read as one that passed. One run of all was killed for its length."""
    output = output_of(python, *files(group))
    lines = output.rstrip().splitlines()
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    assert [line for line in skipped if not any(reason in line for reason in SKIPPED_FOR_GOOD)] == []
    failed = [line for line in lines if " FAILED " in line or line.startswith(("FAILED", "ERROR"))]
    green = re.fullmatch(r"=+ \d+ passed(, \d+ skipped)? in .*", lines[-1])
    assert green, f"{python}: {lines[-1]}\n" + "\n".join([*failed, output[-4000:]])


def test_an_eager_task_is_tested_wherever_there_are_eager_tasks(python: Path) -> None:
    """Under an older Python it is absent, and under every other one it runs and passes."""
    having = tuple(map(int, version_of(python).split(".")[:2])) >= (3, 12)
    assert (f"{EAGER} PASSED" in output_of(python, EAGER)) == having
