"""tests/CASES.md stays true: all cases, in order, each with tests that exist, what they leave open, or a reason."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "CASES.md"

CASES = {
    "A": (1, 2, 3, 4, 5, 9, 10, 13, 14, 15, 16, 18, 19, 20, 21, 22, 24, 27, 29, 30, 31, 33, 35),
    "B": (1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 14, 18, 19, 20, 22, 23, 25),
    "C": (1, 4, 5, 6, 7, 10, 11),
    "D": (1, 2, 3, 4, 6, 9, 10, 11, 12, 13, 16, 17),
    "E": (1, 2, 3, 5, 6, 7, 9, 10, 12, 14, 15, 16, 19, 20, 21, 23, 24, 25, 27, 28),
    "F": (1, 2, 4, 6, 7, 8, 10, 12, 13, 15, 16, 17),
    "G": (*range(1, 23), *range(30, 36), *range(40, 45), *range(50, 65)),
}
IDENTIFIERS = [f"{family}{number:02}" for family, numbers in CASES.items() for number in numbers]

# The reports are no part of a clone. Where they lie beside it, the identifiers above are held against them: those that
# people made in public, each under a heading, and those that strangers made of this library, each a row of a table.
REPORTS = ROOT.parent / "shared" / "cases" / "CASES.md"
FOUND = ROOT.parent / "shared" / "cases" / "FOUND.md"

NODE = re.compile(r"(tests/test_\w+\.py)((?:::\w+)+)")
PART = re.compile(r"part: (?P<tests>.+?); open: \S.*")
NUMBERED = re.compile(r"test_case_([A-G]\d\d)_")


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row below the heading; a row with another number of cells is the caller's to refuse."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def faults(text: str, root: Path) -> list[str]:
    """Return what is wrong with a table, one line a fault."""
    wrong = []
    table = rows(text)
    named = [cells[0] for cells in table]
    if named != IDENTIFIERS:
        first = next((pair for pair in zip(named, IDENTIFIERS, strict=False) if pair[0] != pair[1]), None)
        wrong.append(f"{len(named)} cases of {len(IDENTIFIERS)}; first difference (named, expected): {first}")
    for cells in table:
        if len(cells) != 3 or not all(cells):
            wrong.append(f"{cells[0]}: a row is | case | kind | tests |")
            continue
        case, _, status = cells
        if status == "open" or re.fullmatch(r"does not apply: \S.*", status):
            continue
        for node in nodes_of(status):
            if not NODE.fullmatch(node):
                wrong.append(f"{case}: neither `open`, nor a reason, nor a test: {node}")
            elif not exists(root, node):
                wrong.append(f"{case}: no such test: {node}")
    return wrong


def nodes_of(status: str) -> list[str]:
    """Return the tests a row names, in whichever of its forms; of another form whatever stands there instead."""
    partly = PART.fullmatch(status)
    return re.split(r",\s*", (partly["tests"] if partly else status).replace("`", ""))


def left_out(text: str, root: Path) -> list[str]:
    """Return the tests that carry the number of a case and do not stand in its row."""
    named = {cells[0]: set(nodes_of(cells[-1])) for cells in rows(text)}
    return [
        f"{numbered[1]}: {node}"
        for path in sorted((root / "tests").glob("test_*.py"))
        for name in sorted(collected_tests(path))
        if (numbered := NUMBERED.match(name.rpartition("::")[2]))
        and (node := f"tests/{path.name}::{name}") not in named.get(numbered[1], ())
    ]


def exists(root: Path, node: str) -> bool:
    path, *names = node.split("::")
    return "::".join(names) in collected_tests(root / path)


@functools.cache
def collected_tests(path: Path) -> frozenset[str]:
    """Collect test functions, and methods of test classes, without importing anything."""
    if not path.exists():
        return frozenset()

    def collect(body: list[ast.stmt], prefix: str) -> set[str]:
        found: set[str] = set()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                found.add(prefix + node.name)
            elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                found |= collect(node.body, f"{prefix}{node.name}::")
        return found

    return frozenset(collect(ast.parse(path.read_bytes()).body, ""))


def test_table_is_complete_and_true() -> None:
    """A case without a row would be forgotten, and a renamed test would leave its case uncovered unseen."""
    assert len(IDENTIFIERS) == 139
    assert faults(TABLE.read_text(), ROOT) == []
    if REPORTS.exists():
        public = [case for case in IDENTIFIERS if not case.startswith("G")]
        assert re.findall(r"^### \d+ · ([A-F]\d\d) · ", REPORTS.read_text(), re.MULTILINE) == public
    if FOUND.exists():
        ours = [case for case in IDENTIFIERS if case.startswith("G")]
        assert sorted(re.findall(r"^\| (G\d\d) \|", FOUND.read_text(), re.MULTILINE)) == ours


def test_every_test_that_carries_a_number_stands_in_the_row_of_its_case() -> None:
    """Whoever reads the table would otherwise think that less is covered than is."""
    assert left_out(TABLE.read_text(), ROOT) == []


GOOD = "| case | kind | tests |\n|---|---|---|\n" + "".join(f"| {name} | a kind | open |\n" for name in IDENTIFIERS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_impl_ledger.py").write_text(
        "async def test_one(): ...\ndef helper(): ...\nclass TestLedger:\n    def test_two(self): ...\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    "status",
    [
        "open",
        "does not apply: there is no journal",
        "tests/test_impl_ledger.py::test_one",
        "`tests/test_impl_ledger.py::test_one`, tests/test_impl_ledger.py::TestLedger::test_two",
        "part: `tests/test_impl_ledger.py::test_one`; open: the second half",
    ],
)
def test_checker_accepts_each_form(status: str, tree: Path) -> None:
    """Whoever closes a case should find the form that the table's head describes accepted."""
    assert faults(GOOD.replace("| A01 | a kind | open |", f"| A01 | a kind | {status} |"), tree) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| A01 | a kind | covered |", "A01: neither `open`, nor a reason, nor a test: covered"),
        ("| A01 | a kind | does not apply: |", "A01: neither `open`, nor a reason, nor a test: does not apply:"),
        ("| A01 | a kind | |", "A01: a row is | case | kind | tests |"),
        (
            "| A01 | a kind | part: tests/test_gone.py::test_one; open: the rest |",
            "A01: no such test: tests/test_gone.py::test_one",
        ),
        (
            "| A01 | a kind | part: most of it; open: the rest |",
            "A01: neither `open`, nor a reason, nor a test: most of it",
        ),
        (
            "| A01 | a kind | part: tests/test_impl_ledger.py::test_one; open: |",
            "A01: neither `open`, nor a reason, nor a test: part: tests/test_impl_ledger.py::test_one; open:",
        ),
        ("| A01 | a | kind | open |", "A01: a row is | case | kind | tests |"),
        (
            "| A01 | a kind | tests/test_impl_ledger.py::test_gone |",
            "A01: no such test: tests/test_impl_ledger.py::test_gone",
        ),
        (
            "| A01 | a kind | tests/test_impl_ledger.py::helper |",
            "A01: no such test: tests/test_impl_ledger.py::helper",
        ),
        (
            "| A01 | a kind | tests/test_impl_ledger.py::test_two |",
            "A01: no such test: tests/test_impl_ledger.py::test_two",
        ),
        ("| A01 | a kind | tests/test_gone.py::test_one |", "A01: no such test: tests/test_gone.py::test_one"),
        ("| A1 | a kind | open |", "139 cases of 139; first difference (named, expected): ('A1', 'A01')"),
        ("", "138 cases of 139; first difference (named, expected): ('A02', 'A01')"),
        (
            "| A02 | a kind | open |\n| A01 | a kind | open |",
            "140 cases of 139; first difference (named, expected): ('A02', 'A01')",
        ),
    ],
)
def test_checker_refuses_each_fault(row: str, fault: str, tree: Path) -> None:
    """A checker that accepts everything would keep nothing true."""
    replacement = f"{row}\n" if row else ""
    assert faults(GOOD.replace("| A01 | a kind | open |\n", replacement), tree) == [fault]


def test_checker_misses_no_numbered_test(tree: Path) -> None:
    """A function and a method that carry a number; only the one in the row of its case is found there."""
    (tree / "tests" / "test_more.py").write_text(
        "def test_case_A01_one(): ...\nclass TestMore:\n    def test_case_B02_two(self): ...\n"
    )
    assert left_out(GOOD, tree) == [
        "B02: tests/test_more.py::TestMore::test_case_B02_two",
        "A01: tests/test_more.py::test_case_A01_one",
    ]
    covered = "part: tests/test_more.py::test_case_A01_one; open: more"
    table = GOOD.replace("| A01 | a kind | open |", f"| A01 | a kind | {covered} |")
    assert left_out(table, tree) == ["B02: tests/test_more.py::TestMore::test_case_B02_two"]
    assert len(left_out(GOOD.replace("| A02 | a kind | open |", f"| A02 | a kind | {covered} |"), tree)) == 2
