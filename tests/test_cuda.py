"""Rows on a real GPU: the one script that shows it there, and what can be known of the script without one."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
FIGURES = [
    "exclusive window, 0.0625 GiB on the device, p50 (ms)",
    "exclusive window, 0.0625 GiB on the device, worst of 3 (ms)",
    "copies of a save (GB/s)",
    "plain pinned copies (GB/s)",
    "copies of a save / plain pinned copies",
    "pinned memory at most in use (MiB)",
    "pinned memory within its bound",
]


def run_script(
    *arguments: str, output: Path, seconds: float, hidden: bool = False
) -> tuple[int, str, list[dict[str, Any]]]:
    """Status, text and table of `bench/rows_cuda.py`; `hidden` lets it see no device."""
    command = [sys.executable, str(ROOT / "bench" / "rows_cuda.py"), "--json", str(output), *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""} if hidden else None
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False, env=environment
    )
    rows = json.loads(output.read_text()) if output.exists() else []
    return ended.returncode, ended.stdout + ended.stderr, rows


@pytest.mark.cuda
def test_on_a_gpu_every_program_is_right_and_every_control_is_wrong(tmp_path: Path) -> None:
    """Slow kernels, cut, clear, new tensors in the memory, two streams; the window and the copy rate; four minutes."""
    status, text, rows = run_script(output=tmp_path / "table.json", seconds=260)
    assert status == 0, text
    assert [row["figure"] for row in rows if not row["ok"]] == []


def test_the_script_of_the_gpu_is_right_on_the_simulated_device(tmp_path: Path) -> None:
    """The same programs and controls, so that the script is right before a GPU can be had."""
    status, text, rows = run_script("--device", "simulated", output=tmp_path / "table.json", seconds=120)
    assert status == 0, text
    assert [row["figure"].partition(":")[0] for row in rows] == ["program"] * 16 + ["control"] * 6
    assert all(row["ok"] and set(row) == {"figure", "value", "to_reach", "ok"} for row in rows)


def test_without_a_gpu_the_script_did_not_run_and_says_so(tmp_path: Path) -> None:
    """Status 3, no table: nothing that could be read as a pass."""
    status, text, rows = run_script(output=tmp_path / "table.json", seconds=120, hidden=True)
    assert (status, rows) == (3, [])
    assert text.startswith("rows_cuda: not run: torch finds no CUDA device")


# --------------------------------------------------------------------- parts of the script, with a stand-in for a GPU


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module; what it does to the whole process is left out."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    module = importlib.import_module("rows_cuda")
    nothing = SimpleNamespace(freeze=lambda: None, collect=lambda: None)
    timer = SimpleNamespace(dump_traceback_later=lambda *a, **n: None, cancel_dump_traceback_later=lambda: None)
    monkeypatch.setattr(module, "gc", nothing)
    monkeypatch.setattr(module, "faulthandler", timer)
    return module


def test_a_whole_run_on_host_memory_has_all_rows_and_its_controls_do_not_pass(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way through the script that only a GPU takes. Nothing is late here, so controls come out right: not ok."""

    class HostLab(script.HostLab):  # type: ignore[misc]
        def afresh(self) -> Any:
            self.recycled = None
            return self

        def be_slow(self) -> None:
            pass

    monkeypatch.setattr(script, "CudaLab", HostLab)
    monkeypatch.setattr(script, "GIB", script.MIB)  # the same way, and a thousandth of the bytes
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "host memory")
    output = tmp_path / "table.json"
    assert script.main(["--quick", "--json", str(output)]) == 1
    rows = json.loads(output.read_text())
    programs, controls, figures = rows[:16], rows[16:27], rows[27:]
    assert all(row["figure"].startswith("program: ") and row["ok"] for row in programs)
    assert all(row["figure"].startswith("control: ") for row in controls)
    came_out_right = {row["figure"].removeprefix("control: ") for row in controls if not row["ok"]}
    assert came_out_right >= {"no event wait", "pinned rows not waited for", "rows restored to the host"}
    assert [row["figure"] for row in figures] == FIGURES
    assert f"NO  {controls[0]['figure']}" in capsys.readouterr().err, "said when it is known"


