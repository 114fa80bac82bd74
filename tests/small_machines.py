"""Small random machines, each made from one number, with states of several words and all that actions are made of."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from spec.language import Machine, Progress, all_of, any_of, count, each, implies, not_, put, total, where


@dataclass(frozen=True)
class Places:
    """How many places the vectors have."""

    places_in_all: int


class Maker:
    """Draws the parts of a machine. A part is a function of the state and of an index, so it reads as any text does."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.places = self.random.randint(1, 5)
        self.numbers: dict[str, tuple[int, int]] = {}
        self.vectors: dict[str, tuple[int, int]] = {}

    def span(self) -> tuple[int, int]:
        """A range: rarely a power of two, often below zero, sometimes so wide that few fit into a word."""
        low = self.random.choice([0, 0, -1, -3, 2])
        return low, low + self.random.choice([1, 2, 4, 5, 2**33 + 5, 2**47 - 3, 2**62 - 1])

    def number(self, depth: int = 2) -> Any:
        """An expression for a number."""
        kinds = ["constant", "number", "vector"]
        kinds += ["where", "+", "-", "*", "count", "total", "at"] if depth else []
        kind = self.random.choice(kinds)
        if kind == "number":
            name = self.random.choice(list(self.numbers))
            return lambda s, i: getattr(s, name)
        if kind in ("vector", "at"):
            name = self.random.choice(list(self.vectors))
            if kind == "vector":
                return lambda s, i: getattr(s, name)[i]
            place, last = self.number(depth - 1), self.places - 1
            return lambda s, i: getattr(s, name).at(within(place(s, i), 0, last))
        if kind == "constant":
            value = self.random.choice([0, 1, 2, 3, -1, 5])
            return lambda s, i: value
        if kind == "where":
            condition, a, b = self.truth(depth - 1), self.number(depth - 1), self.number(depth - 1)
            return lambda s, i: where(condition(s, i), a(s, i), b(s, i))
        if kind == "count":
            condition = self.truth(depth - 1)
            return lambda s, i: count(s.places, lambda j: condition(s, j))
        if kind == "total":
            a = self.small(depth - 1)
            return lambda s, i: total(s.places, lambda j: a(s, j))
        a, b = self.small(depth - 1), self.small(depth - 1)
        return {
            "+": lambda s, i: a(s, i) + b(s, i),
            "-": lambda s, i: a(s, i) - b(s, i),
            "*": lambda s, i: a(s, i) * b(s, i),
        }[kind]

    def small(self, depth: int) -> Any:
        """A number of which many may be added and multiplied."""
        a = self.number(depth)
        return lambda s, i: within(a(s, i), -50, 50)

    def truth(self, depth: int = 2) -> Any:
        """An expression for a truth value."""
        kind = self.random.choice(["compare"] * 3 + (["and", "or", "not", "implies", "all", "any"] if depth else []))
        if kind == "compare":
            a, b, sign = self.number(min(depth, 1)), self.number(0), self.random.randrange(6)
            return lambda s, i: compared(sign, a(s, i), b(s, i))
        a = self.truth(depth - 1)
        if kind == "not":
            return lambda s, i: not_(a(s, i))
        if kind == "all":
            return lambda s, i: all_of(s.places, lambda j: a(s, j) | (j > i))
        if kind == "any":
            return lambda s, i: any_of(s.places, lambda j: a(s, j))
        b = self.truth(depth - 1)
        return {
            "and": lambda s, i: a(s, i) & b(s, i),
            "or": lambda s, i: a(s, i) | b(s, i),
            "implies": lambda s, i: implies(a(s, i), b(s, i)),
        }[kind]

    def assigned(self, name: str, low: int, high: int) -> Any:
        """A value for a number; now and then one that may leave the range, which is a fault of the text."""
        value = self.random.choice(
            [
                self.number(),
                lambda s, i: high,
                lambda s, i: low,
                lambda s, i: where(getattr(s, name) == high, low, getattr(s, name) + 1),
                lambda s, i: high - (getattr(s, name) - low),
            ]
        )
        if self.random.random() < 0.01:
            return value
        return lambda s, i: within(value(s, i), low, high)

    def machine(self) -> Machine:
        """The machine."""
        pick = self.random
        machine = Machine("random")
        machine.domain("places", lambda scope: scope.places_in_all)
        for n in range(pick.randint(2, 5)):
            self.numbers[f"number{n}"] = self.span()
        for n in range(pick.randint(1, 2)):
            self.vectors[f"vector{n}"] = self.span()
        for name, (low, high) in self.numbers.items():
            machine.variable(name, low, high, "a number", initial=pick.choice([low, high]))
        for name, (low, high) in self.vectors.items():
            machine.variable(name, low, high, "a vector", initial=low, over="places")
        for n in range(pick.randint(2, 6)):
            self.action(machine, f"action{n}")
        for n in range(pick.choice([0, 0, 1, 2])):
            self.property(machine, f"property{n}")
        if pick.random() < 0.25:
            finished, rank = self.truth(), self.number()
            machine.progress = Progress("goes_on", lambda s: finished(s, 0), lambda s: rank(s, 0), "It goes on.")
        return machine

    def action(self, machine: Machine, name: str) -> None:
        pick = self.random
        over = pick.choice([None, "places"])
        # A guard without a condition is always open.
        guard = (lambda s, i: True) if pick.random() < 0.4 else self.truth(1)
        effects: dict[str, Any] = {}
        for known in pick.sample([*self.numbers, *self.vectors], k=pick.randint(1, 2)):
            if known in self.numbers:
                effects[known] = self.assigned(known, *self.numbers[known])
                continue
            low, high = self.vectors[known]
            effects[known] = self.vector_effect(known, low, high)
        if pick.random() < 0.3:
            # Two numbers change places: each is assigned what the other was.
            a, b = pick.choice(list(self.numbers)), pick.choice(list(self.numbers))
            effects[a] = swapped(b, *self.numbers[a])
            effects[b] = swapped(a, *self.numbers[b])

        def function(s: Any, i: Any = 0) -> Any:
            """A random action."""
            return guard(s, i), {known: effect(s, i) for known, effect in effects.items()}

        function.__name__ = name
        if pick.random() < 0.7:
            machine.system(who="anybody", each=over, progress=pick.random() < 0.5)(function)
        else:
            machine.environment(each=over)(function)

    def vector_effect(self, name: str, low: int, high: int) -> Any:
        value = self.random.choice(
            [
                self.number(1),
                lambda s, i: where(getattr(s, name)[i] == high, low, getattr(s, name)[i] + 1),
                lambda s, i: high,
            ]
        )
        if self.random.random() < 0.5:
            return lambda s, i: put(getattr(s, name), i, within(value(s, i), low, high))
        return lambda s, i: each(s.places, lambda j: within(value(s, j), low, high))

    def property(self, machine: Machine, name: str) -> None:
        pick = self.random
        over = pick.choice([None, "places"])
        at = pick.choice([None, None, *machine.actions])
        broken, premise = [self.truth(1) for _ in range(4)], self.truth()

        def function(s: Any, i: Any = 0) -> Any:
            """A random claim, which several things have to come together to break."""
            return not_(broken[0](s, i) & broken[1](s, i) & broken[2](s, i) & broken[3](s, 0))

        function.__name__ = name
        machine.always(each=over, at=at, witness=lambda s: premise(s, 0))(function)


def within(value: Any, low: int, high: int) -> Any:
    """The value, or the bound that it is beyond."""
    return where(value < low, low, where(value > high, high, value))


def compared(sign: int, a: Any, b: Any) -> Any:
    """One of the six comparisons."""
    return [a == b, a != b, a < b, a <= b, a > b, a >= b][sign]


def swapped(other: str, low: int, high: int) -> Any:
    """What the other number was."""
    return lambda s, i: within(getattr(s, other), low, high)


def random_machine(seed: int) -> tuple[Machine, Places]:
    """The machine of that number, and its scope."""
    maker = Maker(seed)
    return maker.machine(), Places(maker.places)
