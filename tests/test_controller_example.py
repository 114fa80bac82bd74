"""The example in impl/README.md runs as it is printed, and resumes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_example_of_the_readme_runs_and_resumes(tmp_path: Path) -> None:
    """A newcomer copies it: the first run trains everything, the second finds nothing left to do."""
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "impl" / "README.md").read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    outputs = [
        subprocess.run(
            [sys.executable, "example.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=3000,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0].count("step ") == 5
    assert "outcome='exhausted', steps=5, trained=20, dropped={}" in outputs[0]
    assert outputs[1].count("step ") == 0
    assert "trained=20" in outputs[1]
    assert "trained_now=0" in outputs[1]
