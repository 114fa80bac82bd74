"""The terms: what the solver is told of vectors, counts and domains, and that nothing of it is false."""

from __future__ import annotations

import itertools

import pytest
import z3

from proofs.solver import Terms, Untranslatable, laws, no_more_than
from spec.language import Domain, Symbol, SymbolicVector, all_of, any_of, count, each, put, total, where

PROMPTS = Domain("prompts", None)
VECTOR = SymbolicVector("variable", PROMPTS, "v")
OTHER = SymbolicVector("variable", PROMPTS, "w")
HERE, THERE = Symbol("constant", "i"), Symbol("constant", "j")


def is_valid(claim, *premises):
    """Whether the claim holds wherever the premises do."""
    solver = z3.Solver()
    solver.add(*premises, z3.Not(claim))
    return solver.check() == z3.unsat


def test_vectors_are_read_through_their_construction():
    """put and each are worked out at the index read; no array theory is needed."""
    changed = put(each(PROMPTS, lambda k: VECTOR[k] + 1), HERE, 9)
    assert is_valid(Terms().term(where(HERE == THERE, changed[THERE] == 9, changed[THERE] == VECTOR[THERE] + 1)))


def test_the_same_count_is_the_same_unknown_and_another_is_not():
    """Counting one thing twice gives one number; nothing is known of two different counts."""
    terms = Terms()
    ones = [terms.term(count(PROMPTS, lambda k: VECTOR[k] == 1)) for _ in range(2)]
    twos = terms.term(count(PROMPTS, lambda k: VECTOR[k] == 2))
    assert z3.eq(ones[0], ones[1])
    assert not z3.eq(ones[0], twos)
    assert len(terms.tallies) == 2


def test_a_count_below_a_quantifier_differs_with_the_index():
    """One unknown for all indexes would prove that every index counts the same."""
    terms = Terms()

    def below(i):
        return count(PROMPTS, lambda k: VECTOR[k] < VECTOR[i])

    assert not is_valid(terms.term(below(HERE)) == terms.term(below(THERE)))
    alike = all_of(PROMPTS, lambda i: below(i) == 1)
    (inner,) = [t for t in (terms.term(alike), terms)[1].tallies.values() if t.outer]
    assert len(inner.outer) == 1
    assert not is_valid(z3.Implies(z3.Exists([inner.outer[0]], inner.unknown == 1), terms.term(alike)))


def test_a_quantifier_speaks_of_members_only():
    """What holds of all members need not hold of an integer that is none."""
    terms = Terms()
    premise = terms.term(all_of(PROMPTS, lambda k: VECTOR[k] == 1))
    claim = terms.term(VECTOR[HERE] == 1)
    assert not is_valid(claim, premise)
    assert is_valid(claim, premise, terms.member("prompts", z3.Int("i")))


def test_over_a_given_size_everything_is_written_out():
    """No quantifier and no unknown is left, and the values are those of the plain vocabulary."""
    for values in itertools.product(range(3), repeat=3):
        terms = Terms({"prompts": 3})
        known = [terms.element(VECTOR, z3.IntVal(k)) == value for k, value in enumerate(values)]
        claim = (
            (count(PROMPTS, lambda k: VECTOR[k] == 1) == values.count(1))
            & (total(PROMPTS, lambda k: VECTOR[k]) == sum(values))
            & (any_of(PROMPTS, lambda k: VECTOR[k] == 2) == (2 in values))
        )
        assert is_valid(terms.term(claim), *known)
        assert terms.tallies == {}


def test_an_index_outside_its_function_is_refused():
    """It would be another index every time."""
    with pytest.raises(Untranslatable, match="outside the function"):
        Terms().term(Symbol("index", PROMPTS) == 1)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("operator", [count, total], ids=["count", "total"])
def test_every_law_of_counting_holds_where_it_is_written_out(operator, size):
    """For each law, no two vectors of a small size break it, with the true counts in the place of the unknown ones."""
    terms = Terms()

    def counted(vector):
        body = (lambda k: vector[k] == 1) if operator is count else (lambda k: vector[k])
        return terms.term(operator(PROMPTS, body))

    before, after = counted(VECTOR), counted(OTHER)
    members = [z3.IntVal(k) for k in range(size)]
    held = laws(terms, {"prompts": members})
    assert len(held) >= 2 * size
    bounds = [law for most in (0, 1, 3) for law in no_more_than(terms, most)]
    assert len(bounds) == (6 if operator is total else 0)
    held += bounds
    written = Terms({"prompts": size})
    true_counts = []
    for vector, unknown in ((VECTOR, before), (OTHER, after)):
        elements = [written.element(vector, k) for k in members]
        true_counts.append(unknown == z3.Sum([z3.If(e == 1, 1, 0) if operator is count else e for e in elements]))
    for law in held:
        assert is_valid(law, terms.size("prompts") == size, *true_counts), law


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_law_of_a_count_below_a_quantifier_holds_where_it_is_written_out(size):
    """Of a count that differs with an index it is only said when it is nothing, and that is true at every index."""
    terms = Terms()
    terms.term(all_of(PROMPTS, lambda i: count(PROMPTS, lambda k: VECTOR[k] < VECTOR[i]) == 1))
    (tally,) = terms.tallies.values()
    (index,) = tally.outer
    elements = [terms.element(VECTOR, z3.IntVal(k)) for k in range(size)]
    true_count = z3.Sum([z3.If(element < terms.element(VECTOR, index), 1, 0) for element in elements])
    (law,) = laws(terms, {})
    assert is_valid(law, terms.size("prompts") == size, z3.ForAll([index], tally.unknown == true_count))
