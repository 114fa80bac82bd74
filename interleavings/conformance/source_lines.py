"""The text of a source line that a trace names: `controller.py:88 in run`, by the file's name alone.

Looked for in this repository's own packages and in the module of the program that the trace is of. Nothing is imported.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

#: Where the programs of the scenarios live. A name that two files have is not guessed at.
_PACKAGES = ("impl", "interleavings")
_PLACE = re.compile(r"(?P<file>[^/\\:]+\.py):(?P<line>[0-9]{1,9})(?: in (?P<function>\S+))?")


def source_lines(program: str) -> Callable[[str], str]:
    """`source_line` for the trace of a program, `package.module:callable`: the file of that module comes first."""
    module = program.partition(":")[0].split(".")
    places = [Path(root, *module) for root in sys.path] if all(map(str.isidentifier, module)) else []
    own = next((file for place in places if (file := place.with_suffix(".py")).is_file()), None)

    def source(where: str) -> str:
        text = source_line(where, (own,)) if own is not None and where.startswith(f"{own.name}:") else ""
        return text or source_line(where)

    return source


def source_line(where: str, files: Sequence[Path] | None = None) -> str:
    """The line without its indent; empty if the file is not one of ours, or the function is not in it any more."""
    place = _PLACE.match(where)
    if place is None:
        return ""
    function = (place["function"] or "").rpartition(".")[2]
    found = [
        text
        for path in (_files().get(place["file"], ()) if files is None else files)
        if (text := linecache.getline(str(path), int(place["line"])).strip())
        and (not function or f"def {function}(" in "".join(linecache.getlines(str(path))))
    ]
    return found[0] if len(found) == 1 else ""


@cache
def _files() -> dict[str, tuple[Path, ...]]:
    files: dict[str, tuple[Path, ...]] = {}
    for package in _PACKAGES:
        spec = find_spec(package)
        for root in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(root).rglob("*.py")):
                files[path.name] = (*files.get(path.name, ()), path)
    return files
