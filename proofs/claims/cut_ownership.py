"""One owner for every prompt, on the complete cut machine, for any number of prompts, batches, saves and crashes.

The strengthening speaks of one prompt at a time, so it needs no quantifier and the solver answers in milliseconds. Each
conjunct says why it is needed; a test drops each in turn and sees an obligation break.
"""

from __future__ import annotations

from spec.language.expression import Value, implies, not_, where
from spec.language.machine import Machine
from spec.machines.cut import CutScope, cut
from spec.machines.cut.properties import owners_on_disk
from spec.machines.cut.state import (
    BUFFER_READ,
    CAPTURED,
    CLAIMED,
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
    WRITING,
    held_in_silence,
)

from ..solver.conjuncts import Conjunct, about
from ..solver.obligations import Induction


@about("prompts", without="consecution of reserve_batch")
def unread_is_untouched(s: Value, p: Value) -> Value:
    """A prompt before the cursor has no owner. Needed by reserve_batch: the batch it hands out has none yet."""
    untouched = (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT)
    return implies(s.batch_of[p] >= s.cursor, untouched & (s.account[p] == NO_ACCOUNT) & (s.spare[p] == 0))


@about("prompts", without="consecution of close_window")
def handed_out_is_owned(s: Value, p: Value) -> Value:
    """A prompt behind the cursor is in ledger, buffer, pool or accounts. The heart of the matter: none is lost."""
    owned = (s.ledger[p] != NO_ENTRY) | (s.slot[p] >= READY) | (s.account[p] != NO_ACCOUNT) | (s.spare[p] == 1)
    return implies(s.batch_of[p] < s.cursor, owned)


@about("prompts", without="consecution of finish_step")
def claimed_has_no_entry(s: Value, p: Value) -> Value:
    """A claimed group has no ledger entry left. Needed by finish_step: trained, it would be in both."""
    return implies(s.slot[p] == CLAIMED, s.ledger[p] == NO_ENTRY)


@about("prompts", without="consecution of remove_committed")
def lingering_is_ready(s: Value, p: Value) -> Value:
    """An entry is removed only while the buffer owns its group. Needed by remove_committed: else the prompt is lost."""
    return implies(s.lingering[p] == 1, s.slot[p] == READY)


@about("prompts", without="consecution of close_window")
def settled_has_no_other_owner(s: Value, p: Value) -> Value:
    """A trained or dropped prompt is nowhere else. Needed by the reads: its account is the one owner."""
    elsewhere = (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT) & (s.spare[p] == 0)
    return implies(s.account[p] != NO_ACCOUNT, elsewhere)


@about("prompts", without="consecution of crash_and_restore")
def spare_is_a_bit(s: Value, p: Value) -> Value:
    """A prompt is in the pool or not. Needed because the other conjuncts ask for 0 at one place and 1 at another."""
    in_image = (s.image_spare[p] == 0) | (s.image_spare[p] == 1)
    return ((s.spare[p] == 0) | (s.spare[p] == 1)) & in_image


@about("prompts", without="consecution of drain_pool")
def spare_has_no_other_owner(s: Value, p: Value) -> Value:
    """A spare is in neither ledger nor buffer. Needed by substitute: the spare it takes is nobody else's."""
    return implies(s.spare[p] == 1, (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT))


@about("prompts", without="consecution of write_late")
def silent_slots_are_drained(s: Value, p: Value) -> Value:
    """In the window no silent writer holds a slot. Needed by write_late: its token is void by then, nothing moves."""
    return implies(s.window >= OPEN, not_(held_in_silence(s, p)))


@about("prompts", without="consecution of close_window")
def image_of_the_loader(s: Value, p: Value) -> Value:
    """Once read, the cursor in the image is the cursor, until the window ends: reserve_batch needs a slot."""
    return implies(s.window >= LOADER_READ, s.image_cursor == s.cursor)


@about("prompts", without="consecution of close_window")
def image_of_the_pool(s: Value, p: Value) -> Value:
    """Once read, the image has the spares, until the window ends: whoever takes one needs a slot."""
    return implies(s.window >= POOL_READ, s.image_spare[p] == s.spare[p])


@about("prompts", without="consecution of read_ledger")
def image_of_the_buffer(s: Value, p: Value) -> Value:
    """Once read, the image has as ready what the buffer owns, until the window ends: its changes need slots."""
    return implies(s.window >= BUFFER_READ, s.image_ready[p] == where(s.slot[p] >= READY, 1, 0))


@about("prompts", without="consecution of close_window")
def image_of_the_ledger(s: Value, p: Value) -> Value:
    """Once read, the image has the ledger less the buffer, until the window ends: remove_committed changes no more."""
    without_buffer = where(s.slot[p] >= READY, NO_ENTRY, s.ledger[p])
    return implies(s.window >= LEDGER_READ, s.image_ledger[p] == without_buffer)


@about("prompts", without="consecution of close_window")
def image_of_the_accounts(s: Value, p: Value) -> Value:
    """Once read, the image has the accounts, until the window ends: finish_step and every drop need slots."""
    return implies(s.window >= CAPTURED, s.image_account[p] == s.account[p])


@about("prompts", without="consecution of crash_and_restore")
def image_being_written(s: Value, p: Value) -> Value:
    """While the image is written and the run goes on, it gives each prompt one owner. Needed to restore from it."""
    return implies(s.window == WRITING, owners_on_disk(s, p) == where(s.batch_of[p] < s.image_cursor, 1, 0))


STRENGTHENING: tuple[Conjunct, ...] = (
    unread_is_untouched,
    handed_out_is_owned,
    claimed_has_no_entry,
    lingering_is_ready,
    settled_has_no_other_owner,
    spare_is_a_bit,
    spare_has_no_other_owner,
    silent_slots_are_drained,
    image_of_the_loader,
    image_of_the_pool,
    image_of_the_buffer,
    image_of_the_ledger,
    image_of_the_accounts,
    image_being_written,
)


@about("prompts")
def empty_run(s: Value, p: Value) -> Value:
    """The empty run: nothing read, nothing owned, no save under way."""
    image_is_empty = s.image_spare[p] == 0
    untouched = (s.ledger[p] == NO_ENTRY) & (s.slot[p] == NO_SLOT) & (s.account[p] == NO_ACCOUNT) & (s.spare[p] == 0)
    return (
        (s.cursor == 0)
        & (s.batch_of[p] >= 0)
        & image_is_empty
        & untouched
        & (s.lingering[p] == 0)
        & (s.lease[p] == NO_LEASE)
        & (s.window == OUTSIDE_WINDOW)
    )


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
        initial=(empty_run,),
        assumes=ASSUMES,
        excludes=EXCLUDES,
    )
