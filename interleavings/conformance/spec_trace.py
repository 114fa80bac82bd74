"""A counterexample of `python -m spec` as a file, and as the text of a pytest that replays it on a controller."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spec.command.counterexample import TraceStale as TraceStale
from spec.command.counterexample import replay as walk
from spec.language.machine import Action, Machine, ModelFault
from spec.language.model import Model
from spec.machines.catalogue import machine_named
from spec.machines.scopes import FAMILIES

from ..errors import TraceUnreadable
from ..report.source_text import identifier, literal, python_source, words
from ..runtime.trace import read_document

FORMAT, VERSION = "cleancut-spec-trace", 1


@dataclass(frozen=True)
class SpecTrace:
    """The actions of a counterexample, by name, and the property they break in the machine with the variant."""

    machine: str
    scope: str
    bounds: Mapping[str, int]
    variants: tuple[str, ...]
    property: str
    sentence: str
    steps: tuple[tuple[str, int | None, str], ...]
    """Action, index, and who takes it."""
    indexes: tuple[int, ...] = ()
    """The prompts, writers or steps at which the property fails."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SpecTrace:
        """Read a trace; `TraceUnreadable` says in one line what is wrong with the file."""
        return cls.from_document(read_document(path), str(path))

    @classmethod
    def from_document(cls, document: Any, origin: str) -> SpecTrace:
        """Build a trace from its JSON object."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise TraceUnreadable(f"{origin}: is not a trace of a state machine: its format is not {FORMAT!r}")
        if document.get("version") != VERSION:
            found = document.get("version")
            raise TraceUnreadable(f"{origin}: has version {found!r}; this reads version {VERSION}")
        try:
            return cls._read(document)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceUnreadable(f"{origin}: is damaged: {error!r}") from None

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> SpecTrace:
        _listed(document.get("concerned", []), str)
        for step in _listed(document["steps"], dict):
            _typed(step.get("changed") or [], list)
        return cls(
            machine=_typed(document["machine"], str),
            scope=_typed(document["scope"], str),
            bounds={name: _typed(value, int) for name, value in _typed(document["bounds"], dict).items()},
            variants=tuple(_listed(document["variants"], str)),
            property=_typed(document["property"], str),
            sentence=_typed(document["sentence"], str),
            steps=tuple(
                (_typed(step["action"], str), _index(step["index"]), _typed(step["who"], str))
                for step in document["steps"]
            ),
            indexes=tuple(each for each in map(_index, _listed(document.get("indexes", []))) if each is not None),
        )

    @builtins.property
    def name(self) -> str:
        """A name for the test: the variants and the property, or the machine's name without variants."""
        return identifier("_".join([*(self.variants or (self.machine,)), self.property]))

    def scope_of(self, machine: Machine) -> Any:
        """The size of the machine that the bounds say. Raises ValueError where they say none that could be walked."""
        kind = type(next(iter(FAMILIES["small"][machine.name].values()))[0])
        for name, value in self.bounds.items():
            if not 0 <= value <= LARGEST_BOUND:
                raise ValueError(f"the bound {name} is {value}, and can be from 0 to {LARGEST_BOUND}")
        try:
            scope = kind(**self.bounds)
            sizes = {name: size(scope) for name, size in machine.domains.items()}
        except (TypeError, ArithmeticError) as fault:
            raise ValueError(f"its bounds are none of the machine {machine.name!r}: {fault}") from None
        for name, size in sizes.items():
            if not 0 <= size <= LARGEST_DOMAIN:
                raise ValueError(f"its bounds make {size} {name}, and there can be {LARGEST_DOMAIN}")
        return scope

    def walked(self) -> tuple[Model, list[Any]]:
        """The machine with the variants, and its states along the trace. `TraceStale` where it is no path of it."""
        machine = machine_named(self.machine)
        try:
            model = machine.model(self.scope_of(machine), self.variants)
            return model, walk(model, [(action, index) for action, index, _ in self.steps])
        except (ModelFault, TypeError, ValueError, ArithmeticError, LookupError) as fault:
            raise TraceStale(str(fault)) from None

    def require_drivable(self, origin: str = "the trace") -> None:
        """Refuse what no controller is to be driven through.

        A step is a call of the method that has the action's name, so an action is one that the machine or a variant of
        it has, taken for an index that it can be taken for.
        """
        if self.machine not in DEFAULTS:
            raise TraceUnreadable(f"counterexamples of the machine {self.machine!r} have no controller to be driven on")
        machine = machine_named(self.machine)
        try:
            scope = self.scope_of(machine)
            machine.model(scope)
        except (ValueError, TypeError, ArithmeticError, LookupError, ModelFault) as fault:
            raise TraceUnreadable(f"{origin}: is damaged: {fault}") from None
        if not self.steps:
            raise TraceUnreadable(f"{origin}: is damaged: it has no steps")
        known = _actions_of(machine)
        for number, (name, index, _) in enumerate(self.steps, 1):
            if name not in known:
                raise TraceUnreadable(
                    f"{origin}: step {number} is {name!r}, and neither the machine {self.machine!r} nor a variant of "
                    "it has such an action; the trace is damaged, or of another version"
                )
            each = known[name].each
            domain, size = machine.domains.get(each or ""), 0
            if domain is not None:
                size = domain(scope)
            if (index is None) != (each is None) or (index is not None and not 0 <= index < size):
                raise TraceUnreadable(
                    f"{origin}: step {number} is {name!r} for {index}; there are {size} to take it for"
                )


