"""Reported failures of samples and prompts across save and resume, as runs of the cut machine; each name has its case.

A mutant here is a change of the machine made for one test: the claim beside it must be able to fail.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from model_states import path

from spec.engines import search
from spec.language import Machine, Model, Step, any_of, count, each, where
from spec.machines import SMALL
from spec.machines.cut import (
    CLAIMED,
    DROPPED,
    NO_ACCOUNT,
    READY,
    RESERVED,
    TRAINED,
    WINDOWED,
    WRITING,
    CutScope,
    claim,
    cut,
    eligible,
    parked,
)

SAVE = (
    "request_cut", "open_cut", "read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger", "read_trainer",
)  # fmt: skip
ADMIT = ("reserve_batch", "pass_gate", "commit_admission")
CRASHES = ("crash_and_restore", "crash_and_restore_replay_free")

Change = Callable[..., dict[str, Any]]


def small(member: str) -> Any:
    """A pinned scope of the family."""
    return SMALL["cut"][member][0]


def altered(action: str, change: Change, guard: Callable[..., Any] | None = None, of: Machine = cut) -> Machine:
    """A copy of a machine whose action moves `change(state, effects, index)` too, perhaps under another guard."""
    machine = of.varied(())
    original = of.actions[action].function

    def changed(s: Any, *index: Any) -> tuple[Any, dict[str, Any]]:
        old_guard, effects = original(s, *index)
        return guard(s, *index) if guard else old_guard, {**effects, **change(s, effects, *index)}

    machine.replace(action, changed)
    return machine


def forgetting(name: str, forgotten: Callable[[Any, Any], Any]) -> Change:
    """A change that leaves out of one variable what is forgotten: no entry, no slot."""
    return lambda s, effects: {name: each(s.prompts, lambda p: where(forgotten(s, p), 0, effects[name][p]))}


def claiming(machine: Machine, claim: Callable[[Any], Any], witness: Callable[[Any], Any], **at: str) -> Machine:
    """A copy of a machine with one property more, looked at in every state or before one action."""
    machine = machine.varied(())
    machine.always(witness=witness, **at)(claim)
    return machine


def verdict(machine: Machine, scope: Any, *properties: str) -> str:
    """What a complete search says of some properties; `unwitnessed` if the premise of one never occurs."""
    found = search(machine.model(scope), properties=properties)
    assert found.violation or found.complete
    return "unwitnessed" if found.unwitnessed else found.verdict


def transitions(model: Model, *starts: Any, progress_only: bool = False) -> Iterator[tuple[Any, Step]]:
    """Every step of every state that is reachable from the starts, each once."""
    frontier = list(starts or [model.initial])
    seen = set(frontier)
    while frontier:
        state = frontier.pop()
        for step in model.steps(state):
            if progress_only and not step.action.progress:
                continue
            yield state, step
            if step.state not in seen:
                seen.add(step.state)
                frontier.append(step.state)


def restored_states(model: Model) -> list[Any]:
    """Every state that a process starts in after a crash."""
    return list({step.state: None for _, step in transitions(model) if step.action.name in CRASHES})


def where_slots(state: Any, *values: int) -> list[int]:
    """The prompts whose slot has one of the values."""
    return [p for p in state.prompts if state.slot[p] in values]


def parked_prompts(state: Any) -> list[int]:
    """The prompts that are admitted and wait for their dispatch."""
    return [p for p in state.prompts if parked(state, p)]


@pytest.mark.parametrize("crash", [False, True])
def test_case_A03_the_tail_of_a_batch_is_used_in_order_before_the_next_pull(crash: bool) -> None:
    """One of four is taken; the others come next, with a save and a crash in between and without."""
    model = cut.model(CutScope(batches=2, batch_size=4, lookahead=1, saves=1, crashes=1, in_flight=1))
    state = path(model, *ADMIT, ("dispatch", 0))
    if crash:
        state = path(model, *SAVE, "crash_and_restore", start=state)
    order = []
    while model.step_named(state, "reserve_batch", None) is None:
        (step,) = [step for step in model.steps(state) if step.action.name in ("dispatch", "commit_group")]
        order += [step.index] if step.action.name == "dispatch" else []
        state = step.state
    assert order == ([0, 1, 2, 3] if crash else [1, 2, 3])


def test_case_A03_forgetting_the_tail_loses_it() -> None:
    """A mutant that pulls the next batch while prompts are parked, and lets go of them."""
    scope = CutScope(batches=2, batch_size=2, lookahead=1, saves=1, crashes=0, in_flight=1)

    def nothing_is_reserved(s: Any) -> Any:
        return (s.epoch_over == 0) & (count(s.prompts, lambda p: s.ledger[p] == RESERVED) == 0)

    assert verdict(cut, scope, "none_lost") == "holds"
    mutant = altered("reserve_batch", forgetting("ledger", parked), nothing_is_reserved)
    assert verdict(mutant, scope, "none_lost") == "fails"


@pytest.mark.parametrize("member", ["two_pairs_ahead", "windowed_tight", "spares", "epochs", "snapshots"])
def test_case_A05_a_finished_group_is_never_generated_again(member: str) -> None:
    """Ready, claimed or in the accounts: no step takes that back, and a restore has what its image has."""
    seen = set()
    for state, step in transitions(cut.model(small(member))):
        seen.add(crashed := step.action.name in CRASHES)
        for p in state.prompts:
            in_buffer = state.image_ready[p] if crashed else state.slot[p] in (READY, CLAIMED)
            account = state.image_account[p] if crashed else state.account[p]
            if in_buffer or account:
                assert step.state.slot[p] in (READY, CLAIMED) or step.state.account[p] != NO_ACCOUNT, (state, step)
    assert seen == {False, True}


def test_case_A05_both_wrong_measures_of_progress_are_caught() -> None:
    """Where work is handed out skips the gap; where it is trained hands out again what is in the buffer."""
    assert verdict(cut.varied(("cursor_ahead",)), small("windowed_tight"), "none_lost") == "fails"
    assert verdict(cut.varied(("loader_from_version",)), small("one_batch"), "trained_once") == "fails"


def test_case_A09_a_restore_counts_no_step_twice() -> None:
    """Label, version and trained prompts agree over two crashes; a restore that counts on is caught at once."""
    scope = small("two_batches_ahead")

    def version_counts_steps(s: Any) -> Any:
        """As many prompts are trained as the version says."""
        return count(s.prompts, lambda p: s.account[p] == TRAINED) == s.batch_size * s.version

    def counted(machine: Machine) -> Machine:
        return claiming(machine, version_counts_steps, lambda s: (s.version > 0) & (s.crashes_left < s.crashes))

    assert verdict(counted(cut), scope, "version_counts_steps") == "holds"
    twice = altered("crash_and_restore", lambda s, effects: {"version": s.image_version + 1})
    found = search(counted(twice).model(scope), properties=["version_counts_steps"])
    assert found.violation is not None
    assert found.violation.steps[-1] == ("crash_and_restore", None)


@pytest.mark.parametrize("lookahead", [0, 1])
def test_case_A10_every_step_after_a_complete_restored_one_gets_a_producer(lookahead: int) -> None:
    """In every order of producer and trainer the run comes from N complete, N + 1 nobody's, to its end."""
    model = cut.model(CutScope(batches=4, batch_size=1, lookahead=lookahead, saves=1, crashes=1))
    complete = [state for state in restored_states(model) if where_slots(state, READY) and not state.epoch_over]
    starts = [state for state in complete if set(state.stamp) == {-1, state.version}]
    assert {state.version for state in starts} == {0, 1, 2}
    steps = list(transitions(model, *starts, progress_only=True))
    ends = {step.state for _, step in steps} - {state for state, _ in steps}
    assert {(model.finished(state), state.version) for state in ends} == {(True, 4)}


