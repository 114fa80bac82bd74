"""Loads our packages as `cleancut.spec`, `cleancut.impl` …, where a short name leads to somebody else's package.

Our files import one another by the short names, and those are taken here. So an import statement in one of our files
is read with the long name: `from impl import Ledger` as `from cleancut.impl import Ledger`. Only statements are; a
name in a string, as in `import_module("impl")`, is left as it stands.
"""

import ast
import importlib.machinery
from collections.abc import Sequence
from types import CodeType

from cleancut.alias import PACKAGES


def find_spec(fullname: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    """Find a module below `cleancut` on the path given, to be loaded under just that name."""
    spec = importlib.machinery.PathFinder.find_spec(fullname, path)
    if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        spec.loader = LongNameLoader(fullname, spec.loader.path)
    return spec


class LongNameLoader(importlib.machinery.SourceFileLoader):
    """Loads a source file with the short names in its import statements read as names below `cleancut`."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile from source every time: the bytecode cached beside the file holds the short names."""
        path = self.get_filename(fullname)
        tree = _LongNames().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _LongNames(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        if node.level == 0 and node.module is not None:
            node.module = _long_name(node.module)
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.Import]:
        return [ast.copy_location(ast.Import([name]), node) for old in node.names for name in _bindings(old)]


def _bindings(old: ast.alias) -> list[ast.alias]:
    """Say the same with long names. `import spec.cut` loads the submodule, but what it binds is the package."""
    if old.asname or _long_name(old.name) == old.name:
        return [ast.alias(_long_name(old.name), old.asname)]
    package = old.name.partition(".")[0]
    return [ast.alias(_long_name(old.name), package), ast.alias(_long_name(package), package)]


def _long_name(name: str) -> str:
    return f"cleancut.{name}" if name.partition(".")[0] in PACKAGES else name
