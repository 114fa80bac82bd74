"""Random walks in scopes too large to enumerate: every property along the way, and the way to the end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spec.machines.barrier import BarrierScope, barrier
from spec.machines.cut import IN_ORDER, READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope, cut
from spec.machines.store import StoreScope, store

LARGE = BarrierScope(writers=5, rounds=3, checkpointers=3, cancellations=2, expiries=2, children=1, leases=3)
STORE = StoreScope(attempts=5, crashes=2, writers=2, lost_locks=1, errors=2, rewinds=1)


def walk(model, choose, most=220):
    """Take steps by the choices until nothing is enabled; check every claim on every state and before every action."""
    state, taken = model.initial, 0
    claims = [(known, claim) for known in model.machine.properties.values() for claim in known.claims]
    while taken < most:
        for known, claim in claims:
            if claim.at is None:
                assert model.violated_indexes(known.each, claim, state) == (), (known.name, state)
        steps = list(model.steps(state))
        if not steps:
            assert model.finished(state), state
            break
        step = steps[choose(len(steps))]
        for known, claim in claims:
            if claim.at == step.action.name:
                assert model.violated_indexes(known.each, claim, state) == (), (known.name, state)
        progress = model.machine.progress
        if step.action.progress:
            assert progress.rank(step.state) > progress.rank(state), step.action.name
        elif not any(other.action.progress for other in steps):
            assert model.finished(state), state
        model.check_ranges(step.state, step.action.name)
        state, taken = step.state, taken + 1
    return state, taken


@st.composite
def cut_scopes(draw):
    """A cut of three or four batches with any features on."""
    sampler = draw(st.sampled_from([IN_ORDER, WEIGHT_FIFO, READY_FIRST, WINDOWED]))
    size = draw(st.integers(2, 3))
    spares = draw(st.integers(0, 1))
    return CutScope(
        batches=draw(st.integers(3, 4)),
        batch_size=size,
        lookahead=draw(st.integers(0, 2)),
        saves=3,
        crashes=2,
        sampler=sampler,
        capacity=size * 4 if sampler == WINDOWED else 0,
        in_flight=draw(st.integers(1, 8)),
        epochs=draw(st.integers(1, 2)),
        last_batch=draw(st.integers(1, size)),
        drop_short=draw(st.integers(0, 1)),
        failures=draw(st.integers(0, 3)),
        retries=draw(st.integers(0, 2)),
        spares=spares,
        borrow=spares,
        snapshots=draw(st.integers(0, 2)),
        failed_saves=draw(st.integers(0, 1)),
        background=draw(st.integers(0, 1)),
        replay_free=draw(st.integers(0, 1)),
        write_back=draw(st.integers(0, 1)),
        leases=draw(st.integers(0, 2)),
    )


@settings(max_examples=60)
@given(cut_scopes(), st.randoms(use_true_random=False))
def test_walks_of_the_cut_with_any_features_keep_every_property(scope, random):
    """Features are enumerated one by one; their mixtures are walked."""
    walk(cut.model(scope), random.randrange)


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_walks_of_a_large_barrier_keep_every_property(random):
    """Five writers with children, three checkpoints, cancellations, expiries and leases that end."""
    walk(barrier.model(LARGE), random.randrange)


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_walks_of_a_large_store_keep_every_property(random):
    """Five attempts of two writers, crashes, lost locks, failing disks and a rewind."""
    walk(store.model(STORE), random.randrange)


def test_a_walk_that_always_makes_progress_ends_finished():
    """Choosing progress first, a run of a large cut comes to its end."""
    model = cut.model(CutScope(batches=4, batch_size=3, lookahead=1, saves=0, crashes=0, last_batch=2, epochs=2))
    state, taken = walk(model, lambda choices: 0, most=1000)
    assert model.finished(state)
    assert taken > 60
