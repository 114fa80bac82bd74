"""Who may import whom, what may be heavy, and how long a file may be: read off every source file by AST.

The rules stand in the three tables below, each exception with its reason. The last tests run the checker on a small
wrong tree, for a checker that finds nothing anywhere would pass every other test here.
"""

import ast
import fnmatch
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("spec", "impl", "interleavings", "proofs", "cleancut", "cleancut_leaf")
LEAF = "cleancut_leaf"
LONGEST_FILE = 700
MOST_LOOSE_FILES = 12
NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "misc"}

# Files that may import another package of ours. Every other file imports its own package and the leaf alone.
BRIDGES = (
    ("interleavings/scenarios/*", {"impl", "spec"}, "the programs explored are the real library"),
    ("interleavings/correspondence/*", {"impl", "spec"}, "maps events of impl to actions of spec, and follows traces"),
    ("interleavings/conformance*", {"impl", "spec"}, "holds recorded runs of impl against spec"),
    ("proofs/*", {"spec"}, "proves the very text that spec enumerates"),
    ("proofs/contracts/functions.py", {"impl"}, "states contracts on the pure functions of the library"),
    ("proofs/contracts/wrong_versions.py", {"impl"}, "wrong versions of them, which the contracts must refute"),
    ("cleancut/check.py", {"spec", "interleavings", "proofs"}, "runs them one after another"),
    ("cleancut/report.py", {"interleavings"}, "every page escapes what it is given in one function"),
)

# Parts of the explorer that know impl and spec. Its core is generic: only a command line reaches them, and lazily.
BRIDGE_MODULES = tuple(f"interleavings.{name}" for name in ("scenarios", "correspondence", "conformance"))
BRIDGE_FILES = tuple(f"interleavings/{name}*" for name in ("scenarios/", "correspondence/", "conformance"))
BRIDGE_USERS = ("interleavings/__main__.py", "interleavings/command_line.py")

# Where a package from elsewhere may be imported; `lazily` is inside a function or for type checkers only.
ANYWHERE, LAZILY = "anywhere in the file", "lazily"
FOREIGN = (
    ("impl/*", {"msgspec"}, ANYWHERE, "strict JSON is its one dependency"),
    ("*/__main__.py", {"rich"}, ANYWHERE, "command lines print tables"),
    ("*/command_line.py", {"rich"}, ANYWHERE, "command lines print tables"),
    ("cleancut_leaf/terminal.py", {"rich"}, ANYWHERE, "command lines show how far they are"),
    ("cleancut_leaf/terminal.py", {"shtab"}, LAZILY, "completion for the shell, an extra"),
    ("impl/inspection/plain_text.py", {"rich"}, ANYWHERE, "what was read from a disk, fit for a console"),
    ("impl/inspection/watch.py", {"rich"}, ANYWHERE, "a live table on a terminal; imported by the command line alone"),
    ("spec/command/counterexample.py", {"rich"}, ANYWHERE, "prints a trace as a numbered table"),
    ("cleancut/check.py", {"rich"}, ANYWHERE, "the command line of `make check`"),
    ("impl/barrier/trio_*.py", {"trio"}, ANYWHERE, "adapt the barrier to trio; only `impl.trio` imports them"),
    ("impl/rows/tensor_plane.py", {"torch", "numpy"}, ANYWHERE, "adapts torch tensors, loaded on demand"),
    ("impl/*/torch_*.py", {"torch"}, ANYWHERE, "adapt torch modules and optimizers, loaded on demand"),
    ("impl/loaders/torchdata_loader.py", {"torch", "torchdata"}, ANYWHERE, "adapts StatefulDataLoader, an extra"),
    ("impl/transfer_queue.py", {"torch", "transfer_queue"}, ANYWHERE, "adapts TransferQueue, an extra"),
    ("impl/prometheus.py", {"prometheus_client"}, ANYWHERE, "adapts the Prometheus client, an extra"),
    ("impl/ray/*", {"ray"}, ANYWHERE, "adapts the barrier to Ray, an extra; imported by its own name alone"),
    ("impl/store/*", {"torch", "safetensors"}, LAZILY, "tensors lie in safetensors files"),
    ("impl/demo*", {"torch", "rich"}, ANYWHERE, "trains a real policy and prints a table; examples/grpo shares parts"),
    ("interleavings/search/parallel/on_ray.py", {"ray"}, LAZILY, "adapts the explorer's workers to Ray, an extra"),
    ("interleavings/pytest_plugin.py", {"pytest"}, ANYWHERE, "adapts pytest; the explorer itself never imports it"),
    ("interleavings/scenarios/*", {"torch"}, LAZILY, "the programs explored commit real tensors"),
    ("interleavings/conformance*", {"torch"}, LAZILY, "the runs driven commit real tensors"),
    ("proofs/*", {"z3"}, ANYWHERE, "the solver"),
    ("proofs/contracts/functions.py", {"crosshair"}, LAZILY, "runs what is written in C out of its sight"),
    ("spec/engines/ray_shards.py", {"ray"}, LAZILY, "adapts the owners of states to Ray, an extra"),
    ("spec/engines/arrays/*", {"torch"}, ANYWHERE, "the array engine, an extra, loaded on demand"),
    ("spec/engines/compiled/*", {"numba", "numpy", "llvmlite"}, ANYWHERE, "the compiled engine, an extra"),
)


