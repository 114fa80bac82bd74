"""The public names of a package, each loaded at its first use and written down once, in the package's stub.

    # impl/store/__init__.py                               # impl/store/__init__.pyi
    from cleancut_leaf.public import names_in_stub         from .lock import WriterLock as WriterLock
                                                           from .manifest import Manifest as Manifest
    __getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)

Type checkers and editors read the stub; at run time this module reads the same lines. Nobody who wants one name waits
for the rest: whoever imports a barrier does not load torch.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from .extras import with_its_extra


def names_in_stub(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of `package`, whose `__init__.py` is `file`, from the stub beside it.

    Of the stub only lines of the form `from MODULE import NAME as NAME` count. A name whose module lacks a package that
    an extra brings raises ModuleNotFoundError with the line that installs it.
    """
    module_of = _module_of_each(ast.parse(Path(file).with_suffix(".pyi").read_bytes()))

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        source, original = module_of[name]
        try:
            value: object = getattr(import_module(source, package), original)
        except ModuleNotFoundError as fault:
            raise with_its_extra(fault, f"{package}.{name}") from fault
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, listed, sorted(module_of)


def _module_of_each(stub: ast.Module) -> dict[str, tuple[str, str]]:
    """Each exported name, with the module to load and what it is called there."""
    return {
        alias.asname: ("." * line.level + (line.module or ""), alias.name)
        for line in stub.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
        if alias.asname
    }
