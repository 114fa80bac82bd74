"""The search of the array engine: the same rule and the same result as the reference engine.

Level by level, runs of states are expanded at once, and what is new is added in the order in which the reference engine
would meet it. A level in which a violation is found is finished for stalls, which are one step shorter. The path is
then taken again on the reference model, which alone says what broke and how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from ...language.machine import Machine
from ...language.narrowing import narrowed
from ...language.scalar_form import scalar_form
from ..outcome import Counts, Progress, outcome
from ..reference import Search
from ..retrace import Finding, Retrace
from .expansion import Expander, Expansion, Plan, Watch
from .known import Known, OutOfMemory, default_limit, device_named, free_memory

RUN_ON_PROCESSOR: Final = 1 << 17
"""States at once: enough that calls cost little, and few enough that what is worked out stays near the processor."""
RUN_ON_DEVICE: Final = 1 << 22
MOST_AT_ONCE: Final = 1 << 30
SHARE_OF_REST: Final = 0.6
REPORT_EVERY: Final = 0.2


def search(
    machine: Machine,
    scope: Any,
    variants: tuple[str, ...] = (),
    *,
    properties: Iterable[str] | None = None,
    max_states: int | None = None,
    max_seconds: float | None = None,
    memory_limit: int | None = None,
    device: str = "cpu",
    threads: int = 1,
    run: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Search:
    """Enumerate a machine within a scope breadth first; stop at the first violation, which is a shortest one.

    `properties` restricts the check to those names. Above `max_states`, after `max_seconds` or at `memory_limit` bytes
    of states and table the search ends early and is `bounded`. `run` is how many states are expanded at once; None for
    as many as suit the device and its free memory. `threads` are torch's, for each operation on the processor. The
    result is the same for any of these, and on any device.
    """
    own = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            found = _Search(machine, scope, variants, properties, memory_limit, device_named(device), run)
            return found.search(max_states, max_seconds, on_progress)
    finally:
        torch.set_num_threads(own)


class _Search:
    """One search; see `search`."""

    def __init__(
        self,
        machine: Machine,
        scope: Any,
        variants: tuple[str, ...],
        properties: Iterable[str] | None,
        limit: int | None,
        device: torch.device,
        run: int | None,
    ) -> None:
        self.started = time.perf_counter()
        wanted = None if properties is None else set(properties)
        self.form = narrowed(scalar_form(machine, scope, variants))
        self.model = machine.model(scope, variants)
        progress = self.model.machine.progress
        own = progress.name if progress and (wanted is None or progress.name in wanted) else None
        chosen = [name for name in self.model.machine.properties if wanted is None or name in wanted]
        self.names = [*chosen, *([own] if own else [])]
        self.plan = Plan(self.form, chosen, own is not None)
        premises = [int(w.property in chosen) for w in self.form.witnesses]
        self.watch = Watch([0] * len(self.form.instances), premises)
        self.known = Known(self.plan.layout.words, limit or default_limit(device), device)
        self.run = run or self.suiting(device)
        self.expander = Expander(self.plan, self.known, self.watch, self.run)
        self.depth = self.transitions = 0
        # The states from `first` up to `end` are the level that is expanded; later ones are the level after it.
        self.first, self.end = 0, 0
        self.finding: Finding | None = None

    def suiting(self, device: torch.device) -> int:
        """How many states to expand at once."""
        most = RUN_ON_PROCESSOR if device.type == "cpu" else RUN_ON_DEVICE
        # On a device older torch looks through fewer than 2 ** 31 at once, and all instances are looked at in one go.
        most = min(most, MOST_AT_ONCE // max(1, len(self.form.instances)))
        return max(1024, min(most, int(free_memory(device) * SHARE_OF_REST) // self.plan.row_bytes()))

    def search(
        self,
        max_states: int | None,
        max_seconds: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> Search:
        why = ""
        reported = 0.0
        try:
            if not self.expander.begin(self.plan.layout.packing.packed([e.initial for e in self.form.elements])):
                self.finding = Finding(0, 0, None, False)
            self.end = 1
            while self.first < self.end and self.finding is None and not why:
                for first in range(self.first, self.end, self.run):
                    if max_states is not None and self.known.count > max_states:
                        why = f"stopped above the limit of {max_states} states"
                        break
                    for expansion in self.expander.expand(first, min(first + self.run, self.end), self.depth):
                        self.note(expansion)
                    now = time.perf_counter()
                    if max_seconds is not None and now - self.started > max_seconds:
                        why = f"stopped after {max_seconds:g} seconds"
                        break
                    if on_progress and now - reported > REPORT_EVERY:
                        reported = now
                        on_progress(self.how_far(now))
                if why:
                    break
                self.first, self.end = self.end, self.known.count
                if self.first < self.end:
                    self.depth += 1
        except KeyboardInterrupt:
            why = "interrupted"
        except OutOfMemory as limit:
            why = str(limit)
        except torch.OutOfMemoryError:
            why = "stopped when the device had no memory left for the work itself (smaller with --memory)"
        return self.result(why)

    def how_far(self, now: float) -> Progress:
        count = self.known.count
        rate = count / max(1e-9, now - self.started)
        return Progress(self.depth, count, count - self.end, rate, self.known.used)

    def note(self, expansion: Expansion) -> None:
        """Count what came of an expansion; of what breaks, keep what the reference engine meets first."""
        if expansion.fault is not None:
            self.retrace().fault(*expansion.fault)
        self.transitions += expansion.transitions
        self.finding = self.finding or expansion.finding
        if expansion.stalled >= 0 and (self.finding is None or self.finding.length > self.depth):
            self.finding = Finding(self.depth, expansion.stalled, None, True)

    def retrace(self) -> Retrace:
        return Retrace(self.model, self.form, self.plan.layout.packing, self.known)

    def result(self, why: str) -> Search:
        violation = None if self.finding is None else self.retrace().violation(self.finding, self.names)
        seconds = time.perf_counter() - self.started
        watch = self.watch
        counts = Counts(self.known.count, self.transitions, self.depth, seconds, watch.taken, watch.missing)
        return outcome(self.model, self.form, self.names, counts, violation, why)
