"""A state of a machine that is as large as what is alive in it, and takes the actions of the machine's own text.

A model fixes how many prompts there are; a run of which only the trace is known has no such number. So the vectors over
what comes and goes grow and shrink, and a vector over train steps is kept where it is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from spec.language.expression import Domain, Each, Vector
from spec.language.machine import Action, Machine

#: For budgets that the trace does not show: so often may it happen.
ANY_NUMBER = 1 << 60


class Sparse:
    """A vector over an unbounded domain that is zero nearly everywhere."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[int, int]) -> None:
        self.values = values

    def __getitem__(self, index: int) -> int:
        return self.values.get(index, 0)

    at = __getitem__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sparse) and self.values == other.values

    __hash__ = None  # type: ignore[assignment]


class OpenState:
    """Attributes are the variables and constants of the machine, as its actions read them.

    `sparse` names the domains whose vectors are kept sparse, with a function that says which of their indexes an action
    can change.
    """

    def __init__(
        self,
        machine: Machine,
        scope: Mapping[str, int],
        sparse: Mapping[str, Callable[[OpenState], range]] | None = None,
    ) -> None:
        self._machine = machine
        self._sparse = sparse or {}
        self._over = {name: variable.over for name, variable in machine.variables.items()}
        bounds = SimpleNamespace(**scope)
        self._initial = {
            name: variable.initial if isinstance(variable.initial, int) else int(variable.initial(bounds))
            for name, variable in machine.variables.items()
        }
        values: dict[str, Any] = dict(scope)
        for domain in machine.domains:
            values[domain] = Domain(domain, 0)
        for name, variable in machine.variables.items():
            if variable.over is None:
                values[name] = self._initial[name]
            else:
                values[name] = Sparse({}) if variable.over in self._sparse else Vector()
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        # Only for what is not there: the type checker needs it, and a typing error in a rule is told by name.
        raise AttributeError(f"the machine {self._machine.name!r} has no variable or constant {name!r}")

    # -- the machine's own text

    def guard(self, name: str, index: int | None = None) -> tuple[bool, Mapping[str, Any]]:
        """Whether the action is enabled here, and what it would move."""
        guard, effects = self._machine.evaluate(self._machine.actions[name], self, index)
        return bool(guard), effects

    def take(self, name: str, index: int | None = None) -> bool:
        """Take an action if it is enabled; False, and nothing changed, if it is not."""
        enabled, effects = self.guard(name, index)
        if enabled:
            self.apply(effects)
        return enabled

    def apply(self, effects: Mapping[str, Any]) -> None:
        """Move what an action moves, all at once."""
        self.__dict__.update({name: self.worked_out(name, value) for name, value in effects.items()})

    def worked_out(self, name: str, value: Any) -> Any:
        """An effect on the variable `name` as a plain value."""
        if type(value) is not Each:
            return value
        indexes = self._sparse.get(self._over[name] or "")
        if indexes is None:
            return value.vector()
        return Sparse({i: moved for i in indexes(self) if (moved := int(value[i]))})

    def enabled(self, domain_of: Mapping[str, range]) -> Iterator[tuple[Action, int | None]]:
        """Every enabled action of this state; it costs as much as a step of a search."""
        for action in self._machine.actions.values():
            if action.when is not None and not action.when(self):
                continue
            for index in (None,) if action.each is None else domain_of[action.each]:
                if self._machine.evaluate(action, self, index)[0]:
                    yield action, index

    # -- size

    def size(self, domain: str) -> int:
        """How many members the domain has now."""
        return int(getattr(self, domain).size)

    def grow(self, domain: str, by: int) -> range:
        """Add members, each as it is at the beginning of a run; the new indexes."""
        before = self.size(domain)
        grown: dict[str, Any] = {domain: Domain(domain, before + by)}
        for name in self._rows(domain):
            grown[name] = Vector((*getattr(self, name), *[self._initial[name]] * by))
        self.__dict__.update(grown)
        return range(before, before + by)

    def keep(self, domain: str, indexes: list[int]) -> None:
        """Let only these members stay, in this order."""
        kept: dict[str, Any] = {domain: Domain(domain, len(indexes))}
        for name in self._rows(domain):
            row = getattr(self, name)
            kept[name] = Vector([row[i] for i in indexes])
        self.__dict__.update(kept)

    def set_at(self, name: str, index: int, value: int) -> None:
        """Set one element of a vector: what the trace shows and no action of the machine moves."""
        row = getattr(self, name)
        self.__dict__[name] = Vector((*row[:index], value, *row[index + 1 :]))

    def _rows(self, domain: str) -> list[str]:
        return [name for name, over in self._over.items() if over == domain]

    def copy(self) -> OpenState:
        """The state as it is now; vectors are immutable, so this is a few dozen references."""
        twin = OpenState.__new__(OpenState)
        twin.__dict__.update(self.__dict__)
        return twin

    def plain(self) -> dict[str, Any]:
        """The variables, by name."""
        return {name: getattr(self, name) for name in self._over}
