"""The text of a source line that a trace names: `controller.py:88 in run`, by the file's name alone."""

from __future__ import annotations

import linecache
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

#: Where the programs of the scenarios live. A name that two files have is not guessed at.
_PACKAGES = ("impl", "interleavings")
_PLACE = re.compile(r"(?P<file>[^/\\:]+\.py):(?P<line>\d+)(?: in (?P<function>\S+))?")


def source_line(where: str) -> str:
    """The line without its indent; empty if the file is not one of ours, or the function is not in it any more."""
    place = _PLACE.match(where)
    if place is None:
        return ""
    function = (place["function"] or "").rpartition(".")[2]
    found = [
        text
        for path in _files().get(place["file"], ())
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
