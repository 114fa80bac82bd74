"""Random walks of the cut machine, each step taken on the real controller: the two never part, and the run can end."""

from __future__ import annotations

import asyncio
import dataclasses
from random import Random

import pytest

from interleavings.conformance import ImplController, StepRefused, settled
from interleavings.errors import Violation
from spec.machines.cut import READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")

# Whatever else the machine enables the library does by itself, or as a part of one of these.
SAVES = ("request_cut", "request_snapshot")
BY_HAND = (
    *("reserve_batch", "divert_batch", "drain_pool", "pass_gate", "commit_admission", "dispatch", "commit_group"),
    *("fail_attempt", "evict", "abort_stale", "claim", "write_back", "finish_step", "empty_step", *SAVES),
)
CRASHES = ("crash_and_restore", "crash_and_restore_replay_free")


async def take(controller: ImplController, action: str, index: int | None) -> bool:
    """Take one action on the controller; whether it could be taken."""
    method = getattr(controller, action)
    step = asyncio.ensure_future(method() if index is None else method(index))
    await settled(step)
    if not step.done():
        step.cancel()
        return False
    if isinstance(step.exception(), (StepRefused, *controller.refusals)):
        return False
    step.result()
    controller.check()
    return True


async def walk(scope: CutScope, random: Random, most: int = 70) -> list[str]:
    """Steps that the machine enables, chosen at random; crashes where a checkpoint was published. What was taken."""
    controller = ImplController(**{field.name: getattr(scope, field.name) for field in dataclasses.fields(scope)})
    taken: list[str] = []
    try:
        for _ in range(most):
            await asyncio.sleep(0)
            controller.check()
            before = controller._follower.state
            enabled = [
                (step.action.name, step.index)
                for step in controller._model.steps(before)
                if step.action.name in BY_HAND
            ]
            if controller._save is not None and before.crashes_left and random.random() < 0.1:
                enabled = [(CRASHES[bool(scope.replay_free) and random.randrange(2)], None)]
            if not enabled:
                continue
            action, index = random.choice(enabled)
            done = await take(controller, action, index)
            # A crash needs a checkpoint of this process, and a snapshot may be skipped; the rest the machine allows.
            assert done or action in (*CRASHES, *SAVES), (action, index, before)
            if done:
                taken.append(action)
        assert await controller.run_on() is None
    finally:
        await controller.close()
    return taken


def any_scope(random: Random) -> CutScope:
    """Three or four batches, and any mixture of features; nothing like it can be enumerated."""
    draw = random.randint
    size, spares, sampler = draw(2, 3), draw(0, 1), draw(0, 3)
    return CutScope(
        batches=draw(3, 4),
        batch_size=size,
        lookahead=draw(0, 2),
        saves=3,
        crashes=2,
        sampler=sampler,
        capacity=size * 4 if sampler == WINDOWED else 0,
        in_flight=draw(1, 8),
        epochs=draw(1, 2),
        last_batch=draw(1, size),
        drop_short=draw(0, 1),
        failures=draw(0, 3),
        retries=draw(0, 2),
        spares=spares,
        borrow=spares,
        snapshots=draw(0, 2),
        background=draw(0, 1),
        replay_free=draw(0, 1),
        write_back=draw(0, 1),
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_controller_follows_any_walk_of_the_machine_and_comes_to_its_end(seed: int) -> None:
    """All features at once: samplers, short batches, epochs, failures, spares, snapshots, crashes, restores."""
    random = Random(seed)
    asyncio.run(walk(any_scope(random), random))


@pytest.mark.parametrize("sampler", [WEIGHT_FIFO, READY_FIRST])
def test_walks_take_every_action_of_the_pool_and_of_the_gate(sampler: int) -> None:
    """The walks are not idle: what they are for occurs in them."""
    taken: set[str] = set()
    scope = CutScope(
        batches=4, batch_size=2, lookahead=1, saves=3, crashes=2, sampler=sampler, failures=2, spares=1, last_batch=1
    )
    for seed in range(12):
        taken |= set(asyncio.run(walk(scope, Random(seed))))
    assert taken >= {"divert_batch", "drain_pool", "fail_attempt", "request_cut", "crash_and_restore", "claim"}


def test_a_controller_that_leaves_the_machine_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spare pool that a checkpoint forgets: the restored run has another pool than the machine."""
    from impl import SparePool

    monkeypatch.setattr(SparePool, "snapshot", lambda pool, cut: ())
    scope = CutScope(batches=4, batch_size=2, lookahead=1, saves=3, crashes=2, failures=2, spares=1)

    def all_walks() -> None:
        for seed in range(60):
            asyncio.run(walk(scope, Random(seed)))

    with pytest.raises(Violation, match="spares"):
        all_walks()
