"""Which engine searches a scope, and what a search may be told: properties, memory, resuming, where to report.

The compiled engine pays a second or more at the first use of a machine and is worth it above some hundred thousand
states. It needs numba, an extra of the package; without it every scope can still be searched by the reference engine.
The array engine compiles nothing and needs torch, another extra; it alone runs on a GPU.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from ..language.machine import Machine
from ..machines.catalogue import UnknownName, scopes_named
from ..machines.scopes import Pinned
from . import reference as reference_engine
from . import symmetry
from .outcome import Progress
from .reference import Search

REFERENCE, COMPILED, TORCH = "reference", "compiled", "torch"
ENGINES: Final = (REFERENCE, COMPILED, TORCH)
CPU: Final = "cpu"
WORTH_COMPILING: Final = 100_000
"""States from which on the compiled engine is chosen."""


@dataclass(frozen=True)
class Options:
    """How to search; every scope of one check is searched alike."""

    engine: str | None = None
    """None: by the pinned size of each scope."""
    memory_limit: int | None = None
    """Bytes, for the compiled and the array engine; None: a share of the memory there is."""
    resume: bool = False
    workers: int | None = None
    """Threads of the compiled engine (None: one a processor) or of torch (None: one). The result is always the same."""
    report: Callable[[str], None] | None = None
    """Told now and then how far a search is, in words."""
    counted: Callable[[int], None] | None = None
    """Told now and then how many states the search under way has."""
    symmetry: bool = False
    """Whether states that differ only in which of several alike indexes is which are searched as one."""
    device: str = CPU
    """Where the array engine's tensors are, in torch's words: cpu, cuda, cuda:1."""
    ray: str | None = None
    """The address of a Ray cluster, or "local": `workers` actors there own the states (None: one a processor)."""

    @property
    def compiled_only(self) -> bool:
        """Whether something is asked for that the reference engine does not have."""
        return self.resume or self.memory_limit is not None or self.workers is not None or self.ray is not None


def numba_is_there() -> bool:
    """Whether the compiled engine can be used."""
    return importlib.util.find_spec("numba") is not None


def torch_is_there() -> bool:
    """Whether the array engine can be used."""
    return importlib.util.find_spec("torch") is not None


def chosen_engine(options: Options, pinned: Pinned | None) -> str:
    """The engine for a scope of that size."""
    if options.engine is not None:
        if options.engine not in ENGINES:
            raise UnknownName(f"the engine {options.engine!r} is unknown; there are: {', '.join(ENGINES)}")
        if options.engine == COMPILED and not numba_is_there():
            raise UnknownName("the compiled engine needs numba; install it with: pip install 'cleancut[compiled]'")
        if options.engine == TORCH and not torch_is_there():
            raise UnknownName("the array engine needs torch; install it with: pip install 'cleancut[torch]'")
        if options.device != CPU and options.engine != TORCH:
            raise UnknownName(f"--device {options.device} is for the torch engine; the {options.engine} one has none")
        if options.ray is not None and options.engine != COMPILED:
            raise UnknownName(f"--ray is for the compiled engine; the {options.engine} one searches on one machine")
        if options.ray is not None and options.resume:
            raise UnknownName("--resume is for one machine; a search on Ray keeps nothing on disk")
        if options.resume and options.engine == TORCH:
            raise UnknownName("--resume is for the compiled engine; the torch engine keeps nothing on disk")
        return options.engine
    if options.device != CPU:
        return chosen_engine(replace(options, engine=TORCH), pinned)
    if options.compiled_only:
        return chosen_engine(replace(options, engine=COMPILED), pinned)
    large = pinned is not None and pinned.states > WORTH_COMPILING
    return COMPILED if large and numba_is_there() else REFERENCE


def connected(options: Options) -> AbstractContextManager[Any]:
    """One Ray for all the searches of a check, where they are on Ray: its start takes seconds."""
    if options.ray is None:
        return nullcontext()
    chosen_engine(options, None)  # refuses what does not go together, before anything is started
    from .ray_shards import cluster

    return cluster(options.ray, options.workers)


def search(
    machine: Machine,
    scope: Any,
    variants: tuple[str, ...],
    pinned: Pinned | None,
    options: Options,
    properties: Iterable[str] | None = None,
) -> Search:
    """Search a machine within a scope with the engine that is asked for, or that suits its size."""
    report = options.report
    chosen = chosen_engine(options, pinned)
    if options.symmetry and chosen == TORCH:
        raise UnknownName("--symmetry is for the reference and the compiled engine; the torch engine has none")
    if chosen == REFERENCE:
        if options.compiled_only:
            raise UnknownName(
                "--resume, --memory and --workers are for the other engines; the reference engine keeps nothing"
            )

        def on_level(depth: int, states: int) -> None:
            if report is not None:
                report(f"depth {depth}, {states:,} states")
            if options.counted is not None:
                options.counted(states)

        if options.symmetry:
            return symmetry.search(machine, scope, variants, properties, on_level)
        return reference_engine.search(machine.model(scope, variants), properties=properties, on_level=on_level)

    def on_progress(progress: Any) -> None:
        if report is not None:
            report(str(progress))
        if options.counted is not None:
            options.counted(progress.states)

    if chosen == TORCH:
        return _searched_on_arrays(machine, scope, variants, options, properties, on_progress)
    together = variants_of(machine, scope) if variants else ()
    if options.ray is not None:
        from . import ray_shards as on_ray

        return on_ray.search(
            machine,
            scope,
            variants,
            options.ray,
            options.workers,
            properties=properties,
            memory_limit=options.memory_limit,
            on_progress=on_progress,
            together=together,
            symmetry=options.symmetry,
        )
    # Imported here: numba takes its time, and not everybody has it.
    from .compiled import engine
    from .compiled.level_files import SearchDamaged

    try:
        return engine.search(
            machine,
            scope,
            variants,
            properties=properties,
            memory_limit=options.memory_limit,
            resume=options.resume,
            workers=options.workers,
            together=together,
            symmetry=options.symmetry,
            on_progress=on_progress,
        )
    except SearchDamaged as fault:
        raise UnknownName(str(fault)) from None


def _searched_on_arrays(
    machine: Machine,
    scope: Any,
    variants: tuple[str, ...],
    options: Options,
    properties: Iterable[str] | None,
    on_progress: Callable[[Progress], None] | None,
) -> Search:
    """Search with the array engine, on the device asked for."""
    # Imported here: torch takes its time, and not everybody has it.
    from .arrays import engine
    from .arrays.known import NoDevice

    try:
        return engine.search(
            machine,
            scope,
            variants,
            properties=properties,
            memory_limit=options.memory_limit,
            device=options.device,
            threads=options.workers or 1,
            on_progress=on_progress,
        )
    except NoDevice as fault:
        raise UnknownName(str(fault)) from None


def variants_of(machine: Machine, scope: Any) -> list[tuple[str, ...]]:
    """The variants of a machine that are shown in this scope, each with those it comes with."""
    return [
        (*variant.with_variants, variant.name)
        for variant in machine.variants.values()
        if scope in (bounds for bounds, _ in scopes_named(machine, variant.scope).values())
    ]


def memory_in_bytes(text: str) -> int:
    """The bytes that `512M` or `8G` means."""
    factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper())
    digits = text[:-1] if factor else text
    if not digits.isdigit() or int(digits) == 0:
        raise UnknownName(f"{text!r} is no amount of memory; write for instance 512M or 8G")
    return int(digits) * (factor or 1)


def workers_in(text: str) -> int:
    """The number of threads that was asked for."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise UnknownName(f"{text!r} is no number of threads; write for instance 2")
    return int(text)
