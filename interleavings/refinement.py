"""How `impl` refines `spec`: the single page where it stands what an event means and what is compared.

**Events.** Every action of `impl` emits an event of its own name in the stretch of code that changes the state. For the
machine that declares the action it must be enabled; events of the other machine are ignored by name, never by default.

**State.** After every step the aspects below must be equal in the machine's state and in the implementation. A machine
variable is either compared, or it is history that no implementation keeps, listed here with the reason:

barrier   compared: who waits, who is inside, the queue of checkpoints, the open cut
          history: `rounds_left`, `late`, `passed_over` (what was asked before); `cancellations_left`,
          `expiries_left` (budgets); whether a checkpoint outside the queue is idle or done
cut       compared: cursor, dispatch cursor, ledger, slots, accounts, stamps, version, permits, open window; and at
          publication the whole image, against the real files
          history: `gate_passed`, `lingering` (where a task stands in its code); `saves_left`, `crashes_left`
          (budgets); the image while it is read, since no step of the implementation ends in between

**Stutters and quirks**, each with its reason, in the rules below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from impl.keys import Key
from spec.barrier import DONE, IDLE, INSIDE, OPEN, OUTSIDE, QUEUED, WAITING, BarrierScope
from spec.barrier import barrier as barrier_machine
from spec.cut import CutScope
from spec.cut import cut as cut_machine
from spec.cut.state import ADMITTED, CLAIMED, NO_ENTRY, NO_SLOT, READY, RESERVED, TRAINED, UNREADY
from spec.cut.state import OPEN as CUT_OPEN

from .follower import Coverage, Event, Follower, Path, Remembered, Rule, Stutter, View

if TYPE_CHECKING:
    from impl import Controller
    from impl.barrier import BarrierFrontEnd

BARRIER_EVENTS = frozenset(
    {
        "request_slot",
        "enter_slot",
        "leave_slot",
        "withdraw_slot",
        "request_cut",
        "open_cut",
        "close_cut",
        "withdraw_cut",
    }
)
CUT_EVENTS = frozenset(
    {
        "reserve_batch",
        "pass_gate",
        "commit_admission",
        "dispatch",
        "commit_group",
        "remove_committed",
        "claim",
        "finish_step",
        "read_sampler",
        "read_loader",
        "read_buffer",
        "read_ledger",
        "read_trainer",
        "publish",
        "end_epoch",
    }
)

# Events of actions that no machine has yet. A scenario in which one occurs is refused: it must be given a meaning.
NOT_FOLLOWED_YET = frozenset({
    "drop", "evict", "abort_stale", "fail_attempt", "retry", "shrink", "empty_step", "write_back", "skip_snapshot",
    "fail_save", "restore",
})  # fmt: skip

COUNTED_IN_AS_A_BATCH = "enter_slot after close_cut: the machine counts the whole batch in with the release"
SLOTS_ARE_ATOMIC = "request_cut, close of slots: the cut machine asks for its cut in the instant it opens"
DURABLE_LATER = "publish: the image was fixed when the window closed; its durability changes nothing in memory"
NO_EPOCHS = "end_epoch: the cut machine has one epoch"

# ------------------------------------------------------------------------------------------------- barrier


def _being_cancelled() -> bool:
    """Whether the task that emits was cancelled. The machine tells a cancelled leave from an ordinary one."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class BarrierTasks:
    """Names tasks as the machine does: "writer-0" is writer 0, "checkpoint-1" is checkpoint 1."""

    def __init__(self, writers: int, checkpointers: int) -> None:
        self.writer = {f"writer-{i}": i for i in range(writers)}
        self.checkpoint = {f"checkpoint-{i}": i for i in range(checkpointers)}


def barrier_rules(tasks: BarrierTasks) -> dict[str, Rule]:
    """What each event of the barrier means for its machine."""

    def of_writer(action: str, cancelled: str | None = None) -> Rule:
        def rule(event: Event, state: Any) -> Path:
            return [((cancelled if cancelled and event.fields["cancelled"] else action), _writer(event))]

        return rule

    def of_checkpoint(action: str, cancelled: str | None = None) -> Rule:
        def rule(event: Event, state: Any) -> Path:
            return [((cancelled if cancelled and event.fields["cancelled"] else action), _checkpoint(event))]

        return rule

    def _writer(event: Event) -> int:
        return tasks.writer[event.fields["task"]]

    def _checkpoint(event: Event) -> int:
        return tasks.checkpoint[event.fields["task"]]

    def enter_slot(event: Event, state: Any) -> Path | Stutter:
        # The machine's release lets the batch in at once; the implementation then names each of it. A second entry of
        # a writer that is inside would be refused before it is traced, so this cannot hide one.
        if state.at[_writer(event)] == INSIDE:
            return Stutter(COUNTED_IN_AS_A_BATCH)
        return [("enter_slot", _writer(event))]

    def withdraw_cut(event: Event, state: Any) -> Path:
        expired = event.fields["reason"] == "expired"
        return [("expire_cut" if expired else "withdraw_cut", _checkpoint(event))]

    return {
        "request_slot": of_writer("request_slot"),
        "enter_slot": enter_slot,
        # A writer cancelled inside gives its slot back like any other, and asks no more.
        "leave_slot": of_writer("leave_slot", cancelled="cancel_inside"),
        "withdraw_slot": of_writer("withdraw_slot"),
        "request_cut": of_checkpoint("request_cut"),
        "open_cut": of_checkpoint("open_cut"),
        "close_cut": of_checkpoint("close_cut", cancelled="cancel_in_cut"),
        "withdraw_cut": withdraw_cut,
    }


def barrier_of_machine(state: Any) -> View:
    """The barrier as its machine has it."""
    queued = [(state.place[c], c) for c in state.all_checkpointers if state.place[c]]
    return {
        "waiting": frozenset(f"writer-{w}" for w in state.all_writers if state.at[w] == WAITING),
        "inside": frozenset(f"writer-{w}" for w in state.all_writers if state.at[w] == INSIDE),
        "queue": tuple(f"checkpoint-{c}" for _, c in sorted(queued)),
        "open cut": tuple(f"checkpoint-{c}" for c in state.all_checkpointers if state.cut[c] == OPEN),
        "outside": frozenset(f"writer-{w}" for w in state.all_writers if state.at[w] == OUTSIDE),
        "not queued": frozenset(f"checkpoint-{c}" for c in state.all_checkpointers if state.cut[c] in (IDLE, DONE)),
        "queued": frozenset(f"checkpoint-{c}" for c in state.all_checkpointers if state.cut[c] == QUEUED),
    }


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
    return Remembered(barrier_machine.model(scope), barrier_of_machine)


def follow_barrier(
    model: Remembered, barrier: Callable[[], BarrierFrontEnd], tasks: BarrierTasks, coverage: Coverage
) -> Follower:
    """A follower of the barrier machine. It is the tracer of `barrier()`, so it is made before it."""
    return Follower(
        "barrier",
        model,
        barrier_rules(tasks),
        ignored=CUT_EVENTS,
        of_implementation=lambda: barrier_of_implementation(barrier(), tasks),
        coverage=coverage,
    )


def with_cancellation(follower: Follower) -> Callable[..., None]:
    """A tracer that notes, at the event itself, whether the emitting task is being cancelled."""
    return lambda action, /, **fields: follower(action, **fields, cancelled=_being_cancelled())


# ---------------------------------------------------------------------------------------------------- cut


class Prompts:
    """The machine numbers prompts in the order in which the loader hands them out; the implementation has groups."""

    def __init__(self) -> None:
        self._of_group: dict[int, int] = {}
        self._of_key: dict[tuple[int, int], int] = {}

    def learn(self, groups: Iterable[int], keys: Iterable[tuple[int, int]]) -> None:
        """Number the prompts of a batch that was just handed out."""
        for group, key in zip(groups, keys, strict=True):
            number = self._of_key.setdefault((key[0], key[1]), len(self._of_key))
            self._of_group[group] = number

    def of_group(self, group: int) -> int:
        """The machine's number of a group's prompt."""
        return self._of_group[group]

    def of_key(self, key: tuple[int, int]) -> int:
        """The machine's number of a key."""
        return self._of_key[(key[0], key[1])]

    def known(self) -> Mapping[tuple[int, int], int]:
        """Every key handed out so far with its number."""
        return self._of_key


def cut_rules(prompts: Prompts) -> dict[str, Rule]:
    """What each event of the protocol means for the cut machine."""

    def same(event: Event, state: Any) -> Path:
        return [(event.action, None)]

    def of_group(event: Event, state: Any) -> Path:
        return [(event.action, prompts.of_group(event.fields["group"]))]

    def reserve_batch(event: Event, state: Any) -> Path:
        prompts.learn(event.fields["groups"], event.fields["keys"])
        return [("reserve_batch", None)]

    def open_cut(event: Event, state: Any) -> Path:
        # A slot that was open when the cut was asked for may still act until it drains; taken as one instant, its
        # action lies before the request. So the machine asks in the instant in which the cut opens.
        return [("request_cut", None), ("open_cut", None)]

    def read_loader(event: Event, state: Any) -> Path:
        # The library has no spare pool yet and writes an empty one; the machine reads its empty pool here.
        return [("read_loader", None), ("read_pool", None)]

    def asks_later(event: Event, state: Any) -> Stutter:
        return Stutter(SLOTS_ARE_ATOMIC)

    def close_cut(event: Event, state: Any) -> Path:
        # With the end of the window the image is fixed; from here the machine goes on as if it were durable.
        return [("publish", None)]

    def durable(event: Event, state: Any) -> Stutter:
        return Stutter(DURABLE_LATER)

    def end_epoch(event: Event, state: Any) -> Stutter:
        return Stutter(NO_EPOCHS)

    return {
        "reserve_batch": reserve_batch,
        "pass_gate": same,
        "commit_admission": same,
        "dispatch": of_group,
        "commit_group": of_group,
        "remove_committed": of_group,
        "claim": same,
        "finish_step": same,
        "request_cut": asks_later,
        "open_cut": open_cut,
        "read_sampler": same,
        "read_loader": read_loader,
        "read_buffer": same,
        "read_ledger": same,
        "read_trainer": same,
        "close_cut": close_cut,
        "publish": durable,
        "end_epoch": end_epoch,
    }


def cut_of_machine(state: Any) -> View:
    """The run as the cut machine has it."""
    ledger = {RESERVED: "RESERVED", ADMITTED: "ADMITTED"}
    slots = {UNREADY: "unready", READY: "ready", CLAIMED: "claimed"}
    return {
        "cursor": state.cursor,
        "dispatch cursor": state.dispatch_cursor,
        "ledger": frozenset((p, ledger[e]) for p, e in enumerate(state.ledger) if e != NO_ENTRY),
        "slots": frozenset((p, slots[e]) for p, e in enumerate(state.slot) if e != NO_SLOT),
        "trained": frozenset(p for p, e in enumerate(state.account) if e == TRAINED),
        "stamps": frozenset((p, e) for p, e in enumerate(state.stamp) if e >= 0),
        "version": state.version,
        "permits": state.permits,
        "window open": state.window >= CUT_OPEN,
    }


def cut_of_implementation(controller: Controller, prompts: Prompts) -> View:
    """The run as `impl` has it, with groups and keys named by the machine's prompts."""
    ledger, buffer, loader = controller.ledger, controller.buffer, controller._parts.loader
    entries = {prompts.of_group(group): entry for group, entry in ledger.entries.items()}
    slots = {prompts.of_group(group): slot for group, slot in buffer.slots.items()}
    stamps = {p: entry.step for p, entry in entries.items()} | {p: slot.step for p, slot in slots.items()}
    return {
        "cursor": loader.state().position // loader.batch_size,
        "dispatch cursor": controller._parts.sampler.state().cursor,
        "ledger": frozenset((p, entry.phase.name) for p, entry in entries.items()),
        "slots": frozenset((p, _slot_says(slot)) for p, slot in slots.items()),
        "trained": frozenset(p for key, p in prompts.known().items() if ledger.accounts.is_trained(Key(*key))),
        "stamps": frozenset((p, step) for p, step in stamps.items() if step is not None),
        "version": controller.progress.version,
        # A permit that a task holds on its way to a slot is free to the machine, which takes it with the slot.
        "permits": buffer.capacity - len(slots),
        "window open": controller.barrier._core.cut is not None,
    }


def _slot_says(slot: Any) -> str:
    return "claimed" if slot.claimed else "ready" if slot.ready else "unready"


def cut_model(scope: CutScope) -> Remembered:
    """The cut machine in one scope, to be followed by any number of runs."""
    return Remembered(cut_machine.model(scope), cut_of_machine)


def follow_cut(
    model: Remembered, controller: Callable[[], Controller], prompts: Prompts, coverage: Coverage
) -> Follower:
    """A follower of the cut machine. It is the tracer of the run's barrier, so it is made before the controller."""
    return Follower(
        "cut",
        model,
        cut_rules(prompts),
        ignored=BARRIER_EVENTS - {"request_cut", "open_cut", "close_cut"},
        of_implementation=lambda: cut_of_implementation(controller(), prompts),
        coverage=coverage,
    )


def image_of_machine(state: Any) -> View:
    """The whole image that the machine is about to publish."""
    ledger = {RESERVED: "RESERVED", ADMITTED: "ADMITTED"}
    return {
        "cursor": state.image_cursor,
        "dispatch cursor": state.image_dispatch_cursor,
        "version": state.image_version,
        "ledger": frozenset((p, ledger[e]) for p, e in enumerate(state.image_ledger) if e != NO_ENTRY),
        "ready": frozenset(p for p, e in enumerate(state.image_ready) if e),
        "trained": frozenset(p for p, e in enumerate(state.image_account) if e == TRAINED),
        "stamps": frozenset((p, e) for p, e in enumerate(state.image_stamp) if e >= 0),
    }


def image_of_files(documents: Mapping[str, Any], prompts: Prompts) -> View:
    """The same of a published checkpoint, from its JSON files."""
    entries = {prompts.of_key((e["epoch"], e["index"])): e for e in documents["ledger.json"]["entries"]}
    slots = {prompts.of_key((s["epoch"], s["index"])): s for s in documents["buffer.json"]["slots"]}
    trained = documents["trainer.json"]["accounts"]["trained"]
    stamps = {p: e["step"] for p, e in entries.items()} | {p: s["step"] for p, s in slots.items()}
    loader = documents["loader.json"]["state"]
    return {
        "cursor": loader["position"] // loader["batch_size"],
        "dispatch cursor": documents["sampler.json"]["state"]["cursor"],
        "version": documents["trainer.json"]["version"],
        "ledger": frozenset((p, e["phase"].upper()) for p, e in entries.items()),
        "ready": frozenset(slots),
        "trained": frozenset(
            prompts.of_key((span["epoch"], index))
            for span in trained
            for index in range(span["first"], span["last"] + 1)
        ),
        "stamps": frozenset((p, step) for p, step in stamps.items() if step is not None),
    }


def owners_of_files(documents: Mapping[str, Any]) -> dict[tuple[int, int], list[str]]:
    """Who owns each key of a published checkpoint: ledger, buffer, accounts."""
    owners: dict[tuple[int, int], list[str]] = {}
    for entry in documents["ledger.json"]["entries"]:
        owners.setdefault((entry["epoch"], entry["index"]), []).append("ledger")
    for slot in documents["buffer.json"]["slots"]:
        owners.setdefault((slot["epoch"], slot["index"]), []).append("buffer")
    accounts = documents["trainer.json"]["accounts"]
    for span in accounts["trained"]:
        for index in range(span["first"], span["last"] + 1):
            owners.setdefault((span["epoch"], index), []).append("trained")
    for dropped in accounts["dropped"]:
        owners.setdefault((dropped["epoch"], dropped["index"]), []).append("dropped")
    return owners
