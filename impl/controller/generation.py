"""Generation tasks: one for each dispatched group, from the first attempt to the committed rows.

    attempt (in-flight permit) ─ ok ──→ stage → commit_group → remove_committed
        └ failed → fail_attempt ─ budget left → backoff (no permit) → permit → retry → attempt
                              └ budget used up → shrink, or a permit → substitute, borrow (see `replacement`)

An in-flight permit is back when the work is over, and not when it was given up: `generate` in a thread cannot be
interrupted, and what works is in flight. So there are never more threads at work than permits, and an attempt that has
a permit finds a thread.

A group that was given up meanwhile (too old) has no slot any more; every section here looks for the slot first and
leaves quietly without it. Attempts of one group follow each other in one task, so a late result of an earlier attempt
cannot be taken for a later one's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cleancut_leaf.words import counted

from ..errors import UsageError
from ..rows.plane import Rows
from ..run.permits import Permit, PermitPool
from .callables import UserFunction, check_rows
from .parts import RunParts
from .replacement import Replacement
from .report import Failure
from .supervisor import RunTask, Supervisor
from .train_batch import GenerationRequest

if TYPE_CHECKING:
    from ..keys import GroupId

logger = logging.getLogger("cleancut.controller")


class Generation:
    """Runs `generate` for dispatched groups and sees each to its end: committed, given up, or left in the ledger."""

    def __init__(self, parts: RunParts, generate: UserFunction, supervisor: Supervisor) -> None:
        self._parts = parts
        self._generate = generate
        self._supervisor = supervisor
        self.in_flight = PermitPool(parts.config.max_in_flight, "in-flight generations")
        self._replacement = Replacement(parts)
        self._tasks: dict[GroupId, RunTask] = {}
        # Groups whose rows were accepted: a shutdown waits for these instead of cancelling them.
        self._committing: dict[GroupId, None] = {}
        # Groups that wait for their next attempt, without an in-flight permit.
        self._backing_off: dict[GroupId, None] = {}
        # Invariant: a permit in here is given back when the call of `generate` that it was taken for is over, and by
        # nobody before. A thread works on when its attempt has timed out, or its group was given up.
        self._at_work: dict[Permit, GroupId] = {}

    @property
    def running(self) -> tuple[GroupId, ...]:
        """Groups with a task."""
        return tuple(self._tasks)

    def describe(self) -> str:
        """Which groups are where, for a stall report."""
        pool = self.in_flight
        return (
            f"generation: {counted(len(self._tasks), 'group')} {list(self._tasks)}; waiting for a retry: "
            f"{list(self._backing_off)}; with rows to commit: {list(self._committing)}; in-flight permits: {pool.free} "
            f"of {pool.capacity} free, {pool.waiting} waited for; generate is at work on {list(self._at_work.values())}"
        )

    def start(self, group: GroupId, prompt: Any, permit: Permit) -> None:
        """Start the task of a dispatched group; it takes over the in-flight permit. Outside any slot."""

        def ended() -> None:
            # A task that was cancelled before its first step has run no handler of its own.
            self._give_back(permit)
            del self._tasks[group]

        self._tasks[group] = self._supervisor.start(self._run(group, prompt, permit), f"generate-{group}", ended)

    def abort(self, group: GroupId) -> None:
        """Cancel the task of a group whose slot is gone already; outside the section that took it."""
        task = self._tasks.get(group)
        if task is not None:
            self._supervisor.cancel(task)

    async def close(self) -> None:
        """Cancel what still generates, and wait for everything; accepted rows are committed first.

        A thread is not waited for: it cannot be told to end, and what it returns is not used.
        """
        tasks = dict(self._tasks)
        for group, task in tasks.items():
            if group not in self._committing:
                self._supervisor.cancel(task)
        await self._supervisor.wait_ended(*tasks.values())
        if self._at_work:
            logger.warning(
                "The run is over, and generate still works in threads on group(s) %s. What it returns is not used; the "
                "program cannot end before these threads do. Give what generate waits for a time limit of its own.",
                list(self._at_work.values()),
            )

    def _give_back(self, permit: Permit) -> None:
        if permit not in self._at_work:
            permit.give_back()

    def _lend(self, permit: Permit, group: GroupId) -> Callable[[], None]:
        """Let the permit belong to the call of `generate` that is about to begin; call the result when it is over."""
        self._at_work[permit] = group

        def over() -> None:
            del self._at_work[permit]
            permit.give_back()

        return over

    # -- one group ------------------------------------------------------------------------------------------------

    async def _run(self, group: GroupId, prompt: Any, permit: Permit) -> None:
        rows = await self._attempts(group, prompt, permit)
        if rows is None:
            return
        self._committing[group] = None
        try:
            staged = await self._parts.buffer.plane.stage(group, rows)
            if await self.commit_group(group, staged):
                self.remove_committed(group)
        finally:
            del self._committing[group]

    async def _attempts(self, group: GroupId, prompt: Any, permit: Permit) -> Rows | None:
        """The rows of the first attempt that succeeds, or None when the group was given up."""
        while True:
            failure: BaseException | None = None
            try:
                result = await self._attempt(group, prompt, permit)
            except asyncio.CancelledError as error:
                if _being_cancelled():
                    raise
                failure = error  # raised by `generate` itself
            except Exception as error:
                if self._supervisor.told_to_end():
                    raise asyncio.CancelledError(f"generate answered its cancellation with {error!r}") from error
                failure = error
            finally:
                self._give_back(permit)
            if failure is None:
                return check_rows(result, self._parts.config.generations)
            delay = await self.fail_attempt(group, failure)
            del failure
            if delay is None:
                await self.fill_place(group)
                return None
            self._backing_off[group] = None
            try:
                await asyncio.sleep(delay)
            finally:
                del self._backing_off[group]
            permit = await self.in_flight.acquire()
            try:
                await self.retry(group)
            except BaseException:
                permit.give_back()
                raise

    async def _attempt(self, group: GroupId, prompt: Any, permit: Permit) -> Any:
        """One call of `generate`; its time limit begins with the work, so none is up before anything was attempted."""
        parts = self._parts
        slot = parts.buffer.slots[group]
        request = GenerationRequest(
            group=group,
            key=slot.key,
            prompt=prompt,
            generations=parts.config.generations,
            step=slot.step,
            version=slot.weight,
            attempt=parts.ledger.entries[group].attempt,
        )
        seconds, loop = parts.config.attempt_timeout, asyncio.get_running_loop()
        if seconds is None:
            return await self._generate(request, over=self._lend(permit, group))
        limit, ended = asyncio.timeout(None), False

        def begun() -> None:
            if not ended:
                limit.reschedule(loop.time() + seconds)

        try:
            async with limit:
                try:
                    return await self._generate(request, begun=begun, over=self._lend(permit, group))
                finally:
                    ended = True
        except Exception as error:
            if not limit.expired():
                raise
            # Also where `generate` has answered the end of its time with an error of its own.
            raise TimeoutError(
                f"generate has not ended within attempt_timeout, {seconds:g} s"
                + (
                    "; its thread works on, and keeps its in-flight permit until it ends"
                    if permit in self._at_work
                    else ""
                )
            ) from error

    # -- actions --------------------------------------------------------------------------------------------------

    async def commit_group(self, group: GroupId, staged: Any) -> bool:
        """Make the staged rows visible; False if the group was given up before its slot was entered."""
        parts = self._parts
        async with parts.barrier.mutation("group_commits") as cut:
            if not self._pending(group):
                return False
            parts.buffer.commit(cut, group, staged)
            parts.progress.forget_failures(cut, group)
            return True

    def remove_committed(self, group: GroupId) -> None:
        """Drop the ledger's entry of a committed group; needs no slot, and tolerates that claim or evict did it."""
        self._parts.ledger.remove_committed(group)
        self._parts.buffer.wake()

    async def fail_attempt(self, group: GroupId, error: BaseException) -> float | None:
        """Count a failed attempt; the delay before the next one, or None when the group is given up."""
        parts = self._parts
        cause = parts.config.classify(error)
        if cause not in ("transient", "data"):
            raise UsageError(
                f"classify: it returned {cause!r} for {error!r}; it must return 'transient' or 'data'."
            ) from error
        async with parts.barrier.mutation("retries") as cut:
            if not self._pending(group):
                return None
            key = parts.buffer.slots[group].key
            count = parts.progress.count_failure(cut, group, cause)
            attempts = parts.ledger.fail_attempt(cut, group, cause).attempt
            final = count > parts.config.retries(cause)
            filled = final and parts.pool.next is not None
            if final and not filled:
                self._replacement.shrink(cut, group)
        parts.failures.append(Failure(group, key, cause, repr(error), final))
        logger.warning(
            "Generation of group %d (epoch %d, row %d) failed, %s failure %d: %r. %s",
            group, key.epoch, key.index, cause, count, error,
            "It is tried again." if not final else "Its budget is used up: "
            + ("a spare takes its place." if filled else "the prompt is dropped as failed."),
        )  # fmt: skip
        return None if final else parts.config.delay_before(attempts)

    async def fill_place(self, group: GroupId) -> None:
        """Let a spare generate in the place of a group that was given up; nothing to do where it is gone already.

        The permit of the new generation is waited for outside the slot. If others took the last spare meanwhile, the
        step is one smaller after all.
        """
        self._parts.barrier.require_outside()
        if not self._pending(group):
            return
        permit = await self.in_flight.acquire()
        try:
            async with self._parts.barrier.mutation("retries") as cut:
                successor = self._replacement.fill(cut, group) if self._pending(group) else None
            if successor is not None:
                self.start(successor.group, successor.prompt, permit)
        except BaseException:
            permit.give_back()
            raise
        if successor is None:
            permit.give_back()

    async def retry(self, group: GroupId) -> None:
        """Say that a failed group is attempted again."""
        parts = self._parts
        async with parts.barrier.mutation("retries"):
            if self._pending(group):
                parts.barrier.emit("retry", group=group)

    def _pending(self, group: GroupId) -> bool:
        slot = self._parts.buffer.slots.get(group)
        return slot is not None and not slot.ready


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
