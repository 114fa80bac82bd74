"""Figures of a run for Prometheus: a collector over the statistics that the parts keep anyway.

    from prometheus_client import REGISTRY
    REGISTRY.register(CleancutCollector.of(controller))

Nothing is counted twice and nothing is kept here: every scrape reads the parts as they are. A scrape usually comes from
a thread of its own, in which half a change might be seen; so the reading is done on the event loop of the barrier,
between two callbacks, and a loop that does not answer in time gives a scrape that says so.
"""

from __future__ import annotations

import logging
from asyncio.events import _get_running_loop
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from cleancut_leaf.extras import with_its_extra

from .barrier.arguments import seconds
from .errors import UsageError

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as missing:
    raise with_its_extra(missing, "impl.prometheus") from missing

if TYPE_CHECKING:
    from .barrier import CheckpointBarrier, Durations
    from .checkpoint.checkpointer import Checkpointer
    from .controller import Controller
    from .controller.progress import Progress
    from .controller.saves import SaveFailures
    from .run.buffer import ReplayBuffer
    from .run.ledger import Ledger
    from .run.permits import PermitPool

logger = logging.getLogger("cleancut.prometheus")

#: Values by the values of the labels after `run`.
Values = Mapping[Any, float]


class CleancutCollector(Collector):
    """Collects from one run; register one for each. Every metric has the label `run` with the value given.

    Only the barrier is needed; what else is given is shown too. `patience` is how many seconds a scrape waits for the
    event loop.
    """

    def __init__(
        self,
        barrier: CheckpointBarrier,
        *,
        checkpointer: Checkpointer | None = None,
        buffer: ReplayBuffer | None = None,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
        generation_permits: PermitPool | None = None,
        save_failures: SaveFailures | None = None,
        run: str = "",
        patience: float = 2.0,
    ) -> None:
        limit = seconds("patience", patience)
        if limit is None:
            raise UsageError("patience is None, but must be a number of seconds: a scrape must not wait for ever.")
        if not isinstance(run, str):
            raise UsageError(f"run is {run!r}, but must be a text, the value of the label.")
        self._barrier = barrier
        self._checkpointer = checkpointer
        self._buffer = buffer
        self._ledger = ledger
        self._progress = progress
        self._generation_permits = generation_permits
        self._save_failures = save_failures
        self._run = run
        self._patience = limit

    @classmethod
    def of(cls, controller: Controller, *, run: str = "", patience: float = 2.0) -> CleancutCollector:
        """A collector over all parts of a controller's run."""
        return cls(
            controller.barrier,
            checkpointer=controller.checkpointer,
            buffer=controller.buffer,
            ledger=controller.ledger,
            progress=controller.progress,
            generation_permits=controller.generation.in_flight,
            save_failures=controller.save_failures,
            run=run,
            patience=patience,
        )

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics of this instant. Never raises: a scrape that failed says `cleancut_scrape_success 0`."""
        metrics: list[Metric] = []
        success = True
        try:
            metrics = self._read_between_callbacks()
        except Exception as error:
            success = False
            logger.error("A scrape has failed: %r", error)
        yield from metrics
        yield self._gauge("cleancut_scrape_success", "Whether this scrape could read the run.", {(): success})

    def _read_between_callbacks(self) -> list[Metric]:
        # A barrier of trio has none; there the thread that scrapes reads.
        loop = getattr(self._barrier, "loop", None)
        if loop is None or not loop.is_running() or _get_running_loop() is loop:
            return list(self._read())
        answer: Future[list[Metric]] = Future()

        def read() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(list(self._read()))
                except Exception as error:
                    answer.set_exception(error)

        loop.call_soon_threadsafe(read)
        try:
            return answer.result(self._patience)
        except TimeoutError:
            answer.cancel()
            raise TimeoutError(
                f"the event loop did not answer within {self._patience} s; a callback blocks it, or the machine is busy"
            ) from None

    # -- what is read

    def _read(self) -> Iterator[Metric]:
        yield from self._of_barrier()
        if self._checkpointer is not None:
            yield from self._of_checkpointer(self._checkpointer)
        if self._save_failures is not None:
            in_row = {(kind,): count for kind, count in self._save_failures.in_row.items()}
            yield self._gauge("cleancut_saves_failed_in_row", "Failed saves since one was durable.", in_row, "kind")
            yield self._gauge(
                "cleancut_saves_failed_tolerated",
                "How many in a row the run goes on after.",
                {(): self._save_failures.tolerated},
            )
        if self._buffer is not None:
            yield from self._of_buffer(self._buffer)
        if self._generation_permits is not None:
            pool = self._generation_permits
            states = {("free",): pool.free, ("held",): pool.unspent, ("waited_for",): pool.waiting}
            yield self._gauge("cleancut_generation_permits", "Permits of generations in flight.", states, "state")
        if self._ledger is not None:
            yield from self._of_ledger(self._ledger)
        if self._progress is not None:
            version = {(): self._progress.version}
            yield self._gauge("cleancut_trainer_version", "Train steps done, over all restarts.", version)

    def _of_barrier(self) -> Iterator[Metric]:
        figures = self._barrier.statistics()
        yield self._counter("cleancut_mutations", "Shared sections that have ended.", {(): figures.mutation_version})
        yield self._gauge("cleancut_mutations_active", "Shared sections open now.", {(): figures.active_mutations})
        yield self._gauge(
            "cleancut_mutations_waiting", "Shared sections that wait for a checkpoint.", {(): figures.waiting_mutations}
        )
        blocked = {(kind,): count for kind, count in figures.blocked.items()}
        yield self._counter("cleancut_mutations_blocked", "Shared sections that had to wait.", blocked, "kind")
        waits = {(kind,): waited.total for kind, waited in figures.waits.items()}
        yield self._counter(
            "cleancut_mutations_wait_seconds", "Seconds that shared sections have waited.", waits, "kind"
        )
        yield self._gauge(
            "cleancut_checkpoint_active", "Whether a window is open now.", {(): figures.checkpoint_active}
        )
        yield self._gauge(
            "cleancut_checkpoints_waiting", "Checkpoints in the queue.", {(): figures.waiting_checkpoints}
        )
        yield self._counter(
            "cleancut_checkpoints_expired",
            "Checkpoints given up at the drain limit.",
            {(): figures.expired_checkpoints},
        )
        yield self._counter("cleancut_windows", "Exclusive windows that have ended.", {(): figures.window.count})
        yield self._spread("cleancut_window_seconds", "How long windows were open.", figures.window)
        yield self._spread("cleancut_drain_seconds", "How long checkpoints waited for open sections.", figures.drain)
        oldest = max((holder.age for holder in figures.holders), default=0.0)
        yield self._gauge("cleancut_oldest_section_seconds", "Age of the oldest open section.", {(): oldest})

    def _of_checkpointer(self, checkpointer: Checkpointer) -> Iterator[Metric]:
        figures = checkpointer.statistics()
        outcomes = {
            ("completed",): figures.completed,
            ("failed",): figures.failed,
            ("skipped",): figures.skipped,
        }
        yield self._counter("cleancut_saves", "Saves of this process, by outcome.", outcomes, "outcome")
        yield self._gauge("cleancut_save_in_flight", "Whether a save is being taken.", {(): figures.in_flight})
        spent = {(phase,): seconds for phase, seconds in figures.seconds.items()}
        yield self._counter("cleancut_save_seconds", "Seconds of all durable saves, by phase.", spent, "phase")
        yield self._counter("cleancut_save_bytes", "Bytes of all durable saves.", {(): figures.bytes})
        if not figures.saves:
            return
        newest = figures.saves[-1]
        phases = {(phase,): taken for phase, taken in newest.seconds.items()}
        yield self._gauge("cleancut_newest_save_seconds", "Phases of the newest durable save.", phases, "phase")
        artifacts = {(name,): taken for name, taken in newest.artifacts.items()}
        yield self._gauge(
            "cleancut_newest_save_artifact_seconds", "Part of its window by artifact.", artifacts, "artifact"
        )
        yield self._gauge("cleancut_newest_save_bytes", "Size of the newest durable save.", {(): newest.bytes})
        blocked = {(kind,): count for kind, count in newest.blocked.items()}
        yield self._gauge(
            "cleancut_newest_save_blocked", "Shared sections that the newest save kept waiting.", blocked, "kind"
        )
        holder = newest.slowest_holder
        yield self._gauge(
            "cleancut_newest_save_slowest_holder_seconds",
            "Age of the section that the drain of the newest save waited for longest.",
            {} if holder is None else {(holder.kind,): holder.age},
            "kind",
        )

    def _of_buffer(self, buffer: ReplayBuffer) -> Iterator[Metric]:
        figures = buffer.statistics()
        slots = {(state,): figures[state] for state in ("unready", "ready", "claimed")}
        yield self._gauge("cleancut_buffer_slots", "Slots of the replay buffer in use.", slots, "state")
        yield self._gauge("cleancut_buffer_capacity", "Slots of the replay buffer.", {(): figures["capacity"]})
        permits = {
            ("free",): figures["free"],
            ("held",): figures["permits_held"],
            ("waited_for",): figures["permits_waited_for"],
        }
        yield self._gauge("cleancut_buffer_permits", "Permits without a slot.", permits, "state")

    def _of_ledger(self, ledger: Ledger) -> Iterator[Metric]:
        pending = {(phase.value,): count for phase, count in ledger.phase_counts.items()}
        yield self._gauge("cleancut_prompts_pending", "Prompts that the ledger owns.", pending, "phase")
        trained = {(): ledger.accounts.trained_count}
        yield self._counter("cleancut_prompts_trained", "Prompts trained, over all restarts.", trained)
        dropped = {(reason,): count for reason, count in ledger.accounts.dropped_counts.items()}
        yield self._counter("cleancut_prompts_dropped", "Prompts given up, by reason.", dropped, "reason")

    # -- families

    def _gauge(self, name: str, text: str, values: Values, *labels: str) -> Metric:
        return self._filled(GaugeMetricFamily(name, text, labels=("run", *labels)), values)

    def _counter(self, name: str, text: str, values: Values, *labels: str) -> Metric:
        return self._filled(CounterMetricFamily(name, text, labels=("run", *labels)), values)

    def _filled(self, family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
        for labels, value in values.items():
            family.add_metric((self._run, *labels), value)
        return family

    def _spread(self, name: str, text: str, durations: Durations) -> Metric:
        values = {
            ("0.5",): durations.p50,
            ("0.9",): durations.p90,
            ("0.99",): durations.p99,
            ("1",): durations.longest,
        }
        return self._gauge(name, f"{text} The newest 1,024.", values, "quantile")
