"""Rows on an accelerator, saved while it is at work: every order in which a simulated one may do it.

Each program below is run until the device has done everything it may do at every call of the host. The controls are the
same programs with one rule of the staging taken away; each must come out wrong in some order, or the rule is not needed
or not tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from device_situations import BYTES, Choices, Saving, every_order

from impl import CommittedTensorModified, RowsBehind
from impl.rows import RowsFile, staged_files
from impl.rows.torch_staging import _Begun
from interleavings.scenarios import COPIES, SimulatedDevice

#: What a program saw: the bytes of each saved row, or the error of the save.
Outcome = Any


async def two_groups_cleared(saving: Saving) -> Outcome:
    """Two groups and so two files; both cleared before they are copied, their memory taken and filled by others."""
    for group in (1, 2):
        await saving.commit(group, {"x": saving.produce(group)})
    capture = await saving.capture(1, 2)
    saving.plane.clear(1)
    saving.plane.clear(2)
    others = [saving.produce(8), saving.produce(9)]
    saving.write(capture)
    del others
    return saving.files.values()


async def produced_elsewhere(saving: Saving) -> Outcome:
    """A row that another stream fills, committed with the event of that stream."""
    row = saving.device.empty(BYTES)
    with saving.device.on("side"):
        saving.device.fill(row, 1)
        ready = saving.device.record(None)
    await saving.commit(1, {"x": row}, ready)
    del row
    saving.write(await saving.capture(1))
    return saving.files.values()


async def three_files(saving: Saving) -> Outcome:
    """More files than there are pieces of pinned memory."""
    for group in (1, 2, 3):
        await saving.commit(group, {"x": saving.produce(group)})
    saving.write(await saving.capture(1, 2, 3))
    return saving.files.values()


async def written_in_place(saving: Saving) -> Outcome:
    """A kernel changes a committed row, somewhere between its commit and its copy."""
    row = saving.produce(1)
    await saving.commit(1, {"x": row})
    capture = await saving.capture(1)
    saving.device.fill(row, 7)
    try:
        saving.write(capture)
    except CommittedTensorModified as error:
        return str(error).partition(":")[0]
    return saving.files.values()


def outcomes(program: Callable[[Saving], Any], **options: Any) -> set[Outcome]:
    """Everything that a program comes to, over all orders."""
    seen: set[Outcome] = set()

    async def run(choices: Choices) -> None:
        seen.add(await program(Saving(choices, **options)))

    every_order(run)
    return seen


TWO = (("1/x", (1,)), ("2/x", (2,)))
THREE = (*TWO, ("3/x", (3,)))


@pytest.mark.parametrize("verify", ["off", "digest"])
def test_case_D03_a_row_cleared_before_it_is_copied_is_saved_as_it_was(verify: str) -> None:
    """Case D03: the block would go to the next tensor at once; the source is referred to until the copy is done."""
    assert outcomes(two_groups_cleared, verify=verify) == {TWO}


def test_case_D01_a_copy_is_read_only_when_it_is_finished() -> None:
    """Case D01: behind the kernel that writes the row, on the committing stream and on one of its own."""
    assert outcomes(two_groups_cleared) == {TWO}
    assert outcomes(produced_elsewhere) == {(("1/x", (1,)),)}


def test_case_D02_pinned_memory_is_filled_again_only_when_its_file_is_durable() -> None:
    """Case D02: three files through two pieces, one being copied while the one before is written."""
    assert outcomes(three_files) == {THREE}


def test_case_D04_a_kernel_that_writes_in_place_fails_the_save() -> None:
    """Case D04 on a device: whether the kernel ran before the copy or after it, group and field are named."""
    assert outcomes(written_in_place) == {"group 1, field 'x'"}


# ------------------------------------------------------------------------------------------------------- controls


def test_control_without_the_wait_for_the_event_a_row_is_saved_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy stream runs beside the one that fills the row."""
    original = SimulatedDevice.copy

    def copy(device: SimulatedDevice, where: Any, pairs: Any, after: Any) -> Any:
        return original(device, where, pairs, ())

    monkeypatch.setattr(SimulatedDevice, "copy", copy)
    seen = outcomes(produced_elsewhere)
    assert (("1/x", (1,)),) in seen
    assert (("1/x", (0xAA,)),) in seen, "what stood there before"


def test_control_with_the_event_of_the_wrong_stream_a_row_is_saved_before_it_is_written() -> None:
    """Why `ready` exists: the committing thread's own stream knows nothing of the one that fills the row."""

    async def without_ready(saving: Saving) -> Outcome:
        row = saving.device.empty(BYTES)
        with saving.device.on("side"):
            saving.device.fill(row, 1)
        await saving.commit(1, {"x": row})
        saving.write(await saving.capture(1))
        return saving.files.values()

    assert outcomes(without_ready) == {(("1/x", (1,)),), (("1/x", (0xAA,)),)}


