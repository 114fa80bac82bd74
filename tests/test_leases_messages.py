"""What reaches a host of leases in another order than it was sent, twice or wrong: nothing of it stays behind."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from lease_hosts import LEASE, Part, cut, hosting, in_virtual_time, saving, slot, turns

from impl import GuardUnreachable, LeaseExpired, errors
from impl.leases import FenceOrder, LeaseHost, LeaseTable


class Wrong(Part):
    """A part that was written wrong: told while `answer` is set, it does that instead."""

    answer: Callable[[], Any] | None = None

    async def obey(self, order: FenceOrder) -> FenceOrder:
        result: FenceOrder = await super().obey(order) if self.answer is None else self.answer()
        return result


def breaks() -> Any:
    raise ValueError("a bug in obey")


def is_silent() -> Any:
    return None


def nothing_left(host: LeaseHost) -> bool:
    return host.counts.held == host.counts.waiting == 0 and not host._holdings and not list(host._table)


@in_virtual_time
async def test_a_request_withdrawn_in_the_turn_in_which_it_came_leaves_nothing_behind() -> None:
    """Both messages lay there: its task has not run yet. One left over would keep a call of the actor open for ever."""
    async with hosting() as host:

        async def withdraw() -> None:
            host.release("gone")

        asked, _ = asyncio.create_task(host.acquire(slot("gone"))), asyncio.create_task(withdraw())
        await turns()
        assert asked.done()
        with pytest.raises(LeaseExpired, match="withdrawn"):
            await asked
        assert nothing_left(host)
        assert host.counts.asked == host.counts.ended == 1


@in_virtual_time
async def test_messages_in_any_order_and_any_number_of_times_leave_nothing_behind() -> None:
    """Requests, heartbeats, releases, each up to three times and at any moment: after a lease the host is empty."""
    choose = random.Random(0)
    async with hosting() as host:
        asked = []
        for number in range(300):
            asking = (cut if choose.random() < 0.2 else slot)(str(number))

            async def renew(request: str = str(number)) -> None:
                host.renew(request)

            async def release(request: str = str(number)) -> None:
                host.release(request)

            async def acquire(asking: Any = asking) -> None:
                await host.acquire(asking)

            messages = choose.choices([renew, release, acquire], k=choose.randint(1, 5))
            asked += [asyncio.create_task(message()) for message in messages]
            for _ in range(choose.choice((0, 0, 1, 3))):
                await asyncio.sleep(0)
        # The last of them waits for cuts before it, each of which nobody gives back.
        await asyncio.sleep(2 * LEASE)
        for _ in range(100):
            await asyncio.sleep(LEASE)
        assert all(task.done() for task in asked)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in answers} == {type(None), LeaseExpired}
        assert nothing_left(host)
        assert host.barrier.statistics().active_mutations == 0


@pytest.mark.parametrize(("answer", "complaint"), [(breaks, "ValueError: a bug in obey"), (is_silent, "answered None")])
def test_a_part_that_was_written_wrong_is_named_and_a_lapsed_section_ends_once_it_is_right(
    answer: Callable[[], Any], complaint: str
) -> None:
    """Given up at its first wrong answer, the section would stay open and no cut would ever open again."""

    @in_virtual_time
    async def history() -> None:
        part = Wrong()
        async with hosting(part) as host:
            part.answer = answer
            with pytest.raises(GuardUnreachable, match=complaint):
                await host.announce()
            with pytest.raises(GuardUnreachable, match=complaint):
                await host.acquire(cut("early"))
            token = await host.acquire(slot("dead"))
            await asyncio.sleep(LEASE + 5)
            assert host.barrier.statistics().active_mutations == 1
            part.answer = None
            taken = await saving(host, "save")
            assert host.call(taken, "owned", ()) == (0, 0)
            with pytest.raises(LeaseExpired):
                part.fence.require(token)

    history()


@in_virtual_time
async def test_one_who_waited_in_silence_is_told_that_it_was_silent() -> None:
    """Its request was not withdrawn by anybody: its event loop was blocked, and it has to know."""
    async with hosting() as host:
        await host.acquire(cut("open"))
        asked = asyncio.create_task(host.acquire(slot("blocked")))
        with pytest.raises(LeaseExpired, match=r"writer blocked.*was silent for 10 s.*open another section"):
            await asked


@in_virtual_time
async def test_what_is_asked_again_after_its_end_opens_no_section() -> None:
    """It would be held for nobody, for the time of a lease, with a cut waiting for it."""
    async with hosting() as host:
        await host.acquire(slot("done"))
        host.release("done")
        await turns()
        with pytest.raises(LeaseExpired, match="before it came"):
            await host.acquire(slot("done"))
        assert nothing_left(host)


def test_requests_are_not_each_a_reason_to_look_at_all_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else thousands of open slots cost their square: the watch looks by the clock alone."""
    looks: list[float] = []
    lapse = LeaseTable.lapse

    def counted(self: LeaseTable, at: float) -> Any:
        looks.append(at)
        return lapse(self, at)

    monkeypatch.setattr(LeaseTable, "lapse", counted)

    @in_virtual_time
    async def history() -> None:
        async with hosting(longest_hold=1.0) as host:
            for number in range(500):
                await host.acquire(slot(str(number)))
            assert looks == []
            await asyncio.sleep(1.1)
            assert host.counts.lapsed == 500
            assert len(looks) < 20

    history()


def test_every_error_can_be_sent_to_another_process() -> None:
    """A refusal comes to a holder elsewhere as it is; one that cannot be read there would hide what happened."""
    found = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CleancutError)
    ]
    assert len(found) > 20
    for kind in found:
        error = kind("what", "trace.jsonl", 3) if kind is errors.TraceUnreadable else kind("what")
        read = pickle.loads(pickle.dumps(error))
        assert type(read) is kind
        assert (str(read), vars(read)) == (str(error), vars(error)) == ("what", vars(error))
