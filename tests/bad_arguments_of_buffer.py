"""The table of wrong calls, continued: buffer, plane, checkpointer, controller and barrier."""

from __future__ import annotations

from typing import Any

import torch
from bad_arguments import NO_COUNT, NO_GROUP, NO_KEY, NO_STEP, NO_TEXT, Case, Situation, case
from run_situations import rows_of

from impl import Key, PromptLoader, ReplayBuffer, SparePool, TensorPlane
from impl.barrier import CheckpointBarrier, Cut
from impl.checkpoint import Checkpointer
from impl.controller import Controller, ControllerConfig
from impl.nemo import DataPlaneCheckpointBarrier
from impl.run.samplers import InOrderSampler
from impl.trio import CheckpointBarrier as TrioBarrier

#: An empty label is one.
NO_LABEL: tuple[Any, ...] = (None, 3, b"bytes", ["x"])
NO_LIMIT: tuple[Any, ...] = ("1", -1, float("nan"), float("inf"), True, [1])


async def with_permit(s: Situation, cut: Cut, call: Any) -> None:
    """The call with a permit, which must be whole afterwards."""
    permit = await s.run.buffer.acquire_permit()
    try:
        call(permit)
    finally:
        assert not permit.spent, "a refused call has spent the permit"
        permit.give_back()


async def with_rows(s: Situation, cut: Cut, call: Any) -> None:
    """The call with rows staged for group 5, which is in flight."""
    call(await s.run.plane.stage(5, rows_of(5)))


def sixth(s: Situation) -> Any:
    return s.run.ledger.entries[6]


BUFFER = [
    case("ReplayBuffer", "barrier", (None, 3), lambda s, c, v: ReplayBuffer(v, 4, TensorPlane())),
    case("ReplayBuffer", "capacity", [0, *NO_COUNT], lambda s, c, v: ReplayBuffer(s.run.barrier, v, TensorPlane())),
    case("ReplayBuffer", "plane", (None, 3), lambda s, c, v: ReplayBuffer(s.run.barrier, 4, v)),
    case("ReplayBuffer", "ledger", (3, "x"), lambda s, c, v: ReplayBuffer(s.run.barrier, 4, TensorPlane(), v)),
    case("ReplayBuffer.bind_ledger", "ledger", (None, 3), lambda s, c, v: s.run.buffer.bind_ledger(v)),
    case("ReplayBuffer.give_back", "permit", (None, 3), lambda s, c, v: s.run.buffer.give_back(v)),
    case(
        "ReplayBuffer.reserve",
        "group",
        NO_GROUP,
        lambda s, c, v: with_permit(s, c, lambda p: s.run.buffer.reserve(c, v, sixth(s).key, 1, 1, p)),
    ),
    case(
        "ReplayBuffer.reserve",
        "key",
        NO_KEY,
        lambda s, c, v: with_permit(s, c, lambda p: s.run.buffer.reserve(c, 6, v, 1, 1, p)),
    ),
    case(
        "ReplayBuffer.reserve",
        "step",
        NO_STEP,
        lambda s, c, v: with_permit(s, c, lambda p: s.run.buffer.reserve(c, 6, sixth(s).key, v, 1, p)),
    ),
    case(
        "ReplayBuffer.reserve",
        "weight",
        NO_COUNT,
        lambda s, c, v: with_permit(s, c, lambda p: s.run.buffer.reserve(c, 6, sixth(s).key, 1, v, p)),
    ),
    case(
        "ReplayBuffer.reserve", "permit", (None, 3), lambda s, c, v: s.run.buffer.reserve(c, 6, sixth(s).key, 1, 1, v)
    ),
    case(
        "ReplayBuffer.commit",
        "group",
        NO_GROUP,
        lambda s, c, v: with_rows(s, c, lambda rows: s.run.buffer.commit(c, v, rows)),
    ),
    case("ReplayBuffer.commit", "staged", (None, 3, {}), lambda s, c, v: s.run.buffer.commit(c, 5, v)),
    case(
        "ReplayBuffer.claim",
        "groups",
        [None, 3, [], [7, 7], *([g] for g in NO_GROUP)],
        lambda s, c, v: unclaimed(s, c).claim(c, v, 1),
    ),
    case("ReplayBuffer.claim", "step", NO_COUNT, lambda s, c, v: unclaimed(s, c).claim(c, [7], v)),
    case("ReplayBuffer.write_back", "claim", (None, 3), lambda s, c, v: s.run.buffer.write_back(c, v, 4, {})),
    case(
        "ReplayBuffer.write_back",
        "group",
        [7, *NO_GROUP],
        lambda s, c, v: s.run.buffer.write_back(c, s.claim, v, {"a": torch.ones(1)}),
    ),
    case(
        "ReplayBuffer.write_back",
        "columns",
        (None, 3, {}, {"a": 3}, {"": torch.ones(1)}, {3: torch.ones(1)}),
        lambda s, c, v: s.run.buffer.write_back(c, s.claim, 4, v),
    ),
    case("ReplayBuffer.finish", "claim", (None, 3), lambda s, c, v: s.run.buffer.finish(c, v)),
    case("ReplayBuffer.evict", "group", [4, 5, *NO_GROUP], lambda s, c, v: s.run.buffer.evict(c, v)),
    case("ReplayBuffer.evict", "reason", NO_TEXT, lambda s, c, v: s.run.buffer.evict(c, 7, v)),
    case("ReplayBuffer.abort_stale", "group", [4, 7, *NO_GROUP], lambda s, c, v: s.run.buffer.abort_stale(c, v)),
    case(
        "ReplayBuffer.hand_over", "group", NO_GROUP, lambda s, c, v: s.run.buffer.hand_over(c, v, 6, sixth(s).key, 1, 1)
    ),
    case(
        "ReplayBuffer.hand_over",
        "successor",
        [5, *NO_GROUP],
        lambda s, c, v: s.run.buffer.hand_over(c, 5, v, sixth(s).key, 1, 1),
        names="group",
    ),
    case("ReplayBuffer.hand_over", "key", NO_KEY, lambda s, c, v: s.run.buffer.hand_over(c, 5, 6, v, 1, 1)),
    case(
        "ReplayBuffer.hand_over", "step", NO_STEP, lambda s, c, v: s.run.buffer.hand_over(c, 5, 6, sixth(s).key, v, 1)
    ),
    case(
        "ReplayBuffer.hand_over",
        "weight",
        NO_COUNT,
        lambda s, c, v: s.run.buffer.hand_over(c, 5, 6, sixth(s).key, 1, v),
    ),
    case("ReplayBuffer.restamp", "group", [4, 5, *NO_GROUP], lambda s, c, v: s.run.buffer.restamp(c, v, 1)),
    case("ReplayBuffer.restamp", "step", NO_COUNT, lambda s, c, v: s.run.buffer.restamp(c, 7, v)),
    case(
        "ReplayBuffer.release_unready", "group", [4, 7, *NO_GROUP], lambda s, c, v: s.run.buffer.release_unready(c, v)
    ),
    case("ReplayBuffer.check_fits", "count", NO_COUNT, lambda s, c, v: s.run.buffer.check_fits(v)),
    case(
        "ReplayBuffer.load", "slots", (None, 3, [3], [Key(0, 1)]), lambda s, c, v: s.run.buffer.load(c, v), "exclusive"
    ),
    case("Claim.rows", "group", [7, *NO_GROUP], lambda s, c, v: s.claim.rows(v)),
]