def test_control_without_the_wait_for_the_copy_the_host_reads_what_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call that begins a copy returns at once."""
    monkeypatch.setattr(_Begun, "_wait", lambda begun: None)
    seen = outcomes(three_files)
    assert THREE in seen
    assert (("1/x", (0xAA,)), *THREE[1:]) in seen


def test_control_with_the_source_dropped_early_the_row_of_another_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator gives the block away in the order of the main stream, and the copy is on another."""
    original = _Begun.begin

    def begin(begun: _Begun, device: Any) -> None:
        original(begun, device)
        for row in begun.rows:
            row.tensor, row.watched = torch.empty(0), None

    monkeypatch.setattr(_Begun, "begin", begin)
    seen = outcomes(two_groups_cleared)
    assert TWO in seen
    assert any(saved[0] == ("1/x", (0xDD,)) for saved in seen), "poison"


def test_control_with_pinned_memory_given_back_early_one_row_is_saved_as_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy of the next file goes where the file before still lies."""
    original = _Begun.begin

    def begin(begun: _Begun, device: Any) -> None:
        original(begun, device)
        assert begun.lease is not None
        begun.lease.give_back()

    monkeypatch.setattr(_Begun, "begin", begin)
    seen = outcomes(three_files)
    assert THREE in seen
    assert (("1/x", (2,)), ("2/x", (3,)), ("3/x", (3,))) in seen


def test_control_with_memory_given_back_before_the_file_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the copy is done is too early: the file is not written then. Seen where two are written at a time."""
    original = _Begun.finish

    def finish(begun: _Begun) -> RowsFile:
        file = original(begun)
        assert begun.lease is not None
        begun.lease.give_back()
        return file

    async def two_at_a_time(saving: Saving) -> Outcome:
        for group in (1, 2, 3):
            await saving.commit(group, {"x": saving.produce(group)})
        capture = await saving.capture(1, 2, 3)
        files = staged_files(saving.plane._files(capture, {}), saving.device, saving.plane._pool)
        first, second = next(files), next(files)
        for file in (first, second):
            with file:
                saving.files.write_tensors(file.name, file.tensors)
        for file in files:
            with file:
                saving.files.write_tensors(file.name, file.tensors)
        return saving.files.values()

    monkeypatch.setattr(_Begun, "finish", finish)
    seen = outcomes(two_at_a_time)
    assert THREE in seen
    assert (("1/x", (3,)), *THREE[1:]) in seen


def test_control_without_the_tripwire_a_write_in_place_is_saved_unnoticed() -> None:
    """A writer that goes around the version counter: without a digest the save is wrong in some orders."""

    async def through_data(saving: Saving) -> Outcome:
        fill = saving.device.fill
        saving.device.fill = lambda tensor, value: fill(tensor.data, value)  # type: ignore[method-assign]
        return await written_in_place(saving)

    assert outcomes(through_data) == {(("1/x", (1,)),), (("1/x", (7,)),)}
    assert outcomes(through_data, verify="digest") == {(("1/x", (1,)),), "group 1, field 'x'"}


# ---------------------------------------------------------------------------------------------- other ways of a row


async def trained_elsewhere(saving: Saving) -> Outcome:
    """A trainer's stream reads a row whose group is cleared meanwhile; what it makes of it is saved."""
    await saving.commit(1, {"x": saving.produce(1)})
    with saving.device.on("trainer"):
        rows = saving.plane.rows(1)
        made = saving.device.duplicate(rows["x"])
    saving.plane.clear(1)
    del rows
    other = saving.produce(9)
    await saving.commit(2, {"x": made}, _event_of(saving, "trainer"))
    saving.write(await saving.capture(2))
    del other
    return saving.files.values()


def test_case_D03_rows_taken_to_another_stream_are_not_given_away_while_it_reads_them() -> None:
    """Case D03 of the trainer: `rows` tells the allocator which stream uses them, so a `clear` cannot recycle them."""
    assert outcomes(trained_elsewhere) == {(("2/x", (1,)),)}


