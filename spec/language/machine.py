"""What a machine is made of: variables, actions, properties, variants.

A machine is written once, for any size. `Machine.model(scope, variants)` fixes the size and applies the variants (see
`model`); the engines enumerate that. Nothing here knows the protocol.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .expression import Value

if TYPE_CHECKING:
    from .model import Model

Kind = Literal["system", "environment"]
Bound = int | Callable[[Any], int]


class ModelFault(Exception):
    """The text of a machine is wrong: a guard that is no truth value, a value out of its range, an unknown name."""


@dataclass(frozen=True)
class Variable:
    """One state variable: a number in [low, high], or a vector of such numbers over a domain."""

    name: str
    low: Bound
    high: Bound
    initial: Bound
    over: str | None
    meaning: str
    names: Mapping[int, str] = field(default_factory=dict)
    """What its values are called, for people."""

    def called(self, value: int) -> str:
        """A value as people say it."""
        return self.names.get(value, str(value))


@dataclass(frozen=True)
class Action:
    """One action. `function(s)` or `function(s, i)` returns its guard and its effects.

    `progress`: whether taking it brings the run nearer to its end. Faults, drops, crashes and new saves do not.
    """

    name: str
    function: Callable[..., tuple[Value, dict[str, Value]]]
    kind: Kind
    each: str | None
    progress: bool
    who: str
    """Who takes it, for people: a task, a pump, the environment; with the index when it is taken for one."""
    slot: bool = False
    """Whether it happens inside a mutation slot: the machine's `slot_guard` is then part of its guard."""
    when: Callable[[Any], Any] | None = None
    """The scopes that have this action; None is all of them. A feature switched off costs a search nothing.

    A number or a truth value of the scope, in the words of `expression`: the proofs read it on symbols.
    """

    @property
    def meaning(self) -> str:
        """The docstring: when the action is enabled and what it moves."""
        return inspect.getdoc(self.function) or ""


@dataclass(frozen=True)
class Claim:
    """One place where a property is looked at: every state, or every state in which the action `at` is to be taken.

    `witness(s)` says that the premise of the claim occurs; a search in which it never does has shown nothing.
    """

    at: str | None
    function: Callable[..., Value]
    witness: Callable[[Any], Value]
    of_step: bool = False
    """Whether it is about a step: `function(s, after)`, or `function(s, after, i)` of an action taken for `i`.

    It is then looked at as the action `at` is taken, or, where that is None, any action.
    """


@dataclass(frozen=True)
class Property:
    """What must hold, in one sentence; several claims when it speaks of memory and of the disk."""

    name: str
    each: str | None
    claims: tuple[Claim, ...]

    @property
    def sentence(self) -> str:
        """The property in one sentence: the first paragraph of the docstring of its first claim."""
        return " ".join((inspect.getdoc(self.claims[0].function) or "").split("\n\n")[0].split())


@dataclass(frozen=True)
class Progress:
    """The claim that a run can always go on: an unfinished state enables an action of progress; each raises a rank.

    A rank that rises with every action of progress and is bounded makes an endless run without faults impossible.
    """

    name: str
    finished: Callable[[Any], Value]
    rank: Callable[[Any], Value]
    sentence: str


