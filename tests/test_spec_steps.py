"""Properties of steps: a relation of the state before, the action and the state after, the same in every engine."""

from dataclasses import dataclass

import pytest
from tla_text import Module

from proofs.solver import Trace, shortest_trace
from spec.engines import NotSymmetric, search, symmetry
from spec.engines.reference import Violation
from spec.exports.promela import export_promela
from spec.exports.tla import export_tla
from spec.language import Machine, ModelFault, Value, all_of, any_of, put
from spec.language.machine import Effects
from spec.language.scalar_form import scalar_form


@dataclass(frozen=True)
class Jars:
    """How many jars, and how much each holds."""

    jars_in_all: int
    most: int


def jars() -> Machine:
    """Jars that are filled one by one and emptied together; what is poured out is counted."""
    machine = Machine("jars")
    machine.domain("jars", lambda scope: scope.jars_in_all)
    machine.symmetric("jars")
    machine.variable("level", 0, lambda scope: scope.most, "how full", over="jars")
    machine.variable("poured", 0, 99, "how much was poured out")

    @machine.system(who="hand", each="jars")
    def fill(s: Value, j: Value) -> Effects:
        """One measure more into jar `j`."""
        return s.level[j] < s.most, {"level": put(s.level, j, s.level[j] + 1)}

    @machine.system(who="hand", each="jars")
    def pour(s: Value, j: Value) -> Effects:
        """Jar `j`, which is full, is emptied, once."""
        return (s.level[j] == s.most) & (s.poured < 2 * s.most), {
            "level": put(s.level, j, 0),
            "poured": s.poured + s.most,
        }

    @machine.step("fill", "pour", witness=lambda s: any_of(s.jars, lambda j: s.level[j] > 0))
    def others_are_left_alone(s: Value, after: Value, j: Value) -> Value:
        """What is done to one jar changes no other."""
        return all_of(s.jars, lambda other: (other == j) | (after.level[other] == s.level[other]))

    @machine.step(witness=lambda s: s.poured > 0)
    def nothing_flows_back(s: Value, after: Value) -> Value:
        """What was poured out stays out."""
        return after.poured >= s.poured

    @machine.variant(breaks="others_are_left_alone", scope="one", length=3)
    def spills(machine: Machine) -> None:
        """Filling a jar takes one from the next that has some."""

        def fill(s: Value, j: Value) -> Effects:
            """With a measure of jar 1, if that has two."""
            guard, effects = s.level[j] < s.most, {"level": put(s.level, j, s.level[j] + 1)}
            taken = (j == 0) & (s.level.at(1) == 2)
            level = effects["level"]
            return guard & taken, {"level": put(level, 1, 1)}

        fill_rest = machine.actions["fill"].function

        def fill_slowly(s: Value, j: Value) -> Effects:
            """As ever, where nothing is spilt."""
            guard, effects = fill_rest(s, j)
            return guard & ((j != 0) | (s.level.at(1) != 2)), effects

        machine.replace("fill", fill)
        machine.system(who="hand", each="jars")(fill_slowly)

    @machine.variant(breaks="nothing_flows_back", scope="one", length=4)
    def flows_back(machine: Machine) -> None:
        """A jar that is filled when something was poured out takes it back."""
        filled = machine.actions["fill"].function

        def fill(s: Value, j: Value) -> Effects:
            """As ever, and nothing is out any more."""
            guard, effects = filled(s, j)
            return guard, {**effects, "poured": 0}

        machine.replace("fill", fill)

    return machine


def violation(machine: Machine, variants: tuple[str, ...]) -> Violation | None:
    """What the reference engine finds broken, of the properties of steps."""
    names = list(machine.properties)
    return search(machine.model(Jars(2, 3), variants), properties=names).violation


@pytest.mark.parametrize(
    ("variant", "broken", "last", "length"),
    [("spills", "others_are_left_alone", ("fill", 0), 3), ("flows_back", "nothing_flows_back", ("fill", 0), 5)],
)
def test_a_step_that_breaks_a_property_is_the_last_of_the_counterexample(
    variant: str, broken: str, last: tuple[str, int], length: int
) -> None:
    """The index is that of the step, and the state before it is the one that a reader is shown."""
    machine = jars()
    found = violation(machine, (variant,))
    assert found is not None
    assert (found.property, found.steps[-1], found.at, found.length) == (broken, last, "fill", length)
    assert found.indexes == ((0,) if broken == "others_are_left_alone" else (None,))
    assert violation(machine, ()) is None


