"""Wrong arguments of the loader over torchdata: refused by name, and nothing changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bad_arguments import NO_COUNT, NO_KEY
from torchdata.stateful_dataloader import StatefulDataLoader

from impl import CheckpointBarrier, CleancutError, Cut, Indexed, Key, TorchdataPromptLoader

# torchdata 0.11 itself, when a dataloader is made with torch 2.9 or later.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

Call = Callable[[TorchdataPromptLoader, Cut, Any], object]

CALLS: dict[str, tuple[tuple[Any, ...], Call]] = {
    "limit": ((0, *NO_COUNT[1:]), lambda loader, cut, value: loader.next_batch(cut, value)),
    "cut": ((None, 3, "cut"), lambda loader, cut, value: loader.next_batch(value)),
    "key": ((Key(0, 99), (0, 99), *NO_KEY), lambda loader, cut, value: loader.payload(value)),
    "state": ((None, 3, {}), lambda loader, cut, value: loader.load_state(value)),
    "epoch": (
        (-1, 99, "1", 1.0, None, True),
        lambda loader, cut, value: loader.load_state(replace(loader.state(), epoch=value)),
    ),
    "dataset length": (
        (9, "10", None),
        lambda loader, cut, value: loader.load_state(replace(loader.state(), dataset_length=value)),
    ),
}


@pytest.mark.parametrize("argument", CALLS)
async def test_a_wrong_argument_of_the_torchdata_loader_is_refused_by_name(argument: str) -> None:
    """As of PromptLoader; see `bad_arguments`."""
    values, call = CALLS[argument]
    rows = Indexed([f"prompt {number}" for number in range(10)])
    loader = TorchdataPromptLoader(StatefulDataLoader(rows, batch_size=3, collate_fn=list), 2, 5)
    barrier = CheckpointBarrier()
    async with barrier.mutation() as cut:
        loader.next_batch(cut)
        before = loader.state()
        for value in values:
            with pytest.raises(CleancutError, match=argument):
                call(loader, cut, value)
            assert loader.state() == before
