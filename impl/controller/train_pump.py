"""The train pump: waits for a whole step, claims it, trains it, and saves between steps.

    wait (event-driven) → claim (slot) → train (user) → finish_step (slot) → give up stale groups (slot) → save if due

Full saves are taken here and only here, when no claim is open: the trainer's state and the groups it has consumed then
belong to one instant. A step whose groups have all failed passes empty, so that the ones behind it are reached.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cleancut_leaf.words import counted

from ..errors import InvariantViolated
from ..rows.plane import Rows
from ..run.slots import Claim
from ..steps import evict_stale, is_empty, select_step
from .callables import UserFunction
from .generation import Generation
from .parts import RunParts
from .report import Outcome
from .saves import SaveSchedule
from .supervisor import Supervisor
from .train_batch import TrainBatch

if TYPE_CHECKING:
    from ..keys import GroupId


class TrainPump:
    """One method an action; `run` is the loop over them."""

    def __init__(
        self,
        parts: RunParts,
        train: UserFunction,
        saves: SaveSchedule,
        generation: Generation,
        supervisor: Supervisor,
    ) -> None:
        self._parts = parts
        self._train = train
        self._saves = saves
        self._generation = generation
        self._supervisor = supervisor
        self._doing = "has not started"
        self.outcome: Outcome = "exhausted"

    def describe(self) -> str:
        """What the pump is doing or waiting for, for a stall report."""
        if self._doing:
            return f"train pump: {self._doing}"
        parts = self._parts
        version = parts.progress.version
        slots = parts.buffer.slots.values()
        mine = [slot for slot in slots if not parts.sampler.stamped or slot.step == version]
        return (
            f"train pump: waits for step {version}, which needs {counted(parts.sampler.target(version), 'group')}; "
            f"ready {[slot.group for slot in mine if slot.ready]}, "
            f"generating {[slot.group for slot in mine if not slot.ready]}, "
            f"in the ledger {len(parts.ledger.entries)}"
        )

    async def run(self) -> None:
        """Train until the data is exhausted or `max_steps` are done; `outcome` says which."""
        parts = self._parts
        await self.give_up_stale()
        while True:
            await self._saves.save_if_due()
            if parts.config.max_steps is not None and parts.progress.version >= parts.config.max_steps:
                self.outcome = "steps_reached"
                break
            if self._selection():
                claim = await self.claim()
                if claim is not None:
                    await self.train(claim)
                    await self.finish_step(claim)
                    if self._supervisor.told_to_end():
                        # `train` has swallowed it: the step counts, since the model has seen it, and is the last.
                        raise asyncio.CancelledError("train swallowed its cancellation")
                    await self.give_up_stale()
            elif self._step_is_empty():
                await self.empty_step()
            elif self._any_stale():
                # One that was in flight when its time was over, and has come since: what is counted for it keeps the
                # gate shut, and without a step nobody else gives it up.
                await self.give_up_stale()
            elif self._exhausted():
                break
            else:
                self._doing = ""
                await parts.buffer.wait_changed()
        self._doing = f"finished: {self.outcome}"

    # -- what to do next; looks only ------------------------------------------------------------------------------

    def _selection(self) -> tuple[GroupId, ...]:
        """The groups of the next step, or () while there are not enough."""
        parts = self._parts
        return select_step(parts.buffer, parts.sampler, parts.progress.version, parts.fed)

    def _nothing_coming(self) -> bool:
        return self._parts.fed and all(slot.ready for slot in self._parts.buffer.slots.values())

    def _step_is_empty(self) -> bool:
        return is_empty(self._parts.sampler, self._parts.progress.version)

    def _any_stale(self) -> bool:
        return bool(self._parts.sampler.stale(self._parts.buffer.slots, self._parts.progress.version))

    def _exhausted(self) -> bool:
        """Whether nothing is left to train; raises if groups are missing from a step that was admitted."""
        parts = self._parts
        if not self._nothing_coming() or parts.ledger.entries:
            return False
        version = parts.progress.version
        if parts.sampler.stamped and parts.sampler.cursor >= version:
            raise InvariantViolated(
                f"step {version} was admitted and needs {counted(parts.sampler.target(version), 'group')}, of which "
                f"{counted(len(parts.occupants(version)), 'exists', 'exist')}, and none is coming. Groups were lost "
                "without a shortfall being credited; restore an earlier checkpoint and report this."
            )
        return True

    # -- actions --------------------------------------------------------------------------------------------------

    async def claim(self) -> Claim | None:
        """Take the next step's groups; None if the choice did not hold until the slot was entered."""
        parts = self._parts
        self._doing = f"claims step {parts.progress.version}"
        async with parts.barrier.mutation("step_claims") as cut:
            chosen = self._selection()
            return parts.buffer.claim(cut, chosen, parts.progress.version) if chosen else None

    async def train(self, claim: Claim) -> None:
        """Give the claimed groups to the user's `train`; an error of it ends the run, and the groups stay untrained."""
        parts = self._parts
        self._doing = f"trains step {claim.step} with {counted(len(claim.groups), 'group')}"

        async def write_back(group: GroupId, columns: Rows) -> None:
            async with parts.barrier.mutation("advantage_writeback") as cut:
                parts.buffer.write_back(cut, claim, group, columns)

        slots = {group: parts.buffer.slots[group] for group in claim.groups}
        await self._train(TrainBatch.of(claim, slots, write_back))

    async def finish_step(self, claim: Claim) -> None:
        """Groups trained, rows cleared, permits back, version + 1, gate open: one section."""
        parts = self._parts
        self._doing = f"finishes step {claim.step}"
        async with parts.barrier.mutation("step_finishes") as cut:
            parts.buffer.finish(cut, claim)
            parts.progress.step_passed(cut)
            parts.trained_now += len(claim.groups)

    async def empty_step(self) -> None:
        """Pass a step whose groups have all failed: version + 1, nothing trained."""
        parts = self._parts
        self._doing = f"passes the empty step {parts.progress.version}"
        async with parts.barrier.mutation("step_finishes") as cut:
            if self._step_is_empty():
                parts.barrier.emit("empty_step", step=parts.progress.version)
                parts.progress.step_passed(cut)

    async def give_up_stale(self) -> None:
        """Evict ready groups that are too old, abort those in flight; looks again inside the section."""
        parts = self._parts
        parts.barrier.require_outside()
        if not self._any_stale():
            return
        self._doing = "gives up stale groups"
        async with parts.barrier.mutation("evictions") as cut:
            aborted = evict_stale(cut, parts.buffer, parts.sampler, parts.progress.version)
            for group in aborted:
                parts.progress.forget_failures(cut, group)
        for group in aborted:
            self._generation.abort(group)
