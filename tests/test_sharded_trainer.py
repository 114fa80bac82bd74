"""examples/sharded_trainer.py: the shards of several processes and the prompts are in one checkpoint, or in none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.sharded_trainer import RankFailed, ShardedTrainer, run
from impl.store import DirectoryWriter

ROOT = Path(__file__).parent.parent
PROMPTS = 24

pytestmark = pytest.mark.slow


@contextmanager
def ranks(number: int) -> Iterator[ShardedTrainer]:
    """So many processes, which end with the block."""
    trainer = ShardedTrainer(number)
    try:
        yield trainer
    finally:
        trainer.close()


def to_the_end(directory: Path, trainer: ShardedTrainer) -> dict[str, list[float]]:
    """Resume or begin, train what is left, and the weights then."""
    asyncio.run(run(directory, trainer, PROMPTS))
    return trainer.weights()


def newest(directory: Path) -> Path:
    return directory / (directory / "LATEST").read_text().strip()


def fsck(directory: Path) -> int:
    return subprocess.run([sys.executable, "-m", "impl", "fsck", str(directory)], cwd=ROOT, check=False).returncode


def test_a_run_killed_between_its_saves_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """Bit for bit: SIGKILL of the controller, whose ranks end with it; then the example is started again."""
    command = [sys.executable, "-u", "examples/sharded_trainer.py", str(tmp_path / "killed"), "--prompts", str(PROMPTS)]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 5"):  # the second save had waited for the first
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert fsck(tmp_path / "killed") == 0
    saved = json.loads((newest(tmp_path / "killed") / "manifest.json").read_text())
    assert saved["step"] in (2, 4)
    assert {"trainer/shards/.metadata", "trainer/shards/__0_0.distcp", "trainer/shards/__1_0.distcp"} <= {
        *saved["files"]
    }
    with ranks(2) as trainer:
        disturbed = to_the_end(tmp_path / "killed", trainer)
    with ranks(2) as trainer:
        assert to_the_end(tmp_path / "whole", trainer) == disturbed
    # And with three, which cut the shards otherwise: what is loaded are the same weights.
    with ranks(3) as trainer:
        assert to_the_end(tmp_path / "whole", trainer) == disturbed, "nothing was left to train"


class KilledWhileWriting(ShardedTrainer):
    """Its second rank is killed when the second save is written."""

    saves = 0

    def persist(self, staged: int, writer: DirectoryWriter) -> None:
        self.saves += 1
        if self.saves == 2:
            os.kill(self.ranks[1].pid or 0, signal.SIGKILL)
        super().persist(staged, writer)


def test_a_rank_that_is_killed_while_it_writes_leaves_the_checkpoint_before_as_it_was(tmp_path: Path) -> None:
    """Nothing half is published, the error names the rank, and the run can be resumed."""
    trainer = KilledWhileWriting(2)
    try:
        with pytest.raises(RankFailed, match=r"rank [01] (ended|is gone|could not)"):
            to_the_end(tmp_path, trainer)
    finally:
        trainer.close()
    assert newest(tmp_path).name == "step_2-1"
    assert fsck(tmp_path) == 0
    with ranks(2) as resumed:
        to_the_end(tmp_path, resumed)
    assert newest(tmp_path).name.startswith("step_6-")


def test_a_flipped_byte_in_a_shard_is_found_before_a_rank_reads_it(tmp_path: Path) -> None:
    """The checkpoint before is taken, with a notice, and the run ends as it did."""
    with ranks(2) as trainer:
        expected = to_the_end(tmp_path, trainer)
    shard = newest(tmp_path) / "trainer" / "shards" / "__1_0.distcp"
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    assert fsck(tmp_path) == 1
    with ranks(2) as trainer:
        assert to_the_end(tmp_path, trainer) == expected
    assert newest(tmp_path).name == "step_6-4"
