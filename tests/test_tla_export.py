"""The exported TLA+ says what the machine says: its form, its steps, its properties, on every state of small scopes."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from tla_text import Malformed, Module

from spec.command import main
from spec.engines import reference as reference_engine
from spec.exports.tla import export_tla
from spec.language import Model, ModelFault
from spec.language.machine import Claim
from spec.machines import MACHINES, SMALL, all_variants, scopes_named, variant_named

EVERY_SMALL_SCOPE = [(machine, name) for machine, family in SMALL.items() for name in family]
# Of each machine scopes of a few hundred states, with different features.
COMPARED = [
    ("barrier", "one_cancellation"),
    ("barrier", "two_rounds"),
    ("cut", "one_pair"),
    ("cut", "one_failure"),
    ("cut", "weight_fifo_failures"),
    ("cut", "windowed_tight"),
    ("store", "one_save"),
]
ALSO_COMPARED = [
    ("cut", "epochs"),
    ("cut", "spares"),
    ("cut", "background"),
    ("cut", "replay_free"),
    ("cut", "ready_first"),
    ("cut", "snapshots"),
    ("barrier", "two_children"),
    ("store", "two_saves"),
    ("combined", "one_batch"),
]


def exported(name: str, member: str) -> tuple[Model, Module]:
    """A model, and the module that is exported for it."""
    machine, scope = MACHINES[name], SMALL[name][member][0]
    return machine.model(scope), Module(export_tla(machine, scope).module)


def as_tla(state: Any) -> dict[str, Any]:
    """A plain state as the module has it: vectors are functions."""
    return {
        name: dict(enumerate(value)) if isinstance(value, tuple) else int(value)
        for name, value in state._asdict().items()
    }


def frozen(state: dict[str, Any]) -> tuple[Any, ...]:
    """Something to compare and to keep in a set."""
    return tuple((n, tuple(v.items()) if isinstance(v, dict) else v) for n, v in sorted(state.items()))


def reachable(model: Model) -> list[Any]:
    """All states of a model."""
    seen, waiting = {model.initial}, [model.initial]
    while waiting:
        for step in model.steps(waiting.pop()):
            if step.state not in seen:
                seen.add(step.state)
                waiting.append(step.state)
    return list(seen)


def steps_of_module(module: Module, model: Model, state: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Every action of the module taken at every index where it is enabled."""
    found: set[tuple[Any, ...]] = set()
    for action in model.machine.actions.values():
        if action.when is not None and not action.when(model.scope):
            continue
        size = 1 if action.each is None else model.machine.domains[action.each](model.scope)
        for index in range(size):
            arguments = () if action.each is None else (index,)
            after = module.after(action.name, state, *arguments)
            if after is not None:
                found.add((action.name, *arguments, frozen(after)))
    return found


def expect_the_same_of_steps(
    model: Model, module: Module, state: Any, name: str, asked: tuple[str | None, Claim]
) -> None:
    """On every step from a state the same verdict of a property of steps; several steps may lead to one state."""
    each, claim = asked
    taken = list(model.steps(state))
    for there in {step.state for step in taken}:
        alike = [step for step in taken if step.state == there and model.looks(claim, step)]
        holds = not any(model.violated_indexes(each, claim, state, step) for step in alike)
        assert module.value(name, as_tla(state), as_tla(there)) is holds, (name, state, there)


def expect_the_same(model: Model, module: Module) -> int:
    """On every reachable state the same steps and the same verdict of every property; how many steps there are."""
    machine, steps = model.machine, 0
    assert module.initial() == as_tla(model.initial)
    for state in reachable(model):
        here = as_tla(state)
        taken = list(model.steps(state))
        steps += len(taken)
        expected = {(s.action.name, *(() if s.index is None else (s.index,)), frozen(as_tla(s.state))) for s in taken}
        assert steps_of_module(module, model, here) == expected
        assert module.value("TypeOK", here) is True
        names = {step.action.name for step in taken}
        for known in machine.properties.values():
            for number, claim in enumerate(known.claims):
                name = known.name if number == 0 else f"{known.name}_at_{claim.at}"
                if name not in module.definitions:
                    continue
                if claim.of_step:
                    expect_the_same_of_steps(model, module, state, name, (known.each, claim))
                else:
                    looked_at = claim.at is None or claim.at in names
                    holds = not looked_at or not model.violated_indexes(known.each, claim, state)
                    assert module.value(name, here) is holds, (name, state)
        if machine.progress:
            going_on = model.finished(state) or any(step.action.progress for step in taken)
            assert module.value(machine.progress.name, here) is going_on
            for step in taken:
                rises = not step.action.progress or machine.progress.rank(step.state) > machine.progress.rank(state)
                assert module.value(f"{machine.progress.name}_by_rank", here, as_tla(step.state)) is rises
                assert module.value("Next", here, as_tla(step.state)) is True
    return steps


@pytest.mark.parametrize(("name", "member"), COMPARED)
def test_the_module_means_what_the_machine_means(name, member):
    """Initial state, steps, ranges, properties, ranks: on every reachable state."""
    assert expect_the_same(*exported(name, member)) == SMALL[name][member][1].transitions


@pytest.mark.slow
@pytest.mark.parametrize(("name", "member"), ALSO_COMPARED)
def test_the_module_means_what_the_machine_means_with_every_feature(name, member):
    """The same where it takes longer."""
    assert expect_the_same(*exported(name, member)) == SMALL[name][member][1].transitions