# Files that import one another in a circle, type checkers' imports counted, each with the reason why they are not one.
CIRCLES = (
    (
        {"cleancut/alias.py", "cleancut/shadowed.py"},
        "the second brings `ast`, which nobody without a collision pays for",
    ),
    (
        {"impl/barrier/asyncio_barrier.py", "impl/barrier/asyncio_sections.py"},
        "a section names the barrier that it belongs to, for type checkers",
    ),
    (
        {"impl/barrier/front_end.py", "impl/barrier/hold_watch.py", "impl/barrier/section.py"},
        "a section names the front end that it belongs to, for type checkers",
    ),
    (
        {"impl/barrier/trio_barrier.py", "impl/barrier/trio_sections.py"},
        "a section names the barrier that it belongs to, for type checkers",
    ),
    ({"impl/ray/barrier.py", "impl/ray/sections.py"}, "a section names the barrier that it belongs to"),
    ({"interleavings/runtime/loop.py", "interleavings/runtime/tasks.py"}, "a task knows its loop, as in asyncio"),
    (
        {"interleavings/runtime/result.py", "interleavings/runtime/trace.py"},
        "a trace ends in a failure, a result has a trace",
    ),
    (
        {f"interleavings/state/{name}.py" for name in ("instances", "iterators", "readers", "statics", "walkers")},
        "whoever reads an object has the walk read what it refers to",
    ),
    ({"spec/engines/reference.py", "spec/engines/symmetry.py"}, "orbits are searched by the reference engine itself"),
    ({"spec/language/machine.py", "spec/language/model.py"}, "a machine makes the model of a scope of itself"),
)

# The files of the library that may speak to a terminal, and the functions that speak past the logger `cleancut`.
SPEAKERS = ("impl/__main__.py", "impl/demo/*", "impl/inspection/command_line.py")
LOGGING_TO_THE_ROOT = {"debug", "info", "warning", "error", "exception", "critical", "log", "basicConfig"}


@dataclass(frozen=True)
class Import:
    """One imported name, in full: `from .keys import Key` in `impl/ledger.py` is `impl.keys.Key`."""

    name: str
    line: int
    lazy: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def source_files(root: Path) -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path