def test_case_A10_a_producer_that_begins_behind_the_next_step_stalls_and_the_step_is_named() -> None:
    """A mutant whose restore moves the producer on by one: nobody makes the step in between."""
    scope = CutScope(batches=3, batch_size=1, lookahead=1, saves=1, crashes=1)
    moved_on = altered("crash_and_restore", lambda s, effects: {"dispatch_cursor": s.image_dispatch_cursor + 1})
    found = search(moved_on.model(scope), properties=["no_stall"])
    assert found.violation is not None
    stalled = found.violation.states[-1]
    assert stalled.version not in stalled.stamp
    assert stalled.dispatch_cursor > stalled.version


def test_case_A13_an_image_fits_into_the_capacity_it_was_written_with_and_takes_its_permits() -> None:
    """Only an operator can make it too small. Mutants: permits given back at the claim, or not taken at the restore."""
    scope = replace(small("snapshots"), lookahead=1, sampler=WINDOWED, capacity=1)

    def image_fits(s: Any) -> Any:
        """An image holds no more groups than the buffer that wrote it has slots."""
        return count(s.prompts, lambda p: s.image_ready[p] == 1) <= s.capacity

    def watched(machine: Machine) -> Machine:
        return claiming(machine, image_fits, lambda s: any_of(s.prompts, lambda p: s.image_ready[p] == 1), at="publish")

    assert verdict(watched(cut), scope, "image_fits", "permits_balance") == "holds"
    assert verdict(watched(cut.varied(("permit_at_claim",))), scope, "image_fits") == "fails"
    all_free = altered("crash_and_restore", lambda s, effects: {"permits": s.capacity})
    assert verdict(all_free, scope, "permits_balance") == "fails"


