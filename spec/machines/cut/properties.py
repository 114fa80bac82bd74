"""What must hold of the cut: one owner for every prompt handed out, in memory and on disk, and a run that can go on.

A claim about the disk is looked at where a whole image is about to be published: `at="publish"`. What breaks it is then
the last step of its counterexample.
"""

from __future__ import annotations

from ...language.expression import Value, all_of, any_of, count, implies, not_, total, where
from ...language.machine import Progress
from .rollout import gate_open, step_is_free
from .state import (
    ACCOUNT_SAYS,
    ADMITTED,
    BACKING_OFF,
    CAPTURED,
    CLAIMED,
    DRAINING,
    GENERATING,
    GIVEN_UP,
    LEDGER_SAYS,
    NO_ACCOUNT,
    NO_ENTRY,
    NO_SLOT,
    OUTSIDE_WINDOW,
    READY,
    RESERVED,
    SLOT_SAYS,
    SNAPSHOT,
    UNREADY,
    WRITING,
    ages,
    between_steps,
    cut,
    data_is_over,
    has_gate,
    slots_enter,
    stamped,
    target,
    too_old,
)


def owners_on_disk(s: Value, p: Value) -> Value:
    """How many owners the image gives prompt `p`: ledger, buffer, spare pool, accounts."""
    return (
        where(s.image_ledger[p] != NO_ENTRY, 1, 0)
        + where(s.image_ready[p] == 1, 1, 0)
        + where(s.image_spare[p] == 1, 1, 0)
        + where(s.image_account[p] != NO_ACCOUNT, 1, 0)
    )


def owners_in_memory(s: Value, p: Value) -> Value:
    """How many owners prompt `p` has in memory; an unready slot owns nothing."""
    return (
        where(s.ledger[p] != NO_ENTRY, 1, 0)
        + where(s.slot[p] >= READY, 1, 0)
        + where(s.spare[p] == 1, 1, 0)
        + where(s.account[p] != NO_ACCOUNT, 1, 0)
    )


@cut.always(
    at="publish",
    each="prompts",
    witness=lambda s: (
        any_of(s.prompts, lambda p: s.image_ledger[p] != NO_ENTRY) & any_of(s.prompts, lambda p: s.image_ready[p] == 1)
    ),
)
def one_owner_on_disk(s: Value, p: Value) -> Value:
    """On disk every prompt behind the loader cursor has exactly one owner, and a prompt before it has none."""
    return owners_on_disk(s, p) == where(s.batch_of[p] < s.image_cursor, 1, 0)


@cut.always(each="prompts", witness=lambda s: s.cursor > 0)
def none_lost(s: Value, p: Value) -> Value:
    """A prompt that the loader has handed out has an owner, in memory always and in every image published."""
    return implies(s.batch_of[p] < s.cursor, owners_in_memory(s, p) >= 1)


@cut.also("none_lost", at="publish", witness=lambda s: s.image_cursor > 0)
def none_lost_on_disk(s: Value, p: Value) -> Value:
    """The same of the image."""
    return implies(s.batch_of[p] < s.image_cursor, owners_on_disk(s, p) >= 1)


@cut.always(
    each="prompts", witness=lambda s: any_of(s.prompts, lambda p: (s.ledger[p] == ADMITTED) & (s.slot[p] == READY))
)
def one_owner_in_memory(s: Value, p: Value) -> Value:
    """In memory a prompt has at most one owner, but between its commit and the removal of its ledger entry."""
    committed = (s.lingering[p] == 1) & (s.ledger[p] == ADMITTED) & (s.slot[p] == READY)
    between = committed & (s.account[p] == NO_ACCOUNT) & (s.spare[p] == 0)
    unread_has_none = implies(s.batch_of[p] >= s.cursor, owners_in_memory(s, p) == 0)
    return ((owners_in_memory(s, p) <= 1) | between) & unread_has_none