@dataclass(frozen=True)
class Variant:
    """One small change of the protocol, the property that must catch it, and the smallest scope that shows it.

    `length` is the number of steps of a shortest counterexample, `with_variants` the variants it composes with, and
    `table_length` the length the design's prototype measured, with the reason where ours differs.
    """

    name: str
    apply: Callable[[Machine], None]
    breaks: str
    scope: str
    length: int
    table_length: int | None
    why_length_differs: str
    with_variants: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What the variant does otherwise: the first paragraph of its docstring."""
        return " ".join((inspect.getdoc(self.apply) or "").split("\n\n")[0].split())


@dataclass(frozen=True)
class Symmetry:
    """Indexes of a domain that may change places: all, or those of one block, which is a constant over the domain.

    Actions named in `ties` take the first of several indexes, but only among such as are `alike`: whatever each index
    has of its own is then the same, so that it makes no difference which of them is the first.
    """

    domain: str
    blocks: str | None
    when: Callable[[Any], Any] | None
    ties: tuple[str, ...]
    alike: Callable[[Any, Value], Value] | None


@dataclass(eq=False)
class Machine:
    """A state machine for any size: add variables, actions and properties, then ask for a model of one scope."""

    name: str
    domains: dict[str, Callable[[Any], int]] = field(default_factory=dict)
    constants: dict[str, tuple[str, Callable[[Any, int], int]]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    properties: dict[str, Property] = field(default_factory=dict)
    progress: Progress | None = None
    slot_guard: Callable[[Any], Value] | None = None
    """When a mutation slot may be entered; with it, actions registered with `slot=True` are disabled elsewhere."""
    describe: Callable[[Any, str | None, int], str] | None = None
    """One line about the thing a property fails at: `describe(state, domain, index)`."""
    variants: dict[str, Variant] = field(default_factory=dict)
    symmetries: list[Symmetry] = field(default_factory=list)

    def domain(self, name: str, size: Callable[[Any], int]) -> None:
        """Declare an index set whose size depends on the scope."""
        self.domains[name] = size

    def constant(self, name: str, over: str, value: Callable[[Any, int], int]) -> None:
        """Declare a vector that never changes, such as the batch of each prompt."""
        self.constants[name] = (over, value)

    def variable(
        self,
        name: str,
        low: Bound,
        high: Bound,
        meaning: str,
        *,
        initial: Bound | None = None,
        over: str | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Declare a state variable; it starts at `initial`, or at `low`. `names` call its values 0, 1, and so on."""
        self._refuse_double(name, self.variables)
        start = low if initial is None else initial
        self.variables[name] = Variable(name, low, high, start, over, meaning, dict(enumerate(names)))

    def system(
        self,
        *,
        who: str,
        each: str | None = None,
        progress: bool = True,
        slot: bool = False,
        when: Callable[[Any], Any] | None = None,
    ) -> Callable[[Any], Any]:
        """Register an action of ours."""
        return self._register("system", who, each, progress, slot, when)

    def environment(
        self, *, each: str | None = None, slot: bool = False, when: Callable[[Any], Any] | None = None
    ) -> Callable[[Any], Any]:
        """Register an action that is done to us: a crash, a cancellation, a loss. Never progress."""
        return self._register("environment", "environment", each, False, slot, when)

    def _register(
        self,
        kind: Kind,
        who: str,
        each: str | None,
        progress: bool,
        slot: bool,
        when: Callable[[Any], Any] | None,
    ) -> Callable[[Any], Any]:
        def register(function: Callable[..., tuple[Value, dict[str, Value]]]) -> Any:
            name = function.__name__
            self._refuse_double(name, self.actions)
            self.actions[name] = Action(name, function, kind, each, progress, who, slot, when)
            return function

        return register

    def always(
        self, *, witness: Callable[[Any], Value], each: str | None = None, at: str | None = None
    ) -> Callable[[Any], Any]:
        """Register a property of every state; with `at`, of every state in which that action is about to be taken."""

        def register(function: Callable[..., Value]) -> Any:
            name = function.__name__
            self._refuse_double(name, self.properties)
            self.properties[name] = Property(name, each, (Claim(at, function, witness),))
            return function

        return register

    def also(self, name: str, *, at: str, witness: Callable[[Any], Value]) -> Callable[[Any], Any]:
        """Add a second claim to a property: the same sentence, looked at where that action is about to be taken."""

        def register(function: Callable[..., Value]) -> Any:
            known = self.properties[name]
            self.properties[name] = dataclasses.replace(known, claims=(*known.claims, Claim(at, function, witness)))
            return function

        return register

    def step(self, *of: str, witness: Callable[[Any], Value]) -> Callable[[Any], Any]:
        """Register a property of every step by these actions, or by any: of the state before and the state after.

        A function of a third argument gets the index that the action is taken for, so these must have one index set.
        `witness` is about the state before. A rule about a step thus needs no variable that remembers what was.
        """

        def register(function: Callable[..., Value]) -> Any:
            name = function.__name__
            self._refuse_double(name, self.properties)
            indexed = len(inspect.signature(function).parameters) > 2
            over = {self.actions[action].each for action in of} if indexed else {None}
            if len(over) > 1:
                raise ModelFault(f"the step property {name!r} is of actions with different index sets")
            claims = tuple(Claim(at, function, witness, of_step=True) for at in of or (None,))
            self.properties[name] = Property(name, over.pop(), claims)
            return function

        return register

    def variant(
        self,
        *,
        breaks: str,
        scope: str,
        length: int,
        table_length: int | None = None,
        why_length_differs: str = "",
        with_variants: tuple[str, ...] = (),
    ) -> Callable[[Any], Any]:
        """Register a variant: the function changes a copy of this machine with `replace`, `add` and `variable`."""

        def register(function: Callable[[Machine], None]) -> Any:
            self._refuse_double(function.__name__, self.variants)
            self.variants[function.__name__] = Variant(
                function.__name__, function, breaks, scope, length, table_length, why_length_differs, with_variants
            )
            return function

        return register

    def symmetric(
        self,
        domain: str,
        *,
        blocks: str | None = None,
        when: Callable[[Any], Any] | None = None,
        ties: tuple[str, ...] = (),
        alike: Callable[[Any, Value], Value] | None = None,
    ) -> None:
        """Declare that indexes of a domain may change places; `when` says in which scopes. Checked where it is used."""
        self.symmetries.append(Symmetry(domain, blocks, when, ties, alike))

    def replace(self, name: str, function: Callable[..., tuple[Value, dict[str, Value]]]) -> None:
        """Give an action another body (used by variants). Kind, index set and progress stay."""
        if name not in self.actions:
            raise ModelFault(f"machine {self.name!r} has no action {name!r} to replace")
        self.actions[name] = dataclasses.replace(self.actions[name], function=function)

    def outside_slot(self, name: str) -> None:
        """Let an action happen without a mutation slot (used by variants)."""
        if name not in self.actions or not self.actions[name].slot:
            raise ModelFault(f"machine {self.name!r} has no action {name!r} inside a slot")
        self.actions[name] = dataclasses.replace(self.actions[name], slot=False)

    def evaluate(self, action: Action, state: Any, index: Any = None) -> tuple[Value, dict[str, Value]]:
        """The whole guard of an action, its slot included, and its effects; on a plain state or on symbols."""
        guard, effects = action.function(state) if action.each is None else action.function(state, index)
        if action.slot and self.slot_guard is not None:
            guard = self.slot_guard(state) & guard
        return guard, effects

    def remove(self, name: str) -> None:
        """Take an action away (used by variants)."""
        if name not in self.actions:
            raise ModelFault(f"machine {self.name!r} has no action {name!r} to remove")
        del self.actions[name]

    def _refuse_double(self, name: str, table: Mapping[str, object]) -> None:
        if name in table:
            raise ModelFault(f"machine {self.name!r} declares {name!r} twice")

    def varied(self, variants: Sequence[str]) -> Machine:
        """A copy of this machine with the named variants applied, in the given order."""
        machine = copy.copy(self)
        machine.variables = dict(self.variables)
        machine.actions = dict(self.actions)
        machine.domains = dict(self.domains)
        machine.properties = dict(self.properties)
        for name in variants:
            if name not in self.variants:
                raise ModelFault(f"machine {self.name!r} has no variant {name!r}; it has {', '.join(self.variants)}")
            self.variants[name].apply(machine)
        return machine

    def model(self, scope: Any, variants: Sequence[str] = ()) -> Model:
        """This machine within one scope, with the named variants applied."""
        from .model import Model

        return Model(self.varied(variants), scope, tuple(variants))


Effects = tuple[Value, dict[str, Value]]
"""What an action returns: its guard and its effects."""


def changed(machine: Machine, name: str, effects: Callable[..., dict[str, Value]]) -> None:
    """Give an action other effects in part (used by variants): it is taken as ever, and these come over its own."""
    as_ever = machine.actions[name].function

    def action(s: Value, *index: Value) -> Effects:
        guard, own = as_ever(s, *index)
        return guard, {**own, **effects(s, *index)}

    action.__doc__ = as_ever.__doc__
    machine.replace(name, action)