PLANE = [
    case("TensorPlane", "verify", (None, "all", 3), lambda s, c, v: TensorPlane(verify=v)),
    case("TensorPlane", "device", (None, "nonsense", 3.5, [1]), lambda s, c, v: TensorPlane(device=v)),
    case("TensorPlane.set_verification", "verify", (None, "all"), lambda s, c, v: s.run.plane.set_verification(v)),
    case("TensorPlane.stage", "group", NO_GROUP, lambda s, c, v: s.run.plane.stage(v, rows_of(5))),
    case(
        "TensorPlane.stage",
        "rows",
        (None, 3, {}, {"a": 3}, {"": torch.ones(1)}, {3: torch.ones(1)}),
        lambda s, c, v: s.run.plane.stage(5, v),
    ),
    case(
        "TensorPlane.commit",
        "group",
        [6, *NO_GROUP],
        lambda s, c, v: with_rows(s, c, lambda rows: s.run.plane.commit(c, v, rows)),
    ),
    case("TensorPlane.commit", "staged", (None, 3, {}), lambda s, c, v: s.run.plane.commit(c, 5, v)),
    case("TensorPlane.rows", "group", [5, *NO_GROUP], lambda s, c, v: s.run.plane.rows(v)),
    case("TensorPlane.derive", "columns", (None, 3, {"a": 3}), lambda s, c, v: s.run.plane.derive(rows_of(5), v)),
    case("TensorPlane.clear", "group", NO_GROUP, lambda s, c, v: s.run.plane.clear(v)),
    case("TensorPlane.capture", "groups", (None, 3, [[1]]), lambda s, c, v: s.run.plane.capture(c, v), "exclusive"),
    case("TensorPlane.load", "loaded", (None, 3, {4: 3}), lambda s, c, v: s.run.plane.load(c, v), "exclusive"),
]


def unclaimed(s: Situation, cut: Cut) -> ReplayBuffer:
    """A buffer of the same barrier with group 7 ready and nothing claimed."""
    return s.unclaimed


