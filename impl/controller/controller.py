"""The controller: wires the parts of a run, resumes it, runs both pumps, and closes everything however it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from ..arguments import require_kind
from ..barrier import CheckpointBarrier
from ..checkpoint.artifacts import identity_of, run_identity
from ..checkpoint.checkpointer import Checkpointer
from ..checkpoint.refusals import require_trainer
from ..errors import CheckpointNotFound, UsageError
from ..loaders.protocol import Loader
from ..run.buffer import ReplayBuffer
from ..run.ledger import Ledger
from ..run.pending_groups import Phase
from ..run.samplers import Sampler
from ..run.spare_pool import SparePool
from ..waiting import wait_shielded
from .callables import UserFunction
from .config import ControllerConfig
from .generation import Generation
from .parts import RunParts
from .report import RestoredFrom, RunReport
from .rollout_pump import RolloutPump
from .saves import SaveFailures, SaveSchedule
from .snapshots import SnapshotSchedule
from .supervisor import RunTask, Supervisor
from .train_batch import GenerationRequest, TrainBatch
from .train_pump import TrainPump
from .watchdog import Watchdog

if TYPE_CHECKING:
    from ..trainer.trainer_state import TrainerState

logger = logging.getLogger("cleancut.controller")


class Controller:
    """One run of an asynchronous RL training job: generates, trains, saves, and resumes where a save was taken.

    `generate(request)` returns one group's rows, `train(batch)` changes the trainer; either may be async, and one that
    is not runs in a thread. `trainer` is the state that belongs into every full save. The buffer is made here unless
    one is given. A controller runs once; it closes the checkpointer and the barrier when the run is over.
    """

    def __init__(
        self,
        *,
        loader: Loader,
        generate: Callable[[GenerationRequest], Any],
        train: Callable[[TrainBatch], Any],
        sampler: Sampler,
        checkpointer: Checkpointer | None = None,
        config: ControllerConfig | None = None,
        buffer: ReplayBuffer | None = None,
        trainer: TrainerState | None = None,
    ) -> None:
        for name, part, kind in (
            ("checkpointer", checkpointer, Checkpointer),
            ("config", config, ControllerConfig),
            ("buffer", buffer, ReplayBuffer),
        ):
            if part is not None:
                require_kind(name, part, kind, f"a {kind.__name__}, or None")
        require_trainer(trainer)
        self.config = config if config is not None else ControllerConfig()
        self._generate = UserFunction("generate", generate, threads=self.config.max_in_flight, see_out=False)
        self._train = UserFunction("train", train, threads=1, see_out=True)
        if not isinstance(loader, Loader):
            raise UsageError(
                f"loader is a {type(loader).__name__}, which lacks methods of the Loader protocol. Put the dataset "
                "into a PromptLoader, or a StatefulDataLoader into a TorchdataPromptLoader."
            )
        if not isinstance(sampler, Sampler):
            raise UsageError(
                f"sampler is a {type(sampler).__name__}, which lacks methods of the Sampler protocol. Use one of the "
                "shipped samplers, or add what is missing."
            )
        if self.config.recovery and checkpointer is None:
            raise UsageError(
                "checkpointer: none was given and ControllerConfig.recovery is True. Give one, or set recovery=False "
                "for a run that is not saved."
            )
        if self.config.resume == "must" and checkpointer is None:
            raise UsageError(
                "checkpointer: none was given, and ControllerConfig.resume is 'must'. There is nothing to resume from; "
                "give the checkpointer of the run, or set resume='auto'."
            )
        self._checkpointer = checkpointer
        self._trainer = trainer
        if self._checkpointer is not None:
            self.barrier = self._checkpointer.barrier
        else:
            self.barrier = buffer.barrier if buffer is not None else CheckpointBarrier()
        self.ledger = buffer.ledger if buffer is not None and buffer.ledger is not None else Ledger(self.barrier)
        if buffer is None:
            default = getattr(sampler, "default_capacity", sampler.capacity_needed)
            buffer = self._own_buffer(default(loader.batch_size))
        self.buffer = buffer
        self.pool = SparePool()
        self._parts = RunParts(self.barrier, self.ledger, loader, sampler, buffer, self.pool, self.config)
        self.progress = self._parts.progress
        if self._checkpointer is not None:
            self._checkpointer.attach(
                ledger=self.ledger,
                loader=loader,
                sampler=sampler,
                buffer=buffer,
                pool=self.pool,
                counters=self.progress,
                generations=self.config.generations,
                recovery=self.config.recovery,
                accept_dataset=self.config.accept_dataset,
            )
        self._tell_tracer()
        self._supervisor = Supervisor()
        self.generation = Generation(self._parts, self._generate, self._supervisor)
        self.save_failures = SaveFailures(self._parts)
        self._saves = SaveSchedule(self._parts, self._checkpointer, trainer, self.save_failures)
        self._snapshots = SnapshotSchedule(self._parts, self._checkpointer, self._saves)
        self.rollout_pump = RolloutPump(self._parts, self.generation)
        self.train_pump = TrainPump(self._parts, self._train, self._saves, self.generation, self._supervisor)
        self._watchdog: RunTask | None = None
        self._restored: RestoredFrom | None = None
        self._started = False

    @property
    def checkpointer(self) -> Checkpointer | None:
        """The checkpointer given, if there is one."""
        return self._checkpointer

    def _own_buffer(self, needed: int) -> ReplayBuffer:
        # Only here, so that a run over another data plane never imports torch.
        from ..rows.tensor_plane import TensorPlane

        return ReplayBuffer(self.barrier, self.config.capacity or needed, TensorPlane(), self.ledger)

    def _tell_tracer(self) -> None:
        """Begin a segment of the trace under the identity of this run, if the tracer keeps segments."""
        begin_run = getattr(self.barrier.tracer, "begin_run", None)
        if begin_run is not None:
            parts = self._parts
            identity = identity_of(parts.loader, parts.sampler, self.config.generations)
            begin_run(run_identity(identity, parts.buffer.capacity, self.config.recovery, self.config.remainder))

    def statistics(self) -> Mapping[str, int]:
        """Counts of this instant: the buffer's slots and permits, the permits of generations, and what is pending.

        Raises InvariantViolated if permits, slots and rows do not agree.
        """
        in_flight = self.generation.in_flight
        in_flight.check()
        return {
            **self.buffer.statistics(),
            "in_flight_capacity": in_flight.capacity,
            "in_flight_free": in_flight.free,
            "in_flight_waited_for": in_flight.waiting,
            "pending": len(self.ledger.entries),
            "spares": len(self.pool),
            "version": self.progress.version,
        }

    async def run(self) -> RunReport:
        """Resume or begin, train to the end, save, close.

        Raises what a callable raised; a cancelled run closes everything before the cancellation passes. Rows that
        were accepted are committed in every case, and a save past its window is published.
        """
        if self._started:
            raise UsageError(
                "run() was called a second time. A controller runs once, and one whose restore failed does not accept "
                "work; build a new one."
            )
        self._started = True
        error: BaseException | None = None
        tasks: list[RunTask] = []
        try:
            await self._resume()
            tasks = self._start_pumps()
            await self._supervisor.wait_done_or_failed(tasks[0])
        except BaseException as raised:
            error = raised
        failed_to_close = await self._see_closed(tasks, error)
        failed_task = self._supervisor.error
        error = failed_task if error is None else error
        if error is not None:
            for name, other in (("A task failed", failed_task), ("While the run was being closed", failed_to_close)):
                if other is not None and other is not error:
                    error.add_note(f"{name}: {other!r}")
            raise error
        if failed_to_close is not None:
            raise failed_to_close
        return self._report()

    async def _see_closed(self, tasks: list[RunTask], error: BaseException | None) -> BaseException | None:
        """End the run and close everything, however often this task is cancelled; return what went wrong first."""
        failed_to_end, cancelled = await self._insist(lambda: self._end(tasks, error), "end-run")
        # Apart, so that an end which was cut short is begun again while everything is still open.
        failed_to_close, cancelled_later = await self._insist(lambda: self._shut(error), "close-run")
        if failed_to_end is not None and failed_to_close is not None:
            failed_to_end.add_note(f"Then the run could not be closed: {failed_to_close!r}")
        return failed_to_end or failed_to_close or cancelled or cancelled_later

    @staticmethod
    async def _insist(
        phase: Callable[[], Coroutine[Any, Any, None]], name: str
    ) -> tuple[BaseException | None, asyncio.CancelledError | None]:
        """Run a phase in a task of its own to its end; return its error, and the cancellation of this task.

        Each step of a phase may be done twice, so one that was itself cancelled is simply begun again.
        """
        cancellation: asyncio.CancelledError | None = None
        while True:
            task = asyncio.get_running_loop().create_task(phase(), name=name)
            cancellation = await wait_shielded(task) or cancellation
            if not task.cancelled():
                return task.exception(), cancellation

    # -- the phases of a run --------------------------------------------------------------------------------------

    async def _resume(self) -> None:
        """Restore the newest checkpoint if the configuration asks for it and there is one."""
        if self._checkpointer is None:
            return
        await self._checkpointer.prepare()
        resume = self.config.resume
        newest = self._checkpointer.latest()
        if newest is None:
            if resume == "must":
                raise CheckpointNotFound(
                    f"resume='must', and there is no checkpoint in {self._checkpointer.directory}. Check the "
                    "directory, or use resume='auto' to begin a new run."
                )
            return
        if resume == "never":
            raise UsageError(
                f"resume='never', and {self._checkpointer.directory} holds checkpoints of an earlier run (newest: "
                f"{newest.name}). Their steps would mix; give a new directory, or use resume='auto'."
            )
        restored = await self._checkpointer.restore(load_buffer=self.config.load_buffer, trainer=self._trainer)
        if restored.trainer is not None:
            raise UsageError(
                f"trainer: none was given, and {restored.name} holds a trainer's state. The run would go on at step "
                f"{restored.step} with a model that has not seen the steps before; give the trainer of the saved run."
            )
        phases = self.ledger.phase_counts
        self._restored = RestoredFrom(
            name=restored.name,
            step=restored.step,
            admitted=phases[Phase.ADMITTED],
            reserved=phases[Phase.RESERVED],
            buffered=len(self.buffer.slots),
            notice=restored.notice,
            spares=len(self.pool),
            passed_over=restored.passed_over,
        )

    def _start_pumps(self) -> list[RunTask]:
        """Start the tasks of the run; the train pump, whose end is the run's, comes first."""
        self._saves.start(resumed=self._restored is not None)
        tasks = [
            self._supervisor.start(self.train_pump.run(), "train-pump"),
            self._supervisor.start(self.rollout_pump.run(), "rollout-pump"),
        ]
        watchdog = Watchdog(self._parts, self._describe, lambda: self._saves.in_progress)
        if watchdog.wanted:
            self._watchdog = self._supervisor.start(watchdog.run(), "watchdog")
            tasks.append(self._watchdog)
        if self._snapshots.wanted:
            tasks.append(self._supervisor.start(self._snapshots.run(), "snapshots"))
        return tasks

    async def _end(self, tasks: list[RunTask], error: BaseException | None) -> None:
        """Stop the pumps, see accepted rows committed, and save the end of a run that succeeded.

        The watchdog stays until nothing of the user's runs any more: what ignores its cancellation is reported.
        """
        self._saves.stop()
        train, *others = tasks or (None,)
        watchdogs = [task for task in others if task is self._watchdog]
        others = [task for task in others if task is not self._watchdog]
        for task in others:
            self._supervisor.cancel(task)
        await self._supervisor.wait_ended(*others)
        await self.generation.close()
        if train is not None:
            self._supervisor.cancel(train)
            await self._supervisor.wait_ended(train)
        for task in watchdogs:
            self._supervisor.cancel(task)
        await self._supervisor.wait_ended(*watchdogs)
        if error is None and self._supervisor.error is None:
            await self._saves.save_last()
        else:
            await self._saves.settle()

    async def _shut(self, error: BaseException | None) -> None:
        """Close the store, the threads and the barrier."""
        error = self._supervisor.error if error is None else error
        try:
            if self._checkpointer is not None:
                await self._checkpointer.close()
        finally:
            self._generate.close()
            self._train.close()
            self.barrier.close("the run is over" if error is None else f"the run failed: {error!r}")
            close_tracer = getattr(self.barrier.tracer, "close", None)
            if close_tracer is not None:
                # In a thread, because it waits for the disk.
                await asyncio.to_thread(close_tracer)

    def _describe(self) -> list[str]:
        return [self.rollout_pump.describe(), self.train_pump.describe(), self.generation.describe()]

    def _report(self) -> RunReport:
        accounts = self.ledger.accounts
        return RunReport(
            outcome=self.train_pump.outcome,
            steps=self.progress.version,
            trained=accounts.trained_count,
            dropped=dict(sorted(accounts.dropped_counts.items())),
            trained_now=self._parts.trained_now,
            restored=self._restored,
            saves=self._saves.published,
            windows=self.barrier.statistics().window,
            failures=tuple(self._parts.failures),
            recovery=self.config.recovery,
            snapshots=self._snapshots.taken,
            save_failures=tuple(self.save_failures.all),
        )
