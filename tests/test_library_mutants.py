"""Faults put into the library on purpose: the walks against the model must find each of them.

A mutant is one small change of one part. Each names the words of the complaint, so that a mutant that is caught by
chance, by another check than the one made for it, shows.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from library_machine import machine_of

from impl import Claim, Ledger, LoaderState, Permit, PromptLoader, ReplayBuffer, SparePool, TensorPlane
from impl.checkpoint import capture
from impl.controller import Progress
from impl.run import PermitPool
from impl.run.samplers import StepSampler

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")

#: As in the walks of the library itself, but for the search for a smallest walk.
SEARCH = settings(
    max_examples=400,
    stateful_step_count=40,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    database=None,
)

Patch = pytest.MonkeyPatch


def nothing(*arguments: object, **options: object) -> None:
    """In the place of an action: it does not happen."""


def no_subtraction_at_the_cut(patch: Patch) -> None:
    snapshot = Ledger.snapshot
    patch.setattr(Ledger, "snapshot", lambda self, cut, owned_elsewhere: snapshot(self, cut, ()))


def permit_given_back_at_claim(patch: Patch) -> None:
    claim = ReplayBuffer.claim

    def claim_and_return(self: ReplayBuffer, cut: Any, groups: Iterable[int], step: int) -> Claim:
        taken = claim(self, cut, groups, step)
        for _ in taken.groups:
            self._permits.return_place()
        return taken

    def remove(self: ReplayBuffer, group: int) -> None:
        if not self._slots[group].claimed:
            self._permits.return_place()
        del self._slots[group]
        self.plane.clear(group)

    patch.setattr(ReplayBuffer, "claim", claim_and_return)
    patch.setattr(ReplayBuffer, "_remove", remove)
    # The library's own checks would find it first; here the model has to.
    patch.setattr(ReplayBuffer, "check", nothing)
    patch.setattr(PermitPool, "check", nothing)


def lingering_entry_at_claim(patch: Patch) -> None:
    patch.setattr(ReplayBuffer, "_forget_entry", nothing)


def spare_taken_without_owner(patch: Patch) -> None:
    take_many = SparePool.take_many

    def take_one_more(self: SparePool, cut: Any, count: int) -> Any:
        taken = take_many(self, cut, count)
        if len(self):
            take_many(self, cut, 1)
        return taken

    patch.setattr(SparePool, "take_many", take_one_more)


def shortfall_not_credited(patch: Patch) -> None:
    patch.setattr(StepSampler, "credit", nothing)


def gate_ignores_drops(patch: Patch) -> None:
    patch.setattr(StepSampler, "record_drop", nothing)


def permit_leaked_by_a_failure(patch: Patch) -> None:
    patch.setattr(Permit, "give_back", nothing)


def trained_prompts_not_accounted_for(patch: Patch) -> None:
    patch.setattr(ReplayBuffer, "_account_for", nothing)


def budget_not_saved(patch: Patch) -> None:
    read = Progress.read

    def read_without(self: Progress, cut: Any) -> Any:
        counters = read(self, cut)
        return type(counters)(counters.version, counters.step)

    patch.setattr(Progress, "read", read_without)


def snapshot_past_its_full_save(patch: Patch) -> None:
    patch.setattr(capture, "_no_snapshot", lambda parts, cut, anchor: None if anchor else "none yet")


def exhausted_bit_lost(patch: Patch) -> None:
    state = PromptLoader.state

    def without_the_bit(self: PromptLoader) -> LoaderState:
        return replace(state(self), exhausted=False)

    patch.setattr(PromptLoader, "state", without_the_bit)


def pool_not_saved(patch: Patch) -> None:
    patch.setattr(SparePool, "snapshot", lambda self, cut: ())


def write_back_in_place(patch: Patch) -> None:
    def write(self: Claim, group: int, columns: Any) -> None:
        plane = self._plane
        assert isinstance(plane, TensorPlane)
        record = plane._records[group]
        plane._records[group] = type(record)(group, {**record.tensors, **columns}, record.versions)

    patch.setattr(Claim, "write_back", write)


def ids_given_again_after_a_restore(patch: Patch) -> None:
    load = Ledger.load

    def load_and_forget(self: Ledger, cut: Any, snapshot: Any) -> None:
        load(self, cut, snapshot)
        self._next_group = max(snapshot.entries, default=-1) + 1

    patch.setattr(Ledger, "load", load_and_forget)


MUTANTS: dict[Callable[[Patch], None], tuple[str, str]] = {
    no_subtraction_at_the_cut: ("ready_first", r"in the image .*: ledger is"),
    permit_given_back_at_claim: ("in_order", r"in memory after claim: free permits"),
    lingering_entry_at_claim: ("weight_fifo", r"in memory after claim: ledger is"),
    spare_taken_without_owner: ("in_order", r"spares is"),
    shortfall_not_credited: ("in_order", r"sampler is"),
    gate_ignores_drops: ("weight_fifo", r"sampler is|whether the gate"),
    permit_leaked_by_a_failure: ("windowed", r"free in-flight permits"),
    trained_prompts_not_accounted_for: ("windowed", r"in memory after finish_step: trained is"),
    budget_not_saved: ("ready_first", r"in the image .*: budgets"),
    snapshot_past_its_full_save: ("windowed", r"a snapshot was taken past its full save"),
    exhausted_bit_lost: ("in_order", r"loader is"),
    pool_not_saved: ("weight_fifo", r"in the image .*: spares"),
    write_back_in_place: ("in_order", r"rows in the plane after a write_back"),
    ids_given_again_after_a_restore: ("windowed", r"after a restore .*: ids"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_seeded_fault_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """The model is an oracle only if it can say no."""
    sampler, complaint = MUTANTS[mutant]
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=complaint):
        run_state_machine_as_test(machine_of(sampler), settings=SEARCH)
