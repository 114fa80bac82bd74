"""The import hook behind `cleancut.impl`, `cleancut.spec`, `cleancut.interleavings` and `cleancut.proofs`.

    short names lead to our packages      cleancut.impl.ledger  is  impl.run.ledger  (one module object, two names)
    a short name leads elsewhere          cleancut.impl.ledger  is ours, loaded under this name only

The second line is what the names below `cleancut` are for. A project with a folder `spec` of its own keeps it:
`import spec` goes on meaning theirs. One such collision puts all four packages into that mode (`cleancut.shadowed`
loads them): in a mixture one class could be loaded twice.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

PACKAGES = ("spec", "impl", "interleavings", "proofs")
ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def install() -> None:
    """Put the finder in front of all others; a second call changes nothing.

    In front, because the path finder would find `cleancut.impl.ledger` on the path of `impl` and load a second copy.
    """
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())


@functools.cache
def short_names_are_ours() -> bool:
    """Tell whether every short name leads to the package beside this one. Decided once, at the first alias import."""
    return all(_leads_to(name, os.path.join(ROOT, name)) for name in PACKAGES)


def _leads_to(name: str, folder: str) -> bool:
    spec = importlib.util.find_spec(name)
    places = (spec and spec.submodule_search_locations) or ()
    return folder in map(os.path.realpath, places)


class AliasFinder(importlib.abc.MetaPathFinder):
    """Finds the modules below `cleancut.<package>`, for the four packages and no other name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module in our own package; None hands the question on to the next finder."""
        root, _, short_name = fullname.partition(".")
        if root != "cleancut" or short_name.partition(".")[0] not in PACKAGES:
            return None
        if short_names_are_ours():
            return _alias_spec(fullname, short_name)
        from cleancut import shadowed  # brings `ast`, which nobody without a collision pays for

        return shadowed.find_spec(fullname, [ROOT] if short_name in PACKAGES else path)


def _alias_spec(fullname: str, short_name: str) -> importlib.machinery.ModuleSpec | None:
    real = importlib.util.find_spec(short_name)
    if real is None:
        return None
    spec = importlib.machinery.ModuleSpec(fullname, AliasLoader(real), origin=real.origin)
    spec.submodule_search_locations = real.submodule_search_locations
    return spec


class AliasLoader(importlib.abc.Loader):
    """Answers an alias with the module that its short name stands for.

    The import system drops the empty module it made and takes what it then finds in `sys.modules`. Handing out the
    real module from `create_module` would be shorter, but it would overwrite that module's `__spec__`.
    """

    def __init__(self, real: importlib.machinery.ModuleSpec) -> None:
        self._real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave the making of the stand-in to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the real module in the place of the stand-in."""
        sys.modules[module.__name__] = importlib.import_module(self._real.name)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the real module: `python -m cleancut.impl` asks for that of its `__main__`."""
        loader = self._real.loader
        if not isinstance(loader, importlib.machinery.SourceFileLoader):
            raise ImportError(f"{fullname} cannot be run: {self._real.name} is not a source file", name=fullname)
        return loader.get_code(self._real.name)