def test_case_A14_an_admission_to_an_occupied_step_is_refused_and_discards_nothing() -> None:
    """With the cursor behind the buffer the run stops there, every prompt still owned; a silent guard loses a batch."""
    scope = small("two_batches")
    behind = cut.varied(("cursor_from_version",))
    found = search(behind.model(scope), properties=["step_free_at_admission"])
    assert found.violation is not None
    occupied = found.violation.states[-1]
    assert occupied.dispatch_cursor + 1 in occupied.stamp
    assert found.model.step_named(occupied, "commit_admission", None) is None
    assert (verdict(behind, scope, "none_lost"), verdict(behind, scope, "no_stall")) == ("holds", "fails")
    assert verdict(cut.varied(("cursor_from_version", "silent_duplicate_guard")), scope, "none_lost") == "fails"


def test_case_A15_three_of_four_are_kept_and_only_the_fourth_is_generated() -> None:
    """The step is completed by one generation. A restore without the buffer makes all four pending again."""
    model = cut.model(CutScope(batches=1, batch_size=4, lookahead=0, saves=1, crashes=1, replay_free=1))
    dispatched = path(model, *ADMIT, *(("dispatch", p) for p in range(4)))
    saved = path(model, *(("commit_group", p) for p in (0, 1, 3)), *SAVE, start=dispatched)
    state = path(model, "crash_and_restore", start=saved)
    assert where_slots(state, READY) == [0, 1, 3]
    assert parked_prompts(state) == [2]
    state = path(model, ("dispatch", 2), ("commit_group", 2), "claim", "finish_step", start=state)
    assert set(state.account) == {TRAINED}
    without = path(model, "crash_and_restore_replay_free", start=saved)
    assert parked_prompts(without) == [0, 1, 2, 3]
    assert set(without.stamp) == {0}


def test_case_A15_deleting_partly_filled_steps_loses_their_prompts() -> None:
    """A mutant of the restore that drops the finished groups of a step that is not complete."""

    def of_a_partly_filled_step(s: Any, p: Any) -> Any:
        return any_of(s.prompts, lambda q: (s.image_stamp[q] == s.image_stamp[p]) & (s.image_ready[q] == 0))

    mutant = altered("crash_and_restore", forgetting("slot", of_a_partly_filled_step))
    assert verdict(mutant, small("one_pair"), "none_lost") == "fails"


def test_case_A20_five_restores_in_a_row_are_like_none() -> None:
    """Save and crash after each of five prompts: the same order of training, and the same end."""
    model = cut.model(CutScope(batches=5, batch_size=1, lookahead=0, saves=5, crashes=5))
    ends = []
    for interruption in ((*SAVE, "crash_and_restore"), ()):
        state, trained = model.initial, []
        for p in range(5):
            state = path(model, *ADMIT, ("dispatch", p), ("commit_group", p), *interruption, "claim", start=state)
            trained += where_slots(state, CLAIMED)
            state = path(model, "finish_step", start=state)
        assert trained == [0, 1, 2, 3, 4]
        assert model.finished(state)
        ends.append(state._replace(saves_left=0, crashes_left=0, anchor=0))
    assert ends[0] == ends[1]


