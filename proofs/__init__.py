"""Proofs for any number of prompts, saves and crashes, from the same text that `spec` enumerates.

`python -m proofs` discharges every obligation; proofs/README.md says what is assumed and what is not covered.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .discharging import Proved, Refuted, Unknown, discharge
    from .obligations import obligations_of

__all__ = ["Proved", "Refuted", "Unknown", "discharge", "obligations_of"]


def __getattr__(name: str) -> object:
    """Load the solver with the first name that needs it, so that its lack is one clear error and no traceback."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(
            import_module(f".{'obligations' if name == 'obligations_of' else 'discharging'}", __name__), name
        )
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "z3":
            raise
        raise ModuleNotFoundError(
            "proofs needs z3, which is not installed: pip install 'cleancut[proofs]'", name=missing.name
        ) from None
