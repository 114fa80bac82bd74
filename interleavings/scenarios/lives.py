"""A whole run that crashes: one process after the other on what the one before has left, each followed by the machine.

A process that finds a checkpoint restores it: until then it is as empty as at a start, and with the `restore` event the
machine goes on where `crash_and_restore` leads from the publication of that very checkpoint. One that finds none begins
the run anew. Checked beside what a whole run checks: a checkpoint whose publication was told is there after the crash;
the trainer that is restored has done as many steps as the run counts, and seen those prompts that the accounts say; at
the end every prompt was trained once by it, or dropped.
"""

from __future__ import annotations

import asyncio
import marshal
from collections.abc import Coroutine, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cleancut_leaf.words import counted
from impl.errors import UsageError
from impl.store import names
from spec.machines.cut import CutScope
from spec.machines.cut import cut as machine
from spec.machines.cut.state import FULL

from ..correspondence.follower import Coverage, Follower, Remembered, Resumed
from ..correspondence.refinement import Prompts, Saves, cut_model, follow_cut, restored_state
from ..correspondence.refinement.images import OutsideOfTheMachine
from ..errors import Violation
from ..runtime.subject import Subject
from ..state.walkers import register_walker
from .crash_images import Tree
from .fake_disk import FakeDisk
from .readings import register_barrier, register_disk, register_tensors
from .scenario import Pinned, Scenario
from .survivors import Survivors, checkpoints_in
from .whole_run import CLAIMS, DIRECTORY, WholeRun

if TYPE_CHECKING:
    from impl.store.directory import DirectoryReader, DirectoryWriter

EMPTY: Tree = ((DIRECTORY.strip("/"), ()),)
OF_LIVES = (*CLAIMS, "acknowledged_is_durable", "trained_matches_trainer", "trained_once")


