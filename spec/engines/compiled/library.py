"""Generated text made callable: compiled, and cached on disk.

The file of a text is named by its digest together with the version of numba and of this engine's own words, so a
changed machine, scope, generator or numba never meets an old result. What is executed is the text that was generated
now, never the file: one that holds anything else, as after a power cut, is written anew. For compiled code see
`kept_code`. Remove the directory to forget everything.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import sys
from pathlib import Path
from types import ModuleType

import numba

from .kept_code import write_whole

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
    _keep(path, text)
    module = ModuleType(name)
    module.__file__ = str(path)
    # What reads the source, as the translator does, reads this text too; no time of change, so it is never read again.
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    # The cache finds the module by this name.
    sys.modules[name] = module
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _keep(path: Path, text: str) -> None:
    """Have the file hold this text, and no other; numba keeps compiled code beside it, by its time of change."""
    data = text.encode()
    try:
        if path.read_bytes() == data and not path.is_symlink():
            return
    except OSError:
        pass
    write_whole(path, data)
