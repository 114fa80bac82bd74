"""The variables of the cut machine, and the questions its actions ask of them.

A prompt is named by its index. Who owns it:

    unread --> RESERVED --> ADMITTED --> ready --> claimed --> TRAINED            DROPPED at several places
               (ledger)     (ledger)     (buffer)  (buffer)    (accounts)          (accounts)
           --> spare (pool) --> RESERVED, or ADMITTED in the place of a group given up

An unready slot owns nothing: the ledger does. `stamp` is the train step a group is for (in order), `weight` the
trainer's version at its dispatch (the other samplers).
"""

from __future__ import annotations

from ...language.expression import Value, all_of, any_of, count
from ...language.machine import Machine
from .scope import IN_ORDER, READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope

NO_ENTRY, RESERVED, ADMITTED = 0, 1, 2
NO_SLOT, UNREADY, READY, CLAIMED = 0, 1, 2, 3
NO_ACCOUNT, TRAINED, DROPPED = 0, 1, 2
GENERATING, BACKING_OFF, GIVEN_UP = 0, 1, 2
# The lease of the slot in which a generation is about to commit its group, from another process. SILENT: no heartbeats,
# the lease is still good. LAPSED: its time is up. FENCED: and buffer, ledger and data plane refuse its token.
NO_LEASE, SILENT, LAPSED, FENCED = 0, 1, 2, 3
FULL, SNAPSHOT = 0, 1
# The stages of a save. WRITING: the window is closed, the image not yet durable, the run goes on. READ_EARLY is for a
# variant that reads before it asks. In both, slots may be entered.
OUTSIDE_WINDOW, READ_EARLY, WRITING, DRAINING, OPEN = 0, 1, 2, 3, 4
SAMPLER_READ, LOADER_READ, POOL_READ, BUFFER_READ, LEDGER_READ, CAPTURED = 5, 6, 7, 8, 9, 10

LEDGER_SAYS = ("no entry", "RESERVED", "ADMITTED")
SLOT_SAYS = ("no slot", "unready", "ready", "claimed")
ACCOUNT_SAYS = ("none", "trained", "dropped")
TROUBLE_SAYS = ("generating", "backing off", "given up")
LEASE_SAYS = ("none or sound", "silent", "lapsed", "fenced")
WINDOW_SAYS = (
    "outside",
    "read early",
    "writing",
    "draining",
    "open",
    "sampler read",
    "loader read",
    "pool read",
    "buffer read",
    "ledger read",
    "captured",
)

cut = Machine("cut")
cut.domain("prompts", lambda scope: int(scope.prompts_in_all))
cut.domain("steps", lambda scope: int(scope.batches_in_all) + 1)
cut.constant("batch_of", "prompts", CutScope.batch_of)


def steps_in_all(scope: CutScope) -> int:
    """The greatest train step there can be."""
    return scope.batches_in_all


# Loader and sampler.
cut.variable("cursor", 0, lambda scope: scope.batches_in_all, "batches the loader has handed out, over all epochs")
cut.variable("epoch", 0, lambda scope: scope.epochs - 1, "the loader's epoch")
cut.variable("epoch_over", 0, 1, "1: the loader's exhausted bit, all batches of this epoch are handed out")
cut.variable("dispatch_cursor", -1, steps_in_all, "the step of the newest admission", initial=-1)
cut.variable("gate_passed", 0, 1, "1: the admitter waited for the gate and saw it open")
cut.variable("shortfall", 0, lambda scope: scope.batch_size, "groups a step has too few", over="steps")
cut.variable("dropped", 0, lambda scope: 2 * scope.prompts_in_all, "groups that will not come (unstamped samplers)")
# Owners.
cut.variable("ledger", NO_ENTRY, ADMITTED, "the ledger entry of each prompt", over="prompts", names=LEDGER_SAYS)
cut.variable("slot", NO_SLOT, CLAIMED, "the buffer slot of each prompt", over="prompts", names=SLOT_SAYS)
cut.variable("account", NO_ACCOUNT, DROPPED, "the account of each prompt", over="prompts", names=ACCOUNT_SAYS)
cut.variable("spare", 0, 1, "1: in the spare pool", over="prompts")
cut.variable("lingering", 0, 1, "1: committed in this process, its ledger entry still to be removed", over="prompts")
cut.variable("stamp", -1, steps_in_all, "the train step each prompt is for, -1 none", initial=-1, over="prompts")
cut.variable("weight", -1, steps_in_all, "the version each was dispatched at, -1 none", initial=-1, over="prompts")
cut.variable("tries", 0, lambda scope: scope.retries, "failed attempts of each prompt", over="prompts")
cut.variable("trouble", GENERATING, GIVEN_UP, "what an unready slot is doing", over="prompts", names=TROUBLE_SAYS)
cut.variable("lease", NO_LEASE, FENCED, "the lease that a silent writer of each has", over="prompts", names=LEASE_SAYS)
# Trainer and permits.
cut.variable("version", 0, steps_in_all, "train steps done")
cut.variable("columns", 0, 1, "1: the open train step has written its derived columns")
cut.variable(
    "permits", 0, lambda scope: scope.capacity, "free slots of the buffer", initial=lambda scope: scope.capacity
)
cut.variable(
    "generations", 0, lambda scope: scope.in_flight, "free in-flight permits", initial=lambda scope: scope.in_flight
)
# The save under way. Outside the window it is empty, so that no stale image tells two states apart.
cut.variable("window", OUTSIDE_WINDOW, CAPTURED, "the stage of the save", names=WINDOW_SAYS)
cut.variable("kind", FULL, SNAPSHOT, "the kind of the save", names=("full", "snapshot"))
cut.variable("anchor", -1, steps_in_all, "the version of the newest durable full save", initial=-1)
cut.variable("image_dispatch_cursor", -1, steps_in_all, "as read", initial=-1)
cut.variable("image_shortfall", 0, lambda scope: scope.batch_size, "as read", over="steps")
cut.variable("image_dropped", 0, lambda scope: 2 * scope.prompts_in_all, "as read")
cut.variable("image_cursor", 0, lambda scope: scope.batches_in_all, "as read")
cut.variable("image_epoch", 0, lambda scope: scope.epochs - 1, "as read")
cut.variable("image_epoch_over", 0, 1, "as read")
cut.variable("image_spare", 0, 1, "as read", over="prompts")
cut.variable("image_ready", 0, 1, "1: in the buffer index as read, ready", over="prompts")
cut.variable("image_stamp", -1, steps_in_all, "as read", initial=-1, over="prompts")
cut.variable("image_weight", -1, steps_in_all, "as read", initial=-1, over="prompts")
cut.variable("image_ledger", NO_ENTRY, ADMITTED, "as read, without the buffer's", over="prompts", names=LEDGER_SAYS)
cut.variable("image_tries", 0, lambda scope: scope.retries, "as read", over="prompts")
cut.variable("image_account", NO_ACCOUNT, DROPPED, "as read", over="prompts", names=ACCOUNT_SAYS)
cut.variable("image_version", 0, steps_in_all, "as read")
cut.variable("image_altered", 0, 1, "1: a row of the image was written in place after the cut")
# What may still happen.
cut.variable("saves_left", 0, lambda scope: scope.saves, "full saves to come", initial=lambda scope: scope.saves)
cut.variable("snapshots_left", 0, lambda scope: scope.snapshots, "snapshots", initial=lambda scope: scope.snapshots)
cut.variable("crashes_left", 0, lambda scope: scope.crashes, "crashes to come", initial=lambda scope: scope.crashes)
cut.variable("failures_left", 0, lambda scope: scope.failures, "failures", initial=lambda scope: scope.failures)
cut.variable(
    "failed_saves_left", 0, lambda scope: scope.failed_saves, "failing saves", initial=lambda scope: scope.failed_saves
)
cut.variable("silences_left", 0, lambda scope: scope.leases, "silences", initial=lambda scope: scope.leases)


