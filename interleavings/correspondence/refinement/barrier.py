"""The barrier and its machine: what its events mean there, and what is compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spec.machines.barrier import (
    CHILD_INSIDE,
    CHILD_WAITING,
    DONE,
    FENCED,
    IDLE,
    INSIDE,
    OPEN,
    OUTSIDE,
    QUEUED,
    WAITING,
    BarrierScope,
)
from spec.machines.barrier import barrier as barrier_machine

from ..follower import Coverage, Event, EventlessFollower, Follower, Path, Remembered, Rule, Stutter, View
from .vocabulary import CLOSED_WITH_ITS_LEASE, COUNTED_IN_AS_A_BATCH, CUT_EVENTS, FIGURE_EVENTS
from .words import MachineWords

if TYPE_CHECKING:
    from impl.barrier import BarrierFrontEnd


# What a slot's events are of a task that a writer started inside its own.
OF_A_CHILD = {"request_slot": "child_request", "leave_slot": "child_leave", "withdraw_slot": "cancel_child"}


def _being_cancelled() -> bool:
    """Whether the task that emits was cancelled. The machine tells a cancelled leave from an ordinary one."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class BarrierTasks:
    """Names tasks as the machine does: "writer-0" is writer 0, "child-0" its child, "checkpoint-1" checkpoint 1."""

    def __init__(self, writers: int, checkpointers: int) -> None:
        self.writer = {f"writer-{i}": i for i in range(writers)}
        self.child = {f"child-{i}": i for i in range(writers)}
        self.checkpoint = {f"checkpoint-{i}": i for i in range(checkpointers)}


def barrier_rules(tasks: BarrierTasks) -> dict[str, Rule]:
    """What each event of the barrier means for its machine."""

    def of_writer(action: str) -> Rule:
        def rule(event: Event, state: Any) -> Path:
            if event.fields["task"] in tasks.child:
                return [(OF_A_CHILD[action], _child(event))]
            return [(action, _writer(event))]

        return rule

    def lapsed(event: Event) -> bool:
        """The section ends because its lease did; whoever follows a barrier with leases says so."""
        return bool(event.fields.get("lapsed"))

    def of_checkpoint(action: str) -> Rule:
        def rule(event: Event, state: Any) -> Path:
            return [(action, _checkpoint(event))]

        return rule

    def _writer(event: Event) -> int:
        return tasks.writer[event.fields["task"]]

    def _child(event: Event) -> int:
        return tasks.child[event.fields["task"]]

    def said_by_the_program(action: str) -> Rule:
        def rule(event: Event, state: Any) -> Path:
            return [(action, event.fields["writer"])]

        return rule

    def _checkpoint(event: Event) -> int:
        return tasks.checkpoint[event.fields["task"]]

    def enter_slot(event: Event, state: Any) -> Path | Stutter:
        # The machine's release lets the batch in at once; the implementation then names each of it. A second entry of
        # a writer that is inside would be refused before it is traced, so this cannot hide one.
        if event.fields["task"] in tasks.child:
            if state.child[_child(event)] == CHILD_INSIDE:
                return Stutter(COUNTED_IN_AS_A_BATCH)
            return [("child_enter", _child(event))]
        if state.at[_writer(event)] == INSIDE:
            return Stutter(COUNTED_IN_AS_A_BATCH)
        return [("enter_slot", _writer(event))]

    def request_slot(event: Event, state: Any) -> Path:
        if event.fields["task"] in tasks.child:
            return [(OF_A_CHILD["request_slot"], _child(event))]
        writer = _writer(event)
        # Whoever asks anew knows that its lease is over.
        learned: Path = [("learn_of_expiry", writer)] if state.lease[writer] == FENCED else []
        return [*learned, ("request_slot", writer)]

    def expire_lease(event: Event, state: Any) -> Path | Stutter:
        if event.fields["task"] in tasks.checkpoint:
            return Stutter(CLOSED_WITH_ITS_LEASE)
        # When its holder fell silent nobody but it knows.
        return [("fall_silent", _writer(event)), ("expire_lease", _writer(event))]

    def leave_slot(event: Event, state: Any) -> Path:
        if event.fields["task"] in tasks.child:
            return [(OF_A_CHILD["leave_slot"], _child(event))]
        # A writer cancelled inside gives its slot back like any other, and asks no more.
        own = "cancel_inside" if event.fields["cancelled"] else "leave_slot"
        return [("fence_lease" if lapsed(event) else own, _writer(event))]

    def close_cut(event: Event, state: Any) -> Path:
        own = "cancel_in_cut" if event.fields["cancelled"] else "close_cut"
        return [("lose_cut" if lapsed(event) else own, _checkpoint(event))]

    def withdraw_cut(event: Event, state: Any) -> Path:
        expired = event.fields["reason"] == "expired"
        return [("expire_cut" if expired else "withdraw_cut", _checkpoint(event))]

    return {
        "request_slot": request_slot,
        "enter_slot": enter_slot,
        "expire_lease": expire_lease,
        "leave_slot": leave_slot,
        "withdraw_slot": of_writer("withdraw_slot"),
        "request_cut": of_checkpoint("request_cut"),
        "open_cut": of_checkpoint("open_cut"),
        "close_cut": close_cut,
        "withdraw_cut": withdraw_cut,
        # The library has no event for either: a task is asyncio's, and a refusal changes nothing.
        "start_child": said_by_the_program("start_child"),
        "refuse_child": said_by_the_program("refuse_child"),
    }


def barrier_of_machine(state: Any) -> View:
    """The barrier as its machine has it."""
    queued = [(state.place[c], c) for c in state.all_checkpointers if state.place[c]]
    return {
        "waiting": _standing(state, WAITING, CHILD_WAITING),
        "inside": _standing(state, INSIDE, CHILD_INSIDE),
        "queue": tuple(f"checkpoint-{c}" for _, c in sorted(queued)),
        "open cut": tuple(f"checkpoint-{c}" for c in state.all_checkpointers if state.cut[c] == OPEN),
        "outside": frozenset(f"writer-{w}" for w in state.all_writers if state.at[w] == OUTSIDE),
        "not queued": frozenset(f"checkpoint-{c}" for c in state.all_checkpointers if state.cut[c] in (IDLE, DONE)),
        "queued": frozenset(f"checkpoint-{c}" for c in state.all_checkpointers if state.cut[c] == QUEUED),
    }


def _standing(state: Any, at: int, child: int) -> frozenset[str]:
    writers = [f"writer-{w}" for w in state.all_writers if state.at[w] == at]
    return frozenset((*writers, *(f"child-{w}" for w in state.all_writers if state.child[w] == child)))


def barrier_of_implementation(barrier: BarrierFrontEnd, tasks: BarrierTasks) -> View:
    """The barrier as `impl` has it: the tables of its admission core, by the names of the tasks."""
    core = barrier._core
    inside = frozenset(_task(t) for t in core.inside)
    waiting = frozenset(_task(t) for t in core._mutations)
    queued = tuple(_task(t) for t in core._checkpoints)
    opened = () if core.cut is None else (_task(core.cut),)
    return {
        "waiting": waiting,
        "inside": inside,
        "queue": (*opened, *queued),
        "open cut": opened,
        "outside": frozenset(tasks.writer) - inside - waiting,
        "not queued": frozenset(tasks.checkpoint) - {*opened, *queued},
        "queued": frozenset(queued),
    }


def _task(ticket: Any) -> str:
    return str(ticket.task_name)


def barrier_model(scope: BarrierScope) -> Remembered:
    """The barrier machine in one scope, to be followed by any number of runs."""
    model = barrier_machine.model(scope)
    return Remembered(model, barrier_of_machine, MachineWords(model))


def follow_barrier(
    model: Remembered, barrier: Callable[[], BarrierFrontEnd], tasks: BarrierTasks, coverage: Coverage
) -> Follower:
    """A follower of the barrier machine. It is the tracer of `barrier()`, so it is made before it."""
    return Follower(
        "barrier",
        model,
        barrier_rules(tasks),
        ignored=CUT_EVENTS | FIGURE_EVENTS,
        of_implementation=lambda: barrier_of_implementation(barrier(), tasks),
        coverage=coverage,
    )


#: Actions of the machine in one step of the library at most: a section is given back, another asked for and entered.
ACTIONS_OF_A_STEP = 3


def follow_silent_barrier(
    model: Remembered, barrier: Callable[[], BarrierFrontEnd], tasks: BarrierTasks
) -> EventlessFollower:
    """A follower of the barrier machine for a barrier without a tracer."""
    return EventlessFollower("barrier", model, lambda: barrier_of_implementation(barrier(), tasks), ACTIONS_OF_A_STEP)


def with_cancellation(follower: Follower) -> Callable[..., None]:
    """A tracer that notes, at the event itself, whether the emitting task is being cancelled."""
    return lambda action, /, **fields: follower(action, **fields, cancelled=_being_cancelled())
