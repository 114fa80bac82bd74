"""What a strengthening is made of: claims about a state at one index, or at two, each with why it is needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spec.language.expression import Value


@dataclass(frozen=True)
class Conjunct:
    """A claim for all members of its domains: `claim(s, i, ...)` with one index for each, written in spec's words."""

    name: str
    indexes: tuple[tuple[str, str], ...]
    """The name of each index and its domain. One name always stands for a member of one domain."""
    claim: Callable[..., Value]
    without: str = ""
    """An obligation that is lost without it: the end of its name."""

    def __call__(self, state: Any, *indexes: Any) -> Value:
        """The claim at these indexes."""
        return self.claim(state, *indexes)

    @property
    def why(self) -> str:
        """What it says, and for what else it is there, in one paragraph."""
        return " ".join((inspect.getdoc(self.claim) or "").split())


def about(*domains: str, without: str = "") -> Callable[[Callable[..., Value]], Conjunct]:
    """Make a conjunct of a function of the state and one index for each of these domains.

    `without` names an obligation that is lost without it, which a test checks.
    """

    def make(claim: Callable[..., Value]) -> Conjunct:
        _, *names = inspect.signature(claim).parameters
        return Conjunct(claim.__name__, tuple(zip(names, domains, strict=True)), claim, without)

    return make
