"""What is saved after a restore, and what is restored when a trainer's file is damaged.

One task does everything, through `impl.steps`: a full save, and for each prompt a rollout snapshot after each of its
moves, its train step and a full save. Whatever a crash has left, the next process restores it and goes on alike.

`snapshots`: a snapshot belongs to the newest durable full save, also after a restore from another snapshot; one that
took the snapshot it was restored from for its anchor would look for a trainer where there is none.

`damaged`: with the crash the disk has changed a byte of the newest trainer's file. The checkpoints that need it are
passed over for the one before, and the run goes on from there; a restore that looked at no digest would take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from impl import steps
from impl.checkpoint.pending import PendingSave
from spec.machines.cut import CutScope

from .crash_images import Tree
from .lives import Life, Lives, run_with_crashes
from .scenario import Pinned
from .survivors import changed, checkpoints_in, content_in


class StepByStep(Life):
    """One process of a run without pumps: one thing after the other, with a save after each."""

    asking_for_snapshot = False

    async def main(self) -> None:
        """Restore, if there is something; then on to the end of the data."""
        controller = self.controller
        ledger, loader, sampler = controller.ledger, controller._parts.loader, controller._parts.sampler
        if await steps.resume(self.checkpointer, sampler, self.model) is None:
            await self.save()
        waiting = list(steps.pending(ledger))
        while controller.buffer.slots or waiting or not loader.exhausted:
            if not controller.buffer.slots:
                admission = waiting.pop(0) if waiting else await steps.reserve(ledger, loader)
                assert admission is not None
                await steps.admit(ledger, sampler, admission, self.scope.batch_size)
                await self.take_snapshot()
                for group in admission.groups:
                    await steps.dispatch(ledger, controller.buffer, group, controller.progress.version)
                    await steps.commit(ledger, controller.buffer, group, self.rows)
                await self.take_snapshot()
            await self.train_step()
            await self.save()
        await self.checkpointer.close()
        controller.barrier.close("the run is over")

    async def train_step(self) -> None:
        """Claim what is ready, and finish."""
        controller = self.controller
        buffer, parts = controller.buffer, controller._parts
        claim = await steps.claim(buffer, parts.sampler, controller.progress.version, parts.loader)
        assert claim is not None
        keys = [buffer.slots[group].key for group in claim.groups]
        self.model.steps.append([(key.epoch, key.index) for key in keys])
        async with controller.barrier.mutation("step_finishes") as cut:
            buffer.finish(cut, claim)
            controller.progress.step_passed(cut)

    async def save(self) -> None:
        """A full save that is durable before anything else happens."""
        await self.checkpointer.save(self.model)

    async def take_snapshot(self) -> None:
        """The same of a snapshot."""
        self.asking_for_snapshot = True
        pending = await self.checkpointer.begin_snapshot()
        self.asking_for_snapshot = False
        assert isinstance(pending, PendingSave)
        await pending.durable()

    def is_snapshot(self, opened: Mapping[str, Any]) -> bool:
        """Whoever asks says so; there is one task."""
        return self.asking_for_snapshot


class FewSnapshots(StepByStep):
    """The same with one snapshot for each prompt, and none in the second process."""

    async def take_snapshot(self) -> None:
        """Only of a prompt that is ready."""
        if self._point is None and self.controller.buffer.slots:
            await super().take_snapshot()


class DamagedLives(Lives):
    """The disk of a crash has changed a byte of the newest trainer's file. There is none before a second full save."""

    def survivors_now(self) -> Mapping[str, Tree]:
        """What a crash may leave now, with the damage; one image without it where there is none."""
        whole, images = super().survivors_now(), {}
        for name, tree in whole.items():
            full = [found for found in checkpoints_in(tree) if content_in(tree, trainer_file(found)) is not None]
            if len(full) > 1:
                images[f"{name}; {full[-1]} damaged"] = changed(tree, trainer_file(full[-1]), damage)
        return images or dict([*whole.items()][-1:])

    def restorable(self, tree: Tree) -> list[str]:
        """The checkpoints whose trainer is not damaged; that of a snapshot is its anchor's."""
        return [name for name in super().restorable(tree) if not self.needs_damaged(tree, name)]

    def needs_damaged(self, tree: Tree, name: str) -> bool:
        """Whether the trainer of a checkpoint is in a damaged file."""
        owner = self.points[name].outside.anchor if name in self.points else name
        content = content_in(tree, trainer_file(owner or name))
        return content is not None and content.endswith(DAMAGED_END)


def trainer_file(checkpoint: str) -> str:
    """Where the model of a full save lies."""
    return f"{checkpoint}/trainer/steps.json"


WHOLE, DAMAGED_END = b"\n", b" "


def damage(content: bytes) -> bytes:
    """One byte changed, after which it is the same JSON: nothing but a digest tells."""
    return content.removesuffix(WHOLE) + DAMAGED_END


SNAPSHOTS = run_with_crashes(
    "snapshots",
    "1 prompt, a snapshot after each of its moves; crashes anywhere, restores, and snapshots again",
    CutScope(batches=1, batch_size=1, lookahead=0, saves=6, crashes=2, snapshots=8),
    Pinned(states=4_800, schedules=104_221_887),
    generation_seconds=0.0,
    life_of=StepByStep,
    save_period=None,
)
DAMAGED = run_with_crashes(
    "damaged",
    "2 prompts, saved as they become ready and are trained; a crash anywhere damages the newest trainer's file",
    CutScope(batches=2, batch_size=1, lookahead=0, saves=6, crashes=1, snapshots=2),
    Pinned(states=3_163, schedules=217_446_896_289),
    generation_seconds=0.0,
    life_of=FewSnapshots,
    lives_of=DamagedLives,
    save_period=None,
)
