"""Says which extra brings a package that is not installed, where a part that needs it is imported."""

from __future__ import annotations

EXTRAS = {
    "numpy": "torch",
    "prometheus_client": "prometheus",
    "ray": "ray",
    "safetensors": "torch",
    "torch": "torch",
    "torchdata": "torchdata",
    "transfer_queue": "transferqueue",
    "trio": "trio",
}


def with_its_extra(fault: ModuleNotFoundError, part: str) -> ModuleNotFoundError:
    """The error to be raised from this one: `part` needs a package. Unchanged where it is none of an extra."""
    package = (fault.name or "").partition(".")[0]
    if package not in EXTRAS:
        return fault
    return ModuleNotFoundError(
        f"{part} needs the package {package}, which is not installed. Install it with: "
        f"pip install 'cleancut[{EXTRAS[package]}]'",
        name=fault.name,
    )
