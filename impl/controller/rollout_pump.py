"""The rollout pump: takes batches from the loader and brings them, admission by admission, into generation.

    reserve_batch (slot) → pass_gate (waits, no slot) → commit_admission (slot)
        → for each prompt: buffer permit, in-flight permit (wait, no slot) → dispatch (slot) → its own task

It is the only admitter. Whatever it waits for, the gate or a permit, is given by the trainer or by a generation that
ends, and both need slots; so it waits outside of them, and a sampler that cannot is the caller's risk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ledger import Admission, LedgerEntry, Phase
from ..loader_protocol import checked_batch
from ..samplers import TransactionalSampler
from .generation import Generation
from .parts import RunParts

if TYPE_CHECKING:
    from ..keys import GroupId


class RolloutPump:
    """One method an action; `run` is the loop over them."""

    def __init__(self, parts: RunParts, generation: Generation) -> None:
        self._parts = parts
        self._generation = generation
        # Prompts read with their batch and not dispatched yet; a restored group's is read again from the dataset.
        self._prompts: dict[GroupId, Any] = {}
        self._doing = "has not started"

    def describe(self) -> str:
        """What the pump is doing or waiting for, for a stall report."""
        return f"rollout pump: {self._doing}"

    async def run(self) -> None:
        """Dispatch restored work, then fresh batches until the loader is exhausted.

        Admitted groups come first: they keep their stamp and pass no gate, and may be the only work that opens it.
        Each reserved admission passes the gate once.
        """
        await self.resume_pending()
        while (admission := await self.reserve_batch()) is not None:
            if admission.groups:
                await self.admit(admission)
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

    # -- actions --------------------------------------------------------------------------------------------------

    async def reserve_batch(self) -> Admission | None:
        """Move the loader by one batch and reserve its prompts, in one section; None at the end of the data.

        A short batch that is to be dropped gives an admission without groups.
        """
        parts = self._parts
        if (prepare := getattr(parts.loader, "prepare", None)) is not None:
            self._doing = "reads a batch of the data"
            await prepare()
        self._doing = "reserves a batch"
        async with parts.barrier.mutation("prompt_reservations") as cut:
            batch = checked_batch(parts.loader.next_batch(cut), parts.groups_per_step)
            if batch is None:
                return None
            admission = parts.ledger.reserve(cut, batch.keys)
            short = len(batch.keys) < parts.groups_per_step
            if short and parts.sampler.stamped and parts.config.remainder == "drop":
                for group in admission.groups:
                    parts.ledger.drop(cut, group, "remainder")
                admission = Admission(admission.id, (), ())
            else:
                self._prompts.update(zip(admission.groups, batch.prompts, strict=True))
            if batch.ends_epoch:
                parts.barrier.emit("end_epoch", epoch=batch.keys[0].epoch)
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
        sampler = parts.sampler
        self._doing = f"commits admission {admission.id}"
        async with parts.barrier.mutation("admissions") as cut:
            if isinstance(sampler, TransactionalSampler):
                step = sampler.commit_admission(cut)
            else:
                step = await sampler.admit(cut)
            parts.ledger.admit(cut, admission, step)
            if step is not None:
                sampler.credit(step, parts.groups_per_step - len(admission.groups))

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
