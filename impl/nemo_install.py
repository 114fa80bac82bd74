"""Puts the barrier of `impl.nemo` into an installed NeMo-RL, in the process that calls `install`.

The controller of NeMo-RL is a Ray actor: it runs in a process of its own, where what the driver has changed is as it
was. `install` is therefore also a setup hook of Ray workers:

    ray.init(runtime_env={"worker_process_setup_hook": "impl.nemo_install.install"})

It imports nothing of NeMo-RL. Modules that are there already are changed now, and each that is imported later directly
after it has run, before anybody can take a name from it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = "nemo_rl"
BARRIER = "DataPlaneCheckpointBarrier"


def install() -> tuple[str, ...]:
    """Swap the barrier wherever NeMo-RL defines or has taken it; returned are the modules that were changed at once.

    Where NeMo-RL knows kinds of mutations that `impl.nemo` does not, its list stays complete, and the barrier takes
    them. Called again it does nothing more.
    """
    if not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())
    loaded = [module for name, module in list(sys.modules.items()) if _is_of_nemo_rl(name) and module is not None]
    changed: dict[str, None] = {}
    for module in loaded:
        originals = swap(module)
        if originals:
            changed[module.__name__] = None
        for other in loaded:
            taken = [name for name, original in originals.items() if other.__dict__.get(name) is original]
            for name in taken:
                setattr(other, name, getattr(module, name))
                changed[other.__name__] = None
    return tuple(changed)


def swap(module: ModuleType) -> dict[str, Any]:
    """Put the names of `impl.nemo` into a module that defines a barrier of its own; returned is what was there."""
    theirs = module.__dict__.get(BARRIER)
    if not isinstance(theirs, type) or theirs.__module__ != module.__name__:
        return {}
    from . import nemo

    ours = {name: getattr(nemo, name) for name in nemo.__all__}
    known = getattr(module, "CHECKPOINT_MUTATION_KINDS", ())
    kinds = tuple(dict.fromkeys((*nemo.CHECKPOINT_MUTATION_KINDS, *known)))
    if kinds != nemo.CHECKPOINT_MUTATION_KINDS:
        # Of the module of the base, so that nothing here takes it for a barrier that NeMo-RL defines.
        fields = {"known_kinds": kinds, "__module__": nemo.__name__, "__doc__": nemo.DataPlaneCheckpointBarrier.__doc__}
        ours[BARRIER] = type(BARRIER, (nemo.DataPlaneCheckpointBarrier,), fields)
        ours["CHECKPOINT_MUTATION_KINDS"] = kinds
        # A type of theirs that knows their kinds; ours does not.
        del ours["CheckpointMutationKind"]
    originals = {name: module.__dict__[name] for name in ours if name in module.__dict__}
    for name, value in ours.items():
        setattr(module, name, value)
    return originals


class _AfterImport(MetaPathFinder):
    """Finds modules of NeMo-RL as the other finders do, and swaps the barrier in each when it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_of_nemo_rl(fullname):
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Swapping(spec.loader)
                return spec
        return None


class _Swapping(Loader):
    """The loader that it stands for, and a swap after the module has run."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        swap(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _is_of_nemo_rl(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")
