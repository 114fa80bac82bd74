"""Proof obligations as data.

A property holds for any size when a strengthening of it is inductive: it holds at the start (initiation), every action
keeps it (consecution, one obligation an action), and it implies the property (safety). The strengthening is a list of
conjuncts, each a claim at one index or two. For any size it is assumed only at the indexes that the obligation speaks
of, and for all indexes where an induction asks for that; the first assumes less than is true, so a proof stays a proof.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from spec.language.expression import Domain, Symbol, Value, all_of
from spec.language.machine import Machine

from .conjuncts import Conjunct
from .counting import laws
from .symbols import SymbolicState, SymbolicStep, symbolic_step
from .terms import NUMBERS, Terms


@dataclass(frozen=True)
class Question:
    """An obligation in terms: does every state that satisfies the premises satisfy every goal?"""

    premises: list[Any]
    goals: list[tuple[str, Any]]
    """Each with its name: the conjunct that must still hold, or the property."""
    state: SymbolicState
    step: SymbolicStep | None
    indexes: dict[str, str]
    """The indexes it speaks of, and the domain of each."""


@dataclass(frozen=True)
class Obligation:
    """One obligation: whatever satisfies the premises satisfies the goals."""

    name: str
    machine: Machine
    ask: Callable[[Terms], Question]
    assumes: str
    excludes: str


@dataclass(frozen=True)
class Definition:
    """An index that is worked out from those that an obligation speaks of."""

    name: str
    domain: str
    value: Callable[[], Value]


@dataclass(frozen=True)
class Induction:
    """Properties to prove by one strengthening, and what the proof assumes and does not speak of."""

    name: str
    machine: Machine
    scope_type: type[Any]
    properties: tuple[str, ...]
    strengthening: Sequence[Conjunct]
    initial: Sequence[Conjunct]
    """Say that a state is the initial one."""
    assumes: str
    excludes: str
    for_all: bool = False
    """Whether the strengthening is assumed at every index, and not only at those the obligation speaks of."""
    counts: bool = False
    """Whether the laws of counting are stated."""
    rests_on: Sequence[Conjunct] = ()
    """The strengthening of another induction of the machine: it holds in every state, so it is assumed here."""
    supposes: Sequence[Conjunct] = ()
    """What is taken for granted of the state before a step; `assumes` says it in words."""
    lemmas: Sequence[Conjunct] = ()
    """What is true of every state, for no other reason than that domains are finite."""
    follows: Sequence[Conjunct] = ()
    """What follows from the strengthening in every state, for others to rest on."""
    definitions: tuple[Definition, ...] = ()
    """More indexes at which the strengthening is assumed."""


def assumed(conjuncts: Sequence[Conjunct], state: Any, indexes: dict[str, str], terms: Terms, for_all: bool) -> Any:
    """The conjuncts as a premise: written out over given sizes, else at the indexes, or at all of them."""
    found: list[Any] = []
    for conjunct in conjuncts:
        domains = [domain for _, domain in conjunct.indexes]
        if terms.sizes is not None:
            places: Iterator[tuple[Any, ...]] = itertools.product(*(terms.indexes(domain) for domain in domains))
        else:
            places = itertools.product(
                *([Symbol("constant", n) for n, d in indexes.items() if d == x] for x in domains)
            )
        found += [terms.term(conjunct(state, *place)) for place in places]
        if for_all and domains and terms.sizes is None:
            found.append(terms.term(_everywhere(conjunct, state, domains)))
    return z3.And(found)


def _everywhere(conjunct: Conjunct, state: Any, domains: Sequence[str], *indexes: Value) -> Value:
    if not domains:
        return conjunct(state, *indexes)
    return all_of(Domain(domains[0], None), lambda i: _everywhere(conjunct, state, domains[1:], *indexes, i))


def wanted(conjuncts: Sequence[Conjunct], state: Any, terms: Terms) -> list[tuple[str, Any]]:
    """The conjuncts as goals, each at any member of its domains."""
    return [
        (conjunct.name, terms.term(conjunct(state, *(Symbol("constant", name) for name, _ in conjunct.indexes))))
        for conjunct in conjuncts
    ]


def indexes_of(conjuncts: Sequence[Conjunct], step: SymbolicStep | None = None) -> dict[str, str]:
    """The indexes that goals and a step speak of, with their domains.

    A name of two domains would be a member of both: of the larger one, those beyond the smaller were left out.
    """
    found: dict[str, str] = {}
    for conjunct in conjuncts:
        for name, domain in conjunct.indexes:
            if found.setdefault(name, domain) != domain:
                raise ValueError(f"the index {name!r} of {conjunct.name} is of {domain!r} and of {found[name]!r}")
    if step is not None and step.index is not None and step.action.each is not None:
        found[str(step.index.arguments[0])] = step.action.each
    return found


def members(indexes: dict[str, str], terms: Terms) -> list[Any]:
    """That each index is a member of its domain, and that there is at least nothing of everything."""
    sizes = [terms.size(domain) >= 0 for domain in sorted(set(indexes.values()) - {NUMBERS})]
    return sizes + [terms.member(domain, z3.Int(name)) for name, domain in indexes.items()]


def lawful(terms: Terms, indexes: dict[str, str]) -> list[Any]:
    """The laws of counting at these indexes; none are needed where everything is written out."""
    if terms.sizes is not None:
        return []
    at: dict[str, list[Any]] = {}
    for name, domain in indexes.items():
        at.setdefault(domain, []).append(z3.Int(name))
    return laws(terms, at)


def question(
    induction: Induction,
    terms: Terms,
    state: SymbolicState,
    goals: Sequence[tuple[str, Any]],
    indexes: dict[str, str],
    *,
    premises: Sequence[Conjunct] | None = None,
    also: Sequence[Value] = (),
    step: SymbolicStep | None = None,
) -> Question:
    """An obligation whose premises are the strengthening, or others, and what is assumed besides."""
    defined = {definition.name: definition for definition in induction.definitions}
    _refuse_clash(induction, indexes, defined)
    indexes = {**indexes, **{definition.name: definition.domain for definition in induction.definitions}}
    own = (*induction.strengthening, *induction.rests_on) if premises is None else premises
    conjuncts = (*own, *induction.supposes, *induction.lemmas)
    held = [assumed(conjuncts, state, indexes, terms, induction.for_all)]
    held += [terms.term(value) for value in also]
    held += members({name: domain for name, domain in indexes.items() if name not in defined}, terms)
    held += [z3.Int(name) == terms.term(definition.value()) for name, definition in defined.items()]
    if induction.counts:
        held += lawful(terms, indexes)
    return Question(held, list(goals), state, step, indexes)


def step_of(induction: Induction, action_name: str) -> SymbolicStep:
    """An action of the machine, taken in any state."""
    state = SymbolicState(induction.machine, induction.scope_type)
    return symbolic_step(induction.machine, state, induction.machine.actions[action_name])


def obligation(induction: Induction, name: str, ask: Callable[[Terms], Question]) -> Obligation:
    """An obligation of this induction."""
    return Obligation(name, induction.machine, ask, induction.assumes, induction.excludes)


def obligations_of(induction: Induction) -> list[Obligation]:
    """Every obligation of an induction: initiation, one consecution an action, one safety a claim of a property."""
    machine, strengthening = induction.machine, induction.strengthening

    def initiation(terms: Terms) -> Question:
        state = SymbolicState(machine, induction.scope_type)
        indexes = indexes_of((*strengthening, *induction.initial))
        return question(
            induction, terms, state, wanted(strengthening, state, terms), indexes, premises=induction.initial
        )

    def consecution(action_name: str) -> Callable[[Terms], Question]:
        def ask(terms: Terms) -> Question:
            step = step_of(induction, action_name)
            goals, indexes = wanted(strengthening, step.after, terms), indexes_of(strengthening, step)
            return question(induction, terms, step.before, goals, indexes, also=(step.guard,), step=step)

        return ask

    def safety(claim: Conjunct, at: str | None) -> Callable[[Terms], Question]:
        def ask(terms: Terms) -> Question:
            # A claim looked at where an action is taken: that action, at any index of its own.
            step = None if at is None else step_of(induction, at)
            state = SymbolicState(machine, induction.scope_type) if step is None else step.before
            also = () if step is None else (step.guard,)
            indexes = indexes_of((*strengthening, claim), step)
            return question(induction, terms, state, wanted((claim,), state, terms), indexes, also=also)

        return ask

    def consequence(claim: Conjunct) -> Callable[[Terms], Question]:
        def ask(terms: Terms) -> Question:
            state = SymbolicState(machine, induction.scope_type)
            return question(
                induction, terms, state, wanted((claim,), state, terms), indexes_of((*strengthening, claim))
            )

        return ask

    found = [obligation(induction, f"{induction.name}: initiation", initiation)]
    for name in machine.actions:
        found.append(obligation(induction, f"{induction.name}: consecution of {name}", consecution(name)))
    for other in induction.follows:
        found.append(obligation(induction, f"{induction.name}: {other.name} follows", consequence(other)))
    for name in induction.properties:
        known = machine.properties[name]
        for claim in known.claims:
            index = () if known.each is None else ((f"{known.each} in question", known.each),)
            where = f"at {claim.at}" if claim.at else "in every state"
            conjunct = Conjunct(claim.function.__name__, index, claim.function)
            found.append(obligation(induction, f"{name}: safety {where}", safety(conjunct, claim.at)))
    return found


def _refuse_clash(induction: Induction, indexes: Collection[str], defined: Collection[str]) -> None:
    """An index of the name of a variable would be that variable to the solver, and one worked out is no other's."""
    machine = induction.machine
    taken = {*machine.variables, *machine.constants, *(f.name for f in dataclasses.fields(induction.scope_type))}
    if clash := sorted({*indexes, *defined} & taken):
        raise ValueError(f"the index {clash[0]!r} of a conjunct is also a name of the machine {machine.name!r}")
    if clash := sorted({*indexes} & {*defined}):
        raise ValueError(f"the index {clash[0]!r} is worked out, and a conjunct speaks of it as of any")
