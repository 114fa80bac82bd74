"""Every action of every machine: where it is enabled, where it is not, and that refusing it changes nothing."""

from __future__ import annotations

import pytest
from model_states import path, reachable

from spec.machines import MACHINES, SMALL
from spec.machines.cut import ADMITTED, DROPPED, READY, RESERVED, UNREADY, CutScope, cut

ALL_ACTIONS = [(name, action) for name in ("barrier", "cut", "store") for action in MACHINES[name].actions]


@pytest.fixture(scope="module")
def states_of():
    """The reachable states of the smaller scopes, worked out once."""
    known = {}

    def of(name, member):
        if (name, member) not in known:
            model = MACHINES[name].model(SMALL[name][member][0])
            known[name, member] = (model, reachable(model))
        return known[name, member]

    return of


@pytest.mark.parametrize(("name", "action"), ALL_ACTIONS)
def test_an_action_is_enabled_in_some_states_and_refused_in_others(name, action, states_of):
    """No guard is always true or always false; a refusal is None and leaves the state, which is frozen, as it was."""
    declared = MACHINES[name].actions[action]
    enabled = refused = 0
    for member, (scope, pinned) in SMALL[name].items():
        if pinned.states > 9_000 or (declared.when is not None and not declared.when(scope)):
            continue
        model, states = states_of(name, member)
        for state in states:
            for index in [None] if declared.each is None else list(getattr(state, declared.each)):
                before = hash(state)
                if model.step_named(state, action, index) is None:
                    refused += 1
                else:
                    enabled += 1
                assert hash(state) == before
        if enabled and refused:
            return
    pytest.fail(f"{action}: enabled {enabled} times, refused {refused} times")


@pytest.mark.parametrize(("name", "action"), ALL_ACTIONS)
def test_an_action_says_in_a_paragraph_when_it_is_enabled_and_what_it_moves(name, action):
    """The text is for a reader who knows the protocol and no Python."""
    meaning = MACHINES[name].actions[action].meaning
    assert len(meaning) > 25
    assert meaning.split("\n\n")[0].rstrip().endswith(".")


def test_case_A04_a_spare_is_trained_once_after_the_data_is_over():
    """Surplus prompts are in the pool, survive a crash there, and are drained into whole steps at the end."""
    model = cut.model(SMALL["cut"]["spares"][0])
    state = path(model, "reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0), "divert_batch")
    assert list(state.spare) == [0, 1, 0]
    saved = path(
        model, "reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0), "divert_batch", "request_cut",
        "open_cut", "read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger", "read_trainer",
        "crash_and_restore",
    )  # fmt: skip
    assert list(saved.spare) == [0, 1, 0]
    assert saved.ledger[0] == ADMITTED


def test_a_diverted_batch_burns_no_stamp_and_never_comes_before_the_first():
    """The pool is filled only once an admission has stamped a step; the dispatch cursor stands still."""
    model = cut.model(SMALL["cut"]["spares"][0])
    assert model.step_named(model.initial, "divert_batch", None) is None
    before = path(model, "reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0))
    after = path(model, "reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0), "divert_batch")
    assert (before.dispatch_cursor, after.dispatch_cursor) == (0, 0)


def test_case_A31_a_group_given_up_ends_dropped_or_replaced_and_its_place_is_free_or_filled():
    """Without a spare the step shrinks; with one, the spare takes place, stamp and permit."""
    plain = cut.model(SMALL["cut"]["one_failure"][0])
    failed = ("reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0), ("fail_attempt", 0))
    shrunk = path(plain, *failed, ("shrink", 0))
    assert (shrunk.account[0], shrunk.permits, shrunk.shortfall[0]) == (DROPPED, 1, 1)
    assert path(plain, *failed, ("shrink", 0), "empty_step").version == 1
    spares = cut.model(SMALL["cut"]["spares"][0])
    filled = path(spares, *failed[:4], "divert_batch", ("fail_attempt", 0), ("substitute", 0))
    assert (filled.account[0], filled.stamp[0]) == (DROPPED, -1)
    assert (filled.ledger[1], filled.slot[1], filled.stamp[1], filled.spare[1]) == (ADMITTED, UNREADY, 0, 0)
    assert filled.permits == path(spares, *failed[:4]).permits


def test_a_borrowed_group_moves_to_the_hole_and_the_spare_to_the_lender():
    """The furthest later ready group fills the hole; the spare is generated for the later step."""
    model = cut.model(SMALL["cut"]["borrow"][0])
    state = path(
        model, "reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0), "reserve_batch", "pass_gate",
        "commit_admission", ("dispatch", 1), ("commit_group", 1), "divert_batch", ("fail_attempt", 0), ("borrow", 0),
    )  # fmt: skip
    assert (state.stamp[1], state.slot[1]) == (0, READY)
    assert (state.stamp[2], state.slot[2], state.ledger[2]) == (1, UNREADY, ADMITTED)


def test_case_A16_a_replay_free_restore_generates_again_and_loses_nothing():
    """Ready groups come back ADMITTED with their stamp, the dispatch cursor stands, and no permit is held."""
    model = cut.model(SMALL["cut"]["replay_free"][0])
    save = ("request_cut", "open_cut", "read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger")
    ready = ("reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0), ("commit_group", 0))
    state = path(model, *ready, *save, "read_trainer", "crash_and_restore_replay_free")
    assert (state.ledger[0], state.slot[0], state.stamp[0]) == (ADMITTED, 0, 0)
    assert (state.dispatch_cursor, state.permits) == (0, model.scope.capacity)


def test_case_A35_a_short_last_batch_is_a_smaller_step_or_is_dropped_whole():
    """The rule for the remainder is stated by the scope, and the run ends either way."""
    credited = cut.model(SMALL["cut"]["short_batch"][0])
    first = ("reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0), ("dispatch", 1), ("commit_group", 0))
    step = (*first, ("commit_group", 1), "claim", "finish_step")
    state = path(credited, *step, "reserve_batch", "pass_gate", "commit_admission")
    assert state.shortfall[1] == 1
    dropped = cut.model(SMALL["cut"]["short_dropped"][0])
    assert path(dropped, *step, "reserve_batch").account[2] == DROPPED


def test_case_A19_at_the_end_of_an_epoch_the_bit_is_saved_and_the_next_epoch_follows():
    """A save exactly at the boundary restores to the next epoch, neither repeated nor skipped."""
    model = cut.model(CutScope(batches=1, batch_size=1, lookahead=1, saves=1, crashes=1, epochs=2))
    save = ("request_cut", "open_cut", "read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger")
    admitted = ("reserve_batch", "pass_gate", "commit_admission", ("dispatch", 0))
    state = path(model, *admitted, *save, "read_trainer", "crash_and_restore")
    assert (state.epoch, state.epoch_over, state.cursor) == (0, 1, 1)
    resumed = path(model, *admitted, *save, "read_trainer", "crash_and_restore", ("dispatch", 0), "end_epoch")
    following = model.step_named(resumed, "reserve_batch", None)
    assert following is not None
    assert list(following.state.ledger) == [ADMITTED, RESERVED]
