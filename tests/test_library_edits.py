"""The mutation of the library: every operator makes the edit it names, and a judge notices what is wrong."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

TEXT = '''
import asyncio


class Pool:
    """A little of everything."""

    def __init__(self, free):
        self.free = free
        self.waiters = []
        self.prepare()

    async def take(self, permit):
        while not self.free:
            await self.wait()
        self.free -= 1
        if self.closed and not permit.spent:
            raise RuntimeError("closed")
        await asyncio.sleep(0)
        self.taken.append(permit)
        self.log.check(permit)
        return True

    async def use(self, barrier, permit):
        try:
            async with barrier.mutation("use") as cut:
                self.begin(permit)
                cut.note(permit)
                self.end(permit)
        except ValueError:
            permit.give_back()
            raise
        finally:
            self.count += 1

    def put(self, permit):
        permit.give_back()
        if self.idle:
            self.rest()
        self.waiters.popleft().set_result(None)
        for one in self.waiters:
            if len(self.waiters) + 1 < self.free:
                break

    def write(self, handle):
        self.files.fsync(handle)
        self.barrier.emit("write", handle=handle)
        logger.info("written %s", handle)
        self.said = f"wrote {handle - 1 < 3}"

    def snapshot(self):
        return {"free": self.free, "taken": Image(self.taken)}

    def statistics(self):
        return {"free": self.free < 3}
'''

OPERATORS = {
    "looks once": "while -> if",
    "counts the other way": "self.free -= 1 -> self.free += 1",
    "a condition left out": "self.closed and not permit.spent -> ((self.closed))",
    "not left out": "not permit.spent -> permit.spent",
    "guard dropped": "self.closed and not permit.spent -> False",
    "never": "self.idle -> False",
    "moved across an await": "await asyncio.sleep(0) self.taken.append(permit) -> self.taken.append(permit) "
    "await asyncio.sleep(0)",
    "exchanged": "self.taken.append(permit) self.log.check(permit) -> self.log.check(permit) self.taken.append(permit)",
    "the other answer": "True -> False",
    "moved before the section": "self.begin(permit) async with",
    "moved after the section": "cut.note(permit) self.end(permit)",
    "exception path without its release": "permit.give_back() raise -> raise",
    "not given back": "permit.give_back() -> pass",
    "given back twice": "permit.give_back() -> (permit.give_back(), permit.give_back())",
    "the other end": "self.waiters.popleft() -> self.waiters.pop()",
    "wake-up left out": "self.waiters.popleft().set_result(None) -> pass",
    "comparison moved": "len(self.waiters) + 1 < self.free -> len(self.waiters) + 1 <= self.free",
    "off by one": "len(self.waiters) + 1 -> len(self.waiters)",
    "goes on": "break -> continue",
    "fsync left out": "self.files.fsync(handle) -> pass",
    "left out": "self.prepare() -> pass",
    "field left out of an image": '"free": self.free, ->',
}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package of the tool, as its command finds it."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import mutants.operators

    yield mutants.operators
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mutants", "library_mutants")]:
        del sys.modules[name]


def test_every_operator_makes_the_edit_that_it_is_named_for(tool: Any) -> None:
    """An operator that makes nothing would make the library look well tested."""
    found = tool.mutants_of("impl/pool.py", TEXT)
    for operator, edit in OPERATORS.items():
        assert any(mutant.operator == operator and edit in mutant.key for mutant in found), operator
    assert {mutant.operator for mutant in found} == set(OPERATORS)


def test_a_mutant_is_the_text_with_one_edit_that_compiles_to_something_else(tool: Any) -> None:
    """What reads the same survives everything, and what does not compile is noticed by everything."""
    found = tool.mutants_of("impl/pool.py", TEXT)
    for mutant in found:
        changed = mutant.applied_to(TEXT)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(TEXT)), mutant.key
        assert changed.startswith(TEXT[: mutant.start])
        assert changed.endswith(TEXT[mutant.end :])
    assert len({mutant.key for mutant in found}) == len(found)


def test_texts_events_figures_and_first_values_are_not_edited(tool: Any) -> None:
    """A follower notices every event that is missing at once, which says little; a message changes nothing."""
    keys = [mutant.key for mutant in tool.mutants_of("impl/pool.py", TEXT)]
    for untouched in ("emit", "logger", "handle - 1", ":Pool.statistics:", "self.waiters = []"):
        assert not [key for key in keys if untouched in key], untouched


def test_an_exception_path_without_its_release_is_as_before_when_nothing_goes_wrong(tool: Any) -> None:
    """The edit of a `finally` must be nothing but that, or what notices it notices something else."""
    text = (
        "class A:\n    def f(self):\n        try:\n            self.work()\n        finally:\n            self.n += 1\n"
    )
    (edit,) = [m for m in tool.mutants_of("impl/a.py", text) if m.operator == "exception path without its release"]
    namespace: dict[str, Any] = {}
    exec(edit.applied_to(text), namespace)
    works, fails = namespace["A"](), namespace["A"]()
    works.n = fails.n = 0
    works.work = lambda: None
    fails.work = lambda: 1 / 0
    works.f()
    with pytest.raises(ZeroDivisionError):
        fails.f()
    assert (works.n, fails.n) == (1, 0)


def test_a_guard_that_only_refuses_is_told_apart(tool: Any) -> None:
    """No run that makes no mistake needs it, so that no scenario can notice that it is gone."""
    by_edit = {mutant.key: mutant.refusal for mutant in tool.mutants_of("impl/pool.py", TEXT)}
    dropped = [refusal for key, refusal in by_edit.items() if "guard dropped: self.closed" in key]
    assert dropped == [True]
    assert not any(refusal for key, refusal in by_edit.items() if "give_back" in key)


def test_every_group_has_files_and_every_file_is_of_one_group(tool: Any) -> None:
    """A file that was renamed would drop out of the figures without a word."""
    from mutants import groups  # type: ignore[import-not-found,unused-ignore]

    for name, files in groups.GROUPS.items():
        assert all(list(ROOT.glob(file)) for file in files), name
    edited = groups.edited_files(ROOT)
    assert {groups.group_of(path) for path in edited} == set(groups.GROUPS)
    assert not [path for path in edited if path.endswith("save_log.py")]


JUDGE = """
import json, sys
from pathlib import Path
from mutants.judging import Court, Recorder
from mutants.operators import mutants_of
from mutants.results import Store

