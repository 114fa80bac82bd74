"""A save: asked for, drained, read one artifact a step, and published; and how the next process starts from it.

    OUTSIDE --request_cut--> DRAINING --open_cut--> OPEN
            --read_sampler, read_loader, read_pool, read_buffer, read_ledger, read_trainer--> CAPTURED
            --publish--> OUTSIDE             in the background: CAPTURED --close_window--> WRITING --publish--> OUTSIDE

Publishing forks: `publish` goes on, the crashes start again from the image. That is exact, since a restored state
depends on the disk alone, and no durable copy need be carried in the state.
"""

from __future__ import annotations

from ...language.expression import Value, all_of, count, each, not_, where
from .state import (
    ADMITTED,
    BUFFER_READ,
    CAPTURED,
    DRAINING,
    FENCED,
    FULL,
    LEDGER_READ,
    LOADER_READ,
    NO_ACCOUNT,
    NO_ENTRY,
    NO_LEASE,
    NO_SLOT,
    OPEN,
    OUTSIDE_WINDOW,
    POOL_READ,
    READY,
    SAMPLER_READ,
    SNAPSHOT,
    WRITING,
    between_steps,
    cut,
    held_in_silence,
)


@cut.system(who="train pump", progress=False)
def request_cut(s: Value) -> tuple[Value, dict[str, Value]]:
    """The trainer, between two steps, asks for a full save. From here on no slot is entered. One save at a time."""
    return (s.window == OUTSIDE_WINDOW) & (s.saves_left > 0) & between_steps(s), {
        "window": DRAINING,
        "kind": FULL,
        "saves_left": s.saves_left - 1,
    }


@cut.system(who="any task", progress=False, when=lambda scope: scope.snapshots)
def request_snapshot(s: Value) -> tuple[Value, dict[str, Value]]:
    """A rollout snapshot is asked for, at any time, claimed groups or not.

    Whether it may be taken is looked at inside the window and not here: a train step that is in its slot now may still
    end before the cut opens.
    """
    return (s.window == OUTSIDE_WINDOW) & (s.snapshots_left > 0), {
        "window": DRAINING,
        "kind": SNAPSHOT,
        "snapshots_left": s.snapshots_left - 1,
    }


@cut.system(who="barrier")
def open_cut(s: Value) -> tuple[Value, dict[str, Value]]:
    """The slots that were open have ended. Slots are atomic here, so it waits for those of silent writers alone."""
    return (s.window == DRAINING) & all_of(s.prompts, lambda p: not_(held_in_silence(s, p))), {"window": OPEN}


def belongs_to_anchor(s: Value) -> Value:
    """The trainer is at the version of the newest durable full save, so a snapshot taken now belongs to that save.

    A later one would count work that the trainer restored with it has not done.
    """
    return (s.kind == FULL) | (s.version == s.anchor)


@cut.system(who="checkpointer", when=lambda scope: scope.snapshots)
def skip_snapshot(s: Value) -> tuple[Value, dict[str, Value]]:
    """Inside the window it shows that the trainer is past the newest durable full save: the snapshot is skipped."""
    return (s.window == OPEN) & not_(belongs_to_anchor(s)), no_image(s)


@cut.system(who="checkpointer")
def read_sampler(s: Value) -> tuple[Value, dict[str, Value]]:
    """The dispatch cursor, the shortfalls and the drop count are read; of a snapshot only if it belongs to a save."""
    return (s.window == OPEN) & belongs_to_anchor(s), {
        "window": SAMPLER_READ,
        "image_dispatch_cursor": s.dispatch_cursor,
        "image_shortfall": each(s.steps, lambda k: s.shortfall[k]),
        "image_dropped": s.dropped,
    }


@cut.system(who="checkpointer")
def read_loader(s: Value) -> tuple[Value, dict[str, Value]]:
    """The loader's position, epoch and exhausted bit are read."""
    return s.window == SAMPLER_READ, {
        "window": LOADER_READ,
        "image_cursor": s.cursor,
        "image_epoch": s.epoch,
        "image_epoch_over": s.epoch_over,
    }


@cut.system(who="checkpointer")
def read_pool(s: Value) -> tuple[Value, dict[str, Value]]:
    """The spare pool is read; an empty one is read as empty."""
    return s.window == LOADER_READ, {
        "window": POOL_READ,
        "image_spare": each(s.prompts, lambda p: s.spare[p]),
    }


@cut.system(who="checkpointer")
def read_buffer(s: Value) -> tuple[Value, dict[str, Value]]:
    """The buffer index is read: what is ready, and what is claimed as ready, since a crash gives it back.

    Its rows are captured by reference in the same instant.
    """
    return s.window == POOL_READ, {
        "window": BUFFER_READ,
        "image_ready": each(s.prompts, lambda p: where(s.slot[p] >= READY, 1, 0)),
        "image_stamp": each(s.prompts, lambda p: s.stamp[p]),
        # An unready slot is gone with its process, and so is its weight: restoring and saving again changes nothing.
        "image_weight": each(s.prompts, lambda p: where(s.slot[p] >= READY, s.weight[p], -1)),
    }


@cut.system(who="checkpointer")
def read_ledger(s: Value) -> tuple[Value, dict[str, Value]]:
    """The ledger is read, without the groups that the buffer owns; with it the attempts that failed."""
    return s.window == BUFFER_READ, {
        "window": LEDGER_READ,
        "image_ledger": each(s.prompts, lambda p: where(s.image_ready[p] == 1, NO_ENTRY, s.ledger[p])),
        "image_tries": each(s.prompts, lambda p: s.tries[p]),
    }


