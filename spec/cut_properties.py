"""What must hold of the cut: one owner for every prompt handed out, in memory and on disk, and a run that can go on.

A claim about the disk is looked at where a whole image is about to be published: `at="publish"`. What breaks it is then
the last step of its counterexample.
"""

from __future__ import annotations

from .cut import (
    ACCOUNT_SAYS,
    ADMITTED,
    CAPTURED,
    CLAIMED,
    LEDGER_SAYS,
    NO_ENTRY,
    NO_SLOT,
    OUTSIDE_WINDOW,
    READY,
    RESERVED,
    SLOT_SAYS,
    TRAINED,
    UNREADY,
    cut,
    gate_open,
    slots_enter,
    step_is_free,
)
from .expression import Value, all_of, any_of, count, implies, not_, total, where
from .machine import Progress


def owners_on_disk(s: Value, p: Value) -> Value:
    """How many owners the image gives prompt `p`: ledger, buffer, accounts."""
    return (
        where(s.image_ledger[p] != NO_ENTRY, 1, 0)
        + where(s.image_ready[p] == 1, 1, 0)
        + where(s.image_account[p] == TRAINED, 1, 0)
    )


def owners_in_memory(s: Value, p: Value) -> Value:
    """How many owners prompt `p` has in memory; an unready slot owns nothing."""
    return where(s.ledger[p] != NO_ENTRY, 1, 0) + where(s.slot[p] >= READY, 1, 0) + where(s.account[p] == TRAINED, 1, 0)


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
    between = (s.lingering[p] == 1) & (s.ledger[p] == ADMITTED) & (s.slot[p] == READY) & (s.account[p] != TRAINED)
    unread_has_none = implies(s.batch_of[p] >= s.cursor, owners_in_memory(s, p) == 0)
    return ((owners_in_memory(s, p) <= 1) | between) & unread_has_none


@cut.always(
    at="publish",
    each="prompts",
    witness=lambda s: any_of(s.prompts, lambda p: (s.ledger[p] == ADMITTED) & (s.slot[p] == READY)),
)
def image_equals_cut(s: Value, p: Value) -> Value:
    """What is published is the state at the cut: cursors, version, and each prompt's slot, entry, stamp and account."""
    cursors = (s.image_cursor == s.cursor) & (s.image_dispatch_cursor == s.dispatch_cursor)
    ready = s.slot[p] >= READY
    return (
        cursors
        & (s.image_version == s.version)
        & (s.image_ready[p] == where(ready, 1, 0))
        & (s.image_ledger[p] == where(ready, NO_ENTRY, s.ledger[p]))
        & (s.image_stamp[p] == s.stamp[p])
        & (s.image_account[p] == s.account[p])
    )


@cut.always(each="prompts", witness=lambda s: any_of(s.prompts, lambda p: s.stamp[p] >= 0))
def cursor_covers_stamps(s: Value, p: Value) -> Value:
    """No group is stamped for a step beyond the dispatch cursor, in memory and in every image published."""
    return s.stamp[p] <= s.dispatch_cursor


@cut.also("cursor_covers_stamps", at="publish", witness=lambda s: any_of(s.prompts, lambda p: s.image_stamp[p] >= 0))
def image_cursor_covers_stamps(s: Value, p: Value) -> Value:
    """The same of the image."""
    return s.image_stamp[p] <= s.image_dispatch_cursor


cut.domain("steps", lambda scope: scope.batches + 1)


@cut.always(each="steps", witness=lambda s: (s.stamped == 1) & (s.version <= s.dispatch_cursor))
def stamps_complete(s: Value, step: Value) -> Value:
    """Between slots and on disk every step from the version to the dispatch cursor has all its groups, each owned."""
    groups = count(s.prompts, lambda p: (s.stamp[p] == step) & ((s.ledger[p] == ADMITTED) | (s.slot[p] >= READY)))
    ahead = (s.stamped == 1) & (s.version <= step) & (step <= s.dispatch_cursor)
    return implies(ahead, groups == s.batch_size)


