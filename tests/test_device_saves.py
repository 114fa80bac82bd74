"""Saves of rows on an accelerator as a whole: what is held while they go on, and what is left when they fail."""

from __future__ import annotations

from typing import Any

import pytest
from device_situations import Saving

from interleavings.scenarios import COPIES


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_a_save_that_fails_waits_for_what_it_has_begun(failing: int) -> None:
    """The disk refuses a file while the next one is being copied: sources and memory are in use until that is done."""
    saving = Saving()
    for group in (1, 2, 3):
        await saving.commit(group, {"x": saving.produce(group)})
    capture = await saving.capture(1, 2, 3)
    for group in (1, 2, 3):
        saving.plane.clear(group)
    original = saving.files.write_tensors

    def write_tensors(name: str, tensors: Any) -> None:
        if name == f"rows-{failing:03d}.safetensors":
            raise OSError(28, "No space left on device")
        original(name, tensors)

    saving.files.write_tensors = write_tensors  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space left"):
        saving.write(capture)
    assert not saving.device.queues[COPIES], "no copy is under way any more"
    statistics = saving.plane.statistics()
    assert (statistics["staging_in_use"], statistics["staging_lost"]) == (0, 0)
    assert saving.plane.statistics()["open_captures"] == 0


async def test_rows_on_the_device_are_let_go_file_by_file() -> None:
    """A save needs memory on the device for what is not copied yet, and not until the last file is durable."""
    saving = Saving()
    for group in (1, 2, 3):
        await saving.commit(group, {"x": saving.produce(group)})
    capture = await saving.capture(1, 2, 3)
    for group in (1, 2, 3):
        saving.plane.clear(group)
    held: list[int] = []
    original = saving.files.write_tensors

    def write_tensors(name: str, tensors: Any) -> None:
        held.append(len(saving.device.users))
        original(name, tensors)

    saving.files.write_tensors = write_tensors  # type: ignore[method-assign]
    saving.write(capture)
    assert held == [2, 1, 0]


async def test_pinned_memory_is_kept_from_save_to_save() -> None:
    """Making it takes longer than filling it."""
    saving = Saving()
    for group in (1, 2, 3):
        await saving.commit(group, {"x": saving.produce(group)})
    for _ in range(3):
        saving.write(await saving.capture(1, 2, 3))
    statistics = saving.plane.statistics()
    assert statistics["staging_allocations"] == 2
    assert statistics["staging_peak"] == 512
    assert statistics["staging_kept"] == 512


async def test_a_row_larger_than_the_whole_pool_is_saved_after_those_before_it() -> None:
    """It needs the pool for itself; what is being copied is written first, or it would wait for ever."""
    saving = Saving(block_bytes=1024)
    for group, length in ((1, 8), (2, 8), (3, 1000), (4, 8)):
        await saving.commit(group, {"x": saving.device.fill(saving.device.empty(length), group)})
    saving.write(await saving.capture(1, 2, 3, 4))
    assert saving.files.values() == (*((f"{group}/x", (group,)) for group in (1, 2, 3)), ("4/x", (4,)))
    statistics = saving.plane.statistics()
    assert (statistics["staging_oversized"], statistics["staging_peak"], statistics["staging_in_use"]) == (1, 1024, 0)
