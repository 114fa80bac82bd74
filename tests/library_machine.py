"""The rules by which Hypothesis drives the library and its model; one class, made for each sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from library_model import Setting
from library_pumps import doing, go_on, go_to_the_end, lingering, pool_is_low, undispatched
from library_twin import Twin

PICKS = st.integers(0, 5)
SEVERAL = st.integers(2, 12)
#: Which of the groups that generate ends next: the oldest or the youngest.
PLACES = st.sampled_from([0, -1])
#: What `go_on` may leave undone, so that groups gather in front of it.
UNDONE = st.sampled_from(["", "claim", "finish_step", "commit_group", "dispatch", "commit_admission"])


def when(guard: Callable[[LibraryMachine], object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The rule is for states in which the guard holds: is true, or not empty."""
    return precondition(lambda machine: bool(guard(machine)))


def picked(candidates: Sequence[int], pick: int) -> int:
    return candidates[pick % len(candidates)]


class LibraryMachine(RuleBasedStateMachine):
    """Every action of the protocol, in any order in which its guard allows it."""

    sampler = "in_order"
    #: What the walks of this class have met: events of the library, and situations of the model.
    met: ClassVar[set[str]]
    twin: Twin

    @initialize(
        bound=st.sampled_from([0, 1, 2, 3]),
        whole=st.integers(1, 3),
        length=st.integers(3, 7),
        epochs=st.integers(1, 2),
        room=st.sampled_from([0, 1, 2, 2]),
        in_flight=st.integers(1, 4),
        train_remainder=st.booleans(),
        borrow=st.sampled_from([True, True, False]),
        spares=st.sampled_from([True, True, False]),
        retries=st.sampled_from([0, 1, 1]),
        ahead=st.tuples(st.integers(0, 40), UNDONE, PLACES),
    )
    def begin(self, ahead: tuple[int, str, int], **choices: int) -> None:
        """Some way into a run: walks that all begin with nothing stay near it."""
        if self.sampler != "in_order":
            # Groups grow too old where the staleness is small.
            choices["bound"] = choices["bound"] // 2
        self.twin = Twin(Setting(self.sampler, **choices))  # type: ignore[arg-type]
        self.done_so_far = self.full_disks = self.in_vain = self.saved_at = 0
        self.go_on(*ahead)

    def teardown(self) -> None:
        if hasattr(self, "twin"):
            self.met.update(self.twin.met)
            self.twin.close()

    def done(self, after: str) -> None:
        self.done_so_far += 1
        self.twin.check(after)

    # -- the rollout side

    @when(lambda self: len(self.twin.model.reserved()) < 2)
    @rule()
    def reserve_batch(self) -> None:
        self.twin.reserve_batch()
        self.done("reserve_batch")

    @when(lambda self: pool_is_low(self.twin))
    @rule()
    def divert_batch(self) -> None:
        self.twin.divert_batch()
        self.done("divert_batch")

    @when(lambda self: self.twin.model.pool and self.twin.model.exhausted)
    @rule()
    def drain_pool(self) -> None:
        self.twin.drain_pool()
        self.done("drain_pool")

    @when(lambda self: self.twin.model.reserved())
    @rule(pick=PICKS)
    def pass_gate(self, pick: int) -> None:
        self.twin.pass_gate(picked(list(self.twin.model.reserved()), pick))
        self.done("pass_gate")

    @when(lambda self: self.twin.model.reserved() and self.twin.model.gate_open)
    @rule(pick=PICKS)
    def commit_admission(self, pick: int) -> None:
        self.twin.commit_admission(picked(list(self.twin.model.reserved()), pick))
        self.done("commit_admission")

    @when(lambda self: undispatched(self.twin.model))
    @rule(pick=PICKS)
    def dispatch(self, pick: int) -> None:
        self.twin.dispatch(picked(undispatched(self.twin.model), pick))
        self.done("dispatch")

    # -- generation

    @when(lambda self: doing(self.twin.model, "generating"))
    @rule(pick=PICKS)
    def commit_group(self, pick: int) -> None:
        self.twin.commit_group(picked(doing(self.twin.model, "generating"), pick))
        self.done("commit_group")

    @when(lambda self: lingering(self.twin.model))
    @rule(pick=PICKS)
    def remove_committed(self, pick: int) -> None:
        self.twin.remove_committed(picked(lingering(self.twin.model), pick))
        self.done("remove_committed")

    @when(lambda self: doing(self.twin.model, "generating"))
    @rule(pick=PICKS, cause=st.sampled_from(["transient", "data"]))
    def fail_attempt(self, pick: int, cause: str) -> None:
        self.twin.fail_attempt(picked(doing(self.twin.model, "generating"), pick), cause)
        self.done("fail_attempt")

    @when(lambda self: doing(self.twin.model, "generating"))
    @rule(pick=PICKS)
    def fail_for_good(self, pick: int) -> None:
        """One group fails until it is given up: one that may borrow, if there is any."""
        generating = doing(self.twin.model, "generating")
        group = picked([group for group in generating if self.twin.model.lender(group)] or generating, pick)
        while group in doing(self.twin.model, "generating"):
            self.twin.fail_attempt(group, "data")
            self.done("fail_attempt")
            if group in doing(self.twin.model, "backing_off"):
                self.twin.retry(group)
                self.done("retry")
        if group in doing(self.twin.model, "given_up"):
            self.twin.fill_place(group)
            self.done("substitute, borrow or shrink")

    @when(lambda self: self.twin.model.groups and not self.twin.model.claimed)
    @rule(count=SEVERAL)
    def fail_behind_the_others(self, count: int) -> None:
        """The youngest groups are ready when the oldest fails: a later step may have a group to lend.

        Without stamps the others are trained meanwhile, and the oldest may grow too old.
        """
        self.go_on(count, "claim" if self.twin.setting.stamped else "", -1)
        if doing(self.twin.model, "generating"):
            self.fail_for_good(0)

    @when(lambda self: doing(self.twin.model, "backing_off") and self.twin.model.in_flight_free)
    @rule(pick=PICKS)
    def retry(self, pick: int) -> None:
        self.twin.retry(picked(doing(self.twin.model, "backing_off"), pick))
        self.done("retry")

    @when(lambda self: doing(self.twin.model, "given_up") and self.twin.model.in_flight_free)
    @rule(pick=PICKS)
    def fill_place(self, pick: int) -> None:
        self.twin.fill_place(picked(doing(self.twin.model, "given_up"), pick))
        self.done("substitute, borrow or shrink")

    # -- training

    @when(lambda self: not self.twin.model.claimed and self.twin.model.selection())
    @rule()
    def claim(self) -> None:
        self.twin.claim()
        self.done("claim")

    @when(lambda self: self.twin.model.claimed)
    @rule(pick=PICKS)
    def write_back(self, pick: int) -> None:
        self.twin.write_back(picked(self.twin.model.claimed, pick))
        self.done("write_back")

    @when(lambda self: self.twin.model.claimed)
    @rule()
    def finish_step(self) -> None:
        self.twin.finish_step()
        self.done("finish_step")

    @when(lambda self: not self.twin.model.claimed and self.twin.model.step_is_empty())
    @rule()
    def empty_step(self) -> None:
        self.twin.empty_step()
        self.done("empty_step")

    @when(lambda self: self.twin.model.stale())
    @rule()
    def give_up_stale(self) -> None:
        self.twin.give_up_stale()
        self.done("evict and abort_stale")

    # -- checkpoints

    @when(lambda self: self.may_save())
    @rule(snapshot=st.booleans())
    def begin_save(self, snapshot: bool) -> None:
        self.saved_at = self.done_so_far
        self.twin.begin_save(snapshot=snapshot)
        self.done("a window")

    @when(lambda self: self.may_save() and self.full_disks < 2)
    @rule(room=st.integers(0, 6))
    def begin_save_on_a_full_disk(self, room: int) -> None:
        self.full_disks += 1
        self.twin.begin_save(snapshot=False, room=room)
        if self.twin.run.pending is not None:
            self.twin.publish()
        self.done("a failing save")

    @when(lambda self: self.twin.run.pending is not None)
    @rule()
    def publish(self) -> None:
        self.twin.publish()
        self.done("publish")

    @when(lambda self: self.twin.images)
    @rule(load_buffer=st.booleans())
    def crash_and_restore(self, load_buffer: bool) -> None:
        self.twin.crash(load_buffer=load_buffer)
        self.done("a crash")

    # -- in vain

    @when(lambda self: self.in_vain < 4)
    @rule()
    def try_what_cannot_be(self) -> None:
        """Actions whose guard does not hold change nothing; the library decides that, not the caller."""
        twin, model = self.twin, self.twin.model
        self.in_vain += 1
        if not model.claimed and not model.selection():
            twin.claim()
            self.done("nothing to claim")
        if not model.claimed and not model.step_is_empty():
            twin.empty_step()
            self.done("a step that is not empty")
        if model.cursor < 0:
            twin.divert_batch()
            self.done("a diversion before the first admission")
        if not model.exhausted:
            twin.drain_pool()
            self.done("a pool drained before the end of the data")

    # -- many actions at once

    @rule(count=SEVERAL, undone=UNDONE, place=PLACES)
    def go_on(self, count: int, undone: str, place: int) -> None:
        """Some actions as the pumps would choose them, so that walks reach far; see `library_pumps.go_on`."""
        for name in go_on(self.twin, count, undone, place):
            self.done(name)

    def may_save(self) -> bool:
        """No save is in flight, and something has happened since the last."""
        return self.twin.run.pending is None and self.done_so_far > self.saved_at + 2

    @when(lambda self: self.may_save() and not self.twin.model.claimed)
    @rule(count=SEVERAL, undone=UNDONE)
    def save_on_the_way(self, count: int, undone: str) -> None:
        """A save is written while the run goes on."""
        self.begin_save(snapshot=False)
        self.go_on(count, undone, 0)
        self.publish()

    @when(lambda self: self.may_save() and not self.twin.model.claimed)
    @rule(count=SEVERAL)
    def snapshot_on_the_way(self, count: int) -> None:
        """A snapshot while a train step has claimed groups, if it comes to that, after the full save it belongs to."""
        self.begin_save(snapshot=False)
        self.publish()
        self.go_on(count, "finish_step", 0)
        self.begin_save(snapshot=True)
        if self.twin.run.pending is not None:
            self.publish()

    @when(lambda self: self.done_so_far > 80)
    @rule()
    def run_to_the_end(self) -> None:
        """no_stall: from any state the pumps reach the end of the data, with every prompt trained or dropped."""
        go_to_the_end(self.twin)


def machine_of(sampler: str) -> type[LibraryMachine]:
    """The machine of one sampler."""
    return type(f"Library_{sampler}", (LibraryMachine,), {"sampler": sampler, "met": set()})