def image_is(image: Value, memory: Value, p: Value) -> Value:
    """Everything the image of one state says is so in the memory of another, of prompt `p` and of the counters."""
    ready = memory.slot[p] >= READY
    counters = (
        (image.image_cursor == memory.cursor)
        & (image.image_epoch == memory.epoch)
        & (image.image_epoch_over == memory.epoch_over)
        & (image.image_dispatch_cursor == memory.dispatch_cursor)
        & (image.image_dropped == memory.dropped)
        & (image.image_version == memory.version)
        & all_of(image.steps, lambda k: image.image_shortfall[k] == memory.shortfall[k])
    )
    return (
        counters
        & (image.image_ready[p] == where(ready, 1, 0))
        & (image.image_ledger[p] == where(ready, NO_ENTRY, memory.ledger[p]))
        & (image.image_spare[p] == memory.spare[p])
        & (image.image_stamp[p] == memory.stamp[p])
        & (image.image_weight[p] == where(ready, memory.weight[p], -1))
        & (image.image_account[p] == memory.account[p])
        & (image.image_tries[p] == memory.tries[p])
    )


@cut.always(
    at="publish",
    each="prompts",
    witness=lambda s: any_of(s.prompts, lambda p: (s.ledger[p] == ADMITTED) & (s.slot[p] == READY)),
)
def image_equals_cut(s: Value, p: Value) -> Value:
    """What is published is the state at the cut: every counter, every owner, and the rows as they were."""
    return implies(s.background == 0, image_is(s, s, p)) & (s.image_altered == 0)


@cut.also("image_equals_cut", at="close_window", witness=lambda s: s.background == 1)
def image_equals_cut_at_close(s: Value, p: Value) -> Value:
    """The same at the end of the window, when the image is still to be written."""
    return image_is(s, s, p)


@cut.always(
    at="publish",
    each="prompts",
    witness=lambda s: not_(stamped(s)) & any_of(s.prompts, lambda p: s.image_weight[p] >= 0),
)
def restore_is_a_fixed_point(s: Value, p: Value) -> Value:
    """A save right after a restore would write the same again: the image holds nothing that a restore drops."""
    ready = s.image_ready[p] == 1
    weight = s.image_weight[p] == where(ready, s.image_weight[p], -1)
    return weight & (s.image_ledger[p] == where(ready, NO_ENTRY, s.image_ledger[p]))


@cut.always(witness=lambda s: (s.epochs > 1) & (s.epoch > 0))
def loader_agrees(s: Value) -> Value:
    """Cursor, epoch and exhausted bit of the loader fit each other: the bit is set exactly at the end of the epoch."""
    end = (s.epoch + 1) * s.batches
    return (s.epoch * s.batches <= s.cursor) & (s.cursor <= end) & (where(s.cursor == end, 1, 0) == s.epoch_over)


@cut.always(witness=lambda s: not_(between_steps(s)))
def step_has_its_size(s: Value) -> Value:
    """An open train step has at most the groups of one step; stamped, exactly those its step still has."""
    claimed = count(s.prompts, lambda p: s.slot[p] == CLAIMED)
    exact = implies(stamped(s) & (claimed > 0), claimed == target(s))
    return (claimed <= s.batch_size) & exact


@cut.always(witness=lambda s: has_gate(s) & (s.dispatch_cursor >= 0))
def windowed_moves_no_cursor(s: Value) -> Value:
    """The sampler without a gate has no dispatch cursor; the others never fall behind what they admitted."""
    return has_gate(s) | (s.dispatch_cursor == -1)


@cut.always(each="prompts", witness=lambda s: any_of(s.prompts, lambda p: s.stamp[p] >= 0))
def cursor_covers_stamps(s: Value, p: Value) -> Value:
    """No group is stamped for a step beyond the dispatch cursor, in memory and in every image published."""
    return s.stamp[p] <= s.dispatch_cursor