#: The largest number in a scope that is walked, and the most indexes of one kind in it.
LARGEST_BOUND, LARGEST_DOMAIN = 64, 4096


def _actions_of(machine: Machine) -> dict[str, Action]:
    """Every action of the machine, and those that its variants make up."""
    known = dict(machine.actions)
    for variant in machine.variants.values():
        for name, action in machine.varied((*variant.with_variants, variant.name)).actions.items():
            known.setdefault(name, action)
    return known


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected a {kind.__name__}, found {value!r}")
    return value


def _listed(value: Any, kind: type | None = None) -> list[Any]:
    found: list[Any] = _typed(value, list)
    return found if kind is None else [_typed(each, kind) for each in found]


def _index(value: Any) -> int | None:
    index: int | None = None if value is None else _typed(value, int)
    return index


_TEMPLATE = '''"""Replays the counterexample of {origin} on a controller, action by action.

{sentence}
Broken in the machine `{machine}`, scope {scope}, {length} steps. The controller is our own; to try another:
CLEANCUT_CONTROLLER=package.module:Class python -m pytest {file}
"""

import os

from interleavings.conformance import controller_named, drive

CONTROLLER = os.environ.get("CLEANCUT_CONTROLLER", {default})
BOUNDS = {bounds}
STEPS = (
{steps})


def test_{name}():
    """{sentence}"""
    drive(controller_named(CONTROLLER, BOUNDS), STEPS, property={property})
'''
DEFAULTS = {
    "cut": "interleavings.conformance.controller:ImplController",
    "barrier": "interleavings.conformance.barrier:ImplBarrier",
}


def emit(trace: SpecTrace, file_name: str = "test_counterexample.py") -> str:
    """The text of a self-contained pytest; it depends on the trace and the file's name alone."""
    trace.require_drivable()
    return python_source(
        _TEMPLATE,
        name=trace.name,
        literals={"default": DEFAULTS[trace.machine], "bounds": dict(trace.bounds), "property": trace.property},
        texts={
            "origin": " + ".join(trace.variants) or trace.machine,
            "sentence": trace.sentence,
            "machine": trace.machine,
            "scope": trace.scope,
            "length": str(len(trace.steps)),
            "file": file_name,
        },
        lines={"steps": "".join(f"    {_step(*step)}\n" for step in trace.steps)},
    )


def _step(action: str, index: int | None, who: str) -> str:
    return f"({literal(action)}, {literal(index)}),  # {words(who)}"
