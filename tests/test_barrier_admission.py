"""The admission core alone: rules one by one, then against a plain model over generated histories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from impl import BarrierClosed, UsageError
from impl.barrier import AdmissionCore, ExclusiveTicket, Standing, Ticket


def slot(kind: str = "write") -> Ticket:
    ticket = Ticket()
    ticket.kind = kind
    ticket.standing = Standing.NEW
    return ticket


def cut() -> Ticket:
    ticket = ExclusiveTicket()
    ticket.kind = "checkpoint"
    ticket.standing = Standing.NEW
    return ticket


def admitted(core: AdmissionCore) -> Ticket:
    """A shared section that was let in at once."""
    ticket = slot()
    assert core.request_slot(ticket)
    return ticket


def waiting_slot(core: AdmissionCore) -> Ticket:
    ticket = slot()
    assert not core.request_slot(ticket)
    return ticket


def waiting_cut(core: AdmissionCore) -> Ticket:
    ticket = cut()
    assert not core.request_cut(ticket)
    return ticket


def test_slots_never_block_each_other() -> None:
    """The shared side is no lock: writers exclude only the checkpoint."""
    core = AdmissionCore()
    for _ in range(5):
        admitted(core)
    assert core.active_mutations == 5


def test_a_cut_opens_when_the_last_slot_leaves_and_not_before() -> None:
    """The drain is what makes the cut clean."""
    core = AdmissionCore()
    first, second = admitted(core), admitted(core)
    checkpoint = waiting_cut(core)
    assert core.leave(first) == ()
    assert list(core.leave(second)) == [checkpoint]
    assert core.cut is checkpoint


def test_new_slots_wait_from_the_moment_a_checkpoint_heads_the_queue() -> None:
    """Were they let in, a stream of writers would keep a checkpoint out for ever."""
    core = AdmissionCore()
    holder = admitted(core)
    waiting_cut(core)
    late = waiting_slot(core)
    core.leave(holder)
    assert late.standing is Standing.WAITING


def test_checkpoints_are_served_first_come_first_served() -> None:
    """Three that ask while a writer is inside open in the order they asked."""
    core = AdmissionCore()
    holder = admitted(core)
    queue = [waiting_cut(core) for _ in range(3)]
    served = [*core.leave(holder)]
    while core.cut is not None:
        served += core.leave(core.cut)
    assert served == queue


def test_release_lets_all_waiting_mutations_in_as_one_batch_before_the_next_drain() -> None:
    """With a second checkpoint queued the writers still get their turn between the two."""
    core = AdmissionCore()
    first = cut()
    assert core.request_cut(first)
    second = waiting_cut(core)
    writers = [waiting_slot(core) for _ in range(3)]
    assert list(core.leave(first)) == writers
    assert core.draining is second
    assert waiting_slot(core).standing is Standing.WAITING
    assert core.leave(writers[0]) == ()
    assert core.leave(writers[1]) == ()
    assert list(core.leave(writers[2])) == [second]


def test_release_hands_over_to_the_next_checkpoint_when_no_mutation_waits() -> None:
    """With nothing to drain there is nothing to wait for."""
    core = AdmissionCore()
    first = cut()
    core.request_cut(first)
    second = waiting_cut(core)
    assert list(core.leave(first)) == [second]


def test_withdrawal_of_the_last_queued_checkpoint_reopens_the_gate() -> None:
    """Whoever it blocked is let in by the withdrawal itself: there may be no later release."""
    core = AdmissionCore()
    admitted(core)
    checkpoint = waiting_cut(core)
    writers = [waiting_slot(core) for _ in range(3)]
    assert list(core.withdraw(checkpoint)) == writers
    assert core.gate_open


def test_withdrawal_with_another_checkpoint_queued_keeps_the_gate_shut() -> None:
    """The writers wait for the remaining one, wherever the withdrawn one stood in the queue."""
    for withdrawn in (0, 1):
        core = AdmissionCore()
        admitted(core)
        queue = [waiting_cut(core), waiting_cut(core)]
        writer = waiting_slot(core)
        assert core.withdraw(queue[withdrawn]) == ()
        assert core.draining is queue[1 - withdrawn]
        assert writer.standing is Standing.WAITING


def test_withdrawal_while_a_cut_is_open_keeps_the_gate_shut() -> None:
    """The open cut, not the queue, is what the writers wait for then."""
    core = AdmissionCore()
    core.request_cut(cut())
    queued = waiting_cut(core)
    writer = waiting_slot(core)
    assert core.withdraw(queued) == ()
    assert writer.standing is Standing.WAITING


def test_a_withdrawn_mutation_is_forgotten() -> None:
    """Its place in the batch is not given to anyone, and its neighbours keep theirs."""
    core = AdmissionCore()
    checkpoint = cut()
    core.request_cut(checkpoint)
    first, second, third = (waiting_slot(core) for _ in range(3))
    core.withdraw(second)
    assert list(core.leave(checkpoint)) == [first, third]


def test_nowait_changes_nothing_when_it_would_have_to_wait() -> None:
    """The ticket is as good as new: it may ask again."""
    core = AdmissionCore()
    checkpoint = cut()
    core.request_cut(checkpoint)
    ticket = slot()
    assert not core.request_slot_nowait(ticket)
    assert (ticket.standing, core.waiting_mutations) == (Standing.NEW, 0)
    core.leave(checkpoint)
    assert core.request_slot_nowait(ticket)


def test_giving_back_what_is_not_open_is_refused_and_changes_nothing() -> None:
    """Subtracting it would make the count wrong for ever."""
    core = AdmissionCore()
    admitted(core)
    gone = admitted(core)
    core.leave(gone)
    waiting = waiting_cut(core)
    for ticket in (gone, slot(), waiting, cut()):
        with pytest.raises(UsageError, match="not open"):
            core.leave(ticket)
    assert (core.active_mutations, core.waiting_checkpoints, core.mutation_version) == (1, 1, 1)


def test_withdrawing_what_does_not_wait_is_refused() -> None:
    """A granted section is left, not withdrawn."""
    core = AdmissionCore()
    inside = admitted(core)
    for ticket in (inside, slot()):
        with pytest.raises(UsageError, match="not waiting"):
            core.withdraw(ticket)
    assert core.active_mutations == 1


def test_a_ticket_is_for_one_use() -> None:
    """A token that came to life again would pass for the cut of a section that is long over."""
    core = AdmissionCore()
    ticket = admitted(core)
    core.leave(ticket)
    for request in (core.request_slot, core.request_slot_nowait, core.request_cut):
        with pytest.raises(UsageError, match="entered twice"):
            request(ticket)


def test_close_withdraws_the_waiting_and_refuses_the_later_while_holders_finish() -> None:
    """The run ends: nobody may wait for a checkpoint that never comes."""
    core = AdmissionCore()
    holder = admitted(core)
    checkpoint = waiting_cut(core)
    writer = waiting_slot(core)
    assert list(core.close("done")) == [writer, checkpoint]
    for request in (core.request_slot, core.request_slot_nowait, core.request_cut):
        with pytest.raises(BarrierClosed, match="done"):
            request(slot())
    assert core.leave(holder) == ()


def test_mutation_version_counts_every_section_that_ended() -> None:
    """It tells two cuts apart that had any section between them."""
    core = AdmissionCore()
    checkpoint = cut()
    core.request_cut(checkpoint)
    core.leave(checkpoint)
    assert core.mutation_version == 0
    core.leave(admitted(core))
    assert core.mutation_version == 1


class PlainModel:
    """The rules again, as lists that are searched: slow, and easy to believe."""

    def __init__(self) -> None:
        self.inside: list[Ticket] = []
        self.cuts: list[Ticket] = []
        self.queue: list[Ticket] = []
        self.waiting: list[Ticket] = []

    @property
    def shut(self) -> bool:
        return bool(self.cuts or self.queue)

    def settle(self, batch_first: bool) -> list[Ticket]:
        """Let in whoever may be, after something was freed."""
        let_in: list[Ticket] = []
        if batch_first or not self.shut:
            let_in += self.waiting
            self.inside += self.waiting
            self.waiting = []
        if not self.cuts and not self.inside and self.queue:
            self.cuts = [self.queue.pop(0)]
            let_in += self.cuts
        return let_in


class AdmissionHistories(RuleBasedStateMachine):
    """Every sequence of requests, releases and withdrawals answers as the plain model does."""

    def __init__(self) -> None:
        super().__init__()
        self.core = AdmissionCore()
        self.model = PlainModel()

    @rule()
    def request_slot(self) -> None:
        ticket = slot()
        expected = not self.model.shut
        assert self.core.request_slot(ticket) is expected
        (self.model.inside if expected else self.model.waiting).append(ticket)

    @rule()
    def request_slot_nowait(self) -> None:
        ticket = slot()
        expected = not self.model.shut
        assert self.core.request_slot_nowait(ticket) is expected
        if expected:
            self.model.inside.append(ticket)

    @rule()
    def request_cut(self) -> None:
        ticket = cut()
        expected = not self.model.shut and not self.model.inside
        assert self.core.request_cut(ticket) is expected
        (self.model.cuts if expected else self.model.queue).append(ticket)

    @precondition(lambda self: self.model.inside)
    @rule(data=st.data())
    def leave_slot(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.model.inside))
        let_in = self.core.leave(ticket)
        self.model.inside.remove(ticket)
        self.compare(let_in, self.model.settle(batch_first=False))

    @precondition(lambda self: self.model.cuts)
    @rule()
    def leave_cut(self) -> None:
        let_in = self.core.leave(self.model.cuts.pop())
        self.compare(let_in, self.model.settle(batch_first=True))

    @precondition(lambda self: self.model.waiting or self.model.queue)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.model.waiting + self.model.queue))
        let_in = self.core.withdraw(ticket)
        (self.model.queue if ticket.exclusive else self.model.waiting).remove(ticket)
        self.compare(let_in, self.model.settle(batch_first=False))

    def compare(self, let_in: Sequence[Ticket], expected: list[Ticket]) -> None:
        assert list(let_in) == expected

    @invariant()
    def the_tables_agree(self) -> None:
        core, model = self.core, self.model
        assert list(core.inside) == model.inside or set(core.inside) == set(model.inside)
        assert core.cut is (model.cuts[0] if model.cuts else None)
        assert core.waiting_mutations == len(model.waiting)
        assert core.waiting_checkpoints == len(model.queue)
        assert core.draining is (model.queue[0] if model.queue and not model.cuts else None)
        assert core.gate_open is not model.shut
        assert core.free is (not model.shut and not model.inside)

    @invariant()
    def the_cut_excludes_writers(self) -> None:
        assert self.core.cut is None or self.core.active_mutations == 0

    @invariant()
    def whoever_waits_has_somebody_to_wait_for(self) -> None:
        core = self.core
        assert not core.waiting_mutations or core.cut is not None or core.waiting_checkpoints
        assert not core.waiting_checkpoints or core.cut is not None or core.active_mutations

    @invariant()
    def every_ticket_stands_where_its_table_says(self) -> None:
        model = self.model
        assert all(ticket.standing is Standing.LIVE for ticket in model.inside + model.cuts)
        assert all(ticket.standing is Standing.WAITING for ticket in model.waiting + model.queue)


TestAdmissionHistories = AdmissionHistories.TestCase
TestAdmissionHistories.settings = settings(max_examples=200, stateful_step_count=40)
