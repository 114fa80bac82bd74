"""Which extra brings a package that only some parts need, and how to say that it is missing."""

from __future__ import annotations

#: Package → the extra of `cleancut` that installs it.
EXTRAS = {
    "crosshair": "proofs",
    "llvmlite": "compiled",
    "matplotlib": "plots",
    "numba": "compiled",
    "numpy": "compiled",
    "prometheus_client": "prometheus",
    "ray": "ray",
    "safetensors": "torch",
    "shtab": "completion",
    "torch": "torch",
    "torchdata": "torchdata",
    "transfer_queue": "transferqueue",
    "trio": "trio",
    "z3": "proofs",
}
#: The same for the library, which has no compiled engine: there the tensor plane needs numpy.
EXTRAS_OF_THE_LIBRARY = EXTRAS | {"numpy": "torch"}


def why_missing(fault: ImportError) -> str | None:
    """One line about a package that is not installed and the extra that brings it; None where it is another."""
    package = _package(fault)
    extra = EXTRAS.get(package)
    return extra and f"this needs {package}, which is not installed: pip install 'cleancut[{extra}]'"


def with_its_extra(fault: ModuleNotFoundError, part: str) -> ModuleNotFoundError:
    """The error to be raised from this one: `part` needs a package. Unchanged where it is none of an extra."""
    package = _package(fault)
    extras = EXTRAS_OF_THE_LIBRARY if part.partition(".")[0] == "impl" else EXTRAS
    if package not in extras:
        return fault
    return ModuleNotFoundError(
        f"{part} needs the package {package}, which is not installed. Install it with: "
        f"pip install 'cleancut[{extras[package]}]'",
        name=fault.name,
    )


def _package(fault: ImportError) -> str:
    return (fault.name or "").partition(".")[0]