def test_a_part_that_fails_or_shows_nothing_is_a_row_that_is_not_ok_and_the_others_run(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What has been found out on a device that is had once must not be lost for one fault."""

    async def fails() -> Any:
        raise RuntimeError("CUDA error: an illegal memory access\nand its advice")

    async def too_late() -> Any:
        raise script.NothingShown("the slow kernel was over before the copy")

    async def fine() -> Any:
        return [script.truth("fine", True)]

    rows = script.shown(iter([("fails", fails), ("late", too_late), ("fine", fine)]))
    assert [(row.figure, row.ok) for row in rows] == [
        ("fails: RuntimeError: CUDA error: an illegal memory access", False),
        ("late: nothing shown, the slow kernel was over before the copy", False),
        ("fine", True),
    ]
    assert "Traceback" in capsys.readouterr().err


def test_what_came_too_late_is_asked_of_the_device_in_every_program_that_needs_it(script: Any, tmp_path: Path) -> None:
    """On a device whose slow kernels are over at once nothing passes that is about a copy under way."""

    class Hasty(script.SimulatedLab):  # type: ignore[misc]
        def still_busy(self, moment: str) -> None:
            raise script.NothingShown(f"the slow kernel was over before {moment}")

    rows = script.shown(script.programs(Hasty, script.HostLab, tmp_path))
    shown = [row.figure.removeprefix("program: ") for row in rows[:8] if row.ok]
    assert shown == [
        "a whole checkpoint, restored, verify=digest",
        "more files than pinned memory",
        "written in place: the save fails",
    ]
    refused = [row for row in script.shown(script.controls(Hasty, None, tmp_path)) if "nothing shown" in row.figure]
    assert len(refused) == 4


def late_lab(script: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Host memory on which nothing is done before somebody waits for it, or comes with the stream it is done on."""

    class Late(script.HostLab):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.given: list[Callable[[], object]] = []
            self.pieces: set[int] = set()
            self.accelerator.record = lambda where: self
            self.accelerator.feeds = lambda tensor: 0 if tensor.data_ptr() in self.pieces else None

        def fill(self, tensor: torch.Tensor, value: int) -> None:
            tensor.reshape(-1)[:0].zero_()  # counted at once
            self.given.append(lambda: tensor.data.fill_(value))

        def bring(self, memory: torch.Tensor, tensor: torch.Tensor) -> None:
            self.given.append(lambda: memory.data.copy_(tensor))

        def pinned(self, nbytes: int) -> torch.Tensor:
            memory: torch.Tensor = super().pinned(nbytes)
            self.pieces.add(memory.data_ptr())
            return memory

        def synchronize(self) -> None:
            while self.given:
                self.given.pop(0)()

        finish_all = synchronize

    lab = Late()

    def done_on(streams: list[Any], work: Callable[[], Any]) -> Any:
        streams[0].synchronize()
        return work()

    monkeypatch.setattr("impl.rows.torch_copying.current_streams", lambda tensors: [lab])
    monkeypatch.setattr("impl.rows.torch_copying.done_on", done_on)
    return lab


@pytest.mark.parametrize(
    "control",
    [
        "pinned rows not waited for",
        "streams not handed to the thread, 2 MiB",
        "streams not handed to the thread, 64 bytes",
    ],
)
async def test_controls_that_need_a_real_device_come_out_wrong_where_work_is_late(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, control: str
) -> None:
    """And right with the rule: they are written so that a GPU can show it."""
    program, without = script.device_only.CONTROLS[control]
    lab = late_lab(script, monkeypatch)
    assert await program(lab, tmp_path)
    with without(lab):
        assert not await program(lab, tmp_path)


class Clock:
    """Stands in for what the lab asks of `torch.cuda`: kernels take as long as the clock of the moment says."""

    def __init__(self, patch: pytest.MonkeyPatch, per_second: list[float]) -> None:
        clock = self
        self.now, self.per_second, self.done = 0.0, per_second, False

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = clock.now

            def synchronize(self) -> None:
                pass

            def query(self) -> bool:
                return clock.done

            def elapsed_time(self, later: Any) -> float:
                return float(later.at - self.at) * 1e3

        def sleep(cycles: int) -> None:
            rates = clock.per_second
            self.now += cycles / (rates.pop(0) if len(rates) > 1 else rates[0])

        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(torch.cuda, "_sleep", sleep)
        patch.setattr(torch.cuda, "Stream", lambda: "side")
        patch.setattr(torch.cuda, "current_device", lambda: 0)


def test_slow_kernels_are_slow_at_the_fastest_clock_of_the_device(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle device has a sixth of the clock it has at work: counted then, a kernel would be over far too early."""
    clock = Clock(monkeypatch, [345e6, 700e6, 1980e6])
    lab = script.CudaLab()
    lab.slow()
    lab.still_busy("warming up asks for nothing")
    lab.be_slow()
    before = clock.now
    lab.slow()
    assert clock.now - before == pytest.approx(0.4)
    lab.still_busy("now")
    clock.done = True
    with pytest.raises(script.NothingShown, match="the slow kernel was over before then"):
        lab.still_busy("then")
