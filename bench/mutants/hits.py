"""Which statements of the edited files run: a copy in which each statement marks itself first.

A mark is one byte of a file that every process of the copy has mapped, so that forks, children and processes that are
killed count too. That is exact and costs some ten nanoseconds a statement; a tracer (coverage.py) would slow the
millions of steps of a scenario several times, and sees no process that was killed.
"""

from __future__ import annotations

import ast
import mmap
from collections.abc import Iterable, Sequence
from pathlib import Path

from .copies import Copy
from .groups import edited_files

MODULE = "statement_marks"
Place = tuple[str, int]
"""A statement, by its file and its line in the text that nobody has marked."""

_MODULE_TEXT = '''"""One byte for each statement, shared by all processes."""

import mmap

with open({path!r}, "r+b") as file:
    marks = mmap.mmap(file.fileno(), 0)
'''


class Marks:
    """The statements of a marked copy, and which of them ran since the last time that somebody asked."""

    def __init__(self, places: Sequence[Place], file: Path) -> None:
        self.places = places
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)

    def clear(self) -> None:
        """Forget what ran."""
        self._map[:] = bytes(len(self._map))

    def taken(self) -> dict[str, list[int]]:
        """What ran since `clear`: of each file the lines of its statements."""
        found: dict[str, list[int]] = {}
        for (path, line), ran in zip(self.places, self._map[:], strict=False):
            if ran:
                found.setdefault(path, []).append(line)
        return found


def mark(copy: Copy, file: Path) -> Marks:
    """Let every statement of the edited files mark itself in `file`."""
    places: list[Place] = []
    for path in edited_files(copy.place):
        tree = ast.parse((copy.place / path).read_text(encoding="utf-8"))
        _Marker(path, places).visit(tree)
        after = sum(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        described = isinstance(tree.body[0], ast.Expr)
        imported = ast.ImportFrom(MODULE, [ast.alias("marks", "_statement_marks")], 0)
        tree.body.insert(after + described, imported)
        copy.write(path, ast.unparse(ast.fix_missing_locations(tree)) + "\n")
    file.write_bytes(bytes(max(1, len(places))))
    copy.write(f"{MODULE}.py", _MODULE_TEXT.format(path=str(file)))
    return Marks(places, file)


class _Marker(ast.NodeTransformer):
    """Puts a mark before each statement of each function."""

    def __init__(self, path: str, places: list[Place]) -> None:
        self.path = path
        self.places = places
        self.inside = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.inside += 1
        self._blocks(node)
        self.inside -= 1
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        self._blocks(node)
        return node

    def _blocks(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self._marked(value))
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)

    def _marked(self, block: Iterable[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in block:
            described = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if self.inside and not described:
                made.append(ast.parse(f"_statement_marks[{len(self.places)}] = 1").body[0])
                self.places.append((self.path, statement.lineno))
            visited = self.visit(statement)
            made.append(visited)
        return made
