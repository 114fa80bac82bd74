"""The size of a run, as one file in its directory that every life of it reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

#: Files of a run, below its directory.
SETTING, CHECKPOINTS, TRACE = "setting.json", "checkpoints", "trace.jsonl"
#: Written by each life: what was handed out and trained, and what was measured.
TRAINED_LOG, MEASURED_LOG = "trained.jsonl", "measured.jsonl"

SAMPLERS = ("in_order", "weight_fifo", "ready_first", "windowed")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that a life must know; a run that resumes must find the same."""

    seed: int = 0
    sampler: str = "in_order"
    #: Lookahead of `in_order`, staleness of the others: how many steps old the policy of a group may be.
    staleness: int = 1
    #: Rows of the dataset, of which the rows divisible by `broken_every` cannot be generated, and epochs over it.
    rows: int = 420
    broken_every: int = 140
    epochs: int = 5
    #: Operands are 0 to one less.
    operands: int = 6
    prompts_per_step: int = 8
    #: Prompts in a batch of the dataloader, which the library regroups, and its worker processes.
    loader_batch: int = 6
    workers: int = 2
    generations: int = 24
    max_in_flight: int = 12
    width: int = 48
    layers: int = 2
    learning_rate: float = 0.0015
    #: Bound of the importance ratio, and weight of the divergence from the first policy.
    clip: float = 0.2
    kl_weight: float = 0.0
    #: Full saves after so many steps; rollout snapshots so many seconds apart, in the step after a full save.
    save_period: int = 15
    snapshot_period: float = 0.03
    #: Mean seconds that the engine of a real run would take for a group, beside the computing; with a long tail.
    latency: float = 0.02
    #: Seconds of an evaluation: of every sum without sampling, at the start and in the step after each full save.
    evaluation: float = 0.4
    #: How often an attempt is lost with its worker.
    lost_attempts: float = 0.02

    @property
    def steps(self) -> int:
        """Train steps of a run in which no group is given up for its age; the last step of an epoch may be short."""
        return self.epochs * -(-self.rows // self.prompts_per_step)

    def write(self, directory: Path) -> None:
        """Put it into the directory of a new run."""
        (directory / SETTING).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> Setting:
        """The setting of the run in this directory."""
        return cls(**json.loads((directory / SETTING).read_text(encoding="utf-8")))