def imports_of(name: str, path: Path) -> list[Import]:
    """Collect what a file imports, by statement or by a constant name given to `import_module`."""
    package = name.removesuffix(".py").replace("/", ".").rpartition(".")[0]
    found: list[Import] = []

    def add(node: ast.stmt | ast.expr, target: str, lazy: bool) -> None:
        absolute = importlib.util.resolve_name(target, package) if target.startswith(".") else target
        found.append(Import(absolute, node.lineno, lazy))

    def visit(node: ast.AST, lazy: bool) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    add(node, alias.name, lazy)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = "." * level + (module or "")
                for alias in names:
                    add(node, f"{base}{'' if base.endswith('.') else '.'}{alias.name}", lazy)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                add(node, target, lazy)
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for field, value in ast.iter_fields(node):
            typing_only = isinstance(node, ast.If) and field == "body" and "TYPE_CHECKING" in ast.unparse(node.test)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, inside or typing_only)

    visit(ast.parse(path.read_bytes(), name), lazy=False)
    return found


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def crossings(root: Path) -> list[str]:
    """Imports of one package of ours by another, where no bridge allows it."""
    wrong = []
    for name, path in source_files(root):
        own = name.partition("/")[0]
        allowed = {own, LEAF}.union(*(targets for pattern, targets, _ in BRIDGES if fnmatch.fnmatch(name, pattern)))
        for imported in imports_of(name, path):
            if imported.top in PACKAGES and imported.top not in allowed:
                wrong.append(f"{name}:{imported.line} imports {imported.name}")
    return wrong


def bridge_uses(root: Path) -> list[str]:
    """Imports of the explorer's bridge by its core, but for the lazy ones of a command line."""
    wrong = []
    for name, path in source_files(root):
        if not name.startswith("interleavings/") or matches(name, BRIDGE_FILES):
            continue
        for imported in imports_of(name, path):
            is_bridge = f"{imported.name}.".startswith(tuple(f"{module}." for module in BRIDGE_MODULES))
            if is_bridge and not (imported.lazy and name in BRIDGE_USERS):
                wrong.append(f"{name}:{imported.line} imports {imported.name}")
    return wrong


def arrows(root: Path, room: Callable[[str], str]) -> dict[str, set[str]]:
    """Who imports whom, all files that `room` gives one name taken as one. A package's `__init__` is no file of it."""
    files = {name.removesuffix(".py").replace("/", "."): (name, path) for name, path in source_files(root)}
    found: dict[str, set[str]] = {}
    for module, (name, path) in files.items():
        if module.endswith(".__init__"):
            continue
        targets = found.setdefault(room(name), set())
        for imported in imports_of(name, path):
            target = imported.name if imported.name in files else imported.name.rpartition(".")[0]
            if target in files and room(files[target][0]) != room(name):
                targets.add(room(files[target][0]))
    return found


