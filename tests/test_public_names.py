"""Public names stand once, in a stub; each is loaded at its first use, and one that is not there is said."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STUBS = sorted(
    path.parent.relative_to(ROOT).as_posix().replace("/", ".")
    for package in ("impl", "interleavings", "spec", "proofs")
    for path in (ROOT / package).rglob("__init__.pyi")
)


def test_there_are_stubs() -> None:
    """The parameters of the tests below are found, so they could be none."""
    assert "impl" in STUBS


@pytest.mark.parametrize("package", STUBS)
def test_every_name_of_a_stub_is_there(package: str) -> None:
    """Type checkers believe the stub; a name that was moved would be missed by the first user alone."""
    module = importlib.import_module(package)
    assert module.__all__ == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing_of_this_name'"):
        _ = module.nothing_of_this_name


def test_a_name_is_loaded_when_it_is_asked_for(tmp_path: Path) -> None:
    """Under another name too, and no earlier; a line of another form is none of the names."""
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from cleancut_leaf.public import names_in_stub\n\n"
        "__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)\n"
    )
    (package / "__init__.pyi").write_text(
        "from typing import Any\n\nfrom .door import Key as Opener\nfrom .door import Key as Key\n\nprivate: Any\n"
    )
    (package / "door.py").write_text("print('loaded')\n\n\nclass Key: ...\n")
    program = "import house; print(house.__all__, 'door' in dir(house)); print(house.Opener is house.Key)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["['Key', 'Opener'] False", "loaded", "True"]
