"""One owner for every prompt, for any number of prompts, batches, saves, crashes and restores.

The strengthening speaks of one prompt at a time, so it needs no quantifier and the solver answers in milliseconds. Each
conjunct says why it is needed; a test drops each in turn and sees an obligation break.
"""

from __future__ import annotations

from spec.cut import (
    BUFFER_READ,
    CAPTURED,
    CLAIMED,
    LEDGER_READ,
    LOADER_READ,
    NO_ACCOUNT,
    NO_ENTRY,
    NO_SLOT,
    OUTSIDE_WINDOW,
    READY,
    TRAINED,
    CutScope,
    cut,
)
from spec.expression import Value, implies, where
from spec.machine import Machine

from .obligations import Induction
from .symbols import Conjunct


def unread_is_untouched(s: Value, p: Value) -> Value:
    """A prompt before the cursor has no owner. Needed by reserve_batch: the batch it hands out has none yet."""
    untouched = (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT) & (s.account[p] == NO_ACCOUNT)
    return implies(s.batch_of[p] >= s.cursor, untouched)


def handed_out_is_owned(s: Value, p: Value) -> Value:
    """A prompt behind the cursor is in ledger, buffer or accounts. The heart of the matter: none is lost."""
    owned = (s.ledger[p] != NO_ENTRY) | (s.slot[p] >= READY) | (s.account[p] == TRAINED)
    return implies(s.batch_of[p] < s.cursor, owned)


def claimed_has_no_entry(s: Value, p: Value) -> Value:
    """A claimed group has no ledger entry left. Needed by finish_step: trained, it would be in both."""
    return implies(s.slot[p] == CLAIMED, s.ledger[p] == NO_ENTRY)


def lingering_is_ready(s: Value, p: Value) -> Value:
    """An entry is removed only while the buffer owns its group. Needed by remove_committed: else the prompt is lost."""
    return implies(s.lingering[p] == 1, s.slot[p] == READY)


def trained_has_no_other_owner(s: Value, p: Value) -> Value:
    """A trained prompt is in neither ledger nor buffer. Needed by the reads: its account is the one owner."""
    return implies(s.account[p] == TRAINED, (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT))


def image_of_the_loader(s: Value, p: Value) -> Value:
    """Once read, the cursor in the image is the cursor. It stands still: reserve_batch needs a slot."""
    return implies(s.window >= LOADER_READ, s.image_cursor == s.cursor)


def image_of_the_buffer(s: Value, p: Value) -> Value:
    """Once read, the image has as ready what the buffer owns. It stands still: commit, claim and finish need slots."""
    return implies(s.window >= BUFFER_READ, s.image_ready[p] == where(s.slot[p] >= READY, 1, 0))


def image_of_the_ledger(s: Value, p: Value) -> Value:
    """Once read, the image has the ledger without what the buffer owns; remove_committed touches nothing else."""
    without_buffer = where(s.slot[p] >= READY, NO_ENTRY, s.ledger[p])
    return implies(s.window >= LEDGER_READ, s.image_ledger[p] == without_buffer)


def image_of_the_accounts(s: Value, p: Value) -> Value:
    """Once read, the image has the accounts. They stand still: finish_step needs a slot."""
    return implies(s.window >= CAPTURED, s.image_account[p] == s.account[p])


STRENGTHENING: tuple[Conjunct, ...] = (
    unread_is_untouched,
    handed_out_is_owned,
    claimed_has_no_entry,
    lingering_is_ready,
    trained_has_no_other_owner,
    image_of_the_loader,
    image_of_the_buffer,
    image_of_the_ledger,
    image_of_the_accounts,
)


def initial(s: Value, p: Value) -> Value:
    """The empty run: nothing read, nothing owned, no save under way."""
    untouched = (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT) & (s.account[p] == NO_ACCOUNT)
    return (s.cursor == 0) & (s.batch_of[p] >= 0) & untouched & (s.lingering[p] == 0) & (s.window == OUTSIDE_WINDOW)


ASSUMES = "slots are atomic (the barrier machine); a restore reads back exactly what was published"
EXCLUDES = "permits, stamps and the progress of the run, which are enumerated within scopes only"


def induction(machine: Machine = cut) -> Induction:
    """What is proved of the cut for any size; of a varied machine, the same obligations."""
    return Induction(
        name="ownership",
        machine=machine,
        scope_type=CutScope,
        properties=("one_owner_on_disk", "none_lost"),
        strengthening=STRENGTHENING,
        initial=initial,
        assumes=ASSUMES,
        excludes=EXCLUDES,
    )
