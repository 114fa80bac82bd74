"""The texts of each machine, their mutants, and how one stands in the place of the right text for a while.

A mutant is put in by exchanging the code of the function, so that everybody who holds the function, actions, claims,
variants and the combined machine alike, reads the mutant. One process looks at one mutant at a time.
"""

from __future__ import annotations
import __future__

import ast
import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from ..language.machine import Claim, Machine, Property
from ..language.pictures import ANY, arrow_of, with_arrow
from ..machines.catalogue import MACHINES
from .edits import edits_of

SYSTEM, PROPERTY = "system", "property"
TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "barrier": tuple(
        f"spec.machines.barrier.{part}" for part in ("state", "sections", "leases", "properties", "rules")
    ),
    "cut": tuple(
        f"spec.machines.cut.{part}"
        for part in ("state", "rollout", "trouble", "training", "saving", "leases", "properties", "rules")
    ),
    "store": ("spec.machines.store.actions", "spec.machines.store.properties"),
    "combined": ("spec.machines.combined",),
}
"""The modules that a machine's text stands in."""
UNSAID: Final = ("describe",)
"""Functions that say something to people, and nothing that is checked."""


@dataclass(frozen=True)
class Mutant:
    """One wrong edit of one function of a machine."""

    machine: str
    kind: str
    """SYSTEM: actions read it. PROPERTY: claims alone do."""
    module: str
    function: str
    what: str
    before: str
    after: str
    occurrence: int
    """Which of several alike edits of the function it is, from 0 on."""
    line: int
    code: CodeType

    @property
    def key(self) -> str:
        """By function and text, so that it stays the same when lines move."""
        more = f" #{self.occurrence + 1}" if self.occurrence else ""
        # What an edit leaves out says which one it is; of any other, the text before and after.
        text = self.what if ": " in self.what else f"{self.what}: {self.before} => {self.after}"
        return f"{self.module.removeprefix('spec.machines.')}.{self.function}: {text}{more}"

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.module.replace('.', '/')}.py:{self.line}"

    @contextmanager
    def applied(self) -> Iterator[Machine]:
        """The machine with this mutant in its text; afterwards all is as before."""
        function = functions_of(self.module)[self.function]
        right = function.__code__
        function.__code__ = self.code
        try:
            yield machine_of(self.machine)
        finally:
            function.__code__ = right


@dataclass(frozen=True)
class ClaimMutant(Mutant):
    """A property of several claims without one of them, or with half of what one asks: a claim is data, not text."""

    number: int = 0
    weaker: Claim | None = None
    """What stands in its place; None: it is left out."""

    @contextmanager
    def applied(self) -> Iterator[Machine]:
        """The machine with this property; afterwards it has the right one."""
        machine = machine_of(self.machine)
        right = machine.properties[self.function]
        claims = list(right.claims)
        claims[self.number : self.number + 1] = [] if self.weaker is None else [self.weaker]
        asks_less = replace(right, claims=tuple(claims))
        held = _weaker if self.machine == "combined" else machine.properties
        held[self.function] = asks_less
        try:
            yield machine_of(self.machine)
        finally:
            machine.properties[self.function] = right
            _weaker.clear()


def _claim_mutants(machine: str) -> Iterator[ClaimMutant]:
    of_the_cut = MACHINES["cut"].properties if machine == "combined" else {}
    for name, known in machine_of(machine).properties.items():
        if name in of_the_cut:
            continue
        module, line = _stands(machine, name)
        for number, claim in enumerate(known.claims):
            arrow = arrow_of(claim.function)
            weaker: list[tuple[str, Claim | None]] = []
            if arrow is not None:
                if arrow.begins != ANY:
                    weaker.append(("left out: where it begins", with_arrow(claim, replace(arrow, begins=ANY))))
                if arrow.ends != ANY:
                    weaker.append(("left out: where it ends", with_arrow(claim, replace(arrow, ends=ANY))))
            elif len(known.claims) > 1:
                weaker.append(("left out: the claim", None))
            for what, put in weaker:
                at = claim.at or "every step"
                code = (lambda: None).__code__
                before = f"{name} at {at}"
                yield ClaimMutant(
                    machine, PROPERTY, module, name, f"{what} at {at}", before, "", 0, line, code, number, put
                )


def _stands(machine: str, name: str) -> tuple[str, int]:
    """The module and the line where a property is registered first."""
    for module in TEXTS[machine]:
        for number, line in enumerate(source_of(module).splitlines(), start=1):
            if f'"{name}"' in line or f"def {name}(" in line:
                return module, number
    raise AssertionError(f"{name} stands in no text of {machine}")


_weaker: dict[str, Property] = {}
"""What stands in the place of properties of the combined machine, however often it is built again meanwhile."""


def machine_of(name: str) -> Machine:
    """The machine as its text is now. The one with slots step by step is built of the cut's, so it is built again."""
    if name == "combined":
        built: Machine = importlib.import_module("spec.machines.combined").build()
        built.variants = MACHINES[name].variants
        built.properties.update(_weaker)
        return built
    return MACHINES[name]


