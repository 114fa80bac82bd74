"""The table of leases and the fence: rules one by one, then against a plain model over generated histories."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from impl import LeaseExpired, StaleCut, UsageError
from impl.leases import Asking, Fence, FenceOrder, LeaseTable, Token


def asking(request: str = "a", *, exclusive: bool = False) -> Asking:
    return Asking(request, f"task {request}", "write", "somewhere.py:1", exclusive)


def granted(table: LeaseTable, request: str = "a", now: float = 0.0) -> Token:
    table.ask(asking(request), now)
    return table.grant(request, now)


def test_a_lease_lapses_when_its_holder_is_silent_for_its_duration_and_not_before() -> None:
    """A heartbeat puts the end off by the whole duration."""
    table = LeaseTable(epoch=1, duration=10.0)
    token = granted(table)
    table.renew("a", 9.0)
    assert table.lapse(18.9) == ()
    assert table.require(token).asking.request == "a"
    (lapsed,) = table.lapse(19.0)
    assert lapsed.heard_of == 9.0
    with pytest.raises(LeaseExpired, match="section is over"):
        table.require(token)
    assert table.lapse(30.0) == ()  # each once


def test_a_heartbeat_never_brings_a_lease_back() -> None:
    """What it was given for before a cut would be written after it: the variant `lease_outlives_cut`."""
    table = LeaseTable(epoch=1, duration=10.0)
    token = granted(table)
    # Before anybody looked: the time decides.
    with pytest.raises(LeaseExpired, match="of task a"):
        table.renew("a", 10.0)
    table.lapse(10.0)
    with pytest.raises(LeaseExpired, match="of task a"):
        table.renew("a", 10.1)
    table.end("a")
    for renewed in ("a", "never asked"):
        with pytest.raises(LeaseExpired, match="open another section"):
            table.renew(renewed, 10.2)
    with pytest.raises(StaleCut):  # whoever handles the one handles the other
        table.require(token)


def test_one_who_waits_is_silent_too_and_is_not_granted_afterwards() -> None:
    """A holder that died in the queue must not shut others out for a lease more than it has to."""
    table = LeaseTable(epoch=1, duration=10.0)
    table.ask(asking(), 0.0)
    table.renew("a", 5.0)
    assert [lease.number for lease in table.lapse(15.0)] == [None]
    with pytest.raises(LeaseExpired):
        table.grant("a", 15.0)
    assert table.counts.lapsed == 1


def test_asking_again_is_the_same_lease_and_a_heartbeat() -> None:
    """An answer that was lost on the way is asked for again; the holder has one lease, under one number."""
    table = LeaseTable(epoch=1, duration=10.0)
    token = granted(table)
    assert table.ask(asking(), 4.0).number == token.number
    assert table.lapse(13.9) == ()
    assert (table.counts.asked, table.counts.granted) == (1, 1)
    with pytest.raises(UsageError, match="granted twice"):
        table.grant("a", 5.0)


def test_a_lease_that_is_always_renewed_ends_at_its_longest_hold() -> None:
    """A holder that beats and does nothing else must not keep a cut out for ever, where a limit is set."""
    table = LeaseTable(epoch=1, duration=10.0, longest_hold=25.0)
    granted(table)
    for now in (8.0, 16.0, 24.0):
        table.renew("a", now)
    assert table.next_deadline == 25.0
    assert len(table.lapse(25.0)) == 1


def test_a_new_holder_never_has_an_old_number() -> None:
    """The old token stays void whoever comes after; of an earlier epoch, whatever its number."""
    table = LeaseTable(epoch=7, duration=10.0)
    first = granted(table)
    table.end("a")
    second = granted(table, "b")
    assert second.number > first.number
    for void in (first, Token(6, second.number), Token(8, second.number)):
        with pytest.raises(LeaseExpired):
            table.require(void)
    with pytest.raises(LeaseExpired, match="started anew"):
        table.require(Token(6, second.number))


def test_after_the_floor_is_raised_no_token_from_before_is_good_and_the_next_is() -> None:
    """What a cut tells every part: also of leases that ended by themselves, whose writes may still be on their way."""
    table = LeaseTable(epoch=1, duration=10.0)
    before = granted(table)
    table.end("a")
    order = table.raise_floor()
    after = granted(table, "b")
    fence = Fence()
    fence.obey(order)
    fence.require(after)
    with pytest.raises(LeaseExpired, match="Nothing was changed"):
        fence.require(before)


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan"), "10", True, None])
def test_a_duration_that_is_none_is_refused_by_name(wrong: object) -> None:
    """A lease of no time would lapse at once, one without an end never."""
    with pytest.raises(UsageError, match="lease is"):
        LeaseTable(1, wrong)  # type: ignore[arg-type]
    if wrong is not None:
        with pytest.raises(UsageError, match="longest_hold is"):
            LeaseTable(1, 1.0, wrong)  # type: ignore[arg-type]


def test_a_fence_takes_nothing_before_it_is_told() -> None:
    """A part that was started anew knows of no lease; taking all would take the dead ones' writes too."""
    fence = Fence()
    with pytest.raises(LeaseExpired, match="not been told"):
        fence.require(Token(1, 1))
    fence.obey(FenceOrder(1, 1))
    fence.require(Token(1, 1))


