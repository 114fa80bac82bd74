"""The marker `every_schedule`: an async test runs under the explorer, beside pytest-asyncio."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = """
import asyncio
import pytest


@pytest.fixture
def start():
    return 1

@pytest.mark.every_schedule
async def test_holds(start):
    lock = asyncio.Lock()
    value = start

    async def add():
        nonlocal value
        async with lock:
            seen = value
            await asyncio.sleep(0)
            value = seen + 1

    await asyncio.gather(add(), add())
    assert value == 3

@pytest.mark.every_schedule
async def test_fails():
    value = 0

    async def add():
        nonlocal value
        seen = value
        await asyncio.sleep(0)
        value = seen + 1

    await asyncio.gather(add(), add())
    assert value == 2, "lost update"

@pytest.mark.every_schedule(cancels=1, max_states=5)
async def test_bounded():
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0), return_exceptions=True)

class TestInAClass:
    @pytest.mark.parametrize("tasks", [1, 2])
    @pytest.mark.every_schedule
    async def test_method(self, tasks):
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(tasks)))

async def test_ordinary_async_test_keeps_its_own_loop():
    assert type(asyncio.get_running_loop()).__module__ != "interleavings.runtime.loop"
"""


def _run(folder: Path, *options: str, text: str = _TESTS) -> tuple[int, str]:
    (folder / "test_marked.py").write_text(text, encoding="utf-8")
    root = Path(__file__).resolve().parent.parent
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options, "test_marked.py"],
        cwd=folder,
        env={
            "PYTHONPATH": str(root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # only the plugins named here, whatever is installed
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout + finished.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of its own with the plugin loaded by a conftest, as an installed entry point would."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["interleavings.pytest_plugin"]\n', encoding="utf-8")
    return tmp_path


def test_marked_tests_run_every_schedule_beside_pytest_asyncio_in_auto_mode(folder: Path) -> None:
    """Auto mode wants every async test for itself; marked ones are the explorer's, the others stay its own."""
    code, output = _run(folder, "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto", "--strict-markers")
    assert code == 1, output
    for line in (
        "PASSED test_marked.py::test_holds",
        "PASSED test_marked.py::TestInAClass::test_method[1]",
        "PASSED test_marked.py::TestInAClass::test_method[2]",
        "PASSED test_marked.py::test_ordinary_async_test_keeps_its_own_loop",
        "FAILED test_marked.py::test_fails",
        "FAILED test_marked.py::test_bounded",
    ):
        assert line in output, output
    assert "fails (exception: AssertionError: lost update" in output
    assert "task-step add-1: test_marked.py:" in output
    assert "holds (bounded: max_states=5 reached" in output


def test_marked_tests_run_without_pytest_asyncio(folder: Path) -> None:
    """The plugin needs no other plugin to run a coroutine."""
    code, output = _run(folder, "-k", "holds or method")
    assert code == 0, output
    assert "3 passed" in output


def test_marker_on_a_synchronous_test_is_a_usage_error(folder: Path) -> None:
    """There is nothing to schedule in it; a test that looks checked and is not would be worse than an error."""
    text = "import pytest\n\n@pytest.mark.every_schedule\ndef test_plain():\n    pass\n"
    code, output = _run(folder, text=text)
    assert code != 0
    assert "marks async tests only" in output
