"""Every script of bench/ starts: a change of what it imports shows here, and not when somebody wants its figures."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(path.name for path in (ROOT / "bench").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_measures_and_takes_the_options_of_all(script: str) -> None:
    """`--help` imports everything; what the script calls is seen by the type check."""
    done = subprocess.run(
        [sys.executable, f"bench/{script}", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--json" in done.stdout
    assert "--quick" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", ["recovery.py", "tracing.py"])
def test_a_script_that_takes_a_second_runs(script: str, tmp_path: Path) -> None:
    """The others take longer even so; each is run by hand before its figures are quoted."""
    done = subprocess.run(
        [sys.executable, f"bench/{script}", "--quick", "--json", str(tmp_path / "rows.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "rows.json").read_text().startswith("[")
