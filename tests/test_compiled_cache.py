"""The cache of generated code is looked at before any of it is executed, and written anew if it is wrong."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("numba")

from numba import njit

from spec import MACHINES
from spec.engines.compiled import engine, kept_code, level_files, library, looked_at, write_whole
from spec.machines import SMALL

CUT, (FAILURES, PINNED) = MACHINES["cut"], SMALL["cut"]["failures"]
TEXT = "def twice(x):\n    return 2 * x\n"
#: What somebody else's code does here.
HARM = "import pathlib\npathlib.Path({!r}).touch()\ndef twice(x):\n    return 0\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(library.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiled_anew(text: str = TEXT) -> ModuleType:
    """As another process would have it."""
    sys.modules.pop(f"cleancut_generated_{library.digest(text)}", None)
    return library.compiled(text)


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


WRONG: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-7]),
    lambda path: path.write_bytes(bytes(len(path.read_bytes()))),
    lambda path: path.write_bytes(path.read_bytes() + b"\xff"),
    lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    lambda path: path.write_text(HARM.format(str(path.parent / "harm")), "utf-8"),
    linked,
    Path.unlink,
]


@pytest.mark.parametrize("wrong", WRONG)
def test_case_G22_a_kept_text_that_is_not_the_generated_one_is_written_anew_and_not_executed(
    cache: Path, wrong: Callable[[Path], object]
) -> None:
    """A tampered one was executed and gave its verdict; an empty one was an AttributeError for ever."""
    assert compiled_anew().twice(4) == 8
    (path,) = cache.glob("*.py")
    wrong(path)
    assert compiled_anew().twice(4) == 8
    assert path.read_text("utf-8") == TEXT
    assert not path.is_symlink()
    assert not (cache / "harm").exists()


def test_case_G22_bytecode_beside_the_text_is_not_executed(cache: Path) -> None:
    """Python takes it for the text if time and length fit, and looks at nothing else."""
    compiled_anew()
    (path,) = cache.glob("*.py")
    harm = HARM.format(str(cache / "harm"))
    source = path.stat()
    kept = Path(importlib.util.cache_from_source(str(path)))
    code = importlib._bootstrap_external._code_to_timestamp_pyc(  # type: ignore[attr-defined]
        compile(harm, str(path), "exec"), int(source.st_mtime), source.st_size
    )
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(code)
    assert compiled_anew().twice(4) == 8
    assert not (cache / "harm").exists()
    description = importlib.util.spec_from_file_location("as_it_was", path)
    assert description is not None
    assert description.loader is not None
    description.loader.exec_module(importlib.util.module_from_spec(description))
    assert (cache / "harm").exists(), "as a module of its file it would be"


def test_a_text_that_fails_leaves_no_half_a_module(cache: Path) -> None:
    """The next attempt would be given it as if it were whole."""
    with pytest.raises(ZeroDivisionError):
        compiled_anew("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        library.compiled("1 / 0\n")


def test_case_G22_a_file_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renamed first, a power cut leaves a name without contents."""
    done: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            done.append(name)
            return real(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name))
    write_whole(tmp_path / "new" / "x", b"abc")
    assert (tmp_path / "new" / "x").read_bytes() == b"abc"
    assert done == ["fsync", "replace", "fsync"]
    monkeypatch.setattr(os, "replace", lambda one, other: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_whole(tmp_path / "new" / "x", b"def")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x"], "and what failed is not left"


# -- machine code


class Bomb:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def function_of(folder: Path, name: str, body: str, wrap: Callable[[Any], Any] = looked_at) -> Any:
    """A numba function of a file, as another process would make it."""
    path = folder / f"{name}.py"
    if not path.exists():
        path.write_text(f"def {name}(x):\n    return {body}\n", "utf-8")
    space: dict[str, Any] = {"__name__": name}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)
    return wrap(njit(cache=True)(space[name]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two functions, compiled and kept."""
    folder = tmp_path_factory.mktemp("kept")
    for name, body in (("double", "2 * x"), ("triple", "3 * x")):
        assert function_of(folder, name, body)(5) in (10, 15)
    return folder


def kept_files(folder: Path, name: str = "double") -> list[Path]:
    found = sorted((folder / "__pycache__").glob(f"{name}.*.nb?"))
    assert len(found) == 2, "an index and the data of one signature"
    return found


def test_case_G22_kept_machine_code_that_is_right_is_taken(kept: Path) -> None:
    """Else every start would take minutes."""
    again = function_of(kept, "double", "2 * x")
    assert again(5) == 10
    assert sum(again.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["empty", "short", "zeros", "flipped", "of another", "bomb"])
def test_case_G22_machine_code_that_is_not_what_was_kept_is_compiled_anew_and_not_loaded(
    kept: Path, tmp_path: Path, how: str, which: int
) -> None:
    """It is a pickle, which executes what it holds; after a power cut it was an error at every start."""
    folder = Path(shutil.copytree(kept, tmp_path / "kept"))
    path, other = kept_files(folder)[which], kept_files(folder, "triple")[which]
    data = path.read_bytes()
    path.write_bytes({
        "empty": b"", "short": data[:-9], "zeros": bytes(len(data)), "flipped": data[:-1] + bytes([data[-1] ^ 1]),
        "of another": other.read_bytes(), "bomb": pickle.dumps(Bomb(tmp_path / "harm")),
    }[how])  # fmt: skip
    again = function_of(folder, "double", "2 * x")
    assert again(5) == 10
    assert sum(again.stats.cache_misses.values()) == 1
    assert not (tmp_path / "harm").exists()
    third = function_of(folder, "double", "2 * x")
    assert third(5) == 10
    assert sum(third.stats.cache_hits.values()) == 1, "and what was written anew is taken"


def test_case_G22_numba_alone_executes_what_it_finds(tmp_path: Path) -> None:
    """What the look is for: this is what every one of these files would do."""
    assert function_of(tmp_path, "double", "2 * x", wrap=lambda function: function)(5) == 10
    index, _ = kept_files(tmp_path)
    index.write_bytes(pickle.dumps(Bomb(tmp_path / "harm")))
    with suppress(EOFError):
        function_of(tmp_path, "double", "2 * x", wrap=lambda function: function)(5)
    assert (tmp_path / "harm").exists()


def test_case_G22_every_function_of_the_engine_has_the_look() -> None:
    """Those of generated text, and those of the engine's own."""
    from spec.engines.compiled import kernels, words

    functions = library.compiled(engine.prepared(CUT, FAILURES).text)
    for module in (functions, kernels):
        found = [each for each in vars(module).values() if hasattr(each, "_cache")]
        assert found
        assert all(type(each._cache._cache_file) is kept_code.LookedAtFile for each in found)
    assert not [line for line in Path(words.__file__).read_text("utf-8").splitlines()
                if "njit(" in line and "looked_at(" not in line]  # fmt: skip


# -- searches put aside


@pytest.mark.parametrize("wrong", WRONG[:6])
@pytest.mark.parametrize("name", [level_files.DESCRIPTION, level_files.STATES, level_files.PARENTS])
def test_case_G22_a_search_put_aside_that_is_damaged_is_refused_whatever_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[[Path], object]
) -> None:
    """Zeros in the place of the states would be searched, and hold."""
    monkeypatch.setattr(level_files, "place_of", lambda key: tmp_path / "searches" / key)
    engine.search(CUT, FAILURES, memory_limit=100_000)
    (directory,) = (tmp_path / "searches").iterdir()
    data = (directory / name).read_bytes()
    wrong(directory / name)
    if name == level_files.DESCRIPTION and (directory / name).read_bytes() == data + b"\n":
        assert engine.search(CUT, FAILURES, resume=True).states == PINNED.states
        return
    with pytest.raises(ValueError, match=r"is damaged: .*; remove it and search anew"):
        engine.search(CUT, FAILURES, resume=True)
