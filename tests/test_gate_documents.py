"""The JSON documents of the checking commands have the fields that docs/changing-the-protocol.md promises to a gate."""

import json
import re
from pathlib import Path

from interleavings.command_line import main as interleavings
from proofs.checks import BoundedOutcome
from proofs.claims import ARGUMENTS
from proofs.command_line import document as of_proofs
from proofs.solver import Outcome, Refuted, Unknown
from spec.command import check_machine, check_variant
from spec.command.command_line import _combined
from spec.machines import MACHINES, variant_named

PAGE = (Path(__file__).parent.parent / "docs" / "changing-the-protocol.md").read_text(encoding="utf-8")


def promised(command: str) -> list[set[str]]:
    """The fields in the row of a command: of the document, then of what is in it, as the row tells them."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{command}` |"))
    return [set(re.findall(r"`([a-z_]+)`", part)) for part in row.split("|")[2].split(";")]


def test_spec_check(tmp_path: Path) -> None:
    """All machines together, and each of them."""
    whole, part = promised("spec check")
    found = [check_machine(MACHINES[name], "small/leases", (), tmp_path) for name in ("barrier", "cut")]
    document = _combined(found)
    assert {"verdict", "machines"} <= whole <= document.keys()
    assert {"why", "scopes"} <= part <= document["machines"][0].keys() & document["machines"][1].keys()


def test_spec_variants(tmp_path: Path) -> None:
    """A variant that is caught has a verdict of `fails`, so a gate looks at `caught`."""
    fields, beside = promised("spec variants")
    document = check_variant(*variant_named("cursor_ahead"), tmp_path).document()
    assert {"variant", "caught"} <= fields <= document.keys()
    assert beside == {"verdict", "fails"}
    assert (document["caught"], document["verdict"]) == (True, "fails")


def test_interleavings_check(tmp_path: Path) -> None:
    """A search that ran into a bound is no pass."""
    (fields,) = promised("interleavings check")
    path = tmp_path / "check.json"
    assert (
        interleavings(["check", "queue", "--max-seconds", "0.2", "--json", str(path), "--output", str(tmp_path)]) == 3
    )
    (document,) = json.loads(path.read_text())
    assert {"scenario", "verdict"} <= fields <= document.keys()
    assert (document["verdict"], document["complete"]) == ("bounded", False)


def test_proofs() -> None:
    """What refutes an obligation stands beside it."""
    whole, of_obligation, of_bounded = promised("proofs")
    first, second = ARGUMENTS[0].obligations()[:2]
    outcomes = [Outcome(first, Refuted("cursor = 0"), 0.1), Outcome(second, Unknown("timeout"), 0.1)]
    document = of_proofs(outcomes, [BoundedOutcome("trace", "cursor_ahead", "bounded", "as the engines", 0.1)], 0.3)
    assert {"verdict", "bounded"} <= whole <= document.keys()
    assert {"why"} <= of_obligation <= document["obligations"][0].keys()
    assert {"check"} <= of_bounded <= document["bounded"][0].keys()
    assert [(item["verdict"], item["why"]) for item in document["obligations"]] == [
        ("fails", "cursor = 0"),
        ("inconclusive", "timeout"),
    ]