def test_case_A20_saving_what_was_restored_and_restoring_that_changes_nothing() -> None:
    """Of every image of a scope: the second resume finds exactly what the first one found."""
    model = cut.model(small("two_batches_ahead"))
    again = [state for state in restored_states(model) if state.saves_left and state.crashes_left]
    assert len(again) > 10
    for first in again:
        second = path(model, *SAVE, "crash_and_restore", start=first)
        assert second == first._replace(saves_left=first.saves_left - 1, crashes_left=first.crashes_left - 1)


def test_case_A20_a_save_that_counts_from_the_restore_is_right_the_first_time_and_wrong_the_second() -> None:
    """A mutant whose loader keeps the restored position where the next save does not read it."""
    delta = altered("read_loader", lambda s, effects: {"image_cursor": s.cursor - s.base})
    delta.variable("base", 0, lambda scope: scope.batches_in_all, "where the loader was restored")
    delta = altered("crash_and_restore", lambda s, effects: {"base": s.image_cursor}, of=delta)
    once, twice = (CutScope(batches=1, batch_size=2, lookahead=0, saves=n, crashes=1) for n in (1, 2))
    assert verdict(delta, once, "one_owner_on_disk") == "holds"
    assert verdict(delta, twice, "one_owner_on_disk") == "fails"


@pytest.mark.parametrize("produced", [p for n in range(5) for p in itertools.combinations(range(4), n)], ids=str)
def test_case_A21_a_save_soon_after_a_restore_is_complete_whoever_has_answered(produced: tuple[int, ...]) -> None:
    """Four producers, restored; any of them commit, none included; the next image holds all four prompts."""
    model = cut.model(CutScope(batches=1, batch_size=4, lookahead=0, saves=2, crashes=2))
    dispatched = [("dispatch", p) for p in range(4)]
    state = path(model, *ADMIT, *dispatched, *SAVE, "crash_and_restore")
    if produced:
        state = path(model, *dispatched, *(("commit_group", p) for p in produced), start=state)
    state = path(model, *SAVE, "crash_and_restore", start=state)
    assert where_slots(state, READY) == list(produced)
    assert parked_prompts(state) == [p for p in range(4) if p not in produced]


def test_case_A21_a_save_that_asks_only_the_producers_at_work_is_incomplete() -> None:
    """A mutant: what no task has taken up again is not in the image."""
    mutant = altered("read_ledger", forgetting("image_ledger", parked))
    assert verdict(mutant, small("one_pair"), "one_owner_on_disk") == "fails"


def watching_order(machine: Machine) -> Machine:
    """The machine with a note of the prompt dispatched last in this process."""
    machine = machine.varied(())
    machine.variable("last", -1, lambda scope: scope.prompts_in_all, "the prompt dispatched last", initial=-1)
    machine.variable("out_of_order", 0, 1, "1: a prompt came after a later one, or a second time")

    def noted(s: Any, effects: Any, p: Any) -> dict[str, Any]:
        return {"last": p, "out_of_order": where(p <= s.last, 1, s.out_of_order)}

    def queue_keeps_its_order(s: Any) -> Any:
        """Within one process no prompt is dispatched after a later one, and none twice."""
        return s.out_of_order == 0

    machine = altered("dispatch", noted, of=altered("crash_and_restore", lambda s, effects: {"last": -1}, of=machine))
    return claiming(machine, queue_keeps_its_order, lambda s: (s.crashes_left < s.crashes) & (s.last >= 0))