root, place = map(Path, sys.argv[1:])
store = Store(place / "kept", root)
store.keep_ran("scenarios", store.library, names=[])
recorder = Recorder(store, place, lambda text: None)
recorder.record(float("inf"))
court = Court(store, place, recorder.judges(0), 60.0)
found = {}
for mutant in mutants_of("impl/waiting.py", (root / "impl/waiting.py").read_text()):
    one = court.judge(mutant, store.judged(mutant.key))
    store.keep_judged(one)
    assert store.judged(mutant.key) == one
    found[mutant.key.partition(":left: ")[2]] = one.noticed_by
print(json.dumps(found))
"""


def test_a_test_notices_a_wrong_line_and_an_edit_without_consequence_survives(tmp_path: Path) -> None:
    """The tool judged on a library of five lines, where `taken >= free` is the same program."""
    root = tmp_path / "tree"
    (root / "impl").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "impl/__init__.py").write_text("")
    text = "def left(free, taken):\n    if taken > free:\n        taken = free\n    free -= taken\n    return free\n"
    (root / "impl/waiting.py").write_text(text)
    (root / "tests/test_left.py").write_text(
        "from impl.waiting import left\n\n\ndef test_left():\n    assert (left(3, 2), left(1, 5)) == (1, 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    command = [sys.executable, "-c", JUDGE, str(root), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "guard dropped: taken > free -> True": "tests",
        "never: taken > free -> False": "tests",
        "comparison moved: taken > free -> taken >= free": "nothing",
        "left out: free -= taken -> pass": "tests",
        "counts the other way: free -= taken -> free += taken": "tests",
    }
    assert (root / "impl/waiting.py").read_text() == text, "a mutant was written into the tree"


def stale_rows(text: str) -> list[str]:
    """Rows of the table of survivors that name no mutant there is, or say no reason."""
    import library_mutants  # type: ignore[import-not-found,unused-ignore]

    known = library_mutants.known_survivors(text)
    paths = {key.partition(":")[0] for key in known}
    there = {mutant.key for path in paths for mutant in library_mutants.every_mutant(ROOT, path)}
    rows = [line for line in text.splitlines() if line.startswith("| `impl/")]
    return sorted(known - there) + [row for row in rows if len(row.rstrip(" |").rpartition("|")[2].split()) < 4]


def test_the_table_of_survivors_names_mutants_that_there_are_each_with_a_reason(tool: Any) -> None:
    """An edit of a function makes its row stale: whoever makes it looks at the row again."""
    assert stale_rows((ROOT / "tests/library_survivors.md").read_text(encoding="utf-8")) == []


def test_a_row_without_a_mutant_or_without_a_reason_is_found(tool: Any) -> None:
    """Who checks the check."""
    text = (ROOT / "impl/waiting.py").read_text(encoding="utf-8")
    key = tool.mutants_of("impl/waiting.py", text)[0].key
    good = f"| `{key}` | the same to whoever looks at it |"
    assert stale_rows(good) == []
    assert stale_rows(f"| `{key}` | none |") == [f"| `{key}` | none |"]
    assert stale_rows(good.replace("impl/waiting.py:", "impl/waiting.py:Nobody.")) != []
