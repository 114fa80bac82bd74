"""Loaders over torchdata's `StatefulDataLoader`, for tests."""

from __future__ import annotations

from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from impl import Indexed, TorchdataPromptLoader

# torchdata 0.11 itself, when a dataloader is made with torch 2.9 or later.
QUIET = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


def prompts(count: int) -> list[str]:
    return [f"prompt {number}" for number in range(count)]


def dataloader(rows: Any = 10, own: int = 3, **options: Any) -> StatefulDataLoader[Any]:
    rows = prompts(rows) if isinstance(rows, int) else rows
    return StatefulDataLoader(Indexed(rows), **{"batch_size": own, "shuffle": True, "collate_fn": list, **options})


def loader(
    rows: Any = 10, own: int = 3, batch_size: int = 4, epochs: int = 1, seed: int = 5, **options: Any
) -> TorchdataPromptLoader:
    return TorchdataPromptLoader(dataloader(rows, own, **options), batch_size, seed, epochs)
