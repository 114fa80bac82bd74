"""What a controller of your own does with a prompt, each with what it waits for outside of any slot.

    resume     the newest checkpoint, if there is one; what it left to do is `pending`
    reserve    slot: the loader's cursor and one batch, RESERVED
    admit      gate (waits for the trainer) → slot: stamp, RESERVED → ADMITTED
    dispatch   buffer permit (waits for the trainer) → slot: an unready buffer slot
    commit     staging of the rows (may take its time) → slot: rows visible → ledger entry dropped
    claim      a whole step (waits for generations) → slot: the groups are the trainer's

The trainer's save waits for the slots; whoever waited for the trainer inside of one would never return. So each refuses
to be called inside a section, and a call that is cancelled has taken nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ledger import Phase
from .samplers import TransactionalSampler

if TYPE_CHECKING:
    from .barrier import Cut
    from .buffer import ReplayBuffer
    from .checkpointer import Checkpointer, Restored
    from .keys import GroupId
    from .ledger import Admission, Ledger, LedgerEntry
    from .loader_protocol import Loader
    from .plane import Rows
    from .samplers import Sampler
    from .slots import Claim


async def resume(checkpointer: Checkpointer, sampler: Sampler) -> Restored | None:
    """Bring the attached parts back to the newest valid checkpoint; None, and nothing changed, where there is none."""
    if checkpointer.latest() is None:
        return None
    restored = await checkpointer.restore()
    sampler.advance(restored.version)
    return restored


def pending(ledger: Ledger) -> tuple[Admission, ...]:
    """What a restore left to do, in order: admitted work first, since it may be all that opens the gate."""
    return (*ledger.admissions(Phase.ADMITTED), *ledger.admissions(Phase.RESERVED))


async def reserve(ledger: Ledger, loader: Loader) -> Admission | None:
    """Move the loader by one batch and reserve its prompts, in one slot; None at the end of the data."""
    prepare = getattr(loader, "prepare", None)
    if prepare is not None:
        ledger.barrier.require_outside()
        await prepare()
    async with ledger.barrier.mutation("prompt_reservations") as cut:
        batch = loader.next_batch(cut)
        return None if batch is None else ledger.reserve(cut, batch.keys)


async def admit(ledger: Ledger, sampler: Sampler, admission: Admission, groups_per_step: int) -> None:
    """Bring a reserved admission through the gate; does nothing for one that is admitted, as a restore brings them.

    An admission of fewer than `groups_per_step` groups makes its step smaller.
    """
    ledger.barrier.require_outside()
    if all(ledger.entries[group].phase is Phase.ADMITTED for group in admission.groups):
        return
    if isinstance(sampler, TransactionalSampler):
        await sampler.wait_until_admissible()
        ledger.barrier.emit("pass_gate", admission=admission.id)
    async with ledger.barrier.mutation("admissions") as cut:
        await commit_admission(cut, ledger, sampler, admission, groups_per_step)


async def commit_admission(
    cut: Cut, ledger: Ledger, sampler: Sampler, admission: Admission, groups_per_step: int
) -> None:
    """The part of `admit` inside the slot. A sampler without the split waits for its gate here."""
    before = sampler.cursor
    if isinstance(sampler, TransactionalSampler):
        step = sampler.commit_admission(cut)
    else:
        step = await sampler.admit(cut)
    ledger.admit(cut, admission, step)
    missing = groups_per_step - len(admission.groups)
    if step is not None:
        sampler.credit(step, missing)
    elif sampler.cursor != before:
        # The gate counts whole steps by the cursor; without this a short batch in the middle of several epochs would
        # shut it for ever.
        for _ in range(missing):
            sampler.record_drop()


async def dispatch(ledger: Ledger, buffer: ReplayBuffer, group: GroupId, version: int) -> LedgerEntry:
    """Take a permit, then a buffer slot for an admitted group, whose weights are those of `version`; its entry."""
    ledger.barrier.require_outside()
    permit = await buffer.acquire_permit()
    try:
        async with ledger.barrier.mutation("dispatches") as cut:
            entry = ledger.entries[group]
            buffer.reserve(cut, group, entry.key, entry.step, version, permit)
        return entry
    finally:
        buffer.give_back(permit)  # no-op once the slot owns it


async def commit(ledger: Ledger, buffer: ReplayBuffer, group: GroupId, rows: Rows, ready: Any = None) -> None:
    """Make the rows of a dispatched group visible and the group the buffer's; `ready` as in `ReplayBuffer.commit`."""
    ledger.barrier.require_outside()
    staged = await buffer.plane.stage(group, rows)
    async with ledger.barrier.mutation("group_commits") as cut:
        buffer.commit(cut, group, staged, ready)
    ledger.remove_committed(group)
    buffer.wake()


async def claim(buffer: ReplayBuffer, sampler: Sampler, version: int) -> Claim:
    """Wait until a whole step for `version` is ready, and take it.

    A step whose groups were all given up never is: pass it without, as `Controller` does (`sampler.target` is 0).
    """
    buffer.barrier.require_outside()
    while True:
        if sampler.select(buffer.slots, version, sampler.target(version)):
            async with buffer.barrier.mutation("step_claims") as cut:
                # Others may have changed the buffer while the slot was waited for.
                if chosen := sampler.select(buffer.slots, version, sampler.target(version)):
                    return buffer.claim(cut, chosen, version)
        else:
            await buffer.wait_changed()
