"""The repository keeps its own promises: targets, exact versions, the wheel, supported Pythons."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("spec", "impl", "interleavings", "proofs", "cleancut", "cleancut_leaf")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLED_EXTRAS = ("torch", "proofs", "dev")

# A CUDA build of torch asks for these; which build pip takes is the machine's affair, so the lock leaves them out.
OF_THE_TORCH_BUILD = re.compile(r"nvidia-|cuda-|triton")


def locked_versions() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Without the flags of the make that may be running these tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def public_targets() -> list[str]:
    return re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_help_is_the_default_and_lists_every_target() -> None:
    """Somebody who types `make` alone should see what there is to do."""
    listed = [line.split()[1] for line in make().stdout.splitlines()]
    assert listed == public_targets()
    assert set(listed) >= {"check", "test", "lint", "bench", "prove", "docs", "example", "help"}


@pytest.mark.parametrize("text", ["README.md", "CONVENTIONS.md", ".ci/run"])
def test_every_make_command_in_a_text_is_a_target(text: str) -> None:
    """The first command a newcomer copies must exist."""
    named = re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / text).read_text(), re.MULTILINE)
    assert named
    assert set(named) <= set(public_targets())


def test_ci_runs_the_commands_of_the_readme() -> None:
    """What the README promises for a fresh machine is what a clean clone must pass."""
    commands = re.findall(r"^make \w+", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert commands == ["make check", "make lint", "make docs", "make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_lock_is_exact_and_sorted() -> None:
    """A range or a stray duplicate would make two machines differ; an unsorted list hides both."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert list(locked_versions()) == sorted(locked_versions())
    assert len(locked_versions()) == len(lines)


def test_lock_satisfies_the_project() -> None:
    """The versions we test with must lie in the ranges we promise."""
    wanted = [*PROJECT["dependencies"]]
    for extra in INSTALLED_EXTRAS:
        wanted += PROJECT["optional-dependencies"][extra]
    locked = locked_versions()
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


def test_lock_holds_every_dependency_of_what_it_names() -> None:
    """A dependency left out would be taken in whatever version is newest that day."""
    locked = locked_versions()
    missing = {
        f"{name} needs {requirement}"
        for name in locked
        for requirement in map(Requirement, importlib.metadata.requires(name) or [])
        if (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
        and not OF_THE_TORCH_BUILD.match(requirement.name)
        and canonicalize_name(requirement.name) not in locked
    }
    assert missing == set()


def test_installed_versions_are_the_locked_ones() -> None:
    """Otherwise this very run tests something else than what a clean clone gets."""
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name in locked_versions()}
    assert installed == locked_versions()


def test_import_impl_needs_no_extra() -> None:
    """The core dependencies are what every user pays for: one for impl, one for the command lines."""
    assert [Requirement(text).name for text in PROJECT["dependencies"]] == ["msgspec", "rich"]


def test_wheel_holds_the_packages_their_type_markers_and_the_licence(tmp_path: Path) -> None:
    """A wheel built wrong is found by users only: type markers and licence are what gets lost."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        licence = archive.read(f"cleancut-{PROJECT['version']}.dist-info/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == set(PACKAGES)
    for package in PACKAGES:
        assert {f"{package}/py.typed", f"{package}/__init__.py"} <= set(names)


@pytest.mark.needs("other-python")
def test_sources_compile_on_every_supported_python(other_pythons: list[Path]) -> None:
    """CPython 3.11 to 3.13 is a promise; syntax newer than 3.11 would break it at import."""
    program = "import pathlib, sys; [compile(pathlib.Path(name).read_bytes(), name, 'exec') for name in sys.argv[1:]]"
    sources = [str(path) for package in (*PACKAGES, "tests") for path in sorted((ROOT / package).rglob("*.py"))]
    for python in other_pythons:
        result = subprocess.run(
            [python, "-W", "error", "-c", program, *sources], capture_output=True, text=True, check=False
        )
        assert (python, result.returncode, result.stderr) == (python, 0, "")


SHORT_LIMIT = re.compile(
    r"(subprocess\.run|communicate|\.wait)\(.*\btimeout=([0-9]{1,3})\b"
    r"|\.wait\([0-9]{1,2}(\.[0-9]*)?\)"
    r"|monotonic\(\) \+ [0-9]"
)


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("process.communicate(timeout=60)", True),
        ("assert ready.wait(60)", True),
        ("limit = time.monotonic() + 20", True),
        ("process.communicate(timeout=3000)", False),
        ("assert ready.wait(HANG_SECONDS)", False),
    ],
)
def test_case_G35_a_limit_of_a_minute_would_be_noticed(line: str, short: bool) -> None:
    """Who checks the check: each form that a short limit had."""
    assert bool(SHORT_LIMIT.search(line)) == short


def test_case_G35_no_limit_in_seconds_decides_a_test_on_a_machine_five_times_slower() -> None:
    """Two of six thousand tests were killed at a load of twenty: what is left are limits for hangs, of minutes."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["faulthandler_timeout"] >= 3000
    short = [
        f"{path.name}: {line.strip()}"
        for path in sorted((ROOT / "tests").glob("*.py"))
        if path != Path(__file__)
        for line in path.read_text().splitlines()
        if SHORT_LIMIT.search(line) and "asyncio.wait(" not in line
    ]
    assert short == []