def attached(s: Situation, **wrong: Any) -> None:
    """A second checkpointer over the parts of the run, one of them wrong."""
    run = s.run
    parts: dict[str, Any] = {
        "ledger": run.ledger, "loader": run.loader, "sampler": run.sampler, "buffer": run.buffer, "pool": run.pool,
    }  # fmt: skip
    Checkpointer(run.checkpointer.directory, run.barrier).attach(**{**parts, **wrong})


def made(s: Situation, **wrong: Any) -> None:
    """A controller over parts of its own, one of them wrong."""
    parts: dict[str, Any] = {
        "loader": PromptLoader([1, 2], 1, 0),
        "generate": print,
        "train": print,
        "sampler": InOrderSampler(0),
        "checkpointer": Checkpointer(s.run.checkpointer.directory, CheckpointBarrier()),
        "config": ControllerConfig(),
    }
    Controller(**{**parts, **wrong})


def part_of_attach(part: str) -> Case:
    return case("Checkpointer.attach", part, (3, "x"), lambda s, c, v: attached(s, **{part: v}))


def part_of_controller(part: str) -> Case:
    return case("Controller", part, (3, "x"), lambda s, c, v: made(s, **{part: v}))


def of_barrier(barrier: type[Any], method: str, argument: str, values: tuple[Any, ...]) -> Case:
    def call(s: Situation, cut: Cut, value: Any) -> Any:
        return getattr(barrier(), method)(value) if method else barrier(**{argument: value})

    return case(f"{barrier.__module__}.{barrier.__name__}{'.' if method else ''}{method}", argument, values, call)


CHECKPOINTER = [
    case("Checkpointer", "directory", (None, 3, b"x", ""), lambda s, c, v: Checkpointer(v, s.run.barrier)),
    case("Checkpointer", "barrier", (None, 3), lambda s, c, v: Checkpointer("d", v)),
    case("Checkpointer", "keep", [0, *NO_COUNT], lambda s, c, v: Checkpointer("d", s.run.barrier, v)),
    case("Checkpointer", "verify", (None, "all", 3), lambda s, c, v: Checkpointer("d", s.run.barrier, verify=v)),
    case("Checkpointer", "files", (3, "x"), lambda s, c, v: Checkpointer("d", s.run.barrier, files=v)),
    case("Checkpointer", "executor", (3, "x"), lambda s, c, v: Checkpointer("d", s.run.barrier, executor=v)),
    case("Checkpointer", "identity", (3, "x"), lambda s, c, v: Checkpointer("d", s.run.barrier, identity=v)),
    *map(part_of_attach, ("ledger", "loader", "sampler", "buffer", "pool", "counters")),
    case("Checkpointer.attach", "generations", [0, *NO_COUNT[1:]], lambda s, c, v: attached(s, generations=v)),
    case("Checkpointer.attach", "recovery", (None, 1, "yes"), lambda s, c, v: attached(s, recovery=v)),
    case("Checkpointer.begin_save", "trainer", (3, "x"), lambda s, c, v: s.run.checkpointer.begin_save(v), "none"),
    case("Checkpointer.restore", "step", NO_STEP, lambda s, c, v: s.run.checkpointer.restore(v), "none"),
    case(
        "Checkpointer.restore",
        "load_buffer",
        (None, 1, "no"),
        lambda s, c, v: s.run.checkpointer.restore(load_buffer=v),
        "none",
    ),
    case("Checkpointer.restore", "trainer", (3, "x"), lambda s, c, v: s.run.checkpointer.restore(trainer=v), "none"),
]

CONTROLLER = [
    *map(part_of_controller, ("loader", "generate", "train", "sampler", "checkpointer", "config", "buffer", "trainer"))
]

BARRIER = [
    *(
        of_barrier(barrier, method, argument, values)
        for barrier in (CheckpointBarrier, TrioBarrier, DataPlaneCheckpointBarrier)
        for method, argument, values in (
            ("", "name", NO_TEXT),
            ("", "drain_timeout", NO_LIMIT),
            ("", "hold_warning", NO_LIMIT),
            ("", "trace", (3, "x")),
            ("mutation", "kind", NO_LABEL),
            ("mutation_nowait", "kind", NO_LABEL),
            ("checkpoint", "timeout", NO_LIMIT),
            ("close", "reason", NO_TEXT),
        )
    ),
    case(
        "DataPlaneCheckpointBarrier",
        "extra_kinds",
        (3, "x", [3], [""], None),
        lambda s, c, v: DataPlaneCheckpointBarrier(extra_kinds=v),
    ),
    case("SparePool", "ledger", (3, "x"), lambda s, c, v: SparePool(v)),
]
