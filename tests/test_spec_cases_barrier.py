"""Reported failures of barriers and snapshots in other systems, as runs of the machines; each name has its case.

Barrier, cut and store, whichever machine the case speaks about. Mutants are made for one test, as in `test_spec_cases`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from model_states import path
from test_spec_cases import SAVE, altered, small, transitions, verdict

from spec.language import each, where
from spec.machines import SMALL
from spec.machines.barrier import DONE, INSIDE, OPEN, BarrierScope, barrier
from spec.machines.combined import combined
from spec.machines.cut import CutScope, cut
from spec.machines.cut import state as cut_state
from spec.machines.store import PUBLISHED, REMOVED, StoreScope, store, superseded, survives_published, valid

TWO_WRITERS = BarrierScope(writers=2, rounds=2, checkpointers=1, cancellations=1, expiries=1)


def test_case_C01_no_mutation_begins_or_ends_while_a_cut_is_open() -> None:
    """In every order of two writers and a checkpoint: each mutation is wholly before the cut or wholly after it."""
    seen = set()
    for state, step in transitions(barrier.model(TWO_WRITERS)):
        if OPEN in state.cut:
            assert INSIDE not in state.at
            if OPEN in step.state.cut:
                assert INSIDE not in step.state.at
                seen.add(step.action.name)
    assert seen >= {"request_slot", "withdraw_slot"}
    assert not seen & {"enter_slot", "leave_slot", "cancel_inside"}


def test_case_C01_a_writer_past_its_look_at_the_gate_is_caught_in_the_cut() -> None:
    """The gate shut only after a look at the slots, and a cut that opens before they are empty."""
    assert verdict(barrier.varied(("flag_after_drain",)), TWO_WRITERS, "cut_excludes_writers") == "fails"
    one_batch = SMALL["combined"]["one_batch"][0]
    assert verdict(combined, one_batch, "image_equals_cut") == "holds"
    assert verdict(combined.varied(("cut_does_not_drain",)), one_batch, "image_equals_cut") == "fails"


REWIND = StoreScope(attempts=3, crashes=1, rewinds=1)


def test_case_C04_retention_removes_what_is_older_than_the_durable_new_one_and_nothing_else() -> None:
    """Also after an older checkpoint was restored beside newer ones. The mark is exact on both sides."""
    rewound = 0
    for state, step in transitions(store.model(REWIND)):
        if step.action.name == "retire":
            own = state.attempt[step.index]
            for k in state.attempts_made:
                if k < own and state.place[k] == PUBLISHED:
                    assert step.state.place[k] == REMOVED
                else:
                    assert step.state.place[k] == state.place[k]
            assert survives_published(state, own)
            abandoned = [k for k in range(own) if state.step_of[k] >= state.step_of[own]]
            rewound += any(valid(state, k) for k in abandoned)
    assert rewound > 0


def test_case_C04_a_mark_that_is_off_by_one_or_no_mark_at_all_removes_what_is_needed() -> None:
    """Mutants of retention: the mark includes the new checkpoint itself; whatever is not it goes, newer ones too."""

    def off_by_one(s: Any, effects: Any, w: Any) -> dict[str, Any]:
        def own(k: Any) -> Any:
            return superseded(s, w, k) | (k == s.attempt[w])

        return {"place": each(s.attempts_made, lambda k: where(own(k), REMOVED, s.place[k]))}

    def all_others(s: Any, effects: Any, w: Any) -> dict[str, Any]:
        def other(k: Any) -> Any:
            return (s.place[k] == PUBLISHED) & (k != s.attempt[w])

        return {"place": each(s.attempts_made, lambda k: where(other(k), REMOVED, s.place[k]))}

    one_save, two_writers = (SMALL["store"][name][0] for name in ("one_save", "two_writers"))
    assert verdict(altered("retire", off_by_one, of=store), one_save, "a_valid_checkpoint_exists") == "fails"
    assert verdict(altered("retire", all_others, of=store), two_writers, "acknowledged_is_durable") == "fails"


def test_case_C05_a_restored_state_is_a_function_of_the_image_alone() -> None:
    """Nothing of the process before goes on beside the restore: no section, no task, no permit, no claim."""
    outcomes = defaultdict(set)
    for state, step in transitions(cut.model(small("two_pairs_ahead"))):
        if step.action.name == "crash_and_restore":
            image = [getattr(state, name) for name in cut.variables if name.startswith("image_")]
            outcomes[tuple(image)].add(step.state)
    assert all(len(found) == 1 for found in outcomes.values())
    restored = [state for found in outcomes.values() for state in found]
    assert len(restored) > 20
    for state in restored:
        assert (state.gate_passed, state.generations) == (0, state.in_flight)
        assert not {cut_state.UNREADY, cut_state.CLAIMED} & set(state.slot)
        assert not any(state.lingering)


def test_case_C05_a_task_that_outlives_the_restore_takes_a_prompt_away() -> None:
    """A mutant: the removal of a ledger entry, still to be done at the crash, is done after the restore."""

    def outlives(s: Any, effects: Any) -> dict[str, Any]:
        return {"lingering": each(s.prompts, lambda p: where(s.slot[p] == cut_state.UNREADY, 1, 0))}

    assert verdict(altered("crash_and_restore", outlives), small("one_pair"), "none_lost") == "fails"


PAIR_IN_THE_BACKGROUND = CutScope(batches=1, batch_size=2, lookahead=0, saves=1, crashes=1, background=1)
GAPS = (
    cut_state.OPEN, cut_state.SAMPLER_READ, cut_state.LOADER_READ, cut_state.POOL_READ, cut_state.BUFFER_READ,
    cut_state.LEDGER_READ,
)  # fmt: skip


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: cut_state.WINDOW_SAYS[gap].replace(" ", "_"))
def test_case_C06_a_writer_in_any_gap_between_two_reads_makes_the_image_inconsistent(gap: int) -> None:
    """The barrier lets writers in at one stage of the save only. Before the first read that is harmless."""
    leaking = cut.varied(())
    leaking.slot_guard = lambda s: (s.window < cut_state.DRAINING) | (s.window == gap)
    expected = "holds" if gap == cut_state.OPEN else "fails"
    assert verdict(leaking, PAIR_IN_THE_BACKGROUND, "image_equals_cut") == expected


def test_case_C06_without_a_barrier_prompts_lose_and_double_their_owners_on_disk() -> None:
    """Writers at any stage: the combinations that ledger, buffer and cursor give are wrong; with it none is."""
    unguarded = cut.varied(())
    unguarded.slot_guard = None
    for broken in ("one_owner_on_disk", "none_lost", "cursor_covers_stamps", "image_equals_cut"):
        assert verdict(cut, PAIR_IN_THE_BACKGROUND, broken) == "holds"
        assert verdict(unguarded, PAIR_IN_THE_BACKGROUND, broken) == "fails"


def found_after_a_crash(*variants: str) -> set[int]:
    """Which step a run starts from again, over all crashes after the first save has succeeded and the second may be."""
    model = store.model(StoreScope(attempts=2, crashes=1), variants)
    return {
        step.state.run_step[0]
        for state, step in transitions(model)
        if step.action.name == "crash" and state.acknowledged[0] == 1
    }


def test_case_C10_a_crash_at_any_moment_of_a_save_finds_the_old_state_or_the_new_one() -> None:
    """Any subset of the un-synced effects survives. A save that makes room first leaves nothing to start from."""
    assert found_after_a_crash() == {1, 2}
    assert found_after_a_crash("delete_before_publish") == {0, 1, 2}


@pytest.mark.parametrize("early", ["publish_before_data", "no_data_fsync", "no_manifest_fsync", "no_directory_fsync"])
def test_case_C10_a_name_that_is_durable_before_what_it_stands_for_is_caught(early: str) -> None:
    """What is published is whole; each sync that is left out or comes late breaks it."""
    one_save = SMALL["store"]["one_save"][0]
    assert verdict(store, one_save, "published_is_whole") == "holds"
    assert verdict(store.varied((early,)), one_save, "published_is_whole") == "fails"


def test_case_C10_an_image_never_counts_a_prompt_as_handed_out_that_it_does_not_hold() -> None:
    """The position in the image covers exactly the prompts that are owned in it: in every image, of any stage."""
    images = 0
    for state, step in transitions(cut.model(small("two_pairs_ahead"))):
        if step.action.name == "publish":
            owned = [
                p for p in state.prompts if state.image_ledger[p] or state.image_ready[p] or state.image_account[p]
            ]
            assert owned == [p for p in state.prompts if state.batch_of[p] < state.image_cursor]
            images += 1
    assert images > 50


def test_case_C11_a_drain_that_is_given_up_lets_the_blocked_in_and_the_next_save_works() -> None:
    """The holder stays as long as it likes; who waited behind the gate proceeds at once; then a cut opens."""
    model = barrier.model(BarrierScope(writers=2, rounds=1, checkpointers=2, expiries=1))
    held = path(model, ("request_slot", 0), ("enter_slot", 0), ("request_cut", 0), ("request_slot", 1))
    assert model.step_named(held, "enter_slot", 1) is None
    given_up = path(model, ("expire_cut", 0), ("enter_slot", 1), start=held)
    assert (given_up.cut[0], list(given_up.at)) == (DONE, [INSIDE, INSIDE])
    late = path(model, ("leave_slot", 0), ("leave_slot", 1), ("request_cut", 1), ("open_cut", 1), start=given_up)
    assert late.cut[1] == OPEN


def test_case_C11_a_drain_given_up_without_leaving_the_queue_blocks_everybody_for_ever() -> None:
    """In every order a given-up drain leaves a run that can go on; a mutant that keeps its place does not."""
    scope = BarrierScope(writers=2, rounds=2, checkpointers=2, expiries=1)
    keeps_its_place = altered("expire_cut", lambda s, effects, c: {"place": s.place}, of=barrier)
    assert verdict(barrier, scope, "no_deadlock") == "holds"
    assert verdict(keeps_its_place, scope, "no_deadlock") == "fails"


def test_case_C11_a_save_given_up_at_its_window_leaves_the_run_as_it_was() -> None:
    """A failed save publishes nothing and moves nothing else; the next one is as good as any."""
    model = cut.model(small("failed_saves"))
    before = path(model, "reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0))
    after = path(model, *SAVE, "close_window", "fail_save", start=before)
    spent = {"saves_left": before.saves_left - 1, "failed_saves_left": before.failed_saves_left - 1}
    assert after == before._replace(**spent)
    path(model, *SAVE, "close_window", "publish", start=after)
