"""The rollout pump: takes batches from the loader and brings them, admission by admission, into generation.

    reserve_batch (slot) → pass_gate (waits, no slot) → commit_admission (slot)
        → for each prompt: buffer permit, in-flight permit (wait, no slot) → dispatch (slot) → its own task
    divert_batch (slot) whenever the spare pool is low; drain_pool (slot) at the end of the data

It is the only admitter. Whatever it waits for, the gate or a permit, is given by the trainer or by a generation that
ends, and both need slots; so it waits outside of them, and a sampler that cannot is the caller's risk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleancut_leaf.words import counted

from ..errors import UsageError
from ..loaders.protocol import checked_batch
from ..run.ledger import Admission
from ..run.pending_groups import LedgerEntry, Phase
from ..run.samplers import TransactionalSampler
from ..steps import commit_admission
from .generation import Generation
from .parts import RunParts
from .replacement import Replacement

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..keys import GroupId
    from ..loaders.prompt_loader import Batch


class RolloutPump:
    """One method an action; `run` is the loop over them."""

    def __init__(self, parts: RunParts, generation: Generation) -> None:
        self._parts = parts
        self._generation = generation
        self._replacement = Replacement(parts)
        # Prompts read with their batch and not dispatched yet; a restored group's is read again from the dataset.
        self._prompts: dict[GroupId, Any] = {}
        self._doing = "has not started"

    def describe(self) -> str:
        """What the pump is doing or waiting for, for a stall report."""
        return f"rollout pump: {self._doing}"

    async def run(self) -> None:
        """Dispatch restored work, then fresh batches until the loader is exhausted, then what is left of the pool.

        Admitted groups come first: they keep their stamp and pass no gate, and may be the only work that opens it.
        Each reserved admission passes the gate once.
        """
        await self.resume_pending()
        while True:
            if self._pool_is_low():
                if not await self.divert_batch():
                    break
                continue
            admission = await self.reserve_batch()
            if admission is None:
                break
            if admission.groups:
                await self.admit(admission)
        await self.use_up_pool()
        self._parts.fed = True
        self._doing = "finished: the loader is exhausted and everything was dispatched"
        self._parts.buffer.wake()

    async def resume_pending(self) -> None:
        """Dispatch what a restored ledger holds; does nothing in a run that starts afresh."""
        admitted, reserved = (self._parts.ledger.admissions(phase) for phase in (Phase.ADMITTED, Phase.RESERVED))
        for admission in admitted:
            for group in admission.groups:
                await self.dispatch(group)
        for admission in reserved:
            await self.admit(admission)

    async def admit(self, admission: Admission) -> None:
        """Bring one reserved admission through the gate and dispatch its groups."""
        if isinstance(self._parts.sampler, TransactionalSampler):
            await self.pass_gate(admission)
        await self.commit_admission(admission)
        for group in admission.groups:
            await self.dispatch(group)

    async def use_up_pool(self) -> None:
        """Train what is left in the spare pool, step by step, each once nothing generates that may need a spare."""
        parts = self._parts
        while parts.pool.next is not None:
            if self._something_generates():
                self._doing = f"keeps {counted(len(parts.pool), 'spare')} until nothing generates that may need one"
                await parts.buffer.wait_changed()
            elif (admission := await self.drain_pool()) is not None:
                await self.admit(admission)

    async def _prepare(self) -> None:
        """Let a loader that has to wait for its data do so, outside of any section."""
        prepare = getattr(self._parts.loader, "prepare", None)
        if prepare is not None:
            self._doing = "reads a batch of the data"
            await prepare()

    def _pool_is_low(self) -> bool:
        parts = self._parts
        return len(parts.pool) < parts.config.spares and parts.sampler.cursor >= 0

    def _something_generates(self) -> bool:
        return any(not slot.ready for slot in self._parts.buffer.slots.values())

    def _dropped_short(self, cut: Cut, batch: Batch) -> bool:
        """Drop a batch that is too short for a whole step, if that is configured; whether it was."""
        parts = self._parts
        if parts.config.remainder == "train" or len(batch.keys) >= parts.groups_per_step:
            return False
        parts.ledger.drop_batch(cut, batch.keys, "remainder")
        return True

    def _say_end_of_epoch(self, batch: Batch) -> None:
        if batch.ends_epoch:
            self._parts.barrier.emit("end_epoch", epoch=batch.keys[0].epoch)

    # -- actions --------------------------------------------------------------------------------------------------

    async def reserve_batch(self) -> Admission | None:
        """Move the loader by one batch and reserve its prompts, in one section; None at the end of the data.

        A short batch that is to be dropped gives an admission without groups.
        """
        parts = self._parts
        await self._prepare()
        self._doing = "reserves a batch"
        async with parts.barrier.mutation("prompt_reservations") as cut:
            batch = checked_batch(parts.loader.next_batch(cut), parts.groups_per_step)
            if batch is None:
                return None
            admission = Admission(-1, (), ())
            if not self._dropped_short(cut, batch):
                admission = parts.ledger.reserve(cut, batch.keys)
                self._prompts.update(zip(admission.groups, batch.prompts, strict=True))
            self._say_end_of_epoch(batch)
        return admission

    async def divert_batch(self) -> bool:
        """Move the loader by one batch and put it into the spare pool, in one section; False at the end of the data.

        It burns no stamp, and never happens before the first admission. A short batch that is to be dropped is dropped
        here too.
        """
        parts = self._parts
        if parts.sampler.cursor < 0:
            raise UsageError(
                "divert_batch: nothing was admitted yet, and the first batch of a run is for training. Admit one first."
            )
        await self._prepare()
        self._doing = "diverts a batch into the spare pool"
        async with parts.barrier.mutation("prompt_reservations") as cut:
            batch = checked_batch(parts.loader.next_batch(cut), parts.groups_per_step)
            if batch is None:
                return False
            if not self._dropped_short(cut, batch):
                parts.pool.divert(cut, batch)
            self._say_end_of_epoch(batch)
        return True

    async def drain_pool(self) -> Admission | None:
        """Reserve a whole step of spares, or drop those that fill none (`remainder`); None when nothing was reserved.

        At the end of the data only, and not while something generates that may still need a spare.
        """
        parts = self._parts
        if not parts.loader.exhausted:
            raise UsageError("drain_pool: the loader is not exhausted. Spares are for failures until the data is over.")
        async with parts.barrier.mutation("prompt_reservations") as cut:
            if parts.pool.next is None or self._something_generates():
                return None
            step = parts.pool.spares[: parts.groups_per_step]
            keys = [spare.key for spare in step]
            if len(step) < parts.groups_per_step:
                parts.ledger.drop_batch(cut, keys, "remainder", from_pool=True)
                parts.pool.take_many(cut, len(step))
                return None
            prompts = [self._replacement.prompt_of(spare) for spare in step]
            payloads = [spare.payload for spare in step]
            admission = parts.ledger.reserve(cut, keys, payloads, from_pool=True)
            parts.pool.take_many(cut, len(step))
            self._prompts.update(zip(admission.groups, prompts, strict=True))
        return admission

    async def pass_gate(self, admission: Admission) -> None:
        """Wait until one more admission may be committed. Changes nothing."""
        sampler = self._parts.sampler
        assert isinstance(sampler, TransactionalSampler)
        self._doing = (
            f"waits at the {sampler.name} gate with admission {admission.id} (dispatch cursor {sampler.cursor})"
        )
        await sampler.wait_until_admissible()
        self._parts.barrier.emit("pass_gate", admission=admission.id)

    async def commit_admission(self, admission: Admission) -> None:
        """Stamp the admission and turn it from RESERVED to ADMITTED; a short one credits its step.

        A sampler without the split waits for its gate here, inside the slot.
        """
        parts = self._parts
        self._doing = f"commits admission {admission.id}"
        async with parts.barrier.mutation("admissions") as cut:
            await commit_admission(cut, parts.ledger, parts.sampler, admission, parts.groups_per_step)

    async def dispatch(self, group: GroupId) -> None:
        """Take both permits, then a slot of the buffer, then start the generation, outside the section."""
        parts = self._parts
        entry = parts.ledger.entries[group]
        self._doing = f"waits for a buffer permit for group {group}"
        permit = await parts.buffer.acquire_permit()
        try:
            self._doing = f"waits for an in-flight permit for group {group}"
            in_flight = await self._generation.in_flight.acquire()
            try:
                self._doing = f"dispatches group {group}"
                prompt = self._take_prompt(entry)
                async with parts.barrier.mutation("dispatches") as cut:
                    parts.buffer.reserve(cut, group, entry.key, entry.step, parts.progress.version, permit)
                self._generation.start(group, prompt, in_flight)
            except BaseException:
                in_flight.give_back()
                raise
        finally:
            parts.buffer.give_back(permit)

    def _take_prompt(self, entry: LedgerEntry) -> Any:
        """The prompt of a group: as read with its batch, else its stored payload, else its row of the dataset."""
        if entry.group in self._prompts:
            return self._prompts.pop(entry.group)
        if entry.payload is not None:
            return entry.payload
        return self._parts.loader.payload(entry.key)
