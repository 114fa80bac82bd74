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


def test_no_script_is_taken_for_a_package_that_torch_looks_for() -> None:
    """The folder of a script comes first on the path: torch asks for `cuda.bindings`, and a `cuda.py` would be run."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); import torch, torch.cuda\n"
        f"print([name for name, module in sys.modules.items() if {str(ROOT / 'bench')!r} in str(module)])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["recovery.py", "tracing.py", "two_writers.py"])
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
