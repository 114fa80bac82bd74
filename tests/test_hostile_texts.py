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
from interleavings.report import SourceRefused, checked, literal, words
from spec.command import main as spec_main

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


#: What no field of a trace has: of another kind, of another size, no number at all.
WRONG_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 1.5, float("nan"), float("inf"), "", [], {}, [1], [[[]]], {"\x1b[/x]<b>": '\n"""'},
    '"""\n' + BOMB, "\x1b[31m[/x]\u202e", "<script>", "\ud800", "\0", "x" * 5_000,
)  # fmt: skip


def wrong_with(status: Any, said: str, complaint: str) -> str:
    """What is wrong with how a command ended, in a word; empty where nothing is."""
    if status not in (0, 1, 2, 3):
        return f"status {status}"
    if "Traceback" in complaint:
        return "a traceback"
    if any(not each.isprintable() for each in (said + complaint).replace("\n", "")):
        return "what a terminal obeys"
    if status == 2 and (said or complaint.count("\n") != 1):
        return "more than one line"
    if status == 1 and not any(word in said for word in ("reproduced", "failed", "fails", "is broken", "forbids")):
        return "a violation without a verdict"
    return ""


@pytest.mark.parametrize(
    ("status", "said", "complaint", "wrong"),
    [
        (4, "", "", "status 4"),
        (None, "", "", "status None"),
        (3, "", "Traceback (most recent call last):\n", "a traceback"),
        (0, "\x1b[2J", "", "what a terminal obeys"),
        (2, "", "one\ntwo\n", "more than one line"),
        (2, "a table\n", "one\n", "more than one line"),
        (1, "", "one\n", "a violation without a verdict"),
        (1, "it is broken:\n", "", ""),
        (2, "", "one\n", ""),
    ],
)
def test_a_command_that_ends_wrongly_would_be_noticed(status: Any, said: str, complaint: str, wrong: str) -> None:
    """The check of what follows."""
    assert wrong_with(status, said, complaint) == wrong


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, of objects and lists too."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in inner:
        yield from nodes(item, (*path, key))


def changed(document: Any, number: int) -> Iterator[Any]:
    """The document with another value in each place, and with another name of each field; some of them by turns."""
    for place, path in enumerate(nodes(document)):
        for value in WRONG_VALUES[(number + place) % 4 :: 4]:
            yield put(document, path, value) if path else value
        if path and isinstance(path[-1], str):
            other = copy.deepcopy(document)
            inner = other
            for step in path[:-1]:
                inner = inner[step]
            inner[HOSTILE[place % len(HOSTILE)]] = inner.pop(path[-1])
            yield other


@pytest.mark.parametrize("kind", ["machine_trace", "schedule_trace"])
@pytest.mark.parametrize(("number", "command"), list(enumerate(["replay", "emit", "explain", "validate"])))
def test_case_G32_any_value_in_any_field_of_a_trace_is_told_plainly(
    kind: str,
    number: int,
    command: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of another kind, of another size, no number: no traceback, and no violation where nothing was violated."""
    document = request.getfixturevalue(kind)
    capsys.readouterr()  # what the making of the trace printed, where this test is the first to ask for it
    if kind == "schedule_trace":
        document = {**document, "program": {"reference": f"{__name__}:lost_update"}}
    monkeypatch.chdir(tmp_path)
    trust = ["--trust"] if command in ("replay", "emit") else []
    output = ["-o", "test_made.py"] if command in ("emit", "explain") else []
    seen = set()
    for each in changed(document, number):
        Path("trace.json").write_text(json.dumps(each))
        Path("test_made.py").unlink(missing_ok=True)
        status = main([command, *trust, "trace.json", *output])
        said = capsys.readouterr()
        assert wrong_with(status, said.out, said.err) == "", (each, said)
        assert not output or Path("test_made.py").exists() == (status == 0), "nothing is left half written"
        seen.add(status)
    assert 2 in seen
    assert command == "validate" or seen & {0, 1}, "the control: some of it is harmless"


@pytest.mark.parametrize("value", WRONG_VALUES, ids=lambda value: ascii(value)[:30])
def test_case_G32_any_value_in_the_header_of_a_production_trace_is_told_plainly(
    value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A length of the dataset that was no number ended in a traceback."""
    header, *lines = (ROOT / "tests/golden/format-1/in_order/trace.jsonl").read_text().splitlines()
    trace, document = tmp_path / "trace.jsonl", json.loads(header)
    for path in filter(None, nodes(document)):
        trace.write_text("\n".join([json.dumps(put(document, path, value)), *lines[:12]]) + "\n")
        status = main(["validate", str(trace), "--json", str(tmp_path / "result.json")])
        said = capsys.readouterr()
        assert wrong_with(status, said.out, said.err) == "", (path, said)


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"bounds": "saves", "to": 0}, 3, "does not fit the machine"),
        ({"bounds": "batches", "to": 0}, 2, "cannot be made with the bounds"),
        ({"bounds": "in_flight", "to": 0}, 2, "cannot be made with the bounds"),
        ({"variants": ["nonesuch"]}, 3, "does not fit the machine"),
        ({"steps": []}, 2, "it has no steps"),
        ({"steps": 3}, 3, "no checkpoint was published"),
    ],
    ids=str,
)
def test_case_G32_a_trace_that_is_no_path_of_its_machine_shows_no_violation(
    change: dict[str, Any],
    status: int,
    says: str,
    machine_trace: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without the saves that its steps ask for, a replay said that the library had broken the protocol."""
    document = copy.deepcopy(machine_trace)
    if "bounds" in change:
        document["bounds"][change["bounds"]] = change["to"]
    elif change.get("steps"):
        document["steps"] = document["steps"][: change["steps"]]
    else:
        document.update(change)
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(document))
    assert main(["replay", str(trace)]) == status
    said = capsys.readouterr()
    assert says in said.out + said.err


def test_case_G32_a_module_with_a_name_too_long_for_any_file_gets_its_page(
    schedule_trace: dict[str, Any], tmp_path: Path
) -> None:
    """The source lines of the program were looked for under that name."""
    trace, page = tmp_path / "trace.json", tmp_path / "page.html"
    trace.write_text(json.dumps({**schedule_trace, "program": {"reference": "x" * 5_000 + ":program"}}))
    assert main(["explain", str(trace), "-o", str(page)]) == 0
    assert page.exists()


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


def test_case_G33_tensors_whose_memory_nobody_can_read_are_no_violation(
    machine_trace: dict[str, Any], tmp_path: Path
) -> None:
    """Without numpy, which torch itself does without, each commit failed: the replay said that the run stands still."""
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(machine_trace))
    program = BLOCKED.format(package="numpy", argv=["interleavings", "replay", str(trace)], module="interleavings")
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "this needs numpy, which is not installed: pip install 'cleancut[" in ended.stdout
