"""Cursor, epoch and exhausted bit of the loader fit each other, for any number of batches, epochs, saves and crashes.

So while an epoch is not over its next batch is one of the data, which the argument about the run rests on.
"""

from __future__ import annotations

from spec.language.expression import Symbol, Value, any_of, implies, where
from spec.language.machine import Machine
from spec.machines.cut import CutScope, cut
from spec.machines.cut.properties import loader_agrees
from spec.machines.cut.rollout import of_next_batch
from spec.machines.cut.state import LOADER_READ, OUTSIDE_WINDOW, WRITING

from ..solver.conjuncts import Conjunct, about
from ..solver.obligations import Definition, Induction
from ..solver.terms import NUMBERS


@about(without="loader_agrees: safety in every state")
def loader_is_in_its_epoch(s: Value) -> Value:
    """The cursor is in its epoch, and the bit set exactly at the end of it: the property itself."""
    return loader_agrees(s)


@about(without="next_batch_has_a_prompt follows")
def epoch_is_of_the_scope(s: Value) -> Value:
    """An epoch is the first, the last, or one between. Needed for the next batch: it is one of the data."""
    return (s.epoch >= 0) & (s.epoch <= s.epochs - 1)


@about(without="consecution of crash_and_restore")
def image_of_the_loader_agrees(s: Value) -> Value:
    """Once read, cursor, epoch and bit in the image fit each other until it is written. Needed to restore from it."""
    end = (s.image_epoch + 1) * s.batches
    inside = (s.image_epoch * s.batches <= s.image_cursor) & (s.image_cursor <= end)
    agrees = inside & (where(s.image_cursor == end, 1, 0) == s.image_epoch_over)
    read = (s.window >= LOADER_READ) | (s.window == WRITING)
    return implies(read, agrees & (s.image_epoch >= 0) & (s.image_epoch <= s.epochs - 1))


STRENGTHENING: tuple[Conjunct, ...] = (
    loader_is_in_its_epoch,
    epoch_is_of_the_scope,
    image_of_the_loader_agrees,
)


@about()
def start_of_the_data(s: Value) -> Value:
    """At the start nothing is read and no save under way."""
    return (s.cursor == 0) & (s.epoch == 0) & (s.epoch_over == 0) & (s.epochs >= 1) & (s.window == OUTSIDE_WINDOW)


@about(without="consecution of end_epoch")
def epochs_have_a_batch(s: Value) -> Value:
    """The scope: an epoch has one batch at least."""
    return s.batches >= 1


@about(NUMBERS, without="next_batch_has_a_prompt follows")
def batches_have_a_prompt(s: Value, k: Value) -> Value:
    """The scope: every batch of the data has one prompt at least."""
    return implies((k >= 0) & (k < s.epochs * s.batches), any_of(s.prompts, lambda p: s.batch_of[p] == k))


@about()
def next_batch_has_a_prompt(s: Value) -> Value:
    """While the epoch is not over the loader's next batch has a prompt."""
    return implies(s.epoch_over == 0, any_of(s.prompts, lambda p: of_next_batch(s, p)))


ASSUMES = "slots are atomic (the barrier machine); an epoch has a batch, and every batch of the data a prompt, at least"
EXCLUDES = "which prompts a batch has, and a loader that is no PromptLoader"


def induction(machine: Machine = cut) -> Induction:
    """What is proved of the loader for any size; of a varied machine, the same obligations."""
    return Induction(
        name="loader",
        machine=machine,
        scope_type=CutScope,
        properties=("loader_agrees",),
        strengthening=STRENGTHENING,
        initial=(start_of_the_data,),
        assumes=ASSUMES,
        excludes=EXCLUDES,
        supposes=(epochs_have_a_batch, batches_have_a_prompt),
        follows=(next_batch_has_a_prompt,),
        definitions=(Definition("next batch", NUMBERS, lambda: Symbol("variable", "cursor")),),
    )
