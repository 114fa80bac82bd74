"""The variants of one scope as one text: each is caught as it is alone, and one compilation serves all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from compiled_agreement import expect_same
from generated_text import interpreted

from spec.engines import reference as reference_engine
from spec.engines import variants_of
from spec.engines.compiled import engine
from spec.language import Machine, ModelFault, Unlike, switched_form
from spec.machines import all_variants, scopes_named

Case = tuple[Machine, Any, tuple[str, ...], str]


def case(machine: Machine, name: str) -> Case:
    """A variant with its scope, those it comes with, and what it breaks."""
    known = machine.variants[name]
    ((_, (scope, _)),) = scopes_named(machine, known.scope).items()
    return machine, scope, (*known.with_variants, name), known.breaks


TOGETHER = [(m, v.name) for m, v in all_variants() if len(variants_of(*case(m, v.name)[:2])) > 1]


@pytest.mark.parametrize(("machine", "variant"), TOGETHER, ids=[name for _, name in TOGETHER])
def test_a_variant_is_caught_alike_in_the_text_of_all(machine, variant):
    """Counts, path and states of the reference engine, which knows nothing of the others."""
    machine, scope, names, breaks = case(machine, variant)
    generated = engine.prepared(machine, scope, names, variants_of(machine, scope))
    assert generated.form.switch is not None
    found = engine.search(
        machine,
        scope,
        names,
        properties=[breaks],
        functions=interpreted(generated),
        together=variants_of(machine, scope),
    )
    expect_same(reference_engine.search(machine.model(scope, names), properties=[breaks]), found)


def test_the_variants_of_a_scope_are_one_text():
    """As many compilations as there are scopes in which variants are shown."""
    scopes, texts = set(), set()
    for machine, known in all_variants():
        machine, scope, names, _ = case(machine, known.name)
        scopes.add((machine.name, scope))
        texts.add(engine.prepared(machine, scope, names, variants_of(machine, scope)).text)
    assert len(texts) == len(scopes) < len(all_variants()) / 2


@dataclass(frozen=True)
class Size:
    """How far the counter counts."""

    top: int


def counter() -> Machine:
    """A counter that leaps in its variants: in one of them with more room, in another without."""
    machine = Machine("counter")
    machine.variable("value", 0, lambda scope: scope.top, "the counter")

    @machine.system(who="counter", progress=False)
    def increment(s):
        """The counter counts on."""
        return s.value < s.top, {"value": s.value + 1}

    @machine.system(who="counter", progress=False)
    def restart(s):
        """The counter begins again."""
        return s.value == s.top, {"value": 0}

    @machine.always(witness=lambda s: s.value > 0)
    def below_four(s):
        """The counter is below four."""
        return s.value < 4

    def leap(s):
        return s.value < s.top, {"value": s.value + 2}

    @machine.variant(breaks="below_four", scope="none", length=2)
    def leaps(varied):
        """It leaps, and has room for it."""
        varied.variables["value"] = replace(varied.variables["value"], high=lambda scope: scope.top + 1)
        varied.replace("increment", leap)

    @machine.variant(breaks="below_four", scope="none", length=2)
    def leaps_too_far(varied):
        """It leaps out of its range."""
        varied.replace("increment", leap)

    @machine.variant(breaks="below_four", scope="none", length=2)
    def begins_later(varied):
        """It begins at one."""
        varied.variables["value"] = replace(varied.variables["value"], initial=1)

    @machine.variant(breaks="below_four", scope="none", length=2)
    def turns_round(varied):
        """The same actions in the opposite order."""
        varied.actions = dict(reversed(varied.actions.items()))

    return machine


def test_a_range_is_that_of_the_variant_itself():
    """The text has room for the widest; a variant that leaves its own narrower range is still at fault."""
    machine, together = counter(), [("leaps",), ("leaps_too_far",)]

    def search(name: str) -> Any:
        generated = engine.prepared(machine, Size(3), (name,), together)
        assert generated.form.switch is not None
        return engine.search(machine, Size(3), (name,), functions=interpreted(generated), together=together)

    expect_same(reference_engine.search(machine.model(Size(3), ("leaps",))), search("leaps"))
    with pytest.raises(ModelFault) as reference:
        reference_engine.search(machine.model(Size(3), ("leaps_too_far",)))
    with pytest.raises(ModelFault) as compiled:
        search("leaps_too_far")
    assert str(compiled.value) == str(reference.value)


@pytest.mark.parametrize(("name", "why"), [("begins_later", "first value of value"), ("turns_round", "order of")])
def test_what_cannot_be_one_text_gets_its_own(name, why):
    """Another initial state, or an order of actions in which the search would meet states differently."""
    machine, together = counter(), [("leaps",), (name,)]
    with pytest.raises(Unlike, match=why):
        switched_form(machine, Size(3), (name,), together)
    generated = engine.prepared(machine, Size(3), (name,), together)
    assert generated.form.switch is None
    found = engine.search(machine, Size(3), (name,), functions=interpreted(generated), together=together)
    expect_same(reference_engine.search(machine.model(Size(3), (name,))), found)