def circles(arrow: dict[str, set[str]]) -> list[set[str]]:
    """The sets of names, of two or more, in which each reaches every other."""
    reached: dict[str, set[str]] = {}
    for start in arrow:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            for target in arrow.get(ahead.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    ahead.append(target)
        reached[start] = seen
    found = {frozenset({one} | {other for other in reached[one] if one in reached.get(other, ())}) for one in arrow}
    return sorted((set(circle) for circle in found if len(circle) > 1), key=sorted)


def room_of(name: str) -> str:
    """The folder below a package, or the file that stands loose in one."""
    return "/".join(name.split("/")[:2])


def foreign_imports(root: Path) -> list[str]:
    """Imports from outside the standard library, where FOREIGN does not list them."""
    wrong = []
    for name, path in source_files(root):
        rules = [(modules, when) for pattern, modules, when, _ in FOREIGN if fnmatch.fnmatch(name, pattern)]
        for imported in imports_of(name, path):
            if imported.top in PACKAGES or imported.top in sys.stdlib_module_names:
                continue
            if not any(imported.top in modules and (imported.lazy or when == ANYWHERE) for modules, when in rules):
                wrong.append(f"{name}:{imported.line} imports {imported.name}")
    return wrong


def names_that_say_nothing(root: Path) -> list[str]:
    """Modules and folders called utils, common or misc."""
    return [name for name, _ in source_files(root) if NAMES_THAT_SAY_NOTHING & set(Path(name).with_suffix("").parts)]


def long_files(root: Path) -> list[str]:
    """Files over the limit. There is no list of exceptions: such a file holds two ideas."""
    lengths = [(name, len(path.read_text().splitlines())) for name, path in source_files(root)]
    return [f"{name}: {lines} lines" for name, lines in lengths if lines > LONGEST_FILE]


def crowded(root: Path) -> list[str]:
    """Packages with more loose files than a reader takes in at once: what they hold belongs into rooms."""
    loose = Counter(name.partition("/")[0] for name, _ in source_files(root) if name.count("/") == 1)
    return [f"{package}: {number} loose files" for package, number in loose.items() if number > MOST_LOOSE_FILES]


def prints(root: Path) -> list[str]:
    """Writes to a terminal by the library, outside of its command line and its demonstration."""
    wrong = []
    for name, path in source_files(root):
        if not name.startswith("impl/") or matches(name, SPEAKERS):
            continue
        for node in ast.walk(ast.parse(path.read_bytes(), name)):
            named = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
            if named in ("print", "sys.stdout", "sys.stderr"):
                assert isinstance(node, ast.expr)
                wrong.append(f"{name}:{node.lineno} uses {named}")
    return wrong


def foreign_loggers(root: Path) -> list[str]:
    """Loggers of the library that a program cannot reach under the one name `cleancut`; the root logger is one."""
    wrong = []
    for name, path in source_files(root):
        for node in ast.walk(ast.parse(path.read_bytes(), name)) if name.startswith("impl/") else ():
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in ("logging.getLogger", "getLogger"):
                given = ast.unparse(node.args[0]) if node.args else "''"
                if not re.fullmatch(r"'cleancut(\.[a-z_]+)*'", given):
                    wrong.append(f"{name}:{node.lineno} makes the logger {given}")
            elif called.startswith("logging.") and called.rpartition(".")[2] in LOGGING_TO_THE_ROOT:
                wrong.append(f"{name}:{node.lineno} calls {called}")
    return wrong


def python(program: str) -> str:
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_checker_sees_every_package() -> None:
    """A checker pointed at the wrong folder would find nothing wrong."""
    assert {name.partition("/")[0] for name, _ in source_files(ROOT)} == set(PACKAGES)


def test_packages_import_one_another_only_over_the_bridges() -> None:
    """spec and impl stay independent, or the one could not be evidence about the other."""
    assert crossings(ROOT) == []


def test_core_of_the_explorer_is_generic() -> None:
    """Users explore their own coroutines with it, without our library and our state machines."""
    assert bridge_uses(ROOT) == []


def test_no_room_imports_another_in_a_circle() -> None:
    """A room stands above all that it imports: whoever reads from below meets no name that comes later."""
    assert circles(arrows(ROOT, room_of)) == [{"cleancut/alias.py", "cleancut/shadowed.py"}]


def test_files_that_import_one_another_say_why() -> None:
    """Two files in a circle are one idea in two places; where they are not, the table says so."""
    assert circles(arrows(ROOT, lambda name: name)) == [circle for circle, _ in CIRCLES]


def test_checker_finds_each_circle(tmp_path: Path) -> None:
    """Over three files, by a lazy import, and one for type checkers; a fork that meets again is none."""
    tree = {
        "spec/a.py": "from .b import B\nfrom .d import D\n",
        "spec/b.py": "def late():\n    from spec.c import C\n",
        "spec/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import A\n",
        "spec/d.py": "from .e import E\n",
        "spec/e.py": "",
        "impl/run/ledger.py": "from ..rows.plane import P\n",
        "impl/rows/plane.py": "from ..run.buffer import B\n",
        "impl/run/buffer.py": "",
    }
    for name, source in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert circles(arrows(tmp_path, lambda name: name)) == [{"spec/a.py", "spec/b.py", "spec/c.py"}]
    assert circles(arrows(tmp_path, room_of)) == [{"impl/rows", "impl/run"}, {"spec/a.py", "spec/b.py", "spec/c.py"}]


def test_foreign_packages_stay_in_the_files_that_adapt_them() -> None:
    """Whoever uses the barrier alone installs neither torch nor a solver."""
    assert foreign_imports(ROOT) == []


def test_every_module_has_a_telling_name() -> None:
    """What is called utils is a drawer, and a drawer grows."""
    assert names_that_say_nothing(ROOT) == []


def test_no_file_is_longer_than_a_reader_bears() -> None:
    """One idea a file; a file of more than 700 lines holds two."""
    assert long_files(ROOT) == []


def test_a_package_has_few_loose_files(tmp_path: Path) -> None:
    """A dozen at most, `__init__` counted; the thirteenth is seen."""
    assert crowded(ROOT) == []
    (tmp_path / "spec" / "room").mkdir(parents=True)
    for number in range(MOST_LOOSE_FILES):
        (tmp_path / "spec" / f"file_{number}.py").touch()
        (tmp_path / "spec" / "room" / f"file_{number}.py").touch()
    assert crowded(tmp_path) == []
    (tmp_path / "spec" / "one_more.py").touch()
    assert crowded(tmp_path) == ["spec: 13 loose files"]


def test_the_library_logs_under_its_name_and_never_prints() -> None:
    """What a library prints, a program can neither silence nor send elsewhere."""
    assert prints(ROOT) == []
    assert foreign_loggers(ROOT) == []


def test_examples_are_programs_on_the_library_alone() -> None:
    """They show what a user writes: no part of them may need the machines or the explorer, nor be longer than ours."""
    found = sorted((ROOT / "examples").rglob("*.py"))
    assert len(found) > 10
    for path in found:
        name = path.relative_to(ROOT).as_posix()
        assert len(path.read_text().splitlines()) <= LONGEST_FILE, name
        foreign = {imported.top for imported in imports_of(name, path)} - sys.stdlib_module_names
        plots = {"matplotlib"} if name == "examples/grpo/figures.py" else set()
        assert foreign <= {"impl", "examples", "torch", "torchdata", "rich"} | plots, name


def test_import_impl_loads_no_heavy_package() -> None:
    """Seconds and gigabytes for torch are for those who store tensors."""
    program = "import sys; from impl import CheckpointBarrier; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in python(program).split()}
    heavy = {"torch", "numpy", "safetensors", "trio", "ray", "z3", "rich"}
    assert loaded & (heavy | {"spec", "interleavings", "proofs"}) == set()


def test_case_G35_import_impl_takes_no_longer_than_what_it_stands_on() -> None:
    """As a ratio in one process: a limit in seconds says what else the machine does. The best of five counts."""
    program = """
from time import perf_counter
began = perf_counter()
import asyncio, dataclasses, logging, msgspec
there = perf_counter()
from impl import CheckpointBarrier
print((perf_counter() - there) / (there - began))
"""
    ratios: list[float] = []
    while len(ratios) < 5 and min(ratios, default=2.0) > 1.0:
        ratios.append(float(python(program)))
    assert min(ratios) <= 1.0, ratios


def test_import_cleancut_loads_none_of_the_packages() -> None:
    """The names below it are there on demand; the import hook itself costs a millisecond or two."""
    program = "import sys; old = set(sys.modules); import cleancut; print(*set(sys.modules) - old)"
    loaded = sorted(python(program).split())
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert foreign == {"cleancut"}
    assert [name for name in loaded if name.startswith("cleancut")] == ["cleancut", "cleancut.alias"]


WRONG_TREE = {
    "spec/engine.py": "import impl.ledger\n",
    "impl/ledger.py": "def restore():\n    from spec import cut\n",
    "impl/dynamic.py": "from importlib import import_module\nimport_module('proofs.obligations')\n",
    "interleavings/loop.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from impl import Ledger\n",
    "interleavings/scenarios/barrier.py": "from impl import CheckpointBarrier\nfrom spec import barrier\n",
    "interleavings/explorer.py": "def run():\n    from . import scenarios\n",
    "interleavings/__main__.py": "from interleavings.correspondence import follow\n",
    "interleavings/command_line.py": "def main():\n    from interleavings import scenarios\n    import rich\n",
    "proofs/ownership.py": "import z3\nimport impl\nfrom spec import cut\n",
    "impl/rows/tensor_plane.py": "import torch\n",
    "impl/buffer.py": "def commit():\n    import torch.cuda\n",
    "impl/store/writer.py": "import safetensors\ndef write():\n    import safetensors.torch\n",
    "impl/speaking.py": "import sys\nprint('here')\nsys.stderr.write('there')\n",
    "impl/logs.py": "import logging\nlogging.getLogger('impl')\nlogging.getLogger()\nlogging.info('x')\n",
    "impl/proper.py": "import logging\nlogger = logging.getLogger('cleancut.proper')\nlogger.info('print')\n",
    "impl/demo/child.py": "print('here')\n",
    "impl/utils.py": "",
    "impl/counts.py": "from cleancut_leaf.words import counted\n",
    "cleancut_leaf/words.py": "import impl\n",
    "spec/common/names.py": "",
    "cleancut/long.py": "pass\n" * 701,
    "cleancut/short.py": "pass\n" * 700,
}


@pytest.fixture
def wrong_tree(tmp_path: Path) -> Path:
    for name, source in WRONG_TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path


def test_checker_finds_each_crossing(wrong_tree: Path) -> None:
    """At the top, in a function, by `import_module`, for type checkers: all of these are dependencies."""
    assert crossings(wrong_tree) == [
        "spec/engine.py:1 imports impl.ledger",
        "impl/dynamic.py:2 imports proofs.obligations",
        "impl/ledger.py:2 imports spec.cut",
        "interleavings/loop.py:3 imports impl.Ledger",
        "proofs/ownership.py:2 imports impl",
        "cleancut_leaf/words.py:1 imports impl",
    ]


def test_checker_finds_each_use_of_the_bridge(wrong_tree: Path) -> None:
    """Lazily is not enough outside a command line, and a command line must be lazy."""
    assert bridge_uses(wrong_tree) == [
        "interleavings/__main__.py:1 imports interleavings.correspondence.follow",
        "interleavings/explorer.py:2 imports interleavings.scenarios",
    ]


def test_checker_finds_each_foreign_import(wrong_tree: Path) -> None:
    """A lazy import of torch in the wrong file is wrong too, and so is an eager one where it must be lazy."""
    assert foreign_imports(wrong_tree) == [
        "impl/buffer.py:2 imports torch.cuda",
        "impl/store/writer.py:1 imports safetensors",
    ]


def test_checker_finds_each_print_and_each_foreign_logger(wrong_tree: Path) -> None:
    """The demonstration may print; a text that says print is none."""
    assert prints(wrong_tree) == ["impl/speaking.py:2 uses print", "impl/speaking.py:3 uses sys.stderr"]
    assert foreign_loggers(wrong_tree) == [
        "impl/logs.py:2 makes the logger 'impl'",
        "impl/logs.py:3 makes the logger ''",
        "impl/logs.py:4 calls logging.info",
    ]


def test_checker_finds_drawers_and_long_files(wrong_tree: Path) -> None:
    """A folder counts as much as a module, and 700 lines are still allowed."""
    assert names_that_say_nothing(wrong_tree) == ["spec/common/names.py", "impl/utils.py"]
    assert long_files(wrong_tree) == ["cleancut/long.py: 701 lines"]


def test_no_public_name_of_a_package_is_hidden_by_a_module_of_the_same_name() -> None:
    """Importing `package.name` as a module rebinds the attribute: a function exported under it would be gone."""
    import importlib
    import types

    clashes = []
    for package in ("spec", "impl", "interleavings", "interleavings.conformance", "interleavings.scenarios", "proofs"):
        loaded = importlib.import_module(package)
        for path in sorted((ROOT / package.replace(".", "/")).iterdir()):
            name = path.stem
            if name in vars(loaded) and not isinstance(vars(loaded)[name], types.ModuleType):
                clashes.append(f"{package}.{name}")
    assert clashes == []
