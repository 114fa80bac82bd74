"""Generated text run by Python itself, with numbers that wrap around at 64 bits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spec.engines.compiled import Generated
from spec.language import signed

IMPORTS = "from spec.engines.compiled.words import choose, choose_truth, generated\n"
FUNCTIONS = ("expand", "broken", "broken_at", "unfinished", "witness", "witness_at")


class Wrapping:
    """An array whose elements are read as plain integers and wrap around when they are written.

    Shifts, masks and sums keep their low 64 bits whatever is above, so it is enough to cut them off in the end.
    """

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> int:
        self.expect_inside(index)
        return int(self.array[index])

    def __setitem__(self, index: Any, value: int) -> None:
        self.expect_inside(index)
        self.array[index] = signed(int(value))

    def expect_inside(self, index: Any) -> None:
        """numpy would read a negative index from the end."""
        for place in index if isinstance(index, tuple) else (index,):
            assert place >= 0


def interpreted(generated: Generated) -> SimpleNamespace:
    """The functions of a text, called with the same arrays as the compiled ones."""
    assert IMPORTS in generated.text
    names: dict[str, Any] = {
        "generated": lambda function: function,
        "choose": lambda condition, then, otherwise: then if condition else otherwise,
        "choose_truth": lambda condition, then, otherwise: then if condition else otherwise,
    }
    exec(compile(generated.text.replace(IMPORTS, ""), "generated text", "exec"), names)

    def wrapped(function: Any) -> Any:
        return lambda *arguments: function(*(Wrapping(a) if hasattr(a, "dtype") else a for a in arguments))

    return SimpleNamespace(**{name: wrapped(names[name]) for name in FUNCTIONS})
