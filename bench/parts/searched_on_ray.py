"""The program of `bench/ray_search.py`, by a name that Ray's workers import, and the processor time that they spent."""

from __future__ import annotations

import time
from typing import Any

from interleavings import Subject
from interleavings.correspondence import Coverage
from interleavings.scenarios import scenario_named


class Spent:
    """Processor seconds of the workers. What a worker sends at the end is what its process has used since it began."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.began = time.process_time()
        self.seconds = 0.0

    def merge(self, other: Spent) -> None:
        self.seconds += other.seconds

    def __getstate__(self) -> dict[str, float]:
        return {"began": self.began, "seconds": time.process_time() - self.began}


def _named(name: str) -> Any:
    scenario = scenario_named(name)
    fresh = scenario.program(Coverage())

    def program() -> Subject:
        made = fresh()
        assert isinstance(made, Subject)
        return made

    program.reference = f"{__name__}:{name}"  # type: ignore[attr-defined]
    program.trace_identity = {"scenario": name}  # type: ignore[attr-defined]
    program.collected = Spent()  # type: ignore[attr-defined]
    return program


def __getattr__(name: str) -> Any:
    """The program of a scenario."""
    if name.startswith("_"):
        raise AttributeError(name)
    return _named(name)
