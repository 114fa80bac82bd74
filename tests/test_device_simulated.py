"""The simulated device itself: in each stream one thing after the other, across streams only what events say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_situations import Choices, every_order

from impl import UsageError
from interleavings.scenarios import COPIES, MAIN, POISON, UNWRITTEN, SimulatedDevice


def copied(device: SimulatedDevice, tensor: torch.Tensor, *after: Any) -> tuple[torch.Tensor, Any]:
    """Host memory that a copy has been begun to, and the event behind it."""
    memory = device.host_buffer(tensor.nbytes)
    return memory, device.copy(None, [(tensor, memory)], after)


def test_nothing_happens_by_itself() -> None:
    """A kernel that was launched has not run."""
    device = SimulatedDevice(1)
    tensor = device.fill(device.empty(4), 7)
    assert tensor.tolist() == [UNWRITTEN] * 4
    assert device.advance(MAIN)
    assert tensor.tolist() == [7] * 4
    assert not device.advance(MAIN)


def test_a_stream_keeps_its_order_and_another_does_not_care() -> None:
    """Two kernels in one stream; a copy in another reads what is there when it happens."""
    device = SimulatedDevice(1)
    tensor = device.fill(device.fill(device.empty(1), 1), 2)
    device.advance(MAIN)
    memory, event = copied(device, tensor)
    event.synchronize()
    assert memory.tolist() == [1]
    device.run_ahead()
    assert tensor.tolist() == [2]


def test_an_event_lets_happen_what_stands_before_it_and_no_more() -> None:
    """Also across streams, by the events that those wait for."""
    device = SimulatedDevice(1)
    tensor = device.fill(device.empty(1), 1)
    written = device.record(None)
    device.fill(tensor, 2)
    memory, event = copied(device, tensor, written)
    assert not device.advance(COPIES), "it waits"
    event.synchronize()
    assert memory.tolist() == [1]
    assert len(device.queues[MAIN]) == 1


def test_a_freed_block_is_poisoned_in_the_order_of_its_stream_and_given_out_at_once() -> None:
    """Its own stream may still write to it: the next owner's kernels come later. Another stream reads poison."""
    device = SimulatedDevice(1)
    first = device.fill(device.empty(1), 1)
    address = first.data_ptr()
    memory, event = copied(device, first, device.record(None))
    del first
    second = device.fill(device.empty(1), 2)
    assert second.data_ptr() == address
    device.advance(MAIN)
    assert second.tolist() == [POISON]
    event.synchronize()
    assert memory.tolist() == [POISON]


def test_a_view_keeps_the_block() -> None:
    """As a storage is kept by all that share it."""
    device = SimulatedDevice(1)
    view = device.empty(4)[1:]
    with pytest.raises(MemoryError):
        device.empty(1)
    del view
    device.empty(1)


def test_a_block_handed_over_to_a_stream_waits_for_that_stream() -> None:
    """What `record_stream` does."""
    device = SimulatedDevice(1)
    tensor = device.fill(device.empty(1), 1)
    with device.on("trainer"):
        device.fill(tensor, 3)
        device.hand_over(None, (), (tensor,))
    del tensor
    with pytest.raises(MemoryError):
        device.empty(1)
    device.run_ahead()
    device.empty(1)


def test_a_quick_device_does_at_once_what_it_may() -> None:
    """And waits where an event says so."""
    device = SimulatedDevice(2)
    tensor = device.fill(device.empty(1), 1)
    written = device.record(None)
    memory, _ = copied(device, tensor, written)
    device.ahead = True
    device.fill(device.empty(1), 5)
    assert memory.tolist() == [1]


def test_what_is_no_tensor_of_it_is_not_there() -> None:
    """Host tensors pass through the data plane as they are; a shape must fit, an event must be its own."""
    device = SimulatedDevice(1)
    assert device.where(torch.ones(1)) is None
    assert device.where(device.empty(1)) == "simulated"
    with pytest.raises(UsageError, match="shape"):
        SimulatedDevice(1).empty(17)
    with pytest.raises(UsageError, match="ready"):
        device.check_ready(object())


@pytest.mark.parametrize("prune", [True, False])
def test_every_order_finds_every_interleaving_of_two_streams(prune: bool) -> None:
    """Three kernels against two: all ten orders of the marks they leave; with and without the memory of states."""
    seen: set[tuple[int, ...]] = set()

    async def program(choices: Choices) -> None:
        order: list[int] = []
        left = [3, 2]
        while any(left):
            streams = [stream for stream in (0, 1) if left[stream]]
            chosen = streams[choices.choose(len(streams), tuple(order))]
            left[chosen] -= 1
            order.append(chosen)
        seen.add(tuple(order))

    every_order(program, prune=prune)
    assert len(seen) == 10


def test_remembering_states_loses_no_outcome() -> None:
    """The same outcomes as every order without it, for a program that has a wrong one."""
    from device_situations import Saving

    found: dict[bool, set[Any]] = {True: set(), False: set()}
    for prune, seen in found.items():

        async def program(choices: Choices, seen: set[Any] = seen) -> None:
            saving = Saving(choices)
            row = saving.device.empty(8)
            with saving.device.on("side"):
                saving.device.fill(row, 1)
            await saving.commit(1, {"x": row})
            other = saving.produce(9)
            saving.write(await saving.capture(1))
            del other
            seen.add(saving.files.values())

        every_order(program, prune=prune)
    assert found[True] == found[False]
    assert len(found[True]) == 2