class Model:
    """The state of a trainer: which prompts it has seen, step by step."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, int]]] = []

    async def stage(self) -> list[list[tuple[int, int]]]:
        """A copy."""
        return list(self.steps)

    def persist(self, staged: list[list[tuple[int, int]]], writer: DirectoryWriter) -> None:
        """One file."""
        writer.write_json("steps.json", [[[epoch, index] for epoch, index in step] for step in staged])

    def load(self, reader: DirectoryReader) -> None:
        """What was saved takes the place of what is there."""
        steps: Any = reader.read_json("steps.json")
        self.steps = [[(epoch, index) for epoch, index in step] for step in steps]

    def seen(self) -> list[tuple[int, int]]:
        """Every prompt it was trained on, sorted."""
        return sorted(key for step in self.steps for key in step)


@dataclass(frozen=True)
class Point:
    """The machine where it publishes one checkpoint, and the numbers that the prompts have in that."""

    state: Any
    numbers: Prompts
    outside: OutsideOfTheMachine
    reasons: Mapping[int | tuple[int, int], str]

    def content(self) -> tuple[Any, ...]:
        """What a state of the explorer holds of it: of the machine the values alone.

        Which vectors two states of the machine share depends on what a process has worked out before.
        """
        values = [tuple(value) if isinstance(value, tuple) else value for value in self.state]
        return (marshal.dumps(values, 2), self.numbers, self.outside, self.reasons)


class Life(WholeRun):
    """One process of a run."""

    def __init__(
        self, lives: Lives, disk: FakeDisk, point: Point | None, model: Remembered, coverage: Coverage, **config: Any
    ) -> None:
        self._lives = lives
        self._given = disk
        self._point = point
        self._after_crash: Resumed | None = None
        if point is not None:
            action = "crash_and_restore" if config.get("load_buffer", True) else "crash_and_restore_replay_free"
            self._after_crash = Resumed(action, restored_state(model, point.state, action))
        # Until the restore is over, its section means nothing to the machine.
        self.saves = Saves(restore=point is not None, resumed=self._after_crash)
        self.model = Model()
        self.restored = False
        self.snapshot: asyncio.Task[None] | None = None
        super().__init__(lives.scope, model, coverage, frozenset(), False, **config)
        if point is not None:
            self.outside, self.reasons = point.outside, dict(point.reasons)

    def follow(self, model: Remembered, coverage: Coverage) -> Follower:
        """From the start; a restore leads the machine to where it goes on."""
        return follow_cut(model, self.scope, lambda: self.controller, self.prompts, coverage, saves=self.saves)

    def numbers(self) -> Prompts:
        """Those of the checkpoint that is there."""
        return self._point.numbers.copy() if self._point is not None else Prompts()

    def disk_to_write(self) -> FakeDisk:
        """What is left."""
        return self._given

    def trainer(self) -> Model:
        """The model."""
        return self.model

    async def main(self) -> None:
        """The run, and the snapshot that its last train step has asked for."""
        await self.controller.run()
        if self.snapshot is not None:
            await self.snapshot

    async def generate(self, request: Any) -> Mapping[str, Any]:
        """One group, after a while in which a deadline may pass."""
        if self._lives.generation_seconds:
            await asyncio.sleep(self._lives.generation_seconds)
        return await super().generate(request)

    async def train(self, batch: Any) -> None:
        """Columns are written back if the scope has them; a snapshot is asked for beside the step if it has one."""
        if self._lives.snapshots_left:
            self._lives.snapshots_left -= 1
            self.snapshot = asyncio.create_task(self.take_snapshot(), name="snapshot")
        if self.scope.write_back:
            await asyncio.sleep(0)
            for group in batch:
                await batch.write_back(group.group, self.rows)
        self.model.steps.append([(group.key[0], group.key[1]) for group in batch])

    async def take_snapshot(self) -> None:
        """At any moment of the step and after it; a checkpointer that is closed by then takes none."""
        try:
            await self.checkpointer.begin_snapshot()
        except UsageError:
            if not self.checkpointer._closed:
                raise

    def trace(self, action: str, /, **fields: Any) -> None:
        """What the events do not say of a section: that it is the snapshot's, or the restore's."""
        if action == "open_cut":
            self.saves.snapshot = self.is_snapshot(fields)
        elif action == "restore":
            self.restored = True
        elif action == "publish":
            self._lives.acknowledged = max(self._lives.acknowledged, fields["sequence"])
        super().trace(action, **fields)

    def is_snapshot(self, opened: Mapping[str, Any]) -> bool:
        """Whether the window that was opened is a snapshot's: its task says so."""
        return bool(opened["task"] == "snapshot")

    def on_action(self, action: str, before: Any) -> None:
        """Keep where the machine publishes each checkpoint: a crash leads there from it."""
        super().on_action(action, before)
        if action == "publish" and self._lives.crashes_left:
            assert self.checkpointer._background is not None
            name = self.checkpointer._background.get_name().removeprefix("publish-")
            outside = OutsideOfTheMachine(name if before.kind == FULL else self.outside.anchor, parent=name)
            self._lives.points[name] = Point(before, self.prompts.copy(), outside, self.saved_reasons)

    def observe(self) -> Any:
        """Follow the step; after a restore, compare the trainer with the run."""
        state = super().observe()
        if self.restored:
            self.restored, self.saves.restore = False, False
            self.check_trainer("was restored")
        return state

    def check_trainer(self, what: str) -> None:
        """The trainer has done what the run counts, no more and no less."""
        controller = self.controller
        accounts = controller.ledger.accounts
        if len(self.model.steps) != controller.progress.version:
            raise Violation(
                "trained_matches_trainer",
                f"the run {what} at version {controller.progress.version}, and its trainer has done "
                f"{counted(len(self.model.steps), 'step')}",
            )
        settled = sorted((span.epoch, index) for span in accounts.trained for index in range(span.first, span.last + 1))
        if self.model.seen() != settled:
            raise Violation(
                "trained_once",
                f"the run {what}, and its accounts say trained: {settled}, where the trainer has seen "
                f"{self.model.seen()}",
            )

    def finish(self) -> str | None:
        """All that was handed out is trained or dropped, and the trainer has seen what is trained, once."""
        self.check_trainer("ended")
        accounts = self.controller.ledger.accounts
        settled = accounts.trained_count + len(accounts.dropped)
        if settled != self.scope.prompts_in_all:
            return f"{self.scope.prompts_in_all} prompts were handed out, {settled} are trained or dropped"
        return super().finish()