@functools.cache
def functions_of(module: str) -> dict[str, FunctionType]:
    """The functions that a module defines, by name."""
    known = importlib.import_module(module)
    return {
        name: value
        for name, value in vars(known).items()
        if isinstance(value, FunctionType) and value.__module__ == module and value.__name__ == name
    }


def source_of(module: str) -> str:
    """The text of a module."""
    return Path(inspect.getsourcefile(importlib.import_module(module)) or "").read_text(encoding="utf-8")


def digest(machine: str) -> str:
    """A digest of all that the judgement of a mutant of this machine depends on."""
    here = Path(__file__).resolve().parent
    texts = [path for room in ("machines", "language", "mutation") for path in (here.parent / room).rglob("*.py")]
    sha = hashlib.sha256(machine.encode())
    for path in sorted(texts):
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


@functools.cache
def mutants_of(machine: str) -> tuple[Mutant, ...]:
    """Every mutant of a machine's text, in the order of the text."""
    in_actions, in_claims = reached_by_actions(machine), reached_by_claims(machine)
    found: list[Mutant] = []
    for module in TEXTS[machine]:
        known = importlib.import_module(module)
        functions = functions_of(module)
        for node in ast.parse(source_of(module)).body:
            if not isinstance(node, ast.FunctionDef) or node.name in UNSAID or node.name not in functions:
                continue
            name = (module, node.name)
            if name in in_actions or name in in_claims:
                kind = SYSTEM if name in in_actions else PROPERTY
                found += _mutants_of_function(machine, kind, known, node)
    return (*found, *_claim_mutants(machine))


def _mutants_of_function(machine: str, kind: str, module: ModuleType, node: ast.FunctionDef) -> Iterator[Mutant]:
    counted: dict[str, int] = {}
    bare = ast.FunctionDef(**{field: getattr(node, field) for field in node._fields})
    bare.decorator_list = []
    ast.copy_location(bare, node)
    for edit in edits_of(bare, vars(module)):
        same = edit.what if ": " in edit.what else f"{edit.what}{edit.before}{edit.after}"
        occurrence = counted.get(same, 0)
        counted[same] = occurrence + 1
        yield Mutant(
            machine,
            kind,
            module.__name__,
            node.name,
            edit.what,
            edit.before,
            edit.after,
            occurrence,
            edit.line,
            _compiled(module, edit.function),
        )


def _compiled(module: ModuleType, function: ast.FunctionDef) -> CodeType:
    """The code of a function defined by this text in this module."""
    whole = ast.Module([function], type_ignores=[])
    flags = __future__.annotations.compiler_flag
    text = compile(whole, f"<mutant of {module.__name__}.{function.name}>", "exec", flags=flags, dont_inherit=True)
    return next(c for c in text.co_consts if isinstance(c, CodeType) and c.co_name == function.name)


# ----------------------------------------------------------------------------------------------- What reads what

Named = tuple[str, str]
"""A function: its module and its name."""


def reached(function: Callable[..., Any], machine: str) -> frozenset[Named]:
    """The functions of the machine's text that a function reads, itself included."""
    found: set[Named] = set()
    seen: set[FunctionType] = set()
    todo: list[Any] = [function]
    while todo:
        one = todo.pop()
        if not isinstance(one, FunctionType):
            continue
        name = (one.__module__, one.__qualname__.partition(".")[0])  # of one inside another, the outer one
        if one in seen:
            continue
        seen.add(one)
        found.add(name)
        names = set(_names(one.__code__))
        todo += [one.__globals__[n] for n in names if n in one.__globals__]
        todo += [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
        for held in [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]:
            todo += [held.function] if hasattr(held, "function") else []
    texts = TEXTS["cut"] + TEXTS["combined"] if machine == "combined" else TEXTS[machine]
    return frozenset(n for n in found if n[0] in texts)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@functools.cache
def actions_reading(machine: str) -> dict[str, frozenset[Named]]:
    """For each action of a machine, the functions it reads, those of its slot included."""
    known = machine_of(machine)
    slot = reached(known.slot_guard, machine) if known.slot_guard is not None else frozenset()
    return {
        name: reached(action.function, machine) | (slot if action.slot else frozenset())
        for name, action in known.actions.items()
    }


@functools.cache
def claims_reading(machine: str) -> dict[str, frozenset[Named]]:
    """For each property of a machine, and its claim about progress, the functions it reads."""
    known = machine_of(machine)
    found = {
        name: frozenset[Named]().union(*(reached(claim.function, machine) for claim in one.claims))
        for name, one in known.properties.items()
    }
    if known.progress is not None:
        both = (known.progress.finished, known.progress.rank)
        found[known.progress.name] = frozenset[Named]().union(*(reached(function, machine) for function in both))
    return found


def affected_by(mutant: Mutant) -> list[str]:
    """The properties that a mutant changes."""
    if isinstance(mutant, ClaimMutant):
        return [mutant.function]
    name = (mutant.module, mutant.function)
    return [p for p, functions in claims_reading(mutant.machine).items() if name in functions]


def reached_by_actions(machine: str) -> frozenset[Named]:
    """The functions that some action reads."""
    return frozenset[Named]().union(*actions_reading(machine).values())


def reached_by_claims(machine: str) -> frozenset[Named]:
    """The functions that some claim reads."""
    return frozenset[Named]().union(*claims_reading(machine).values())
