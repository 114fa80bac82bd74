"""Laws that hold of every count and every sum over a finite set, for proofs that need more than "some number".

An induction that asks for them names the indexes at which they are stated; a law at an index says less than the law at
all of them, so nothing false is assumed. A test compares each law with counts and sums that are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import z3

from .terms import Tally, Terms


def at(tally: Tally, index: Any) -> Any:
    """What is counted, at one index."""
    return z3.substitute(tally.counted, (tally.variable, index))


def contribution(tally: Tally, index: Any) -> Any:
    """What an index adds to the count or the sum."""
    return z3.If(at(tally, index), 1, 0) if tally.operator == "count" else at(tally, index)


def everywhere(terms: Terms, domain: str, claim: Any, besides: Any = None) -> Any:
    """A claim about an index holds for all members, or for all but one; `claim` takes the index."""
    index = z3.FreshInt(f"any of {domain}")
    premise = terms.member(domain, index)
    if besides is not None:
        premise = z3.And(premise, index != besides)
    return z3.ForAll([index], z3.Implies(premise, claim(index)))


def of_one(terms: Terms, tally: Tally, members: Sequence[Any]) -> Iterator[Any]:
    """Laws of one count or sum: its bounds, and that a sum of one thing is that thing."""
    total = tally.unknown
    if tally.operator == "count":
        yield z3.And(total >= 0, total <= terms.size(tally.domain))
        yield z3.Implies(everywhere(terms, tally.domain, lambda x: z3.Not(at(tally, x))), total == 0)
        for member in members:
            yield z3.Implies(z3.And(terms.member(tally.domain, member), at(tally, member)), total >= 1)
        return

    def is_all(member: Any) -> Any:
        nothing_else = everywhere(terms, tally.domain, lambda x: contribution(tally, x) == 0, besides=member)
        return z3.Implies(nothing_else, total == contribution(tally, member))

    yield everywhere(terms, tally.domain, is_all)


def of_two(terms: Terms, before: Tally, after: Tally, members: Sequence[Any]) -> Iterator[Any]:
    """Laws of two counts or sums over one domain: no less everywhere is no less in all, and more somewhere is more.

    Where they differ at one member only, they differ in all by what they differ there.
    """
    domain = before.domain

    def change(x: Any) -> Any:
        return contribution(after, x) - contribution(before, x)

    no_less = everywhere(terms, domain, lambda x: change(x) >= 0)
    more_nowhere = everywhere(terms, domain, lambda x: change(x) < 1)
    yield z3.Implies(no_less, after.unknown >= before.unknown)
    yield z3.Implies(z3.And(no_less, z3.Not(more_nowhere)), after.unknown >= before.unknown + 1)
    for member in members:
        same = everywhere(terms, domain, lambda x: change(x) == 0, besides=member)
        premise = z3.And(terms.member(domain, member), same)
        yield z3.Implies(premise, after.unknown - before.unknown == change(member))


def no_more_than(terms: Terms, most: int) -> Iterator[Any]:
    """Of every sum that was met: where no member adds more than `most`, it is at most so often that."""
    for tally in terms.tallies.values():
        if tally.operator == "total" and not tally.outer:
            low = everywhere(terms, tally.domain, lambda x, t=tally: contribution(t, x) <= most)
            yield z3.Implies(low, tally.unknown <= most * terms.size(tally.domain))


def laws(terms: Terms, members: dict[str, list[Any]]) -> list[Any]:
    """The laws of all counts and sums that were met, at the given members of each domain.

    Of one that is a function of other indexes it is only said when a count is nothing.
    """
    closed = [tally for tally in terms.tallies.values() if not tally.outer]
    found: list[Any] = []
    for tally in terms.tallies.values():
        if tally.outer and tally.operator == "count":
            nowhere = everywhere(terms, tally.domain, lambda x, t=tally: z3.Not(at(t, x)))
            found.append(z3.ForAll(list(tally.outer), z3.Implies(nowhere, tally.unknown == 0)))
    for tally in closed:
        found += of_one(terms, tally, members.get(tally.domain, []))
    for before, after in permutations(closed, 2):
        if (before.domain, before.operator) == (after.domain, after.operator):
            found += of_two(terms, before, after, members.get(before.domain, []))
    return found