class Lives:
    """The run over all its crashes; what of it survives them stands here, and nowhere in a `Life`."""

    def __init__(
        self,
        scope: CutScope,
        model: Remembered,
        coverage: Coverage,
        generation_seconds: float,
        life_of: type[Life],
        config: Mapping[str, Any],
    ) -> None:
        self.scope = scope
        self._life_of = life_of
        self.generation_seconds = generation_seconds
        # For the first process alone, so that the ones after it stay small.
        self.snapshots_left = scope.snapshots
        self.crashes_left = scope.crashes
        self.acknowledged = 0
        self.points: dict[str, Point] = {}
        self._model = model
        self._coverage = coverage
        self._config = dict(config)
        self._begin(EMPTY)

    def _begin(self, tree: Tree) -> None:
        """Start a process on what is left."""
        self.survivors = Survivors(tree)
        disk = self.survivors.disk
        found = checkpoints_in(tree)
        self.points = {name: self.points[name] for name in found if name in self.points}
        if found and found[-1] not in self.points:
            raise Violation("image_equals_cut", f"after the crash there is {found[-1]}, which no window has read")
        point = self.points[self.restorable(tree)[-1]] if found else None
        if not self.crashes_left:
            # Nobody will ask again; where the machine was is history.
            disk.after_call = None
            self.points = {}
        self.life = self._life_of(self, disk, point, self._model, self._coverage, **self._config)

    def restorable(self, tree: Tree) -> list[str]:
        """The checkpoints that the next process can restore, which takes the last."""
        return checkpoints_in(tree)

    def subject(self) -> Subject:
        """The program."""
        return Subject(
            self.life.main(),
            observe=self.observe,
            finish=lambda: self.life.finish(),
            durable=self.survivors_now,
            recover=self.recover,
        )

    def observe(self) -> Hashable:
        """Follow the process that lives."""
        self.survivors.step_ended()
        answer: Hashable = self.life.observe()
        return answer

    def survivors_now(self) -> Mapping[str, Tree]:
        """What a crash may leave now."""
        return self.survivors.images()

    def recover(self, image: Tree) -> Coroutine[Any, Any, None]:
        """The next process; what it was told is durable has to be there."""
        self.crashes_left -= 1
        self.snapshots_left = 0
        there = [numbers[1] for name in checkpoints_in(image) if (numbers := names.parse_checkpoint_name(name))]
        newest = max(there, default=0)
        if newest < self.acknowledged:
            raise Violation(
                "acknowledged_is_durable",
                f"save {self.acknowledged} had been published, and after the crash the newest is {newest}",
            )
        self._begin(image)
        return self.life.main()


def run_with_crashes(
    name: str,
    sentence: str,
    scope: CutScope,
    pinned: Pinned | None,
    *,
    generation_seconds: float,
    quick: bool = False,
    life_of: type[Life] = Life,
    lives_of: type[Lives] | None = None,
    **config: Any,
) -> Scenario:
    """A scenario of a whole run that may crash as often as its scope says, the trainer's state being saved with it."""
    model = cut_model(scope)

    def program_of(coverage: Coverage) -> Subject:
        register_barrier()
        register_tensors()
        register_disk()
        register_walker(Point, Point.content)
        register_walker(Survivors, lambda survivors: (survivors.disk, survivors.identity()))
        return (lives_of or Lives)(scope, model, coverage, generation_seconds, life_of, config).subject()

    def with_crashes(crashes: int) -> Scenario:
        if crashes == scope.crashes:
            return scenario
        # A process that finds the last save of all saves once more.
        saves = max(1, scope.saves + crashes - scope.crashes)
        other = replace(scope, crashes=crashes, saves=saves)
        options = {
            **config,
            "generation_seconds": generation_seconds,
            "quick": quick,
            "life_of": life_of,
            "lives_of": lives_of,
        }
        made = run_with_crashes(name, sentence, other, None, **options)
        return replace(made, name=f"{name}_with_{crashes}_crashes")

    scenario = Scenario(
        name=name,
        sentence=sentence,
        machine=machine,
        scope=scope,
        cancels=0,
        program_of=program_of,
        claims=OF_LIVES,
        pinned=pinned,
        quick=quick,
        crashes=scope.crashes,
        with_crashes=with_crashes,
    )
    return scenario