@pytest.mark.parametrize(("name", "member"), EVERY_SMALL_SCOPE)
def test_every_scope_has_a_module_of_the_right_form_and_its_configuration(name, member):
    """Names declared before use and once, lists in one column; all that the configuration names is defined."""
    machine, scope = MACHINES[name], SMALL[name][member][0]
    export = export_tla(machine, scope, scope_name=f"small/{member}")
    module = Module(export.module)
    assert module.name == name
    assert module.variables == list(machine.variables)
    offered = [a.name for a in machine.actions.values() if a.when is None or a.when(scope)]
    assert set(offered) <= set(module.definitions)
    assert set(machine.actions) & set(module.definitions) == set(offered)
    assert max(map(len, export.module.splitlines())) <= 120
    lines = export.configuration.splitlines()
    assert lines[0] == "SPECIFICATION Spec"
    checked = [line.split()[1] for line in lines[1:]]
    assert set(checked) <= set(module.definitions)
    assert set(machine.properties) - set(checked) <= {
        p.name for p in machine.properties.values() if all(c.at not in (None, *offered) for c in p.claims)
    }


@pytest.mark.parametrize("variant", [v.name for _, v in all_variants()])
def test_a_variant_breaks_in_the_module_what_it_breaks_in_the_machine(variant):
    """Its counterexample is a path of the module, at whose end the property is false, and nowhere before."""
    machine, known = variant_named(variant)
    ((_, (scope, _)),) = scopes_named(machine, known.scope).items()
    names = (*known.with_variants, known.name)
    found = reference_engine.search(machine.model(scope, names), properties=[known.breaks]).violation
    assert found is not None
    module = Module(export_tla(machine, scope, names, properties=[known.breaks]).module)
    states = [as_tla(state) for state in found.states]
    assert module.initial() == states[0]
    for (action, index), before, after in zip(found.steps, states, states[1:], strict=False):
        assert module.after(action, before, *(() if index is None else (index,))) == after
    claims = [n for n in module.definitions if re.fullmatch(rf"{known.breaks}(_at_\w+)?", n)]
    rises = f"{known.breaks}_by_rank"
    verdicts = [all(module.value(name, state) for name in claims) for state in states]
    if rises in module.definitions and all(verdicts):
        steps = [module.value(rises, before, after) for before, after in itertools.pairwise(states)]
        assert (all(steps[:-1]), steps[-1]) == (True, False)
        return
    broken_at = len(states) - (2 if found.at is not None else 1)
    assert verdicts.index(False) == broken_at


def changed(text: str, old: str, new: str) -> str:
    """The text with one place changed, which must be there."""
    assert old in text, old
    return text.replace(old, new, 1)


WRONG_MEANING = [
    ("cursor' = (cursor + 1)", "cursor' = cursor"),
    ("/\\ slot' = [slot EXCEPT ![p] = UNREADY]", "/\\ slot' = [slot EXCEPT ![p] = READY]"),
    ("permits' = (permits - 1)", "permits' = permits"),
    ("p1 >= p", "p1 > p"),
    ("/\\ dispatch_cursor = (-1)\n", "/\\ dispatch_cursor = 0\n"),
    ("ADMITTED == 2", "ADMITTED == 1"),
    ("no_stall ==\n  \\/ finished", "no_stall ==\n  \\/ (~ finished)"),
]


@pytest.mark.parametrize(("old", "new"), WRONG_MEANING)
def test_a_wrong_module_is_seen_to_be_wrong(old, new):
    """The control: each changes the meaning, and the comparison finds it."""
    machine, scope = MACHINES["cut"], SMALL["cut"]["one_pair"][0]
    text = changed(export_tla(machine, scope).module, old, new)
    with pytest.raises((AssertionError, Malformed)):
        expect_the_same(machine.model(scope), Module(text))


WRONG_FORM = [
    ("(cursor + 1)", "(curser + 1)"),
    ("  /\\ gate_passed' = 1\n", " /\\ gate_passed' = 1\n"),
    ("prompts == ", "cursor == "),
    ("(IF ", "(IF IF "),
    ("=" * 60, "-" * 60),
    ("[p \\in prompts |->", "[cursor \\in prompts |->"),
    ("(permits > 0)", "(permits > 0"),
    ("EXTENDS Integers", "EXTENDS Cleancut"),
]


@pytest.mark.parametrize(("old", "new"), WRONG_FORM)
def test_a_text_of_wrong_form_is_refused(old, new):
    """A name that is not declared, an item in the wrong column, a name declared twice, a parenthesis too few."""
    text = export_tla(MACHINES["cut"], SMALL["cut"]["one_pair"][0]).module
    text = changed(text, old, new)
    with pytest.raises(Malformed):
        Module(text)


def test_the_command_writes_module_and_configuration(tmp_path, capsys):
    """The name of the module is that of its file, as TLC wants it."""
    path = tmp_path / "protocol.tla"
    arguments = ["export", "tla", "--machine", "cut", "--scope", "small/two_pairs"]
    assert main([*arguments, "-o", str(path)]) == 0
    assert Module(path.read_text()).name == "protocol"
    assert "INVARIANT one_owner_on_disk" in (tmp_path / "protocol.cfg").read_text()
    assert main([*arguments, "--property", "none_lost"]) == 0
    assert "MODULE cut" in capsys.readouterr().out
    some = export_tla(MACHINES["cut"], SMALL["cut"]["one_pair"][0], properties=["none_lost"]).configuration
    assert re.findall(r"INVARIANT (\w+)", some) == ["TypeOK", "none_lost", "none_lost_at_publish"]
    with pytest.raises(ModelFault, match="no property"):
        export_tla(MACHINES["cut"], SMALL["cut"]["one_pair"][0], properties=["unheard_of"])
