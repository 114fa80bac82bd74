"""Nothing of a file is code or markup: hostile texts in every field of a trace, for every command that reads one."""

from __future__ import annotations

import ast
import copy
import html.parser
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interleavings import explore
from interleavings.command_line import main
from interleavings.source_text import SourceRefused, checked, literal, words
from spec.command_line import main as spec_main

ROOT = Path(__file__).resolve().parent.parent
BOMB = "globals().update(hit=1)"
HOSTILE = (
    f'"""\n{BOMB}\n"""',
    f"'\n{BOMB}\n'",
    f"\n{BOMB}\n",
    f"\r{BOMB}\r",
    f"\u2028{BOMB}\x0c{BOMB}\x00",
    f'")\n{BOMB}\n(("',
    "{name} {0} %s \\N{BULLET} \\",
    "\x1b[31m[/x][red]\u202e",
    "<script>hit()</script>\"' onload='hit()",
    "\ud800",
    "x" * 5_000,
)


@pytest.fixture(scope="module")
def machine_trace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A shortest counterexample of the cut machine, as the command writes it."""
    place = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert spec_main(["check", "--variant", "cursor_ahead", "--json", "report.json"]) == 1
    written = json.loads((place / "report.json").read_text())["counterexample"]
    found: dict[str, Any] = json.loads((place / written).read_text())
    return found


async def lost_update() -> None:
    """Two tasks that fail in one order."""
    import asyncio

    shared: list[int] = []

    async def one() -> None:
        before = len(shared)
        await asyncio.sleep(0)
        shared.append(before)

    await asyncio.gather(one(), one())
    assert shared == [0, 1], shared


@pytest.fixture(scope="module")
def schedule_trace() -> dict[str, Any]:
    """A failing schedule of a program of somebody's."""
    found = explore(lost_update).counterexample
    assert found is not None
    document: dict[str, Any] = found.to_json()
    return json.loads(json.dumps(document))  # type: ignore[no-any-return]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a text stands in a document: values, and names of fields whose names are anybody's."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:3]):
            yield from places(item, (*path, index))
    else:
        yield path


def put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


class Tags(html.parser.HTMLParser):
    """The elements of a page, and whether one of them was brought by a text."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        assert not any(name.startswith("on") for name, _ in attrs)


def without_bombs(source: str) -> None:
    """Collecting the generated file runs nothing of a text: no call of the bomb stands in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr != "update", ast.unparse(node)


