"""The command line of the proofs: one row an obligation, one summary line, JSON of the contract."""

from __future__ import annotations

import json

from proofs.command_line import main


def test_the_command_line_gives_one_row_an_obligation(tmp_path, capsys):
    """The JSON of the contract and one summary line; an unwritable file is wrong use."""
    assert main(["--json", str(tmp_path / "p.json")]) == 0
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["verdict"] == "holds"
    for item in document["obligations"]:
        assert item.keys() == {"obligation", "machine", "verdict", "seconds", "assumes", "excludes"}
        assert item["verdict"] == "holds"
    number = len(document["obligations"])
    assert number > 80
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"proofs: holds, {number} of {number} proved")
    assert main(["--json", "/nowhere/p.json"]) == 2
