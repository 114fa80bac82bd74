"""The machine's names where TLA+ allows them: one space of names for variables, bounds, actions and claims."""

from __future__ import annotations

from typing import Final

# The words of TLA+, and what the text itself defines or binds.
_WORDS: Final = """
ASSUME ASSUMPTION AXIOM BOOLEAN CASE CHOOSE CONSTANT CONSTANTS DOMAIN ELSE ENABLED EXCEPT EXTENDS FALSE IF IN
INSTANCE LAMBDA LET LOCAL MODULE NEW OTHER RECURSIVE STRING SUBSET THEN THEOREM TRUE UNCHANGED UNION VARIABLE
VARIABLES WITH
Cardinality FiniteSets Init Int Integers IsFiniteSet Naturals Nat Next Spec Total TypeOK vars
any f one over
"""


class Names:
    """Gives each thing a name that nothing else has; a name once given stays."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set(_WORDS.split())

    def of(self, kind: str, name: str) -> str:
        """The name of a thing of that kind: its own, or with the kind before it where that is taken."""
        if (kind, name) not in self._given:
            chosen = name
            while chosen in self._taken:
                chosen = f"{kind}_{chosen}"
            self._given[kind, name] = chosen
            self._taken.add(chosen)
        return self._given[kind, name]

    def bound(self, domain: str, depth: int) -> str:
        """The name of an index of a domain, bound that deep inside others."""
        name = f"{domain.removeprefix('all_')[0]}{depth or ''}"
        while name in self._taken:
            name += "_"
        return name
