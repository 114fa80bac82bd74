"""`python -m spec` as a user meets it: exit status, one clear line for wrong use, JSON of the contract."""

from __future__ import annotations

import json

import pytest

from spec.command import main

CHECK_KEYS = {
    "verdict", "complete", "states", "transitions", "depth", "seconds", "properties", "counterexample"
}  # fmt: skip


def test_check_of_all_machines_sums_up(tmp_path, capsys):
    """Several machines give one object with the sums and the machines, and one summary line."""
    status = main(["check", "--json", str(tmp_path / "out.json"), "--output", str(tmp_path)])
    document = json.loads((tmp_path / "out.json").read_text())
    assert status == 0
    assert document.keys() >= CHECK_KEYS | {"machines"}
    assert [m["machine"] for m in document["machines"]] == ["barrier", "cut", "store", "combined"]
    assert document["states"] == sum(m["states"] for m in document["machines"])
    assert (document["verdict"], document["complete"], document["counterexample"]) == ("holds", True, None)
    assert capsys.readouterr().out.splitlines()[-1].startswith("spec check: holds, ")


def test_check_of_a_variant_prints_a_numbered_table_and_writes_the_trace(tmp_path, capsys):
    """A violation exits 1 with the steps, the sentence, the prompt and its owners, and the path of the trace."""
    status = main(["check", "--variant", "cursor_ahead", "--json", str(tmp_path / "o.json"), "--output", str(tmp_path)])
    document = json.loads((tmp_path / "o.json").read_text())
    out = capsys.readouterr().out
    assert status == 1
    assert document.keys() >= CHECK_KEYS
    assert document["verdict"] == "fails"
    assert document["properties"]["one_owner_on_disk"] == "fails"
    assert "10 steps" in out
    assert "prompt 0 of batch 0, handed out; owners in memory: the ledger (RESERVED)" in out
    trace = json.loads((tmp_path / "cut-cursor_ahead-one_owner_on_disk.json").read_text())
    assert [step["action"] for step in trace["steps"]][-1] == "publish"
    assert document["counterexample"] == str(tmp_path / "cut-cursor_ahead-one_owner_on_disk.json")


def test_variants_lists_each_as_caught(tmp_path, capsys):
    """The list names variant, machine, scope, verdict, property, length and counterexample of each."""
    status = main(["variants", "--json", str(tmp_path / "v.json"), "--output", str(tmp_path)])
    items = json.loads((tmp_path / "v.json").read_text())
    assert status == 0
    assert {"cursor_ahead", "nested_slot", "gate_in_slot"} <= {item["variant"] for item in items}
    for item in items:
        assert item.keys() >= {"variant", "machine", "scope", "verdict", "property", "length", "counterexample"}
        assert item["verdict"] == "fails"
        assert item["length"] == item["pinned_length"]
    assert f"{len(items)} of {len(items)} caught" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["check", "--scope", "huge"], "no scope 'huge'"),
        (["check", "--variant", "cursor_behind"], "no variant 'cursor_behind'"),
        (["check", "--variant", "cursor_ahead+nested_slot"], "change different machines"),
        (["check", "--machine", "queue"], "no machine 'queue'"),
        (["check", "--machine", "barrier", "--variant", "cursor_ahead"], "changes the machine 'cut'"),
        (["check", "--engine", "compiled", "--device", "cuda"], "--device cuda is for the torch engine"),
        (["check", "--engine", "torch", "--resume"], "--resume is for the compiled engine"),
        (["check", "--engine", "magic"], "'magic' is unknown"),
        (["check", "--device", "abacus"], "no device 'abacus'"),
        (["check", "--device", "cuda:99"], "no device 'cuda:99'"),
        (["check", "--scope", "small/one_pair"], "name it with --machine"),
        (
            ["check", "--machine", "barrier", "--scope", "one_round", "--json", "/nowhere/x.json"],
            "cannot write /nowhere",
        ),
        (["export", "promela"], "name what to export with --machine"),
        (["export", "tla", "--machine", "cut", "-o", "not-a-name.tla"], "'not-a-name' is no name of a TLA+ module"),
        (["export", "tla", "--machine", "cut", "--property", "none_found"], "no property 'none_found'"),
        (["export", "promela", "--machine", "queue"], "no machine 'queue'"),
        (["export", "promela", "--machine", "cut", "--scope", "small"], "name one of: small/one_batch, "),
        (["export", "promela", "--machine", "cut", "--scope", "tiny"], "no scope 'tiny'"),
        (["export", "promela", "--variant", "cursor_behind"], "no variant 'cursor_behind'"),
        (["export", "promela", "--machine", "barrier", "--variant", "cursor_ahead"], "changes the machine 'cut'"),
        (["export", "promela", "--machine", "cut", "--property", "none_found"], "no property 'none_found'"),
        (["export", "promela", "--machine", "cut", "-o", "/nowhere/x.pml"], "cannot write /nowhere/x.pml"),
    ],
)
def test_wrong_use_gets_one_clear_line_and_status_2(arguments, line, capsys, tmp_path):
    """Unknown names and parts not built yet say so in one line, without a traceback."""
    assert main([*arguments, *(["--output", str(tmp_path)] if arguments[0] == "check" else [])]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert len(error.strip().splitlines()) == 1


def test_an_unknown_option_gets_one_line_and_status_2(capsys):
    """Also what the option parser finds is one line."""
    with pytest.raises(SystemExit) as ended:
        main(["check", "--scop", "small", "--unheard-of"])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