def slots_enter(s: Value) -> Value:
    """A mutation slot may be entered: no checkpoint is asked for or open. Part of the guard of every slot action."""
    return s.window < DRAINING


cut.slot_guard = slots_enter


def trainer_is_free(s: Value) -> Value:
    """The train pump is not in a save of its own. While an image is being written it trains on."""
    return (s.window == OUTSIDE_WINDOW) | (s.window == WRITING) | (s.kind == SNAPSHOT)


def between_steps(s: Value) -> Value:
    """The trainer has no open train step."""
    return all_of(s.prompts, lambda p: s.slot[p] != CLAIMED)


def stamped(s: Value) -> Value:
    """The sampler gives stamps."""
    return s.sampler == IN_ORDER


def evicts(s: Value) -> Value:
    """The sampler gives up groups that have become too old."""
    return (s.sampler == WEIGHT_FIFO) | (s.sampler == WINDOWED)


def has_gate(s: Value) -> Value:
    """The sampler counts admissions and shuts its gate; the windowed one does neither."""
    return s.sampler != WINDOWED


def too_old(s: Value, p: Value) -> Value:
    """Prompt `p` was dispatched longer ago than the sampler allows."""
    return (s.weight[p] >= 0) & (s.weight[p] < s.version - s.lookahead)


def ages(s: Value) -> Value:
    """The sampler selects by age."""
    return s.sampler != READY_FIRST


def parked(s: Value, p: Value) -> Value:
    """Prompt `p` is admitted and waits for its dispatch."""
    return (s.ledger[p] == ADMITTED) & (s.slot[p] == NO_SLOT)


def any_reserved(s: Value) -> Value:
    """Some prompt waits for its admission."""
    return any_of(s.prompts, lambda p: s.ledger[p] == RESERVED)


def none_parked(s: Value) -> Value:
    """No admitted prompt waits for its dispatch."""
    return all_of(s.prompts, lambda p: (s.ledger[p] != ADMITTED) | (s.slot[p] != NO_SLOT))


def data_is_over(s: Value) -> Value:
    """The loader is exhausted: the last epoch is over."""
    return (s.epoch == s.epochs - 1) & (s.epoch_over == 1)


def first_spare(s: Value, p: Value) -> Value:
    """Prompt `p` is the first of the spare pool."""
    return (s.spare[p] == 1) & all_of(s.prompts, lambda q: (q >= p) | (s.spare[q] == 0))


def any_spare(s: Value) -> Value:
    """The spare pool is not empty."""
    return any_of(s.prompts, lambda p: s.spare[p] == 1)


def target(s: Value) -> Value:
    """How many groups the next train step needs (stamped)."""
    return s.batch_size - s.shortfall.at(s.version)


def reserved_count(s: Value) -> Value:
    """How many prompts wait for their admission."""
    return count(s.prompts, lambda p: s.ledger[p] == RESERVED)


def held_in_silence(s: Value, p: Value) -> Value:
    """A slot is held for prompt `p` by a writer that is silent: the drain waits for it, and so must other writers."""
    return (s.lease[p] == SILENT) | (s.lease[p] == LAPSED)
