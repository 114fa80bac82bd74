"""The scenario `device`, and the four controls: one rule of the staging taken away, and the explorer must find it.

`tests/test_device_rows.py` takes the same rules away where the device may act at every call of the writer; here it is
the whole checkpointer, with its window, its clear and the tensors that come after.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from impl import Claim
from impl.rows.torch_staging import _Begun
from interleavings import explore
from interleavings.correspondence import Coverage
from interleavings.runtime import Result
from interleavings.scenarios import Run, SimulatedDevice, scenario_named


def explored() -> Result:
    """One search, whose failed saves are not logged a hundred times."""
    logging.getLogger("cleancut.checkpointer").setLevel(logging.CRITICAL)
    try:
        return explore(scenario_named("device").program(Coverage()))
    finally:
        logging.getLogger("cleancut.checkpointer").setLevel(logging.NOTSET)


def failure_of(result: Result) -> str:
    """What the shortest failing schedule says."""
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    return result.failure.message


def test_in_every_schedule_the_checkpoint_holds_the_rows_of_the_cut() -> None:
    """Cases D01, D02, D03: complete, whenever a kernel runs, the save is written and the device becomes quick."""
    explored().assert_holds()


def test_control_no_event_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D01: the copy overtakes the kernel that writes the row."""
    original = SimulatedDevice.copy

    def copy(device: SimulatedDevice, where: Any, pairs: Any, after: Any) -> Any:
        return original(device, where, pairs, ())

    monkeypatch.setattr(SimulatedDevice, "copy", copy)
    assert r"\xaa" in failure_of(explored())


def test_control_source_dropped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D03: groups are cleared right after the window, and the next tensor gets their memory."""
    original = _Begun.begin

    def begin(begun: _Begun, device: Any) -> None:
        original(begun, device)
        for row in begun.rows:
            row.tensor, row.watched = torch.empty(0), None

    monkeypatch.setattr(_Begun, "begin", begin)
    message = failure_of(explored())
    assert r"\xdd" in message or r"\t\t" in message, "poison, or what the next owner has written"


def test_control_pinned_buffer_reused_before_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D02: a quick device copies the second group over the first before that is written."""
    original = _Begun.begin

    def begin(begun: _Begun, device: Any) -> None:
        original(begun, device)
        assert begun.lease is not None
        begun.lease.give_back()

    monkeypatch.setattr(_Begun, "begin", begin)
    assert r"'0/tokens': b'\x02" in failure_of(explored())


def test_control_write_in_place_is_met_by_the_tripwire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D04: a train step that changes its rows fails the save that still has to copy them, by group and field."""

    def train(run: Run, claim: Claim) -> None:
        run.device.fill(claim.rows(0)["tokens"], 7)

    monkeypatch.setattr(Run, "train", train)
    assert "group 0, field 'tokens': the tensor was changed in place" in failure_of(explored())


def test_control_write_in_place_past_the_tripwire_is_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D04: through `.data` no counter moves, and without a digest the checkpoint is wrong in some schedules."""

    def train(run: Run, claim: Claim) -> None:
        run.device.fill(claim.rows(0)["tokens"].data, 7)

    monkeypatch.setattr(Run, "train", train)
    assert r"'0/tokens': b'\x07" in failure_of(explored())