@cut.also("cursor_covers_stamps", at="publish", witness=lambda s: any_of(s.prompts, lambda p: s.image_stamp[p] >= 0))
def image_cursor_covers_stamps(s: Value, p: Value) -> Value:
    """The same of the image."""
    return s.image_stamp[p] <= s.image_dispatch_cursor


@cut.always(each="steps", witness=lambda s: stamped(s) & (s.version <= s.dispatch_cursor))
def stamps_complete(s: Value, step: Value) -> Value:
    """Between slots and on disk every step from the version to the dispatch cursor has its groups, or a shortfall."""
    groups = count(s.prompts, lambda p: (s.stamp[p] == step) & ((s.ledger[p] == ADMITTED) | (s.slot[p] >= READY)))
    ahead = stamped(s) & (s.version <= step) & (step <= s.dispatch_cursor)
    return implies(ahead, groups + s.shortfall[step] == s.batch_size)


@cut.also("stamps_complete", at="publish", witness=lambda s: stamped(s) & (s.image_version <= s.image_dispatch_cursor))
def image_stamps_complete(s: Value, step: Value) -> Value:
    """The same of the image."""
    groups = count(
        s.prompts, lambda p: (s.image_stamp[p] == step) & ((s.image_ledger[p] == ADMITTED) | (s.image_ready[p] == 1))
    )
    ahead = stamped(s) & (s.image_version <= step) & (step <= s.image_dispatch_cursor)
    return implies(ahead, groups + s.image_shortfall[step] == s.batch_size)


@cut.always(witness=lambda s: stamped(s) & (s.gate_passed == 1) & any_of(s.prompts, lambda p: s.stamp[p] >= 0))
def step_free_at_admission(s: Value) -> Value:
    """Whenever an admission may be committed, no group in flight carries the stamp it would get."""
    may_commit = slots_enter(s) & (s.gate_passed == 1) & gate_open(s) & stamped(s)
    return implies(may_commit, step_is_free(s, s.dispatch_cursor + 1))


@cut.always(at="commit_admission", witness=lambda s: stamped(s) & (s.version > 0))
def gate_open_at_commit(s: Value) -> Value:
    """An admission is committed only while the sampler admits, as looked at inside the slot."""
    return gate_open(s)


@cut.always(at="finish_step", each="prompts", witness=lambda s: any_of(s.prompts, lambda p: s.slot[p] == CLAIMED))
def trained_once(s: Value, p: Value) -> Value:
    """No prompt is trained a second time, and none that was dropped."""
    return not_((s.slot[p] == CLAIMED) & (s.account[p] != NO_ACCOUNT))


@cut.always(at="publish", witness=lambda s: (s.kind == SNAPSHOT) & (s.image_version > 0))
def trained_matches_trainer(s: Value) -> Value:
    """A snapshot counts no work that the trainer it will be restored with has not done."""
    return implies(s.kind == SNAPSHOT, s.image_version == s.anchor)


@cut.always(witness=lambda s: (s.permits == 0) | (s.generations == 0))
def permits_balance(s: Value) -> Value:
    """Free permits and places held are the capacity, of the buffer's slots and of the generations in flight."""
    slots = count(s.prompts, lambda p: s.slot[p] != NO_SLOT)
    running = count(s.prompts, lambda p: (s.slot[p] == UNREADY) & (s.trouble[p] == GENERATING))
    return (s.permits + slots == s.capacity) & (s.generations + running == s.in_flight)


@cut.always(
    each="prompts",
    witness=lambda s: ages(s) & any_of(s.prompts, lambda p: (s.slot[p] == CLAIMED) & (s.weight[p] >= 0)),
)
def staleness_bound(s: Value, p: Value) -> Value:
    """No group is trained that was dispatched longer ago than the sampler allows (ready first allows any)."""
    return implies((s.slot[p] == CLAIMED) & ages(s), not_(too_old(s, p)))


