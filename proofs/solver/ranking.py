"""Arguments that a run comes to its end: something falls with every step that helps, and somebody can always help.

A `Waiting` argument is for one who waits, under weak fairness: while he waits no action makes the measure rise (it is a
tuple, compared as one), some helpful action is enabled, taking one makes the measure fall, and one that is enabled
stays so until the measure falls. So if each helpful action that stays enabled is taken at some time, he waits no longer
than the measure can fall, and it never falls below nothing.

A `Rising` argument is for a whole run: every action of progress makes the machine's rank rise. Its `Height` says that
the rank does not rise for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from spec.language.expression import Domain, Symbol, SymbolicVector, Value, any_of, not_
from spec.language.machine import Action, Machine

from .conjuncts import Conjunct
from .counting import no_more_than
from .obligations import Induction, Obligation, Question, indexes_of, obligation, question, step_of
from .symbols import SymbolicState, guard_of
from .terms import Terms

Measure = Sequence[Value]


@dataclass(frozen=True)
class Waiting:
    """Somebody waits, and the actions of `helpers` bring the end of it nearer."""

    name: str
    induction: Induction
    """Whose strengthening holds meanwhile."""
    waits: Conjunct
    measure: Callable[[Value, Value], Measure]
    """At a state and the index of who waits; no part is ever below nothing."""
    helpers: tuple[str, ...]
    shut_out: tuple[str, ...]
    """The actions that nobody can take meanwhile."""


def falls(after: Measure, before: Measure) -> Value:
    """One measure is less than another: in the first part in which they differ."""
    if not after:
        return False
    head = after[0] < before[0]
    rest = falls(after[1:], before[1:])
    return head if rest is False else head | ((after[0] == before[0]) & rest)


def equal(after: Measure, before: Measure) -> Value:
    """Two measures are the same in every part."""
    same: Value = True
    for one, other in zip(after, before, strict=True):
        same = (one == other) if same is True else same & (one == other)
    return same


def obligations_of_waiting(waiting: Waiting) -> Iterator[Obligation]:
    """That nobody waits for ever: the measure is bounded, never rises, and somebody can make it fall."""
    induction, machine = waiting.induction, waiting.induction.machine
    (who, _), *_ = waiting.waits.indexes
    waiter = Symbol("constant", who)

    def bounded(terms: Terms) -> Question:
        state = SymbolicState(machine, induction.scope_type)
        goals = [("measure", terms.term(part >= 0)) for part in waiting.measure(state, waiter)]
        return _ask(waiting, terms, state, goals)

    def helped(terms: Terms) -> Question:
        state = SymbolicState(machine, induction.scope_type)
        helpers = [machine.actions[name] for name in waiting.helpers]
        enabled = [terms.term(enabled_somewhere(machine, helper, state)) for helper in helpers]
        return _ask(waiting, terms, state, [("somebody can help", z3.Or(enabled))])

    yield obligation(induction, f"{waiting.name}: the measure is never below nothing", bounded)
    yield obligation(induction, f"{waiting.name}: somebody can always help", helped)
    for name in machine.actions:
        if name in waiting.shut_out:
            yield obligation(induction, f"{waiting.name}: nobody can {name} meanwhile", _impossible(waiting, name))
        else:
            yield obligation(induction, f"{waiting.name}: {name} makes no wait longer", _no_longer(waiting, name))
    for name in waiting.helpers:
        yield obligation(induction, f"{waiting.name}: {name} helps", _helps(waiting, name))


def _ask(waiting: Waiting, terms: Terms, state: SymbolicState, goals: list[tuple[str, Any]], **more: Any) -> Question:
    step = more.get("step")
    indexes = {**indexes_of((*waiting.induction.strengthening, waiting.waits), step), **more.pop("indexes", {})}
    who = [Symbol("constant", name) for name, _ in waiting.waits.indexes]
    also = (waiting.waits(state, *who), *more.pop("also", ()))
    return question(waiting.induction, terms, state, goals, indexes, also=also, **more)


def enabled_somewhere(machine: Machine, action: Action, state: Any) -> Value:
    """A scope has the action, and it is enabled at one index at least."""
    if action.each is None:
        return guard_of(machine, action, state)
    return any_of(Domain(action.each, None), lambda i: guard_of(machine, action, state, i))


def _no_longer(waiting: Waiting, name: str) -> Callable[[Terms], Question]:
    """The measure does not rise, and as long as it does not fall, whoever could help still can."""

    def ask(terms: Terms) -> Question:
        machine = waiting.induction.machine
        step = step_of(waiting.induction, name)
        who = Symbol("constant", waiting.waits.indexes[0][0])
        before, after = waiting.measure(step.before, who), waiting.measure(step.after, who)
        over = terms.term(not_(waiting.waits(step.after, who)))
        lower = terms.term(falls(after, before))
        goals = [("the measure does not rise", z3.Or(over, lower, terms.term(equal(after, before))))]
        helpers: dict[str, str] = {}
        for helper in waiting.helpers:
            action = machine.actions[helper]
            assert action.each is not None
            helpers[f"who may {helper}"] = action.each
            index = Symbol("constant", f"who may {helper}")
            could = terms.term(guard_of(machine, action, step.before, index))
            can = terms.term(guard_of(machine, action, step.after, index))
            goals.append((f"{helper} stays possible", z3.Or(over, lower, z3.Not(could), can)))
        return _ask(waiting, terms, step.before, goals, also=(step.guard,), step=step, indexes=helpers)

    return ask


def _impossible(waiting: Waiting, name: str) -> Callable[[Terms], Question]:
    def ask(terms: Terms) -> Question:
        step = step_of(waiting.induction, name)
        goals = [(f"{name} is shut out", terms.term(not_(step.guard)))]
        return _ask(waiting, terms, step.before, goals, step=step)

    return ask


def _helps(waiting: Waiting, name: str) -> Callable[[Terms], Question]:
    """Taken while somebody waits, it makes the measure fall, or the wait is over."""

    def ask(terms: Terms) -> Question:
        step = step_of(waiting.induction, name)
        who = Symbol("constant", waiting.waits.indexes[0][0])
        lower = falls(waiting.measure(step.after, who), waiting.measure(step.before, who))
        over = not_(waiting.waits(step.after, who))
        goals = [("the measure falls", terms.term(lower | over))]
        return _ask(waiting, terms, step.before, goals, also=(step.guard,), step=step)

    return ask


@dataclass(frozen=True)
class Rising:
    """A run of a machine comes to its end: its rank rises, and where it is said to, it can always go on."""

    name: str
    induction: Induction
    goes_on: Callable[[Any], Value]
    """In these states an action of progress is enabled."""
    where: str
    """Those states in words."""


def obligations_of_rising(rising: Rising) -> Iterator[Obligation]:
    """That every action of progress raises the rank, and that one is enabled wherever that is claimed."""
    induction, machine = rising.induction, rising.induction.machine
    progress = machine.progress
    assert progress is not None
    ours = [action for action in machine.actions.values() if action.progress]

    def goes_on(terms: Terms) -> Question:
        state = SymbolicState(machine, induction.scope_type)
        enabled = [terms.term(enabled_somewhere(machine, action, state)) for action in ours]
        indexes = indexes_of(induction.strengthening)
        goals = [("an action of progress is enabled", z3.Or(enabled))]
        return question(induction, terms, state, goals, indexes, also=(rising.goes_on(state),))

    def rises(name: str) -> Callable[[Terms], Question]:
        def ask(terms: Terms) -> Question:
            step = step_of(induction, name)
            goals = [("the rank rises", terms.term(progress.rank(step.after) > progress.rank(step.before)))]
            indexes = indexes_of(induction.strengthening, step)
            return question(induction, terms, step.before, goals, indexes, also=(step.guard,), step=step)

        return ask

    yield obligation(induction, f"{rising.name}: {rising.where} goes on", goes_on)
    for action in ours:
        yield obligation(induction, f"{rising.name}: {action.name} raises the rank", rises(action.name))


@dataclass(frozen=True)
class Height:
    """How far a rank can rise, in numbers of the scope: so that a run of any size comes to an end."""

    members: Mapping[str, int]
    """What each member of a domain adds to it at most, of all that is in the rank."""
    each: tuple[int, ...]
    """What a member adds at most to one sum that is in the rank, for each of these sums."""
    besides: Callable[[Any], Value]
    """What else is in it, of the scope alone."""


def obligation_of_height(name: str, induction: Induction, height: Height) -> Obligation:
    """That the rank of the machine is never above its height."""
    machine, progress = induction.machine, induction.machine.progress
    assert progress is not None

    def ask(terms: Terms) -> Question:
        state = SymbolicState(machine, induction.scope_type)
        besides = height.besides(state)
        if moving := sorted(variables_in(besides)):
            raise ValueError(f"the height of {name!r} has the variable {moving[0]!r} in it, so it is no bound")
        rank = terms.term(progress.rank(state))
        sums = [law for most in height.each for law in no_more_than(terms, most)]
        highest = sum((most * terms.size(domain) for domain, most in height.members.items()), terms.term(besides))
        goals = [("the rank is bounded", z3.Implies(z3.And(sums), rank <= highest))]
        indexes = indexes_of(induction.strengthening)
        return question(induction, terms, state, goals, indexes)

    return obligation(induction, f"{name}: the rank is bounded", ask)


def variables_in(value: object) -> set[str]:
    """The variables of the machine that a value mentions."""
    if isinstance(value, Symbol | SymbolicVector):
        own = {str(value.arguments[0])} if value.operator == "variable" else set()
        return own.union(*map(variables_in, value.arguments))
    return set()
