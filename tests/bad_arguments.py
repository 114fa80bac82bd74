"""A table of wrong calls: every public callable of the parts of a run, each argument with values that cannot be right.

A case says what is called and which words the refusal must hold: the name of the argument, as the caller wrote it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

from run_situations import Run, rows_of

from impl import Admission, Batch, Claim, Key, Ledger, ReplayBuffer, Spare
from impl.barrier import CheckpointBarrier, Cut

#: What an argument may be by mistake; each case takes those that are wrong for it.
NO_TEXT: tuple[Any, ...] = (None, 3, "", b"bytes", ["x"])
NO_COUNT: tuple[Any, ...] = (None, "1", 1.0, True, -1, [1])
NO_GROUP: tuple[Any, ...] = (None, "4", 4.0, True, -1, [4])
NO_KEY: tuple[Any, ...] = (None, 3, (0,), (0, -1), ("0", 1), (0, 1, 2), (0, 1.0), [0, 1], "01")
NO_STEP: tuple[Any, ...] = ("1", 1.0, True, -1, [1])


@dataclass
class Situation:
    """A run with every kind of owner, see `mixed`, a spare, and group 4 claimed where `claim` is there."""

    run: Run
    claim: Claim
    foreign: CheckpointBarrier
    #: A cut of the run's barrier that has ended.
    stale: Cut
    #: A buffer of the same barrier, with group 7 ready and nothing claimed.
    unclaimed: ReplayBuffer

    def section(self, *, exclusive: bool = False) -> AbstractAsyncContextManager[Cut]:
        barrier = self.run.barrier
        return barrier.checkpoint() if exclusive else barrier.mutation("bad input")


#: The call with the wrong value in it. It is given the live cut, and may return an awaitable.
Call = Callable[[Situation, Cut, Any], Any]


@dataclass(frozen=True)
class Case:
    """One argument of one callable, with the values that are wrong for it; `cut`: what section the call wants."""

    callable: str
    argument: str
    values: tuple[Any, ...]
    call: Call
    cut: str = "shared"
    #: What the message must name, where that is not the argument's name.
    names: str = ""

    def __str__(self) -> str:
        return f"{self.callable}({self.argument})"


def case(name: str, argument: str, values: Iterable[Any], call: Call, cut: str = "shared", names: str = "") -> Case:
    return Case(name, argument, tuple(values), call, cut, names)


async def outcome(value: Any) -> Any:
    """Await what may be awaited."""
    return await value if isinstance(value, Awaitable) else value


def ready_rows(s: Situation) -> Any:
    return s.run.plane.stage(5, rows_of(5))


ADMISSION = Admission(2, (8, 9, 10, 11), ())

LEDGER = [
    case("Ledger", "barrier", (None, 3, "b"), lambda s, c, v: Ledger(v)),
    case("Ledger.reserve", "keys", [None, 3, *([key] for key in NO_KEY)], lambda s, c, v: s.run.ledger.reserve(c, v)),
    case("Ledger.reserve", "payloads", (3, [1, 2], object()), lambda s, c, v: s.run.ledger.reserve(c, [Key(7, 1)], v)),
    case("Ledger.admissions", "phase", ("parked", "RESERVED", 3), lambda s, c, v: s.run.ledger.admissions(v)),
    case("Ledger.admit", "admission", (None, 2, "2"), lambda s, c, v: s.run.ledger.admit(c, v, 2)),
    case(
        "Ledger.admit",
        "step",
        NO_STEP,
        lambda s, c, v: s.run.ledger.admit(c, s.run.ledger.admissions()[-1], v),
    ),
    case("Ledger.remove_committed", "group", NO_GROUP, lambda s, c, v: s.run.ledger.remove_committed(v)),
    case("Ledger.drop", "group", NO_GROUP, lambda s, c, v: s.run.ledger.drop(c, v, "failed")),
    case("Ledger.drop", "reason", NO_TEXT, lambda s, c, v: s.run.ledger.drop(c, 6, v)),
    case(
        "Ledger.drop_batch",
        "keys",
        [None, 3, *([key] for key in NO_KEY)],
        lambda s, c, v: s.run.ledger.drop_batch(c, v, "remainder"),
    ),
    case(
        "Ledger.drop_batch",
        "a key twice",
        [[Key(7, 1), Key(7, 1)]],
        lambda s, c, v: s.run.ledger.drop_batch(c, v, "remainder"),
        names="index=1",
    ),
    case("Ledger.drop_batch", "reason", NO_TEXT, lambda s, c, v: s.run.ledger.drop_batch(c, [Key(7, 1)], v)),
    case("Ledger.replace", "group", NO_GROUP, lambda s, c, v: s.run.ledger.replace(c, v, Key(7, 1), None, 1)),
    case("Ledger.replace", "key", NO_KEY, lambda s, c, v: s.run.ledger.replace(c, 6, v, None, 1)),
    case("Ledger.replace", "step", NO_STEP, lambda s, c, v: s.run.ledger.replace(c, 6, Key(7, 1), None, v)),
    case("Ledger.fail_attempt", "group", NO_GROUP, lambda s, c, v: s.run.ledger.fail_attempt(c, v, "data")),
    case("Ledger.fail_attempt", "cause", NO_TEXT, lambda s, c, v: s.run.ledger.fail_attempt(c, 6, v)),
    case("Ledger.snapshot", "owned_elsewhere", (None, 3), lambda s, c, v: s.run.ledger.snapshot(c, v), "exclusive"),
    case("Ledger.load", "snapshot", (None, 3, {}), lambda s, c, v: s.run.ledger.load(c, v), "exclusive"),
]

LOADER = [
    case("PromptLoader.next_batch", "limit", [0, *NO_COUNT[1:]], lambda s, c, v: s.run.loader.next_batch(c, v)),
    case("PromptLoader.payload", "key", NO_KEY, lambda s, c, v: s.run.loader.payload(v)),
    case(
        "PromptLoader.payload",
        "a row beyond the data",
        [Key(0, 99)],
        lambda s, c, v: s.run.loader.payload(v),
        names="row 99",
    ),
    case("PromptLoader.check_state", "state", (None, 3, {}), lambda s, c, v: s.run.loader.check_state(v)),
    case("PromptLoader.load_state", "state", (None, 3, {}), lambda s, c, v: s.run.loader.load_state(v)),
    case(
        "PromptLoader.load_state",
        "a longer dataset",
        [20],
        lambda s, c, v: s.run.loader.load_state(replace(s.run.loader.state(), dataset_length=v)),
        names="dataset length 20 (saved) and 16 (now)",
    ),
    case(
        "PromptLoader.load_state",
        "position",
        (-1, 99, "1", 1.0, None, True),
        lambda s, c, v: s.run.loader.load_state(replace(s.run.loader.state(), position=v)),
    ),
    case(
        "PromptLoader.load_state",
        "epoch",
        (-1, 99, "1", 1.0, None, True),
        lambda s, c, v: s.run.loader.load_state(replace(s.run.loader.state(), epoch=v)),
    ),
]

BATCHES = (None, 3, [Key(7, 1)])

POOL = [
    case("SparePool.bind_ledger", "ledger", (None, 3), lambda s, c, v: s.run.pool.bind_ledger(v)),
    case("SparePool.divert", "batch", BATCHES, lambda s, c, v: s.run.pool.divert(c, v)),
    case(
        "SparePool.divert",
        "a key of the batch",
        NO_KEY,
        lambda s, c, v: s.run.pool.divert(c, Batch((Key(7, 1), v), ("p", "q"), False)),
        names="key",
    ),
    case(
        "SparePool.divert",
        "prompts",
        [("p",), ("p", "q", "r"), ()],
        lambda s, c, v: s.run.pool.divert(c, Batch((Key(7, 1), Key(7, 2)), v, False)),
    ),
    case(
        "SparePool.divert",
        "payloads",
        (3, [1, 2]),
        lambda s, c, v: s.run.pool.divert(c, Batch((Key(7, 1),), ("p",), False), v),
    ),
    case("SparePool.take_many", "count", [0, *NO_COUNT], lambda s, c, v: s.run.pool.take_many(c, v)),
    case(
        "SparePool.load",
        "spares",
        (None, 3, [3], [Key(0, 1)], [Spare((0, -1))]),  # type: ignore[arg-type]
        lambda s, c, v: s.run.pool.load(c, v),
        "exclusive",
    ),
]

SAMPLER = [
    case("bind", "groups_per_step", [0, *NO_COUNT], lambda s, c, v: s.run.sampler.bind(v)),
    case("bind", "occupants", (3, "x", [1]), lambda s, c, v: s.run.sampler.bind(4, v)),
    case("advance", "version", NO_COUNT, lambda s, c, v: s.run.sampler.advance(v)),
    case("target", "step", NO_COUNT, lambda s, c, v: s.run.sampler.target(v)),
    case("credit", "step", NO_COUNT, lambda s, c, v: s.run.sampler.credit(v, 1)),
    case("credit", "missing", NO_COUNT, lambda s, c, v: s.run.sampler.credit(1, v)),
    case("capacity_needed", "groups_per_step", [0, *NO_COUNT], lambda s, c, v: s.run.sampler.capacity_needed(v)),
    case("load_state", "state", (None, 3, {}), lambda s, c, v: s.run.sampler.load_state(v)),
    case(
        "load_state",
        "cursor",
        (None, "1", 1.0, True, -2),
        lambda s, c, v: s.run.sampler.load_state(replace(s.run.sampler.state(), cursor=v)),
    ),
    case(
        "load_state",
        "dropped",
        NO_COUNT,
        lambda s, c, v: s.run.sampler.load_state(replace(s.run.sampler.state(), dropped=v)),
    ),
    case(
        "load_state",
        "shortfalls",
        (None, 3, [3], [(1, -1)], [("1", 1)]),
        lambda s, c, v: s.run.sampler.load_state(replace(s.run.sampler.state(), shortfalls=v)),
    ),
    case("select", "version", NO_COUNT, lambda s, c, v: s.run.sampler.select(s.run.buffer.slots, v, 2)),
    case("select", "target", (None, "1", 1.5), lambda s, c, v: s.run.sampler.select(s.run.buffer.slots, 1, v)),
    case("stale", "version", NO_COUNT, lambda s, c, v: s.run.sampler.stale(s.run.buffer.slots, v)),
]