@cut.also("staleness_bound", at="commit_admission", witness=stamped)
def admitted_within_lookahead(s: Value, p: Value) -> Value:
    """In order: the step admitted is at most `lookahead` ahead of the trainer, so no group of it gets older."""
    return implies(stamped(s), s.dispatch_cursor + 1 <= s.version + s.lookahead)


def finished(s: Value) -> Value:
    """Data, pool, ledger and buffer are empty and no save is under way: what the run itself can see."""
    at_rest = data_is_over(s) & (s.window == OUTSIDE_WINDOW)
    return at_rest & all_of(s.prompts, lambda p: (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT) & (s.spare[p] == 0))


def prompts_progress(s: Value) -> Value:
    """How far the prompts have come, 0 for an unread one to 10 for one that is trained or dropped, summed."""

    def stage(p: Value) -> Value:
        in_trouble = where(s.trouble[p] == BACKING_OFF, 4, where(s.trouble[p] == GIVEN_UP, 6, 5))
        committed = where(s.ledger[p] == ADMITTED, 7, 8)
        in_buffer = where(s.slot[p] == CLAIMED, 9, where(s.slot[p] == READY, committed, in_trouble))
        in_ledger = where(s.ledger[p] == ADMITTED, 3, where(s.ledger[p] == RESERVED, 2, s.spare[p]))
        alive = where(s.slot[p] == NO_SLOT, in_ledger, in_buffer)
        return where(s.account[p] != NO_ACCOUNT, 10, alive)

    return total(s.prompts, stage)


def rank(s: Value) -> Value:
    """Rises with every action of ours but a new save: prompts and steps come further, a save under way goes on."""
    stage_of_save = where(s.window == WRITING, CAPTURED + 1, where(s.window >= DRAINING, s.window, 0))
    under_way = where(s.window == OUTSIDE_WINDOW, 0, 1)
    saves_done = s.saves - s.saves_left + s.snapshots - s.snapshots_left - under_way
    run = (
        2 * prompts_progress(s)
        + total(s.prompts, lambda p: s.lease[p])
        + s.gate_passed
        + s.columns
        + s.epoch
        + 2 * s.version
    )
    return run + stage_of_save + (CAPTURED + 2) * saves_done


cut.progress = Progress(
    "no_stall",
    finished,
    rank,
    "Every state that is not finished lets the run go on, and every step of ours brings it nearer to its end.",
)


def describe(s: Value, domain: str | None, index: int) -> str:
    """One line about a prompt, with its owners in memory and in the image, for a counterexample."""
    if domain != "prompts":
        return f"step {index}, version {s.version}, dispatch cursor {s.dispatch_cursor}"
    memory = []
    if s.ledger[index] != NO_ENTRY:
        memory.append(f"the ledger ({LEDGER_SAYS[s.ledger[index]]})")
    if s.slot[index] >= READY:
        memory.append(f"the buffer ({SLOT_SAYS[s.slot[index]]})")
    if s.spare[index]:
        memory.append("the spare pool")
    if s.account[index] != NO_ACCOUNT:
        memory.append(f"the accounts ({ACCOUNT_SAYS[s.account[index]]})")
    handed_out = "handed out" if s.batch_of[index] < s.cursor else "unread"
    line = f"prompt {index} of batch {s.batch_of[index]}, {handed_out}; owners in memory: {', '.join(memory) or 'none'}"
    if s.window not in (CAPTURED, WRITING):
        return line
    disk = []
    if s.image_ledger[index] != NO_ENTRY:
        disk.append(f"the ledger ({LEDGER_SAYS[s.image_ledger[index]]})")
    if s.image_ready[index]:
        disk.append("the buffer (ready)")
    if s.image_spare[index]:
        disk.append("the spare pool")
    if s.image_account[index] != NO_ACCOUNT:
        disk.append(f"the accounts ({ACCOUNT_SAYS[s.image_account[index]]})")
    return f"{line}; owners in the image to be published: {', '.join(disk) or 'none'}"


cut.describe = describe
