"""Every write with a token that does not permit it: none, one of another time, barrier or side. Nothing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_arguments import Situation
from test_bad_arguments import situation, state

from impl import Batch, CleancutError, ForeignCut, Key, StaleCut, UsageError

Call = Callable[[Situation, Any], object]

SHARED: dict[str, Call] = {
    "Ledger.reserve": lambda s, c: s.run.ledger.reserve(c, [Key(7, 1)]),
    "Ledger.admit": lambda s, c: s.run.ledger.admit(c, s.run.ledger.admissions()[-1], 2),
    "Ledger.drop": lambda s, c: s.run.ledger.drop(c, 6, "failed"),
    "Ledger.drop_batch": lambda s, c: s.run.ledger.drop_batch(c, [Key(7, 1)], "remainder"),
    "Ledger.replace": lambda s, c: s.run.ledger.replace(c, 6, Key(7, 1), None, 1),
    "Ledger.fail_attempt": lambda s, c: s.run.ledger.fail_attempt(c, 6, "data"),
    "PromptLoader.next_batch": lambda s, c: s.run.loader.next_batch(c),
    "SparePool.divert": lambda s, c: s.run.pool.divert(c, Batch((Key(7, 1),), ("p",), False)),
    "SparePool.take": lambda s, c: s.run.pool.take(c),
    "SparePool.take_many": lambda s, c: s.run.pool.take_many(c, 2),
    "SparePool.snapshot": lambda s, c: s.run.pool.snapshot(c),
    "ReplayBuffer.commit": lambda s, c: s.run.buffer.commit(c, 5, None),
    "ReplayBuffer.claim": lambda s, c: s.unclaimed.claim(c, [7], 1),
    "ReplayBuffer.write_back": lambda s, c: s.run.buffer.write_back(c, s.claim, 4, {"a": torch.ones(1)}),
    "ReplayBuffer.finish": lambda s, c: s.run.buffer.finish(c, s.claim),
    "ReplayBuffer.evict": lambda s, c: s.run.buffer.evict(c, 7),
    "ReplayBuffer.abort_stale": lambda s, c: s.run.buffer.abort_stale(c, 5),
    "ReplayBuffer.hand_over": lambda s, c: s.run.buffer.hand_over(c, 5, 6, Key(0, 1), 1, 1),
    "ReplayBuffer.restamp": lambda s, c: s.run.buffer.restamp(c, 7, 2),
    "ReplayBuffer.release_unready": lambda s, c: s.run.buffer.release_unready(c, 5),
    "ReplayBuffer.snapshot": lambda s, c: s.run.buffer.snapshot(c),
}
#: Parts that belong to no barrier: they know a dead token, and cannot know a foreign one.
OF_NO_BARRIER: dict[str, Call] = {
    "StepSampler.commit_admission": lambda s, c: s.run.sampler.commit_admission(c),  # type: ignore[attr-defined]
    "TensorPlane.commit": lambda s, c: s.run.plane.commit(c, 5, None),  # type: ignore[arg-type]
}
EXCLUSIVE: dict[str, Call] = {
    "Ledger.snapshot": lambda s, c: s.run.ledger.snapshot(c, ()),
    "Ledger.load": lambda s, c: s.run.ledger.load(c, None),  # type: ignore[arg-type]
    "PromptLoader.load_state": lambda s, c: s.run.loader.load_state(s.run.loader.state(), c),
    "SparePool.load": lambda s, c: s.run.pool.load(c, ()),
    "ReplayBuffer.load": lambda s, c: s.unclaimed.load(c, ()),
    "TensorPlane.capture": lambda s, c: s.run.plane.capture(c, [4]),
    "TensorPlane.load": lambda s, c: s.run.plane.load(c, {}),
}


def refused(call: Callable[[], object], error: type[CleancutError], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", [*SHARED, *EXCLUSIVE, *OF_NO_BARRIER])
async def test_a_token_that_does_not_permit_the_write_is_refused_and_changes_nothing(name: str, tmp_path: Path) -> None:
    """A write without the right section may fall into a window, whoever makes it."""
    s = await situation(tmp_path)
    call = {**SHARED, **EXCLUSIVE, **OF_NO_BARRIER}[name]
    before = state(s)
    wrong: tuple[Any, ...] = (3, "cut", s.run.barrier, *(() if name == "PromptLoader.load_state" else (None,)))
    for value in wrong:
        refused(lambda value=value: call(s, value), UsageError, "cut is")  # type: ignore[misc]
    refused(lambda: call(s, s.stale), StaleCut, "has ended")
    if name not in OF_NO_BARRIER and not name.startswith("TensorPlane"):
        async with s.foreign.checkpoint() as foreign:
            refused(lambda: call(s, foreign), ForeignCut, "another")
    if name in EXCLUSIVE:
        async with s.run.barrier.mutation("shared") as shared:
            refused(lambda: call(s, shared), ForeignCut, "the exclusive one is needed")
    assert state(s) == before
