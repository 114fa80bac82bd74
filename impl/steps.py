"""What a controller of your own does with a prompt, each with what it waits for outside of any slot.

    resume     the newest checkpoint, if there is one; what it left to do is `pending`
    reserve    slot: the loader's cursor and one batch, RESERVED
    admit      gate (waits for the trainer) → slot: stamp, RESERVED → ADMITTED
    dispatch   buffer permit (waits for the trainer) → slot: an unready buffer slot
    commit     staging of the rows (may take its time) → slot: rows visible → ledger entry dropped
    fail_attempt, retry    slot: a failed attempt is counted, for good; slot: it is made again
    give_up    slot: buffer slot, permit, ledger entry and the target of the step, together
    claim      a whole step (waits for generations) → slot: the groups are the trainer's
    finish     slot: groups trained, version + 1, gate open

The trainer's save waits for the slots; whoever waited for the trainer inside of one would never return. So each refuses
to be called inside a section, and a call that is cancelled has taken nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arguments import require_text
from .errors import UsageError
from .run.pending_groups import Phase
from .run.samplers import TransactionalSampler

if TYPE_CHECKING:
    from .barrier import Cut
    from .checkpoint.checkpointer import Checkpointer
    from .checkpoint.participants import HeldCounters
    from .checkpoint.restoring import Restored
    from .keys import GroupId
    from .loaders.protocol import Loader
    from .rows.plane import Rows
    from .run.buffer import ReplayBuffer
    from .run.ledger import Admission, Ledger
    from .run.pending_groups import LedgerEntry
    from .run.samplers import Sampler
    from .run.slots import Claim
    from .trainer.trainer_state import TrainerState


async def resume(checkpointer: Checkpointer, sampler: Sampler, trainer: TrainerState | None = None) -> Restored | None:
    """Bring the attached parts back to the newest valid checkpoint; None, and nothing changed, where there is none.

    A checkpoint that holds the trainer's state wants the `trainer` to load it into: the version of a trainer with other
    weights would be a lie. Whoever loads it by other means calls `checkpointer.restore()` and reads
    `Restored.trainer`.
    """
    if checkpointer.latest() is None:
        return None
    restored = await checkpointer.restore(trainer=trainer, trainer_by_hand=False)
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


async def admit(ledger: Ledger, sampler: Sampler, admission: Admission, groups_per_step: int | None = None) -> None:
    """Bring a reserved admission through the gate; does nothing for one that is admitted, as a restore brings them.

    An admission of fewer than `groups_per_step` groups makes its step smaller; without it the sampler is asked, which
    `Checkpointer.attach` has told the loader's batch size.
    """
    ledger.barrier.require_outside()
    if all(ledger.entries[group].phase is Phase.ADMITTED for group in admission.groups):
        return
    if isinstance(sampler, TransactionalSampler):
        await sampler.wait_until_admissible()
        ledger.barrier.emit("pass_gate", admission=admission.id)
    async with ledger.barrier.mutation("admissions") as cut:
        whole = _whole_step(sampler) if groups_per_step is None else groups_per_step
        await commit_admission(cut, ledger, sampler, admission, whole)


def _whole_step(sampler: Sampler) -> int:
    size = getattr(sampler, "groups_per_step", None)
    if type(size) is not int:
        raise UsageError(
            f"groups_per_step: none was given, and a {type(sampler).__name__} does not say how many groups make one. "
            "Give it to admit()."
        )
    return size


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


async def commit(ledger: Ledger, buffer: ReplayBuffer, group: GroupId, rows: Rows, ready: Any = None) -> bool:
    """Make the rows of a dispatched group visible and the group the buffer's; `ready` as in `ReplayBuffer.commit`.

    False, and nothing is changed, for a group that was given up meanwhile.
    """
    ledger.barrier.require_outside()
    staged = await buffer.plane.stage(group, rows)
    async with ledger.barrier.mutation("group_commits") as cut:
        if group not in buffer.slots and group not in ledger.entries:
            return False
        buffer.commit(cut, group, staged, ready)
    ledger.remove_committed(group)
    buffer.wake()
    return True


async def fail_attempt(ledger: Ledger, group: GroupId, cause: str = "transient") -> int:
    """Count a failed attempt of a dispatched group; how many there were, those before a restart included."""
    async with ledger.barrier.mutation("retries") as cut:
        return ledger.fail_attempt(cut, group, cause).attempt


async def retry(ledger: Ledger, group: GroupId) -> None:
    """Say that a group whose attempt has failed is attempted again, however long after."""
    async with ledger.barrier.mutation("retries"):
        ledger.barrier.emit("retry", group=group)


async def give_up(
    ledger: Ledger, buffer: ReplayBuffer, sampler: Sampler, group: GroupId, reason: str = "failed"
) -> None:
    """Drop a dispatched group whose last attempt has failed: slot and permit are free, its step is one smaller."""
    async with ledger.barrier.mutation("retries") as cut:
        shrink(cut, ledger, buffer, sampler, group, reason)


def shrink(
    cut: Cut, ledger: Ledger, buffer: ReplayBuffer, sampler: Sampler, group: GroupId, reason: str = "failed"
) -> None:
    """The part of `give_up` inside the slot. A refusal changes nothing."""
    require_text("reason", reason, "failed")
    if group in ledger.entries:  # else `drop` refuses, and the slot stays
        buffer.release_unready(cut, group)
    step = ledger.drop(cut, group, reason).step
    if sampler.stamped and step is not None:
        sampler.credit(step, 1)
    else:
        sampler.record_drop()
    ledger.barrier.emit("shrink", group=group, step=step)
    buffer.wake()


async def claim(buffer: ReplayBuffer, sampler: Sampler, version: int, loader: Loader) -> Claim | None:
    """Wait until a whole step for `version` is ready, and take it; None for one whose groups were all given up.

    That one is passed with nothing trained: `finish` it all the same. At the end of the data a sampler without stamps
    takes what there is. None also once nothing is left. What comes when its time is over is given up meanwhile.
    """
    buffer.barrier.require_outside()

    def fed() -> bool:
        return loader.exhausted and (buffer.ledger is None or buffer.ledger.entries.keys() <= buffer.slots.keys())

    def selection() -> tuple[GroupId, ...]:
        return select_step(buffer, sampler, version, fed())

    while not is_empty(sampler, version):
        if selection():
            async with buffer.barrier.mutation("step_claims") as cut:
                # Others may have changed the buffer while the slot was waited for.
                if chosen := selection():
                    return buffer.claim(cut, chosen, version)
        elif sampler.stale(buffer.slots, version):
            await give_up_stale(buffer, sampler, version)
        elif fed() and not buffer.slots:
            break
        else:
            await buffer.wait_changed()
    return None


def select_step(buffer: ReplayBuffer, sampler: Sampler, version: int, fed: bool) -> tuple[GroupId, ...]:
    """The groups of the next step, or () while there are not enough. `fed`: everything was dispatched.

    Then, once nothing generates, the last step of an unstamped sampler is as many as there are.
    """
    target = sampler.target(version)
    chosen = sampler.select(buffer.slots, version, target)
    if sampler.stamped or not fed or not all(slot.ready for slot in buffer.slots.values()):
        return chosen
    while not chosen and target > 1:
        target -= 1
        chosen = sampler.select(buffer.slots, version, target)
    return chosen


def is_empty(sampler: Sampler, version: int) -> bool:
    """Whether step `version` was admitted, and every group of it given up since."""
    return sampler.stamped and sampler.cursor >= version and sampler.target(version) == 0


async def finish(
    buffer: ReplayBuffer, sampler: Sampler, counters: HeldCounters, claim: Claim | None
) -> tuple[GroupId, ...]:
    """The step that `claim` gave is trained, or passed empty: the trainer's version moves and the gate is told.

    What is too old by then is given up; returned are those of it that still generate, to be ended by the caller. That
    happens with the windowed sampler only; `commit` is False for them. Without a claim and without an empty step,
    which is the end of the data, nothing is done.
    """
    async with buffer.barrier.mutation("step_finishes") as cut:
        if claim is not None:
            buffer.finish(cut, claim)
        elif is_empty(sampler, counters.version):
            buffer.barrier.emit("empty_step", step=counters.version)
        else:
            return ()
        counters.version += 1
        sampler.advance(counters.version)
    return await give_up_stale(buffer, sampler, counters.version)


async def give_up_stale(buffer: ReplayBuffer, sampler: Sampler, version: int) -> tuple[GroupId, ...]:
    """Give up what is too old for `version`, if anything is; returned are the groups of it that still generate."""
    if not sampler.stale(buffer.slots, version):
        return ()
    async with buffer.barrier.mutation("evictions") as cut:
        return evict_stale(cut, buffer, sampler, version)


def evict_stale(cut: Cut, buffer: ReplayBuffer, sampler: Sampler, version: int) -> tuple[GroupId, ...]:
    """Give up what is too old for `version`, inside a slot: ready groups are evicted, the others, returned, aborted."""
    aborted = []
    for group in sampler.stale(buffer.slots, version):
        if buffer.slots[group].ready:
            buffer.evict(cut, group)
        else:
            buffer.abort_stale(cut, group)
            aborted.append(group)
        sampler.record_drop()
    return tuple(aborted)
