"""The cut: how a prompt changes owner between the loader and the trainer, and what a checkpoint of it holds.

    unread --reserve_batch--> RESERVED --commit_admission--> ADMITTED --commit_group--> ready --claim--> claimed
           --finish_step--> trained

RESERVED and ADMITTED live in the ledger. `dispatch` gives an ADMITTED group an unready slot of the replay buffer, which
owns nothing yet; from `commit_group` on the buffer owns the group, and `remove_committed` drops the ledger entry that
lingers. Each action is one mutation slot, atomic here; the machine of the barrier justifies that.

A save is the cut of DESIGN §2.3, one artifact a step, so that a variant may read one of them at another instant:

    OUTSIDE_WINDOW --request_cut--> DRAINING --open_cut--> read_sampler, read_loader, read_buffer, read_ledger,
    read_trainer --> CAPTURED --publish--> OUTSIDE_WINDOW

Publishing forks: `publish` goes on, `crash_and_restore` starts again from the image. That is exact, since a restored
state depends on the disk alone, and no durable copy need be carried in the state.

A prompt is named by its index; `batch_of[p]` is its batch, which is its admission. Only operators of `spec.expression`
are used on state variables, so the same text is enumerated here and proved for any number of prompts in `proofs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .expression import Value, all_of, any_of, count, each, implies, not_, put, where
from .machine import Machine

# Where a prompt stands in the ledger, in the replay buffer, and in the accounts.
NO_ENTRY, RESERVED, ADMITTED = 0, 1, 2
NO_SLOT, UNREADY, READY, CLAIMED = 0, 1, 2, 3
NO_ACCOUNT, TRAINED = 0, 1
LEDGER_SAYS = ("no entry", "RESERVED", "ADMITTED")
SLOT_SAYS = ("no slot", "unready", "ready", "claimed")
ACCOUNT_SAYS = ("none", "trained")
# The stages of a save. A variant that reads before it asks uses READ_EARLY.
OUTSIDE_WINDOW, READ_EARLY, DRAINING, OPEN = 0, 1, 2, 3
SAMPLER_READ, LOADER_READ, BUFFER_READ, LEDGER_READ, CAPTURED = 4, 5, 6, 7, 8
WINDOW_SAYS = (
    "outside",
    "read early",
    "draining",
    "open",
    "sampler read",
    "loader read",
    "buffer read",
    "ledger read",
    "captured",
)


@dataclass(frozen=True)
class CutScope:
    """The size of one enumeration, and the features that are switched on."""

    batches: int
    """Batches the loader has."""
    batch_size: int
    """Prompts in a batch, which is the prompts of one train step."""
    lookahead: int
    """How many steps the in-order sampler may admit ahead of the trainer."""
    saves: int
    """Checkpoints that may be asked for in all."""
    crashes: int
    """Crashes, each followed by a restore, in all."""
    stamped: int = 1
    """1: the in-order sampler, which stamps. 0: the windowed one within its staleness: no stamp, no gate."""


def prompts_in(scope: CutScope) -> int:
    """All prompts of the loader."""
    return scope.batches * scope.batch_size


def capacity(scope: CutScope) -> int:
    """Slots of the replay buffer: what the in-order sampler needs."""
    return scope.batch_size * (scope.lookahead + 1)


cut = Machine("cut")
cut.domain("prompts", prompts_in)
cut.constant("batch_of", "prompts", lambda scope, p: p // scope.batch_size)

# Memory.
cut.variable("cursor", 0, lambda scope: scope.batches, "batches the loader has handed out")
cut.variable("dispatch_cursor", -1, lambda scope: scope.batches, "the step of the newest admission", initial=-1)
cut.variable("gate_passed", 0, 1, "1: the admitter waited for the gate and saw it open")
cut.variable("ledger", NO_ENTRY, ADMITTED, "the ledger entry of each prompt", over="prompts", names=LEDGER_SAYS)
cut.variable("slot", NO_SLOT, CLAIMED, "the buffer slot of each prompt", over="prompts", names=SLOT_SAYS)
cut.variable("account", NO_ACCOUNT, TRAINED, "the account of each prompt", over="prompts", names=ACCOUNT_SAYS)
cut.variable("lingering", 0, 1, "1: committed in this process, its ledger entry still to be removed", over="prompts")
cut.variable(
    "stamp", -1, lambda scope: scope.batches, "the train step each prompt is for, -1 none", initial=-1, over="prompts"
)
cut.variable("version", 0, lambda scope: scope.batches, "train steps done")
cut.variable("permits", 0, capacity, "free slots of the buffer", initial=capacity)
# The save under way. Outside the window it is empty, so that no stale image tells two states apart.
cut.variable("window", OUTSIDE_WINDOW, CAPTURED, "the stage of the save", names=WINDOW_SAYS)
cut.variable("image_dispatch_cursor", -1, lambda scope: scope.batches, "as read", initial=-1)
cut.variable("image_cursor", 0, lambda scope: scope.batches, "as read")
cut.variable("image_ready", 0, 1, "1: in the buffer index as read, ready", over="prompts")
cut.variable(
    "image_ledger", NO_ENTRY, ADMITTED, "as read, without what the buffer owns", over="prompts", names=LEDGER_SAYS
)
cut.variable("image_stamp", -1, lambda scope: scope.batches, "as read", initial=-1, over="prompts")
cut.variable("image_account", NO_ACCOUNT, TRAINED, "as read", over="prompts", names=ACCOUNT_SAYS)
cut.variable("image_version", 0, lambda scope: scope.batches, "as read")
# What may still happen.
cut.variable("saves_left", 0, lambda scope: scope.saves, "saves still to come", initial=lambda scope: scope.saves)
cut.variable(
    "crashes_left", 0, lambda scope: scope.crashes, "crashes still to come", initial=lambda scope: scope.crashes
)


def slots_enter(s: Value) -> Value:
    """A mutation slot may be entered: no checkpoint is asked for or open."""
    return s.window < DRAINING


def parked(s: Value, p: Value) -> Value:
    """Prompt `p` is admitted and waits for its dispatch."""
    return (s.ledger[p] == ADMITTED) & (s.slot[p] == NO_SLOT)


def any_reserved(s: Value) -> Value:
    """Some prompt waits for its admission."""
    return any_of(s.prompts, lambda p: s.ledger[p] == RESERVED)


def none_parked(s: Value) -> Value:
    """No admitted prompt waits for its dispatch."""
    return all_of(s.prompts, lambda p: not_(parked(s, p)))


def gate_open(s: Value) -> Value:
    """The sampler admits: the dispatch cursor is less than `lookahead` ahead of the trainer. Windowed: always."""
    return (s.stamped == 0) | (s.dispatch_cursor < s.version + s.lookahead)


def step_is_free(s: Value, step: Value) -> Value:
    """No group in flight carries this stamp."""
    return all_of(s.prompts, lambda p: s.stamp[p] != step)


# --------------------------------------------------------------------------------------------------- System


@cut.system(who="rollout pump")
def reserve_batch(s: Value) -> tuple[Value, dict[str, Value]]:
    """The loader hands out a batch and every prompt of it is RESERVED, in one slot.

    Disabled at the end of the data, and while an earlier batch is not wholly dispatched: there is one admitter.
    """
    ready_for_more = (s.cursor < s.batches) & not_(any_reserved(s)) & none_parked(s)
    return slots_enter(s) & ready_for_more, {
        "cursor": s.cursor + 1,
        "ledger": each(s.prompts, lambda p: where(s.batch_of[p] == s.cursor, RESERVED, s.ledger[p])),
    }


@cut.system(who="rollout pump")
def pass_gate(s: Value) -> tuple[Value, dict[str, Value]]:
    """The admitter, holding nothing, has waited until the sampler admits.

    Needs a RESERVED admission, and none parked: after a restore the ADMITTED ones are dispatched first, since they may
    be the only work that opens the gate.
    """
    return (s.gate_passed == 0) & any_reserved(s) & none_parked(s) & gate_open(s), {"gate_passed": 1}


@cut.system(who="rollout pump")
def commit_admission(s: Value) -> tuple[Value, dict[str, Value]]:
    """The whole RESERVED admission becomes ADMITTED and takes the next step, in one slot.

    The gate is looked at again inside, and an occupied step is refused. Windowed: no cursor moves, no stamp is given.
    """
    step = s.dispatch_cursor + 1
    free = (s.stamped == 0) | step_is_free(s, step)
    return slots_enter(s) & (s.gate_passed == 1) & gate_open(s) & free, {
        "gate_passed": 0,
        "dispatch_cursor": where(s.stamped == 1, step, s.dispatch_cursor),
        "ledger": each(s.prompts, lambda p: where(s.ledger[p] == RESERVED, ADMITTED, s.ledger[p])),
        "stamp": each(s.prompts, lambda p: where((s.ledger[p] == RESERVED) & (s.stamped == 1), step, s.stamp[p])),
    }


@cut.system(who="rollout pump", each="prompts")
def dispatch(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """Prompt `p`, the first that is parked, takes a permit and an unready slot; its generation starts.

    The permit belongs to the slot until the train step is finished.
    """
    first = all_of(s.prompts, lambda q: not_((q < p) & parked(s, q)))
    return slots_enter(s) & parked(s, p) & first & (s.permits > 0), {
        "slot": put(s.slot, p, UNREADY),
        "permits": s.permits - 1,
    }


@cut.system(who="generation", each="prompts")
def commit_group(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """The generations of prompt `p` are done: its rows become visible and its slot ready, at once and in one slot."""
    return slots_enter(s) & (s.ledger[p] == ADMITTED) & (s.slot[p] == UNREADY), {
        "slot": put(s.slot, p, READY),
        "lingering": put(s.lingering, p, 1),
    }


@cut.system(who="generation", each="prompts")
def remove_committed(s: Value, p: Value) -> tuple[Value, dict[str, Value]]:
    """The ledger entry of a committed group is dropped: the one ledger write that may run without a slot.

    The task that committed does it, right after; nobody does it after a restore. The cut stores the ledger without what
    the buffer owns, so it does not matter on which side of the cut this falls.
    """
    return s.lingering[p] == 1, {"ledger": put(s.ledger, p, NO_ENTRY), "lingering": put(s.lingering, p, 0)}


def selected(s: Value, p: Value) -> Value:
    """Prompt `p` belongs to the next train step: stamped for it, or among the first ready ones when windowed."""
    earlier = count(s.prompts, lambda q: (s.slot[q] == READY) & (q < p))
    return (s.slot[p] == READY) & where(s.stamped == 1, s.stamp[p] == s.version, earlier < s.batch_size)


def step_is_complete(s: Value) -> Value:
    """All groups of the next step are ready; windowed, enough are, or the end of the data leaves no more to come."""
    all_stamped_ready = (s.dispatch_cursor >= s.version) & all_of(
        s.prompts, lambda p: implies(s.stamp[p] == s.version, s.slot[p] == READY)
    )
    ready = count(s.prompts, lambda p: s.slot[p] == READY)
    no_more_to_come = (s.cursor == s.batches) & all_of(
        s.prompts, lambda p: (s.ledger[p] == NO_ENTRY) | (s.slot[p] == READY)
    )
    enough_ready = (ready >= s.batch_size) | ((ready > 0) & no_more_to_come)
    return where(s.stamped == 1, all_stamped_ready, enough_ready)


def between_steps(s: Value) -> Value:
    """The trainer has no open train step."""
    return all_of(s.prompts, lambda p: s.slot[p] != CLAIMED)


@cut.system(who="train pump")
def claim(s: Value) -> tuple[Value, dict[str, Value]]:
    """The trainer opens a step and takes its groups; a ledger entry that lingers goes in the same slot.

    Disabled while a save is under way: the trainer itself runs the save.
    """
    return (s.window == OUTSIDE_WINDOW) & between_steps(s) & step_is_complete(s), {
        "slot": each(s.prompts, lambda p: where(selected(s, p), CLAIMED, s.slot[p])),
        "ledger": each(s.prompts, lambda p: where(selected(s, p), NO_ENTRY, s.ledger[p])),
        "lingering": each(s.prompts, lambda p: where(selected(s, p), 0, s.lingering[p])),
    }


@cut.system(who="train pump")
def finish_step(s: Value) -> tuple[Value, dict[str, Value]]:
    """The open step succeeded: its groups are trained, their rows cleared, their permits back, the version one more."""
    return (s.window == OUTSIDE_WINDOW) & not_(between_steps(s)), {
        "account": each(s.prompts, lambda p: where(s.slot[p] == CLAIMED, TRAINED, s.account[p])),
        "slot": each(s.prompts, lambda p: where(s.slot[p] == CLAIMED, NO_SLOT, s.slot[p])),
        "stamp": each(s.prompts, lambda p: where(s.slot[p] == CLAIMED, -1, s.stamp[p])),
        "permits": s.permits + count(s.prompts, lambda p: s.slot[p] == CLAIMED),
        "version": s.version + 1,
    }


# ------------------------------------------------------------------------------------------------- the save


@cut.system(who="train pump", progress=False)
def request_cut(s: Value) -> tuple[Value, dict[str, Value]]:
    """The trainer, between two steps, asks for a full save. From here on no slot is entered."""
    return (s.window == OUTSIDE_WINDOW) & (s.saves_left > 0) & between_steps(s), {
        "window": DRAINING,
        "saves_left": s.saves_left - 1,
    }


@cut.system(who="barrier")
def open_cut(s: Value) -> tuple[Value, dict[str, Value]]:
    """The slots that were open have ended. Slots are atomic here, so nothing is left to wait for."""
    return s.window == DRAINING, {"window": OPEN}


@cut.system(who="checkpointer")
def read_sampler(s: Value) -> tuple[Value, dict[str, Value]]:
    """The dispatch cursor is read."""
    return s.window == OPEN, {"window": SAMPLER_READ, "image_dispatch_cursor": s.dispatch_cursor}


@cut.system(who="checkpointer")
def read_loader(s: Value) -> tuple[Value, dict[str, Value]]:
    """The loader cursor is read."""
    return s.window == SAMPLER_READ, {"window": LOADER_READ, "image_cursor": s.cursor}


@cut.system(who="checkpointer")
def read_buffer(s: Value) -> tuple[Value, dict[str, Value]]:
    """The buffer index is read: what is ready, and what is claimed as ready, since a crash gives it back."""
    return s.window == LOADER_READ, {
        "window": BUFFER_READ,
        "image_ready": each(s.prompts, lambda p: where(s.slot[p] >= READY, 1, 0)),
        "image_stamp": each(s.prompts, lambda p: s.stamp[p]),
    }


@cut.system(who="checkpointer")
def read_ledger(s: Value) -> tuple[Value, dict[str, Value]]:
    """The ledger is read, without the groups that the buffer owns."""
    return s.window == BUFFER_READ, {
        "window": LEDGER_READ,
        "image_ledger": each(s.prompts, lambda p: where(s.image_ready[p] == 1, NO_ENTRY, s.ledger[p])),
    }


@cut.system(who="checkpointer")
def read_trainer(s: Value) -> tuple[Value, dict[str, Value]]:
    """The trainer's version and the accounts are read; the image is whole."""
    return s.window == LEDGER_READ, {
        "window": CAPTURED,
        "image_version": s.version,
        "image_account": each(s.prompts, lambda p: s.account[p]),
    }


def no_image(s: Value) -> dict[str, Value]:
    """The window is closed and nothing of the image kept."""
    return {
        "window": OUTSIDE_WINDOW,
        "image_dispatch_cursor": -1,
        "image_cursor": 0,
        "image_version": 0,
        "image_ready": each(s.prompts, lambda p: 0),
        "image_ledger": each(s.prompts, lambda p: NO_ENTRY),
        "image_stamp": each(s.prompts, lambda p: -1),
        "image_account": each(s.prompts, lambda p: NO_ACCOUNT),
    }


@cut.system(who="checkpointer")
def publish(s: Value) -> tuple[Value, dict[str, Value]]:
    """The image is durable, the window closed, and the run goes on."""
    return s.window == CAPTURED, no_image(s)


# ---------------------------------------------------------------------------------------------- Environment


def restored_entry(s: Value, p: Value) -> Value:
    """The ledger entry of `p` after a restore: what is on disk without what the buffer has; the buffer's copy wins."""
    return where(s.image_ready[p] == 1, NO_ENTRY, s.image_ledger[p])


@cut.environment()
def crash_and_restore(s: Value) -> tuple[Value, dict[str, Value]]:
    """The image is durable, the process dies, and a new one starts from it. Unready slots are gone with the old one."""
    ready = count(s.prompts, lambda p: s.image_ready[p] == 1)
    return (s.window == CAPTURED) & (s.crashes_left > 0), {
        **no_image(s),
        "cursor": s.image_cursor,
        "dispatch_cursor": s.image_dispatch_cursor,
        "gate_passed": 0,
        "ledger": each(s.prompts, lambda p: restored_entry(s, p)),
        "lingering": each(s.prompts, lambda p: 0),
        "slot": each(s.prompts, lambda p: where(s.image_ready[p] == 1, READY, NO_SLOT)),
        "account": each(s.prompts, lambda p: s.image_account[p]),
        "stamp": each(s.prompts, lambda p: s.image_stamp[p]),
        "version": s.image_version,
        "permits": s.batch_size * (s.lookahead + 1) - ready,
        "crashes_left": s.crashes_left - 1,
    }