@cut.system(who="checkpointer")
def read_trainer(s: Value) -> tuple[Value, dict[str, Value]]:
    """The trainer's version and the accounts are read; the image is whole."""
    return s.window == LEDGER_READ, {
        "window": CAPTURED,
        "image_version": s.version,
        "image_account": each(s.prompts, lambda p: s.account[p]),
    }


def image_is_whole(s: Value) -> Value:
    """All artifacts are read, and, in the background, the window is closed."""
    return s.window == where(s.background == 1, WRITING, CAPTURED)


def no_image(s: Value) -> dict[str, Value]:
    """The save is over and nothing of its image kept."""
    nothing = each(s.prompts, lambda p: 0)
    return {
        "window": OUTSIDE_WINDOW,
        "kind": FULL,
        "image_dispatch_cursor": -1,
        "image_shortfall": each(s.steps, lambda k: 0),
        "image_dropped": 0,
        "image_cursor": 0,
        "image_epoch": 0,
        "image_epoch_over": 0,
        "image_spare": nothing,
        "image_ready": nothing,
        "image_stamp": each(s.prompts, lambda p: -1),
        "image_weight": each(s.prompts, lambda p: -1),
        "image_ledger": each(s.prompts, lambda p: NO_ENTRY),
        "image_tries": nothing,
        "image_account": each(s.prompts, lambda p: NO_ACCOUNT),
        "image_version": 0,
        "image_altered": 0,
    }


@cut.system(who="checkpointer", when=lambda scope: scope.background)
def close_window(s: Value) -> tuple[Value, dict[str, Value]]:
    """The window ends and slots are entered again, while the image is still being written."""
    return (s.window == CAPTURED) & (s.background == 1), {"window": WRITING}


@cut.system(who="checkpointer")
def publish(s: Value) -> tuple[Value, dict[str, Value]]:
    """The image is durable and the run goes on. A full save is from here on what snapshots belong to."""
    return image_is_whole(s), {**no_image(s), "anchor": where(s.kind == FULL, s.image_version, s.anchor)}


# ---------------------------------------------------------------------------------------------- Environment


@cut.environment(when=lambda scope: scope.failed_saves)
def fail_save(s: Value) -> tuple[Value, dict[str, Value]]:
    """The save fails after its window: nothing is published, nothing else is changed."""
    return image_is_whole(s) & (s.failed_saves_left > 0), {
        **no_image(s),
        "failed_saves_left": s.failed_saves_left - 1,
    }


def restored(s: Value) -> dict[str, Value]:
    """The state of a new process that starts from the image. The buffer's copy wins over a ledger entry.

    Unready slots, permits, tasks, claims and derived columns are gone with the old process. The newest durable full
    save is the one restored, or the one that the restored snapshot belongs to. Writers in other processes may live on:
    no lease from before is good in the new one.
    """
    ready = count(s.prompts, lambda p: s.image_ready[p] == 1)
    return {
        **no_image(s),
        "cursor": s.image_cursor,
        "epoch": s.image_epoch,
        "epoch_over": s.image_epoch_over,
        "dispatch_cursor": s.image_dispatch_cursor,
        "gate_passed": 0,
        "shortfall": each(s.steps, lambda k: s.image_shortfall[k]),
        "dropped": s.image_dropped,
        "ledger": each(s.prompts, lambda p: where(s.image_ready[p] == 1, NO_ENTRY, s.image_ledger[p])),
        "slot": each(s.prompts, lambda p: where(s.image_ready[p] == 1, READY, NO_SLOT)),
        "account": each(s.prompts, lambda p: s.image_account[p]),
        "spare": each(s.prompts, lambda p: s.image_spare[p]),
        "lingering": each(s.prompts, lambda p: 0),
        "stamp": each(s.prompts, lambda p: s.image_stamp[p]),
        "weight": each(s.prompts, lambda p: where(s.image_ready[p] == 1, s.image_weight[p], -1)),
        "tries": each(s.prompts, lambda p: s.image_tries[p]),
        "trouble": each(s.prompts, lambda p: 0),
        "lease": each(s.prompts, lambda p: where(s.lease[p] == NO_LEASE, NO_LEASE, FENCED)),
        "version": s.image_version,
        "anchor": where(s.kind == FULL, s.image_version, s.anchor),
        "columns": 0,
        "permits": s.capacity - ready,
        "generations": s.in_flight,
        "crashes_left": s.crashes_left - 1,
    }


@cut.environment(when=lambda scope: scope.crashes)
def crash_and_restore(s: Value) -> tuple[Value, dict[str, Value]]:
    """The image is durable, the process dies, and a new one starts from it."""
    return image_is_whole(s) & (s.crashes_left > 0), restored(s)


@cut.environment(when=lambda scope: (scope.crashes != 0) & (scope.replay_free != 0))
def crash_and_restore_replay_free(s: Value) -> tuple[Value, dict[str, Value]]:
    """The same, but the new process leaves the buffer out: its groups become ADMITTED, with the same stamp.

    The dispatch cursor does not move: they were admitted before, and are only generated again.
    """

    def entry(p: Value) -> Value:
        return where(s.image_ready[p] == 1, ADMITTED, s.image_ledger[p])

    return image_is_whole(s) & (s.crashes_left > 0), {
        **restored(s),
        "ledger": each(s.prompts, entry),
        "slot": each(s.prompts, lambda p: NO_SLOT),
        "weight": each(s.prompts, lambda p: -1),
        "permits": s.capacity,
    }