def test_control_when_the_allocator_is_not_told_the_trainer_reads_the_row_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waiting for the producer is not enough."""
    original = SimulatedDevice.hand_over

    def hand_over(device: SimulatedDevice, where: Any, after: Any, tensors: Any) -> None:
        original(device, where, after, ())

    monkeypatch.setattr(SimulatedDevice, "hand_over", hand_over)
    assert {(("2/x", (1,)),), (("2/x", (9,)),)} <= outcomes(trained_elsewhere)


def _event_of(saving: Saving, stream: str) -> Any:
    with saving.device.on(stream):
        return saving.device.record(None)


def test_a_small_view_is_cloned_behind_the_event_and_saved_behind_the_clone() -> None:
    """At commit, since only then it is known behind what; the clone itself is one more thing to wait for."""

    async def view(saving: Saving) -> Outcome:
        large = saving.device.empty(16)
        with saving.device.on("side"):
            saving.device.fill(large, 1)
            ready = saving.device.record(None)
        await saving.commit(1, {"x": large[:4]}, ready)
        assert saving.plane.statistics()["cloned_views"] == 1
        del large
        other = saving.produce(9)
        saving.write(await saving.capture(1))
        del other
        return saving.files.values()

    assert outcomes(view) == {(("1/x", (1,)),)}


def test_a_digest_is_taken_behind_the_event_it_was_staged_with() -> None:
    """A digest of a row that is not written yet would call every later save a change."""

    async def digested(saving: Saving) -> Outcome:
        row = saving.device.empty(BYTES)
        with saving.device.on("side"):
            saving.device.fill(row, 1)
            ready = saving.device.record(None)
        staged = await saving.plane.stage(1, {"x": row}, ready)
        async with saving.barrier.mutation() as cut:
            saving.plane.commit(cut, 1, staged)
        saving.write(await saving.capture(1))
        return saving.files.values(), saving.plane.statistics()["undigested"]

    assert outcomes(digested, verify="digest") == {((("1/x", (1,)),), 0)}


def test_rows_that_bring_their_event_along_need_none_at_the_commit() -> None:
    """What a controller commits is whatever `generate` returned: this is how it says which stream it used."""

    async def brought(saving: Saving) -> Outcome:
        row = saving.device.empty(BYTES)
        with saving.device.on("side"):
            saving.device.fill(row, 1)
            rows = RowsBehind({"x": row}, saving.device.record(None))
        await saving.commit(1, rows)
        saving.write(await saving.capture(1))
        return saving.files.values()

    assert outcomes(brought, verify="digest") == {(("1/x", (1,)),)}


async def test_a_row_changed_in_the_middle_of_a_save_leaves_nothing_under_way() -> None:
    """What is copied ahead of the changed row is waited for and given back; the file handed out is its reader's."""
    saving = Saving()
    rows = {group: saving.produce(group) for group in (1, 2, 3)}
    for group, row in rows.items():
        await saving.commit(group, {"x": row})
    files = staged_files(saving.plane._files(await saving.capture(1, 2, 3), {}), saving.device, saving.plane._pool)
    first = next(files)
    saving.device.fill(rows[2], 7)
    with pytest.raises(CommittedTensorModified, match="group 2, field 'x'"):
        next(files)
    assert not saving.device.queues[COPIES]
    assert saving.plane.statistics()["staging_in_use"] == 256
    first.give_back()
    assert saving.plane.statistics()["staging_in_use"] == 0


def test_a_digest_taken_without_the_event_of_the_commit_is_not_used_and_counted() -> None:
    """`ready` comes with the commit alone: when the digest was taken the row may not have been written."""

    async def late(saving: Saving) -> Outcome:
        outcome = await produced_elsewhere(saving)
        return outcome, saving.plane.statistics()["undigested"]

    assert outcomes(late, verify="digest") == {((("1/x", (1,)),), 1)}


async def test_any_layout_is_saved_in_row_major_order() -> None:
    """Transposed, strided, expanded and conjugated rows, beside rows on the host in the same file."""
    saving = Saving()
    saving.plane = type(saving.plane)(accelerator=saving.device, staging_bytes=1 << 20)
    block = saving.device.empty(4, dtype=torch.int32)
    block.copy_(torch.arange(4))
    pair = saving.device.empty(2, dtype=torch.complex64)
    pair.copy_(torch.tensor([1 + 2j, 3 - 4j]))
    rows = {
        "transposed": block.reshape(2, 2).t(),
        "strided": block[::2],
        "expanded": block[:2].reshape(1, 2).expand(3, 2),
        "conjugated": pair.conj(),
        "scalar": block[3],
        "empty": torch.empty(0, 3),
        "host": torch.arange(3),
    }
    await saving.commit(1, rows)
    saving.write(await saving.capture(1))
    for field, tensor in rows.items():
        saved = saving.files.tensors[f"1/{field}"]
        assert (saved.dtype, saved.shape, saved.tolist()) == (tensor.dtype, tensor.shape, tensor.tolist()), field