@pytest.mark.parametrize("kind", ["machine_trace", "schedule_trace"])
def test_case_G30_no_text_of_a_trace_is_code_in_a_generated_pytest_or_markup_in_a_page(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace of a stranger ran its code when pytest collected the file that `emit` had made of it."""
    document = request.getfixturevalue(kind)
    trace, test, page = tmp_path / "trace.json", tmp_path / "test_it.py", tmp_path / "page.html"
    emitted = explained = refused = 0
    for number, path in enumerate(places(document)):
        for hostile in HOSTILE[number % 3 :: 3]:
            trace.write_text(json.dumps(put(document, path, hostile)))
            test.unlink(missing_ok=True)
            page.unlink(missing_ok=True)
            status = main(["emit", "--trust", str(trace), "-o", str(test)])
            assert status in (0, 2), (path, hostile)
            assert test.exists() == (status == 0), "nothing is left half written"
            if status == 0:
                without_bombs(test.read_text(encoding="utf-8"))
                emitted += 1
            status = main(["explain", str(trace), "-o", str(page)])
            assert status in (0, 2), (path, hostile)
            if status == 0:
                tags = Tags()
                tags.feed(page.read_text(encoding="utf-8"))
                assert tags.scripts <= 1
                explained += 1
            said = capsys.readouterr()
            refused += status == 2
            assert "Traceback" not in said.err
            assert "\x1b" not in said.out + said.err
            assert "\u202e" not in said.out + said.err
    assert emitted > 20
    assert explained > 20
    assert refused > 0


def test_case_G30_a_generator_that_lets_a_text_through_is_refused_before_anything_is_written() -> None:
    """The result is parsed and compared with its template, whoever made it."""
    template = '"""{text}"""\nSTEPS = {steps}\n'
    harmless = template.format(text="x", steps=0)
    assert checked(template.format(text="fine", steps="[1, 2]"), harmless)
    for made in (
        template.format(text=f'"""\n{BOMB}\n"""', steps="0"),
        template.format(text="x", steps=f"0\n{BOMB}"),
        template.format(text="x", steps="(lambda: 0)()"),
        template.format(text="\0", steps="0"),
    ):
        with pytest.raises(SourceRefused, match="was not written"):
            checked(made, harmless)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_case_G30_a_text_is_a_literal_of_itself_and_its_words_are_one_line(hostile: str) -> None:
    """One escaping function for Python: what comes back is what went in."""
    assert ast.literal_eval(literal(hostile)) == hostile
    assert literal(hostile).isascii()
    said = words(hostile, None)
    assert "\n" not in said
    assert '"' not in said
    assert "\\" not in said
    assert said.isprintable()


def test_case_G31_a_trace_that_names_a_module_is_not_imported_unless_it_is_trusted(
    schedule_trace: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The module lay in the current folder, and was run without a word."""
    (tmp_path / "theirs.py").write_text("open('hit', 'w').close()\nasync def program(): pass\n")
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({**schedule_trace, "program": {"reference": "theirs:program"}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for arguments in (["replay", "trace.json"], ["emit", "trace.json", "-o", "test_x.py"]):
        assert main(arguments) == 2
        assert "--trust" in capsys.readouterr().err
    assert main(["explain", "trace.json", "-o", "page.html"]) == 0, "a page needs no program"
    assert not (tmp_path / "hit").exists()
    assert not (tmp_path / "test_x.py").exists()
    assert main(["replay", "--trust", "trace.json"]) in (0, 1, 3)
    assert (tmp_path / "hit").exists(), "the control: trusted, it is imported"


@pytest.mark.parametrize(
    "change",
    [
        {"budgets": {"cancels": float("nan")}},
        {"budgets": {"cancels": float("inf")}},
        {"budgets": {"cancels": -1}},
        {"budgets": {"cancels": 10**30}},
        {"budgets": [1]},
        {"steps": 3},
        {"steps": [[1]]},
        {"failure": None},
        {"failure": {"kind": 1, "property": "[/x]", "message": "\x1b[2J"}},
        {"program": "[red]"},
        {"stock": "[/x]"},
        {"python": 3},
    ],
    ids=str,
)
def test_case_G32_a_trace_of_wrong_values_is_wrong_use_in_one_plain_line(
    change: dict[str, Any], schedule_trace: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback ended with 1, the status of a violation; markup and escapes reached the terminal."""
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({**schedule_trace, **change}))
    for command in (["replay", "--trust"], ["emit", "--trust"], ["explain"]):
        arguments = [*command, str(trace), *(["-o", str(tmp_path / "out")] if command[0] != "replay" else [])]
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert "Traceback" not in said.err
        assert "\x1b" not in said.err


ONE_SCOPE = ("check", "--machine", "cut", "--scope", "small/two_pairs", "--engine")
BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.argv = {argv!r}
import runpy
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("package", "extra", "module", "arguments"),
    [
        ("z3", "proofs", "proofs", []),
        ("torch", "torch", "spec", [*ONE_SCOPE, "torch"]),
        (
            "numba",
            "compiled",
            "spec",
            [*ONE_SCOPE, "compiled"],
        ),
        ("torch", "torch", "interleavings", ["check", "commit"]),
        ("ray", "ray", "interleavings", ["check", "barrier", "--ray", "local"]),
        ("shtab", "completion", "spec", ["--print-completion", "bash"]),
    ],
)
def test_case_G33_a_missing_extra_is_named_with_how_to_install_it_and_is_no_violation(
    package: str, extra: str, module: str, arguments: list[str]
) -> None:
    """A traceback with status 1 made `cleancut check` say that the protocol fails."""
    program = BLOCKED.format(package=package, argv=[module, *arguments], module=module)
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode in (2, 3), ended.stderr
    assert f"pip install 'cleancut[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr
