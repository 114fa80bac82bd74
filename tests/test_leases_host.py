"""The host of leases over the real barrier, ledger and loader, in virtual time: hours of silence take no time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lease_hosts import LEASE, Part, beating, cut, hosting, in_virtual_time, now, saving, slot, turns

from impl import BarrierClosed, DrainTimeout, GuardUnreachable, HostUnreachable, LeaseExpired, UsageError
from impl.leases import Fence, FenceOrder, Lease, LeaseHost, LeaseTable, Token


@in_virtual_time
async def test_a_cut_waits_for_a_dead_holder_until_its_lease_is_over() -> None:
    """The slot is given back for it; what it did in one operation is whole, and owned."""
    async with hosting() as host:
        token = await host.acquire(slot("dead"))
        host.call(token, "reserve", ())
        began = now()
        taken = await saving(host, "save")
        assert now() - began == LEASE
        assert host.call(taken, "owned", ()) == (2, 2)
        assert (host.counts.lapsed, host.counts.held) == (1, 1)


@in_virtual_time
async def test_a_holder_that_beats_keeps_its_section_and_one_that_stops_loses_it() -> None:
    """A heartbeat is what a section lives by, however long it takes."""
    async with hosting() as host:
        token = await host.acquire(slot("slow"))
        asked = asyncio.create_task(host.acquire(cut("save", None)))
        save_beats = asyncio.create_task(beating(host, "save", 70))
        await beating(host, "slow", 50)
        assert not asked.done()
        host.call(token, "reserve", ())
        stopped = now()
        await asked
        assert now() - stopped == LEASE
        await save_beats


@in_virtual_time
async def test_a_holder_that_wakes_after_its_lease_writes_nothing_inside_or_after_the_cut() -> None:
    """The variant `no_fence`: its token is refused while the cut is open, and when it has closed."""
    async with hosting() as host:
        token = await host.acquire(slot("paused"))
        save = await saving(host, "save")
        before = host.call(save, "owned", ())
        with pytest.raises(LeaseExpired):
            host.call(token, "reserve", ())
        with pytest.raises(LeaseExpired):
            host.renew("paused")
        assert host.call(save, "owned", ()) == before
        host.release("save")
        await turns()
        with pytest.raises(LeaseExpired):
            host.call(token, "reserve", ())
        again = await host.acquire(slot("paused, again"))
        assert host.call(again, "reserve", ()) != []


@in_virtual_time
async def test_a_section_is_left_after_every_part_knows_its_token_is_void() -> None:
    """The variant `expiry_without_notice`: in the order lapse, tell, leave, the cut never meets a token still taken."""
    part = Part(delay=3.0)
    async with hosting(part) as host:
        token = await host.acquire(slot("dead"))
        part.fence.require(token)
        asked = asyncio.create_task(host.acquire(cut("save")))
        beats = asyncio.create_task(beating(host, "save", 20))
        await asyncio.sleep(LEASE + 1)
        # Lapsed, and refused by the host; the part does not know yet, so the section is still open.
        with pytest.raises(LeaseExpired):
            host.call(token, "reserve", ())
        part.fence.require(token)
        assert host.barrier.statistics().active_mutations == 1
        await asked
        with pytest.raises(LeaseExpired):
            part.fence.require(token)
        await beats


@in_virtual_time
async def test_before_a_cut_parts_are_told_of_leases_that_ended_by_themselves() -> None:
    """A write that its holder did not wait for may arrive after the section: it must not fall into the cut."""
    part = Part(delay=1.0)
    async with hosting(part) as host:
        token = await host.acquire(slot("quick"))
        host.release("quick")
        await turns()
        part.fence.require(token)  # nobody reads yet: no harm
        save = await host.acquire(cut("save"))
        part.fence.require(save)
        with pytest.raises(LeaseExpired):
            part.fence.require(token)


@in_virtual_time
async def test_a_save_of_the_host_itself_tells_the_parts_as_well() -> None:
    """A checkpointer in the host's process opens its own section: it is no less a cut."""
    part = Part()
    async with hosting(part) as host:
        token = await host.acquire(slot("quick"))
        host.release("quick")
        assert await host.ask("save", ()) == (0, 0)
        with pytest.raises(LeaseExpired):
            part.fence.require(token)


@in_virtual_time
async def test_a_part_that_does_not_answer_keeps_the_cut_shut_and_everybody_else_goes_on() -> None:
    """Nobody knows what it takes; the error names it as the cause, and the barrier is as before."""
    part = Part()
    async with hosting(part) as host:
        part.answers = False
        with pytest.raises(GuardUnreachable, match="no route"):
            await host.acquire(cut("save"))
        host.call(await host.acquire(slot("a")), "reserve", ())
        host.release("a")
        part.answers, part.delay = True, 31.0
        asked = asyncio.create_task(host.acquire(cut("late")))
        beats = asyncio.create_task(beating(host, "late", 28))
        with pytest.raises(GuardUnreachable, match="in time"):
            await asked
        beats.cancel()
        part.delay = 0.0
        assert host.call(await host.acquire(cut("again")), "owned", ()) == (2, 2)


@in_virtual_time
async def test_a_lapsed_section_stays_open_until_its_part_answers_at_last() -> None:
    """However long that takes; meanwhile a drain limit names the holder."""
    part = Part()
    async with hosting(part) as host:
        await host.acquire(slot("dead"))
        part.answers = False
        await asyncio.sleep(LEASE + 5)
        with pytest.raises(DrainTimeout, match=r"writer dead.*opened at writer\.py:7"):
            await host.acquire(cut("save", 2.0))
        part.answers = True
        assert host.call(await host.acquire(cut("again")), "owned", ()) == (0, 0)


@in_virtual_time
async def test_whoever_waits_and_falls_silent_is_withdrawn() -> None:
    """A checkpoint that nobody waits for any more would shut the writers out for a lease of its own."""
    async with hosting() as host:
        await host.acquire(slot("slow"))
        beats = asyncio.create_task(beating(host, "slow", 30))
        asked = asyncio.create_task(host.acquire(cut("dead", None)))
        await asyncio.sleep(LEASE + 0.5)
        with pytest.raises(LeaseExpired):
            await asked
        host.call(await host.acquire(slot("next")), "reserve", ())
        await beats


@in_virtual_time
async def test_a_cut_whose_holder_falls_silent_is_closed_for_it_and_it_reads_no_more() -> None:
    """Else the run would stand still for ever; and what it reads on would not be one instant."""
    async with hosting() as host:
        save = await host.acquire(cut("dead"))
        waiting = asyncio.create_task(host.acquire(slot("writer")))
        beats = asyncio.create_task(beating(host, "writer", 20))
        began = now()
        writer = await waiting
        assert now() - began == LEASE
        host.call(writer, "reserve", ())
        with pytest.raises(LeaseExpired):
            host.call(save, "owned", ())
        beats.cancel()


@in_virtual_time
async def test_a_host_that_was_stalled_itself_ends_no_lease_for_it() -> None:
    """Heartbeats came meanwhile and lay unread: the time that it slept counts for nobody, and no more than that."""
    async with hosting() as host:
        token = await host.acquire(slot("alive"))
        await host.acquire(slot("dead"))
        await asyncio.sleep(0.1)
        loop: Any = asyncio.get_running_loop()
        loop._clock.now += 100.0  # the process was paused
        host.renew("alive")
        host.call(token, "reserve", ())
        assert host.counts.lapsed == 0
        await beating(host, "alive", LEASE + 2)
        assert host.counts.lapsed == 1
        host.call(token, "reserve", ())


@in_virtual_time
async def test_a_request_asked_twice_is_one_section() -> None:
    """The answer to the first was lost; the second gets the same token, and one release ends it."""
    async with hosting() as host:
        first, second = await asyncio.gather(host.acquire(slot("a")), host.acquire(slot("a")))
        assert first == second
        assert await host.acquire(slot("a")) == first
        assert host.barrier.statistics().active_mutations == 1
        host.release("a")
        host.release("a")
        await turns()
        assert host.barrier.statistics().active_mutations == 0


@in_virtual_time
async def test_a_request_given_up_while_it_waits_leaves_nothing_behind() -> None:
    """Its holder was cancelled; who waited behind it goes on."""
    async with hosting() as host:
        await host.acquire(slot("open"))
        gone = asyncio.create_task(host.acquire(cut("gone")))
        await turns()
        behind = asyncio.create_task(host.acquire(slot("behind")))
        await turns()
        assert not behind.done()
        host.release("gone")
        assert (await behind).number > 0
        with pytest.raises(LeaseExpired, match="withdrawn"):
            await gone


@in_virtual_time
async def test_a_withdrawal_that_overtakes_its_request_is_kept_for_it() -> None:
    """Else a section would be held for nobody, for the time of a lease."""
    async with hosting() as host:
        host.release("fast")
        with pytest.raises(LeaseExpired, match="before it came"):
            await host.acquire(slot("fast"))
        assert host.counts.asked == 0


@in_virtual_time
async def test_longest_hold_ends_a_section_whose_holder_beats_for_ever() -> None:
    """A holder may be alive and wait for what never comes."""
    async with hosting(longest_hold=4.0) as host:
        token = await host.acquire(slot("stuck"))
        await asyncio.sleep(2)
        host.renew("stuck")
        asked = now()
        await host.acquire(cut("save"))
        assert now() - asked == 2.0
        with pytest.raises(LeaseExpired):
            host.call(token, "reserve", ())


@in_virtual_time
async def test_refusals_of_the_barrier_come_through_and_name_the_holders_elsewhere() -> None:
    """The drain limit and the closing are what they are in one process."""
    async with hosting(drain_timeout=3.0) as host:
        await host.acquire(slot("slow"))
        with pytest.raises(DrainTimeout, match="writer slow") as refused:
            await host.acquire(cut("save"))
        (holder,) = refused.value.holders
        assert (holder.task, holder.kind, holder.place) == ("writer slow", "writes", "writer.py:7")
        host.barrier.close("the run ends")
        with pytest.raises(BarrierClosed):
            await host.acquire(slot("late"))
        assert host.counts.waiting == 0


@in_virtual_time
async def test_an_operation_that_could_be_left_half_done_is_refused() -> None:
    """What happens in a section is synchronous; an unknown or private name is named, too. Nothing was changed."""
    async with hosting() as host:
        token = await host.acquire(slot("a"))
        with pytest.raises(UsageError, match="async"):
            host.call(token, "slow", ())
        for wrong in ("reserv", "__init__", "ledger"):
            with pytest.raises(UsageError, match="operation is"):
                host.call(token, wrong, ())
        host.release("a")
        assert host.call(await host.acquire(cut("b")), "owned", ()) == (0, 0)


@in_virtual_time
async def test_a_host_that_a_newer_one_has_replaced_does_nothing_any_more() -> None:
    """It was cut off, not dead, when its successor was started: the parts tell it."""
    part = Part()
    async with hosting(part, epoch=1) as old, hosting(part, epoch=2) as new:
        held = await new.acquire(slot("a"))
        with pytest.raises(HostUnreachable, match="replaced"):
            await old.acquire(cut("save"))
        with pytest.raises(HostUnreachable, match="replaced"):
            await old.acquire(slot("b"))
        part.fence.require(held)
        with pytest.raises(LeaseExpired):
            part.fence.require(Token(1, held.number))


@in_virtual_time
async def test_a_lease_that_is_over_is_logged_with_its_holder() -> None:
    """Somebody will look for the process that died."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("cleancut.barrier")
    logger.addHandler(handler)
    try:
        async with hosting() as host:
            await host.acquire(slot("dead"))
            await asyncio.sleep(LEASE + 1)
    finally:
        logger.removeHandler(handler)
    (line,) = said
    assert line.startswith("the lease of writer dead (kind 'writes', opened at writer.py:7, held for 10.000 s) is over")


def leaves_before_it_tells(self: LeaseHost, lease: Lease) -> Any:
    async def leave() -> None:
        self._end(lease.asking.request)
        await self._tell(self._table.order)

    return leave()


def told_nothing(self: LeaseTable) -> FenceOrder:
    return self.order


def takes_all(self: Fence, token: Token) -> None:
    pass


def revives(self: LeaseTable, request: str, now: float) -> None:
    lease = self.get(request)
    if lease is not None:
        self._put(replace(lease, deadline=now + LEASE))


async def watches_nobody(self: LeaseHost) -> None:
    await asyncio.sleep(10_000)


WRONG_VERSIONS: list[Any] = [
    (LeaseHost, "_leave_for", leaves_before_it_tells, test_a_section_is_left_after_every_part_knows_its_token_is_void),
    (LeaseHost, "watch", watches_nobody, test_a_cut_waits_for_a_dead_holder_until_its_lease_is_over),
    (LeaseTable, "raise_floor", told_nothing, test_before_a_cut_parts_are_told_of_leases_that_ended_by_themselves),
    (LeaseTable, "renew", revives, test_a_holder_that_wakes_after_its_lease_writes_nothing_inside_or_after_the_cut),
    (Fence, "require", takes_all, test_a_save_of_the_host_itself_tells_the_parts_as_well),
]


@pytest.mark.parametrize(("owner", "name", "wrong", "test"), WRONG_VERSIONS, ids=[wrong[1] for wrong in WRONG_VERSIONS])
def test_a_wrong_version_is_caught(
    owner: type, name: str, wrong: Any, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule is needed: without it the test about it fails."""
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((AssertionError, pytest.fail.Exception, RuntimeError)):
        test()
