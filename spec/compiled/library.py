"""Generated text made callable: compiled, and cached on disk.

The file of a text is named by its digest together with the version of numba and of this engine's own words, so a
changed machine, scope, generator or numba never meets an old result. Remove the directory to forget everything.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numba

CACHE_VARIABLE = "CLEANCUT_CACHE"


def cache_directory() -> Path:
    """Where generated texts and their compiled code are kept."""
    return Path(os.environ.get(CACHE_VARIABLE) or "build/compiled").absolute()


@functools.cache
def _compiler() -> str:
    """What compiles a text: numba and the two files that hand it over."""
    here = Path(__file__).parent
    return "\n".join(
        [numba.__version__, *((here / f"{name}.py").read_text("utf-8") for name in ("translator", "words"))]
    )


def digest(text: str) -> str:
    """The name of a text."""
    return hashlib.sha256(f"{_compiler()}\n{text}".encode()).hexdigest()[:24]


def compiled(text: str) -> ModuleType:
    """Generated text as a module whose functions compile at their first call, or come from the cache."""
    name = f"cleancut_generated_{digest(text)}"
    if name in sys.modules:
        return sys.modules[name]
    path = cache_directory() / f"{name}.py"
    if not path.exists():
        _write_whole(path, text)
    description = importlib.util.spec_from_file_location(name, path)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    # The cache finds the module by this name.
    sys.modules[name] = module
    description.loader.exec_module(module)
    return module


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
