"""How the functions of this engine are compiled, and the two words that generated text imports.

Everything is compiled at its first call, every array access is checked, and the result is kept on disk beside the text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit

from .kept_code import looked_at
from .translator import translated


def choose(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`. Both are worked out; it becomes one instruction."""
    return then if condition else otherwise


choose_truth = choose


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of the engine's own."""
    return looked_at(njit(cache=True, boundscheck=True, nogil=True)(function))


def generated(function: Callable[..., Any]) -> Any:
    """Compile a function of generated text: a numba function whose whole body is the translated text."""
    names = ", ".join(inspect.signature(function).parameters)
    # The file is the generated one, so that numba keeps its cache beside it and by its stamp.
    body = f"def {function.__name__}({names}):\n    return body({names})\n"
    space: dict[str, Any] = {"body": translated(function), "__name__": function.__module__}
    exec(compile(body, function.__code__.co_filename, "exec"), space)
    return looked_at(njit(cache=True, nogil=True)(space[function.__name__]))
