"""`make check` as a reviewer meets it: one screen, a report, and on a violation the trace and the pytest of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cleancut import check as command
from cleancut.report import page

ROOT = Path(__file__).parent.parent


def part(name: str, program: str) -> command.Part:
    """A part that runs a small Python program in place of the real command."""
    return command.Part(name, [sys.executable, "-c", program])


def writes(path: Path, text: str, status: int) -> str:
    """A program that writes a result, says a line and ends with a status."""
    return f"import pathlib, sys; pathlib.Path({str(path)!r}).write_text({text!r}); print('a line'); sys.exit({status})"


@pytest.mark.parametrize(
    ("status", "text", "verdict"),
    [
        (0, "{}", "holds"),
        (1, "{}", "fails"),
        (3, "{}", "inconclusive"),
        (0, "no json", "inconclusive"),
        (0, "null", "inconclusive"),
        (139, "{}", "inconclusive"),
    ],
)
def test_a_part_holds_only_if_it_says_so_and_left_a_readable_result(
    tmp_path: Path, status: int, text: str, verdict: str
) -> None:
    """A crash, an unreadable result and a bounded search are no pass."""
    done = command.run(part("spec", writes(tmp_path / "spec.json", text, status)), tmp_path)
    assert done.verdict == verdict
    assert done.line == "a line"


def test_a_result_of_an_earlier_run_is_never_read(tmp_path: Path) -> None:
    """A command that wrote nothing has no result, whatever lies there from before."""
    (tmp_path / "spec.json").write_text("{}")
    assert command.run(part("spec", "pass"), tmp_path).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("verdicts", "overall"),
    [
        ({"spec": 0, "variants": 0, "interleavings": 0, "proofs": 0}, "holds"),
        ({"spec": 0, "variants": 0, "interleavings": 3, "proofs": 0}, "inconclusive"),
        ({"spec": 0, "variants": 1, "interleavings": 3, "proofs": 0}, "fails"),
    ],
)
def test_the_worst_part_decides(verdicts: dict[str, int], overall: str) -> None:
    """One violation fails the check; something open and no violation leaves it open."""
    parts = [command.Part(name, [], status, result={}) for name, status in verdicts.items()]
    document = command.document(parts, "small", 1.0)
    assert document["verdict"] == overall
    assert document.keys() >= {"verdict", "spec", "variants", "interleavings", "proofs"}


def test_the_page_shows_a_missing_result_as_inconclusive() -> None:
    """A part without a result must not vanish from the report."""
    empty = {"verdict": "inconclusive", "scope": "small", "seconds": 1.0}
    text = page(empty)
    # The scenarios' result is missing twice: what they counted, and what their steps covered.
    assert text.count("the command gave no result") == 5
    assert text.count("there is no result, so nothing is said") == 4
    assert "badge holds" not in text


def test_case_G34_an_unknown_scope_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slip of the finger was told after minutes, when the other parts had run."""

    def started(scope: str, directory: Path) -> NoReturn:
        raise AssertionError("a part was started")

    monkeypatch.setattr(command, "parts_for", started)
    for wrong in ("huge", "smal", "", "small/two_pairs"):
        assert command.main(["check", "--scope", wrong]) == 2
        said = capsys.readouterr().err.strip()
        assert said == f"python -m cleancut: no scope {wrong!r}; there are: small, medium, large"


WRONG_USE = "import sys; print(\"no scope 'huge'\", file=sys.stderr); sys.exit(2)"


@pytest.fixture(scope="module")
def broken_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages in which a save forgets the ledger: the change a reviewer must be warned of."""
    tree = tmp_path_factory.mktemp("broken")
    for package in ("spec", "impl", "interleavings", "proofs", "cleancut", "cleancut_leaf"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    saving = tree / "spec" / "machines" / "cut" / "saving.py"
    text = saving.read_text(encoding="utf-8")
    right, wrong = "where(s.image_ready[p] == 1, NO_ENTRY, s.ledger[p])", "where(s.ledger[p] == 9, 1, NO_ENTRY)"
    changed = text.replace(right, wrong)
    assert changed != text
    saving.write_text(changed, encoding="utf-8")
    return tree


@pytest.fixture(scope="module")
def checked(broken_tree: Path) -> subprocess.CompletedProcess[str]:
    """`make check`'s command in that tree."""
    environment = {**os.environ, "PYTHONPATH": str(broken_tree)}
    return subprocess.run(
        [sys.executable, "-m", "cleancut", "check"],
        cwd=broken_tree, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def report_of(tree: Path) -> dict[str, Any]:
    """The report as JSON."""
    loaded: dict[str, Any] = json.loads((tree / "build/report/report.json").read_text(encoding="utf-8"))
    return loaded


def test_a_violation_fails_the_check_and_prints_table_trace_and_pytest(
    broken_tree: Path, checked: subprocess.CompletedProcess[str]
) -> None:
    """The screen has the steps, the sentence, the prompt with its owners, and two paths that exist."""
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "one_owner_on_disk: shortest counterexample, 10 steps" in checked.stdout
    assert "owners in the image to be published: none" in " ".join(checked.stdout.split())
    (trace,) = set(re.findall(r"trace: (\S+cut-one_owner_on_disk\.json)", checked.stdout))
    (test,) = re.findall(r"pytest: (\S+test_cut_one_owner_on_disk\.py)", checked.stdout)
    (explained,) = re.findall(r"page: +(\S+cut-one_owner_on_disk\.html)", checked.stdout)
    assert "owners in the image to be published: none" in (broken_tree / explained).read_text(encoding="utf-8")
    assert (broken_tree / trace).is_file()
    assert (broken_tree / test).is_file()
    assert checked.stdout.strip().splitlines()[-1].startswith("check: fails")


def test_the_report_of_a_violation_says_which_part_and_property_failed(
    broken_tree: Path, checked: subprocess.CompletedProcess[str]
) -> None:
    """report.json has the parts of the contract; the proof is refuted by the same change."""
    report = report_of(broken_tree)
    assert report["verdict"] == "fails"
    assert report["spec"]["properties"]["cut.one_owner_on_disk"] == "fails"
    assert {o["obligation"] for o in report["proofs"]["obligations"] if o["verdict"] == "fails"} == {
        "ownership: consecution of read_ledger"
    }
    text = (broken_tree / "build/report/index.html").read_text(encoding="utf-8")
    assert "fails" in text
    links = re.findall(r'href="(traces/[^"]+)"', text)
    assert "traces/cut-one_owner_on_disk.html" in links
    assert len(links) == len(set(report["pages"].values()))
    assert all((broken_tree / "build/report" / link).is_file() for link in links)


def test_the_pytest_of_the_violation_holds_on_the_library_which_did_not_change(
    broken_tree: Path, checked: subprocess.CompletedProcess[str]
) -> None:
    """The generated file runs as it is; the library still saves its ledger."""
    test = broken_tree / "build/counterexamples/test_cut_one_owner_on_disk.py"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout
