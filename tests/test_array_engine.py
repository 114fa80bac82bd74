"""The array engine reports what the reference engine reports: of every small scope, and of every variant."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled_agreement import expect_same, reported

from spec.command import check_machine, main
from spec.engines import COMPILED, TORCH, Options, chosen_engine
from spec.engines import choice as engines
from spec.engines import reference as reference_engine
from spec.engines.arrays import FREE, Expander, Expansion, Known, Plan, TooMany, device_named, engine, free_memory
from spec.language import Machine, ModelFault, narrowed, put
from spec.language.scalar_form import scalar_form
from spec.machines import FAMILIES, MACHINES, SMALL, Pinned, UnknownName, all_variants, scopes_named, variant_named

ROOT = Path(__file__).resolve().parent.parent
CPU = torch.device("cpu")
SCOPES = [(m, name) for m, family in SMALL.items() for name in family]


@pytest.mark.parametrize(("name", "member"), SCOPES)
def test_a_complete_search(name, member):
    """The pinned counts of every small scope; everything else too where the reference takes no time."""
    machine, (scope, pinned) = MACHINES[name], SMALL[name][member]
    found = engine.search(machine, scope)
    assert (found.verdict, found.complete) == ("holds", True)
    assert Pinned(found.states, found.transitions, found.depth) == pinned
    if pinned.states < 1000:
        expect_same(reference_engine.search(machine.model(scope)), found)


@pytest.mark.parametrize("variant", [v.name for _, v in all_variants()])
def test_a_variant_is_caught_alike(variant):
    """The same property by the same shortest path, through the same states, and the same counts on the way."""
    machine, known = variant_named(variant)
    ((_, (scope, _)),) = scopes_named(machine, known.scope).items()
    names = (*known.with_variants, known.name)
    found = engine.search(machine, scope, names, properties=[known.breaks])
    expect_same(reference_engine.search(machine.model(scope, names), properties=[known.breaks]), found)
    assert found.violation is not None
    assert (found.violation.property, found.violation.length) == (known.breaks, known.length)


@pytest.mark.parametrize("variant", ["cursor_ahead", "leak_on_cancel", "publish_before_data", "permit_at_claim"])
@pytest.mark.parametrize("run", [1, 5, None])
def test_a_variant_for_all_properties_in_runs_of_any_length(variant, run):
    """Of several properties broken in one level the first in the order of the search is reported, whatever a run is."""
    machine, known = variant_named(variant)
    ((_, (scope, _)),) = scopes_named(machine, known.scope).items()
    found = engine.search(machine, scope, (variant,), run=run)
    expect_same(reference_engine.search(machine.model(scope, (variant,))), found)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_medium_scopes_hold_with_the_pinned_counts(name, tmp_path):
    """What the reference engine would take an hour for."""
    result = check_machine(MACHINES[name], "medium", (), tmp_path, Options(TORCH))
    assert result.verdict == "holds"
    assert [s.drift for s in result.scopes] == [""] * len(FAMILIES["medium"][name])


@dataclass(frozen=True)
class Size:
    """How far the counters count, and what each step adds."""

    top: int
    step: int = 1


def counters(limit: int | None = None) -> Machine:
    """Three counters that each count to the top; with a limit, their sum must stay below it."""
    machine = Machine("counters")
    machine.domain("counters", lambda scope: 3)
    machine.variable("value", 0, lambda scope: scope.top * scope.step, "the counters", over="counters")

    @machine.system(who="counter", each="counters")
    def increment(s, c):
        """Counter `c` counts on, past the top when the others are far."""
        far = s.value[0] + s.value[1] + s.value[2] == (limit if limit is not None else -1)
        return (s.value[c] < s.top * s.step) | far, {"value": put(s.value, c, s.value[c] + s.step)}

    return machine


@pytest.mark.parametrize("step", [1, 100, 40_000, 1 << 40])
def test_numbers_are_as_wide_as_they_need_to_be(step):
    """Bytes, and units of two, four and eight bytes: the same states."""
    machine, size = counters(), Size(4, step)
    form = narrowed(scalar_form(machine, size))
    unit = Plan(form, [], False).layout.unit
    assert unit == {1: 8, 100: 16, 40_000: 32, 1 << 40: 64}[step]
    expect_same(reference_engine.search(machine.model(size)), engine.search(machine, size))


def test_the_table_grows_and_runs_that_branch_widely_are_halved(monkeypatch):
    """More states than the first table holds, and more transitions of a run than memory is set aside for."""
    monkeypatch.setattr("spec.engines.arrays.known.FIRST_SLOTS", 64)
    monkeypatch.setattr("spec.engines.arrays.expansion.BRANCHES", 1)
    found = engine.search(counters(), Size(9), run=16)
    assert (found.states, found.transitions, found.depth) == (10**3, 3 * 9 * 10**2, 27)


def test_a_run_that_is_halved_keeps_nothing_of_the_whole(monkeypatch):
    """Its tensors are the largest there are; the traceback of what is being handled would hold them all the while."""
    handled = []
    states = []

    def whole(self, first, last, depth):
        handled.append(sys.exc_info()[0])
        if last - first > 1:
            raise TooMany
        states.append(first)
        return Expansion(1)

    monkeypatch.setattr(Expander, "whole", whole)
    machine, (scope, _) = MACHINES["store"], SMALL["store"]["two_writers"]
    search = engine._Search(machine, scope, (), None, 1 << 20, CPU, 8)
    assert len(search.expander.expand(0, 4, 0)) == 4
    assert states == [0, 1, 2, 3]
    assert handled == [None] * 7


@pytest.mark.parametrize(("variant", "limit"), [(None, None), ("cursor_ahead", None), (None, 400_000)])
def test_a_search_that_is_over_keeps_no_memory(monkeypatch, variant, limit):
    """Of a device it is most of what there is, and the next search asks for it before anybody looks for garbage."""
    kept = []

    class Seen(Known):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            kept.append(weakref.ref(self))

    monkeypatch.setattr(engine, "Known", Seen)
    machine, (scope, _) = MACHINES["cut"], SMALL["cut"]["failures"]
    gc.disable()
    try:
        engine.search(machine, scope, (variant,) if variant else (), memory_limit=limit)
        assert kept[0]() is None
    finally:
        gc.enable()


def test_a_fault_of_the_text_is_reported():
    """As by the reference engine: which action left which range."""
    machine = counters(limit=16)
    with pytest.raises(ModelFault) as expected:
        reference_engine.search(machine.model(Size(8)))
    with pytest.raises(ModelFault) as found:
        engine.search(machine, Size(8))
    assert str(found.value) == str(expected.value)


def test_equal_keys_are_all_words_and_nothing_less(monkeypatch):
    """With a hash that takes all states for one the search is slow and right: keys are exact."""
    monkeypatch.setattr("spec.engines.arrays.known.FACTORS", (0, 0, 0, 0))
    machine, (scope, pinned) = MACHINES["cut"], SMALL["cut"]["one_batch"]
    found = engine.search(machine, scope)
    assert Pinned(found.states, found.transitions, found.depth) == pinned


def test_a_comparison_of_one_word_only_loses_states(monkeypatch):
    """The control of the test before: with keys compared in part the counts come out wrong."""
    monkeypatch.setattr(Known, "equal", lambda self, left, right: left[:, 0] == right[:, 0])
    machine, (scope, pinned) = MACHINES["cut"], SMALL["cut"]["two_pairs"]
    monkeypatch.setattr("spec.engines.arrays.known.FACTORS", (0, 0, 0, 0))
    assert Plan(narrowed(scalar_form(machine, scope)), [], False).layout.words > 1
    assert engine.search(machine, scope, properties=[]).states < pinned.states


def test_of_equal_candidates_the_first_is_kept():
    """So the numbers of states do not depend on what a device does in which order."""
    known = Known(2, 1 << 20, CPU)
    rows = torch.tensor([[5, 6], [1, 2], [5, 6], [1, 3], [1, 2]])
    assert known.add(rows, torch.arange(5, dtype=torch.int32)).tolist() == [0, 1, 3]
    assert known.add(rows[1:], torch.arange(4, dtype=torch.int32)).tolist() == []
    assert known.states[: known.count].tolist() == [[5, 6], [1, 2], [1, 3]]
    assert sorted(known.table[known.table != FREE].tolist()) == [0, 1, 2]


def test_at_the_limit_of_memory_the_search_is_bounded():
    """Never reported as holding."""
    machine, (scope, _) = MACHINES["cut"], SMALL["cut"]["failures"]
    found = engine.search(machine, scope, memory_limit=400_000)
    assert found.verdict == "bounded"
    assert "memory limit" in found.why
    limited = engine.search(machine, scope, max_states=1000, run=64)
    assert limited.verdict == "bounded"
    assert 1000 < limited.states < 2000


@pytest.mark.parametrize("words", [1, 3, 5])
@pytest.mark.parametrize("limit", [400_000, 1 << 20, 50_000_000])
def test_no_more_is_reserved_than_can_be_used(words, limit):
    """A device gives what is reserved at once, so states and table together have to keep to the limit."""
    known = Known(words, limit, CPU)
    assert known.has_room(known.capacity)
    assert known.capacity * known.row_bytes + 4 * known.slots_for(known.capacity) <= limit
    known.capacity += 1
    assert not known.has_room(known.capacity), "one more would not have fitted"


def test_memory_that_torch_keeps_of_an_earlier_search_is_free(monkeypatch):
    """The driver calls it used; a second search in a process would be given a fraction of what the first one had."""
    figures = {"mem_get_info": (50, 140), "memory_reserved": 85, "memory_allocated": 5}
    for name, figure in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, figure=figure: figure)
    assert free_memory(torch.device("cuda")) == 50 + 80


@pytest.mark.parametrize("instances", [1, 1 << 12])
def test_a_run_keeps_to_what_older_torch_can_search_at_once(monkeypatch, instances):
    """`nonzero` on a device refused tensors of 2 ** 31 elements and more until torch 2.6."""
    monkeypatch.setattr("spec.engines.arrays.engine.free_memory", lambda device: 1 << 40)
    machine, (scope, _) = MACHINES["store"], SMALL["store"]["two_writers"]
    search = engine._Search(machine, scope, (), None, 1 << 20, CPU, 1)
    search.form = replace(search.form, instances=search.form.instances[:1] * instances)
    assert search.suiting(torch.device("cuda")) * instances < 1 << 31


def test_any_number_of_threads_gives_the_same():
    """And the number that the program had set is there again afterwards."""
    machine, (scope, _) = MACHINES["cut"], SMALL["cut"]["two_pairs"]
    own = torch.get_num_threads()
    one, two = (engine.search(machine, scope, threads=threads) for threads in (1, 2))
    assert reported(one) == reported(two)
    assert torch.get_num_threads() == own


def test_the_device_asked_for_chooses_the_engine():
    """A device is the array engine's alone, whatever the size of the scope."""
    assert chosen_engine(Options(device="cuda"), Pinned(18, 0, 0)) == TORCH
    assert chosen_engine(Options(engine=TORCH), None) == TORCH
    assert chosen_engine(Options(memory_limit=1), None) == COMPILED
    assert device_named("cpu") == CPU


def test_without_torch_the_error_says_how_to_install_it(monkeypatch):
    """torch is an extra."""
    monkeypatch.setattr(engines, "torch_is_there", lambda: False)
    with pytest.raises(UnknownName, match=r"pip install 'cleancut\[torch\]'"):
        chosen_engine(Options(engine=TORCH), None)


def test_what_is_shared_with_the_compiled_engine_needs_no_numba():
    """Whoever has torch alone can search."""
    program = (
        "import sys; sys.modules['numba'] = None; from spec.engines.arrays import engine; "
        "from spec.machines import MACHINES; "
        "from spec.machines.scopes import SMALL; "
        "print(engine.search(MACHINES['cut'], SMALL['cut']['one_batch'][0]).verdict)"
    )
    done: Any = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("holds", "")


def run_script(*arguments: str, output: Path) -> tuple[int, str, list[dict[str, Any]]]:
    """Status, text and table of `bench/array_cuda.py`, which is shown no device."""
    command = [sys.executable, str(ROOT / "bench" / "array_cuda.py"), "--json", str(output), *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    rows = json.loads(output.read_text()) if output.exists() else []
    return done.returncode, done.stdout + done.stderr, rows


@pytest.mark.slow
def test_the_script_for_a_gpu_is_right_on_the_processor(tmp_path):
    """So that it is right before a GPU can be had."""
    status, text, rows = run_script("--device", "cpu", "--quick", output=tmp_path / "rows.json")
    assert status == 0, text
    bounded = [row for row in rows if row["to_reach"]]
    assert len(bounded) == 8 + len(MACHINES)
    assert all(row["ok"] for row in bounded)


def test_without_a_gpu_the_script_did_not_run_and_says_so(tmp_path):
    """Status 3, no table: nothing that could be read as a pass."""
    status, text, rows = run_script(output=tmp_path / "rows.json")
    assert (status, rows) == (3, [])
    assert text.startswith("array_cuda: not run: torch finds no CUDA device")


@pytest.mark.cuda
def test_on_a_gpu_the_counts_are_those_of_the_other_engines():
    """Everything reported, through a violation and without."""
    machine, (scope, _) = MACHINES["cut"], SMALL["cut"]["two_pairs"]
    expect_same(engine.search(machine, scope), engine.search(machine, scope, device="cuda"))
    machine, known = variant_named("cursor_ahead")
    ((_, (bounds, _)),) = scopes_named(machine, known.scope).items()
    found = engine.search(machine, bounds, ("cursor_ahead",), device="cuda")
    expect_same(engine.search(machine, bounds, ("cursor_ahead",)), found)


def test_the_command_line_searches_on_arrays(tmp_path, capsys):
    """A whole family, with the pinned counts."""
    arguments = ["check", "--machine", "barrier", "--engine", "torch", "--memory", "64M", "--workers", "1"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    total = sum(pinned.states for _, pinned in SMALL["barrier"].values())
    assert f"spec check: holds, {total:,} states" in capsys.readouterr().out
