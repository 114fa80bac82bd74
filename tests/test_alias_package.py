"""`cleancut.impl` is `impl`, and stays ours where the short name leads to somebody else's package."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("spec", "impl", "interleavings", "proofs")

TINY_PACKAGES = {
    "spec/__init__.py": "from spec.cut import Cut\n",
    "spec/cut.py": "class Cut:\n    pass\n",
    "impl/__init__.py": "",
    "impl/ledger.py": "class Ledger:\n    pass\n",
    "impl/broken.py": "raise RuntimeError('broken on purpose')\n",
    "impl/__main__.py": (
        "import impl.ledger\nfrom . import ledger\nprint(__name__, __package__, ledger is impl.ledger)\n"
    ),
    "interleavings/__init__.py": (
        "import spec.cut, sys\nimport impl.ledger as ledger\nfrom impl import ledger as again\n"
    ),
    "proofs/__init__.py": "def cut():\n    from spec.cut import Cut\n    return Cut\n",
}


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A place with our alias package and tiny packages beside it."""
    root = write_tree(tmp_path / "ours", TINY_PACKAGES)
    shutil.copytree(ROOT / "cleancut", root / "cleancut", ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture(params=["spec/__init__.py", "spec.py"], ids=["package", "module"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Somebody's project with a `spec` of its own, as a package or as a single module."""
    return write_tree(tmp_path / "project", {request.param: "OWNER = 'them'\n"})


def python(*arguments: str, ours: Path, cwd: Path | None = None) -> str:
    """Run a new interpreter, which looks for modules in `cwd` first and then among ours."""
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd or ours,
        env={**os.environ, "PYTHONPATH": str(ours)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_the_same_object_under_both_names(package: str) -> None:
    """Two copies of one class would fail isinstance in the middle of a run. No module is left out."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / package).rglob("*.py"))]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__"]
    assert package in names
    for name in names:
        assert importlib.import_module(f"cleancut.{name}") is importlib.import_module(name)


@pytest.mark.parametrize(
    "imports",
    [
        "import impl.ledger, cleancut.impl.ledger",
        "import cleancut.impl.ledger, impl.ledger",
        "from cleancut import impl as one; from cleancut.impl import ledger; import cleancut, impl.ledger",
    ],
)
def test_order_of_the_imports_does_not_matter(imports: str, ours: Path) -> None:
    """A library may import the long name before or after its user imports the short one."""
    check = "print(cleancut.impl is impl, cleancut.impl.ledger is impl.ledger, impl.__spec__.name)"
    assert python("-c", f"{imports}\n{check}", ours=ours) == "True True impl"


def test_threads_that_import_at_once_get_one_module(ours: Path) -> None:
    """The stand-in that the import system makes for an alias must never be seen by another thread."""
    program = """
import importlib, sys, threading
sys.setswitchinterval(1e-6)
names = ["cleancut.impl.ledger", "impl.ledger"] * 8
start, seen = threading.Barrier(len(names)), []
def load(name):
    start.wait()
    seen.append(importlib.import_module(name).Ledger)
threads = [threading.Thread(target=load, args=[name]) for name in names]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(len(seen), len(set(seen)))
"""
    assert python("-c", program, ours=ours) == "16 1"


def test_classes_keep_their_short_home_and_pickle(ours: Path) -> None:
    """What one process pickles through either name, another reads through the other."""
    program = """
import pickle
from cleancut.impl.ledger import Ledger
under_the_long_name = b"ccleancut.impl.ledger\\nLedger\\n."
print(pickle.dumps(Ledger, 0), *(pickle.loads(data) is Ledger for data in [pickle.dumps(Ledger), under_the_long_name]))
"""
    assert python("-c", program, ours=ours) == r"b'cimpl.ledger\nLedger\np0\n.' True True"


def test_reload_reloads_the_one_module(ours: Path) -> None:
    """An alias that replaced the module's own spec would make reload load a second copy."""
    program = "import importlib, sys, cleancut.impl as a; print(importlib.reload(a) is a is sys.modules['impl'])"
    assert python("-c", program, ours=ours) == "True"


def test_package_runs_under_its_long_name(ours: Path) -> None:
    """`python -m cleancut.impl` is the command line of impl, for users whose `impl` is another."""
    assert python("-m", "cleancut.impl", ours=ours) == "__main__ cleancut.impl True"


def test_missing_and_broken_modules_fail_as_usual(ours: Path) -> None:
    """The error names what was asked for, and a failed import leaves nothing behind that a second one would find."""
    program = """
import importlib, sys
for name in ["cleancut.impl.nothing", "cleancut.nothing", "cleancut.impl.broken", "cleancut.impl.broken"]:
    try:
        importlib.import_module(name)
    except (ModuleNotFoundError, RuntimeError) as error:
        print(type(error).__name__, error, name in sys.modules)
"""
    assert python("-c", program, ours=ours).splitlines() == [
        "ModuleNotFoundError No module named 'cleancut.impl.nothing' False",
        "ModuleNotFoundError No module named 'cleancut.nothing' False",
        "RuntimeError broken on purpose False",
        "RuntimeError broken on purpose False",
    ]


def test_project_with_its_own_spec_keeps_it_and_gets_ours(ours: Path, project: Path) -> None:
    """This is what the long names are for: both are loaded, and each means what its user wrote."""
    program = """
import spec, cleancut.spec
print(spec.OWNER, cleancut.spec is spec, cleancut.spec.Cut.__module__)
"""
    assert python("-c", program, ours=ours, cwd=project) == "them False cleancut.spec.cut"


def test_our_packages_find_one_another_beside_a_foreign_one(ours: Path, project: Path) -> None:
    """Our files say `import spec.cut`; where spec is taken, that must lead to ours all the same."""
    program = """
import cleancut.interleavings as i, cleancut.proofs, cleancut.impl.ledger, cleancut.spec, pickle, sys
print(i.spec is cleancut.spec, i.spec.cut.Cut is cleancut.proofs.cut(), i.sys is sys)
print(i.ledger is i.again is cleancut.impl.ledger, "impl" in sys.modules)
print(pickle.loads(pickle.dumps(cleancut.spec.Cut)) is cleancut.spec.Cut)
"""
    assert python("-c", program, ours=ours, cwd=project).splitlines() == ["True True True", "True False", "True"]


def test_package_runs_under_its_long_name_beside_a_foreign_one(ours: Path, project: Path) -> None:
    """A collision anywhere must not take the command lines away."""
    assert python("-m", "cleancut.impl", ours=ours, cwd=project) == "__main__ cleancut.impl True"


def test_bytecode_of_the_two_modes_is_not_mixed_up(ours: Path, project: Path) -> None:
    """The same files are compiled with short names in one project and with long names in another."""
    program = "import cleancut.interleavings as i; print(i.spec.__name__)"
    places = [ours, project, ours, project]
    names = [python("-c", program, ours=ours, cwd=place) for place in places]
    assert names == ["spec", "cleancut.spec", "spec", "cleancut.spec"]