orders = st.builds(FenceOrder, st.integers(0, 2), st.integers(0, 6), st.frozensets(st.integers(0, 8), max_size=4))
tokens = st.builds(Token, st.integers(0, 2), st.integers(0, 8))


@given(st.lists(orders, min_size=1, max_size=5), tokens, st.randoms(use_true_random=False))
def test_orders_in_any_order_and_any_number_of_times_void_the_same(
    told: list[FenceOrder], token: Token, random: object
) -> None:
    """Messages overtake each other and come twice; a token void by any order of the newest epoch stays void."""
    newest = max(order.epoch for order in told)
    expected = all(order.takes(token) for order in told if order.epoch == newest)
    for sequence in (told, told[::-1], [*told, *told]):
        fence = Fence()
        for order in sequence:
            fence.obey(order)
        assert fence.order is not None
        assert fence.order.takes(token) is expected


@dataclass
class PlainLease:
    """What the model knows of one lease."""

    request: str
    deadline: float
    number: int | None = None
    over: bool = False


class LeaseHistories(RuleBasedStateMachine):
    """Every sequence of requests, grants, heartbeats, ends, cuts and passing time answers as the plain model does."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.table = LeaseTable(epoch=3, duration=5.0)
        self.fence = Fence()
        self.fence.obey(self.table.order)
        self.leases: list[PlainLease] = []
        self.named = 0
        self.numbers: list[int] = []
        self.good: set[int] = set()
        """Numbers whose leases are neither over nor ended."""

    def some(self, data: st.DataObject) -> PlainLease:
        return data.draw(st.sampled_from(self.leases))

    @rule()
    def ask(self) -> None:
        self.named += 1
        request = f"request {self.named}"
        self.table.ask(asking(request), self.now)
        self.leases.append(PlainLease(request, self.now + 5))

    @precondition(lambda self: any(lease.number is None for lease in self.leases))
    @rule(data=st.data())
    def grant(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from([x for x in self.leases if x.number is None]))
        if lease.over:
            with pytest.raises(LeaseExpired):
                self.table.grant(lease.request, self.now)
            return
        token = self.table.grant(lease.request, self.now)
        assert token.number not in self.numbers
        lease.number, lease.deadline = token.number, self.now + 5
        self.numbers.append(token.number)
        self.good.add(token.number)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        lease = self.some(data)
        if lease.over or lease.deadline <= self.now:
            with pytest.raises(LeaseExpired):
                self.table.renew(lease.request, self.now)
        else:
            self.table.renew(lease.request, self.now)
            lease.deadline = self.now + 5

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        lease = self.some(data)
        self.table.end(lease.request)
        self.leases.remove(lease)
        self.good.discard(lease.number or 0)

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        due = [x for x in self.leases if not x.over and x.deadline <= self.now]
        assert [x.asking.request for x in self.table.lapse(self.now)] == [x.request for x in due]
        for lease in due:
            lease.over = True
            self.good.discard(lease.number or 0)

    @rule()
    def tell(self) -> None:
        self.fence.obey(self.table.order)

    @precondition(lambda self: not self.good and all(x.number is None for x in self.leases))
    @rule()
    def cut_opens(self) -> None:
        # The drain has ended: nobody holds a section.
        self.fence.obey(self.table.raise_floor())
        for number in self.numbers:
            with pytest.raises(LeaseExpired):
                self.fence.require(Token(3, number))

    @invariant()
    def exactly_the_good_tokens_are_taken_by_the_host(self) -> None:
        for number in self.numbers:
            if number in self.good:
                assert self.table.require(Token(3, number)).number == number
                self.fence.require(Token(3, number))
            else:
                with pytest.raises(LeaseExpired):
                    self.table.require(Token(3, number))

    @invariant()
    def the_counts_agree(self) -> None:
        counts = self.table.counts
        assert counts.held == len(self.good)
        assert counts.waiting == sum(1 for x in self.leases if x.number is None and not x.over)
        assert counts.asked - counts.ended == len(self.leases)
        deadlines = [x.deadline for x in self.leases if not x.over]
        assert self.table.next_deadline == min(deadlines, default=None)


TestLeaseHistories = LeaseHistories.TestCase
TestLeaseHistories.settings = settings(max_examples=120, stateful_step_count=40)