@pytest.mark.parametrize("variants", [(), ("spills",), ("flows_back",)])
def test_the_engines_agree_on_properties_of_steps(variants: tuple[str, ...]) -> None:
    """Counts, verdict, indexes and path: reference, compiled, torch, and the solver's trace where there is one."""
    compiled = pytest.importorskip("spec.engines.compiled.engine")
    machine, scope, names = jars(), Jars(2, 3), [*jars().properties]
    reference = search(machine.model(scope, variants), properties=names)
    others = [compiled.search(machine, scope, variants, properties=names)]
    pytest.importorskip("torch")
    from spec.engines.arrays import engine as arrays

    others.append(arrays.search(machine, scope, variants, properties=names, device="cpu", threads=1))
    for other in others:
        assert (other.verdict, other.properties, other.unwitnessed) == (
            reference.verdict,
            reference.properties,
            reference.unwitnessed,
        )
        if reference.violation is None:
            assert (other.states, other.transitions, other.depth) == (
                reference.states,
                reference.transitions,
                reference.depth,
            )
        else:
            assert other.violation.steps == reference.violation.steps
            assert other.violation.indexes == reference.violation.indexes
    if reference.violation is not None:
        trace = shortest_trace(machine, scope, variants, reference.violation.property, 6)
        assert isinstance(trace, Trace)
        assert trace.length == reference.violation.length


@pytest.mark.parametrize("variant", ["spills", "flows_back"])
def test_variants_that_break_steps_share_one_text(variant: str) -> None:
    """Each switched on in the joint text is caught as alone."""
    compiled = pytest.importorskip("spec.engines.compiled.engine")
    machine, together = jars(), [("spills",), ("flows_back",)]
    names = list(machine.properties)
    joint = compiled.search(machine, Jars(2, 3), (variant,), properties=names, together=together)
    alone = violation(machine, (variant,))
    assert alone is not None
    assert joint.violation is not None
    assert joint.violation.steps == alone.steps


def test_a_property_of_steps_is_compared_with_itself_permuted() -> None:
    """What is said of a step by one jar is said of that by any other; a rule about one jar alone is refused."""
    machine, scope = jars(), Jars(3, 2)
    orbits = symmetry.search(machine, scope)
    assert orbits.verdict == "holds"
    assert orbits.states < search(machine.model(scope)).states

    @machine.step("fill", witness=lambda s: s.poured >= 0)
    def the_first_is_never_emptied(s: Value, after: Value, j: Value) -> Value:
        """A rule about jar 0 alone."""
        return (j != 0) | (after.level[j] > s.level[j])

    with pytest.raises(NotSymmetric, match="the_first_is_never_emptied"):
        symmetry.search(machine, scope)


@pytest.mark.parametrize("variants", [(), ("flows_back",)])
def test_the_module_says_the_same_of_every_step(variants: tuple[str, ...]) -> None:
    """In TLA+ a property of steps is one, with primes: on every step it has the verdict that the machine has."""
    machine = jars()
    model = machine.model(Jars(2, 2), variants)
    export = export_tla(machine, Jars(2, 2), variants)
    module = Module(export.module)
    assert "PROPERTY nothing_flows_back" in export.configuration
    assert "PROPERTY others_are_left_alone_at_pour" in export.configuration
    states, seen = [model.initial], {model.initial}
    for state in states:
        for step in model.steps(state):
            here, there = ({"level": dict(enumerate(s.level)), "poured": s.poured} for s in (state, step.state))
            kept = step.state.poured >= state.poured
            assert module.value("nothing_flows_back", here, there) is kept
            assert module.value("others_are_left_alone", here, there) is True
            if step.state not in seen:
                seen.add(step.state)
                states.append(step.state)


def test_promela_looks_at_the_step_of_one_instance() -> None:
    """Of a step by jar 0 nothing is said where only jar 1 can be filled."""
    text = export_promela(jars(), Jars(2, 3), ("spills",))
    assert "(can_fill_0" in text
    assert text.count("violated = others_are_left_alone") == 2


def test_a_property_of_steps_of_unlike_actions_is_refused() -> None:
    """It gets the index that the action is taken for, so all its actions have one or none."""
    machine = jars()

    @machine.system(who="hand")
    def look(s: Value) -> Effects:
        """Nothing happens."""
        return s.poured > 0, {"poured": s.poured}

    with pytest.raises(ModelFault, match="different index sets"):
        machine.step("fill", "look", witness=lambda s: True)(lambda s, after, j: True)


def test_claims_of_steps_are_written_out_once_an_instance() -> None:
    """Each has the instance that it is looked at, and the index that this is taken for."""
    form = scalar_form(jars(), Jars(2, 2))
    of_steps = [(c.property, c.taken, c.index) for c in form.claims if not c.in_states]
    assert ("others_are_left_alone", ("fill", 1), 1) in of_steps
    assert ("nothing_flows_back", ("pour", 0), None) in of_steps
    assert len(of_steps) == 8