@cut.also(
    "stamps_complete",
    at="publish",
    witness=lambda s: (s.stamped == 1) & (s.image_version <= s.image_dispatch_cursor),
)
def image_stamps_complete(s: Value, step: Value) -> Value:
    """The same of the image."""
    groups = count(
        s.prompts, lambda p: (s.image_stamp[p] == step) & ((s.image_ledger[p] == ADMITTED) | (s.image_ready[p] == 1))
    )
    ahead = (s.stamped == 1) & (s.image_version <= step) & (step <= s.image_dispatch_cursor)
    return implies(ahead, groups == s.batch_size)


@cut.always(witness=lambda s: (s.stamped == 1) & (s.gate_passed == 1) & any_of(s.prompts, lambda p: s.stamp[p] >= 0))
def step_free_at_admission(s: Value) -> Value:
    """Whenever an admission may be committed, no group in flight carries the stamp it would get."""
    may_commit = slots_enter(s) & (s.gate_passed == 1) & gate_open(s) & (s.stamped == 1)
    return implies(may_commit, step_is_free(s, s.dispatch_cursor + 1))


@cut.always(at="commit_admission", witness=lambda s: (s.stamped == 1) & (s.version > 0))
def gate_open_at_commit(s: Value) -> Value:
    """An admission is committed only while the sampler admits, as looked at inside the slot."""
    return gate_open(s)


@cut.always(at="finish_step", each="prompts", witness=lambda s: any_of(s.prompts, lambda p: s.slot[p] == CLAIMED))
def trained_once(s: Value, p: Value) -> Value:
    """No prompt is trained a second time."""
    return not_((s.slot[p] == CLAIMED) & (s.account[p] == TRAINED))


@cut.always(witness=lambda s: s.permits == 0)
def permits_balance(s: Value) -> Value:
    """Free permits and occupied slots together are the capacity of the buffer."""
    return s.permits + count(s.prompts, lambda p: s.slot[p] != NO_SLOT) == s.batch_size * (s.lookahead + 1)


def finished(s: Value) -> Value:
    """The data is at its end, ledger and buffer are empty and no save is under way: what the run itself can see."""
    at_rest = (s.cursor == s.batches) & (s.window == OUTSIDE_WINDOW)
    return at_rest & all_of(s.prompts, lambda p: (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT))


def prompts_progress(s: Value) -> Value:
    """How far the prompts have come, 0 for an unread one to 7 for a trained one, summed."""

    def stage(p: Value) -> Value:
        in_buffer = where(s.slot[p] == CLAIMED, 6, where(s.ledger[p] == ADMITTED, where(s.slot[p] == UNREADY, 3, 4), 5))
        in_ledger = where(s.ledger[p] == ADMITTED, 2, where(s.ledger[p] == RESERVED, 1, 0))
        return where(s.account[p] == TRAINED, 7, where(s.slot[p] == NO_SLOT, in_ledger, in_buffer))

    return total(s.prompts, stage)


def rank(s: Value) -> Value:
    """Rises with every action of ours but a new save: prompts come further, and a save under way goes on."""
    under_way = where(s.window == OUTSIDE_WINDOW, 0, 1)
    saves_done = s.saves - s.saves_left - under_way
    return 2 * prompts_progress(s) + s.gate_passed + s.window + (CAPTURED + 1) * saves_done


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
    if s.account[index] == TRAINED:
        memory.append(f"the accounts ({ACCOUNT_SAYS[TRAINED]})")
    handed_out = "handed out" if s.batch_of[index] < s.cursor else "unread"
    line = f"prompt {index} of batch {s.batch_of[index]}, {handed_out}; owners in memory: {', '.join(memory) or 'none'}"
    if s.window != CAPTURED:
        return line
    disk = []
    if s.image_ledger[index] != NO_ENTRY:
        disk.append(f"the ledger ({LEDGER_SAYS[s.image_ledger[index]]})")
    if s.image_ready[index] == 1:
        disk.append("the buffer (ready)")
    if s.image_account[index] == TRAINED:
        disk.append("the accounts (trained)")
    return f"{line}; owners in the image to be published: {', '.join(disk) or 'none'}"


cut.describe = describe