def test_case_A22_what_was_queued_ahead_comes_first_and_in_order_after_a_restore() -> None:
    """In every schedule. Mutants: a dispatch in any order, and an image without what waits for its admission."""
    scope = CutScope(batches=3, batch_size=2, lookahead=0, saves=1, crashes=1, in_flight=1)

    def any_parked(s: Any, p: Any) -> Any:
        return parked(s, p) & (s.permits > 0) & (s.generations > 0)

    anyhow = altered("dispatch", lambda s, effects, p: {}, any_parked)
    assert verdict(watching_order(cut), scope, "queue_keeps_its_order", "none_lost") == "holds"
    assert verdict(watching_order(anyhow), scope, "queue_keeps_its_order") == "fails"
    mutant = altered("read_ledger", forgetting("image_ledger", lambda s, p: s.ledger[p] == RESERVED))
    assert verdict(mutant, small("one_batch"), "one_owner_on_disk") == "fails"


def test_case_A24_an_image_being_written_stands_still_while_the_run_goes_on() -> None:
    """Between the end of the window and the publication only a step that writes into committed rows could change it."""
    model = cut.model(small("background"))
    image = [name for name in model.machine.variables if name.startswith("image_")]
    moved = set()
    for state, step in transitions(model):
        if state.window == WRITING and step.action.name not in ("publish", *CRASHES):
            assert [getattr(state, name) for name in image] == [getattr(step.state, name) for name in image]
            moved.add(step.action.name)
    assert moved >= {"reserve_batch", "commit_admission", "dispatch", "commit_group", "claim", "write_back"}
    assert verdict(cut.varied(("write_back_in_place",)), small("background"), "image_equals_cut") == "fails"


FAILING = CutScope(batches=3, batch_size=1, lookahead=1, saves=0, crashes=0, failures=3, retries=1, in_flight=1)


def test_case_A30_after_any_failures_all_permits_are_back_and_every_prompt_is_accounted_for() -> None:
    """Every end of every schedule: capacity free, in-flight permits free, each prompt trained or dropped."""
    model = cut.model(FAILING)
    drops = set()
    for _, step in transitions(model):
        state = step.state
        if model.finished(state):
            assert (state.permits, state.generations) == (state.capacity, state.in_flight)
            assert NO_ACCOUNT not in state.account
            drops.add(list(state.account).count(DROPPED))
    assert drops == {0, 1}


def test_case_A30_five_failures_in_a_buffer_of_four_stall_nobody() -> None:
    """One after the other the first five are given up; the sixth is dispatched and trained."""
    model = cut.model(CutScope(batches=6, batch_size=1, lookahead=3, saves=0, crashes=0, failures=5, in_flight=1))
    state = model.initial
    for p in range(5):
        state = path(model, *ADMIT, ("dispatch", p), ("fail_attempt", p), ("shrink", p), "empty_step", start=state)
        assert (state.permits, state.generations) == (4, 1)
    state = path(model, *ADMIT, ("dispatch", 5), ("commit_group", 5), "claim", "finish_step", start=state)
    assert list(state.account) == [DROPPED] * 5 + [TRAINED]


def test_case_A30_a_failure_that_keeps_its_permit_stalls_the_run() -> None:
    """Mutants: the permit of the buffer, and the one in flight, are not given back."""
    kept = altered("fail_attempt", lambda s, effects, p: {"generations": s.generations})
    scope = CutScope(batches=2, batch_size=1, lookahead=0, saves=0, crashes=0, failures=1)
    for broken in ("permits_balance", "no_stall"):
        assert verdict(kept, FAILING, broken) == "fails"
        assert verdict(cut.varied(("permit_leak_on_failure",)), scope, broken) == "fails"


@pytest.mark.parametrize("drop_short", [0, 1])
def test_case_A35_no_order_of_events_hangs_at_the_end_of_the_data(drop_short: int) -> None:
    """Five prompts, four a step: the fifth is a step of its own, or dropped; every order comes to an end."""
    scope = CutScope(batches=2, batch_size=4, lookahead=0, saves=0, crashes=0, last_batch=1, drop_short=drop_short)
    assert verdict(cut, scope, "no_stall") == "holds"

    def whole_steps_only(s: Any) -> Any:
        return claim(s)[0] & (count(s.prompts, lambda p: eligible(s, p)) >= s.batch_size)

    waits = altered("claim", lambda s, effects: {}, whole_steps_only)
    assert verdict(waits, scope, "no_stall") == ("holds" if drop_short else "fails")
