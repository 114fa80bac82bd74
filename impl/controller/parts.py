"""The parts of one run that both pumps work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleancut_leaf.words import counted

from ..errors import UsageError
from ..keys import GroupId
from .config import ControllerConfig
from .progress import Progress
from .report import Failure

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier
    from ..loaders.protocol import Loader
    from ..run.buffer import ReplayBuffer
    from ..run.ledger import Ledger
    from ..run.samplers import Sampler
    from ..run.spare_pool import SparePool


@dataclass(eq=False)
class RunParts:
    """Barrier, ledger, loader, sampler, buffer and spare pool of one run, wired to each other.

    Making one binds them: buffer and pool to the ledger, and the sampler to the batch size and to the view of which
    groups are stamped.
    """

    barrier: CheckpointBarrier
    ledger: Ledger
    loader: Loader
    sampler: Sampler
    buffer: ReplayBuffer
    pool: SparePool
    config: ControllerConfig
    progress: Progress = field(init=False)
    #: Set once the loader is exhausted and everything handed out was dispatched.
    fed: bool = False
    failures: list[Failure] = field(default_factory=list)
    trained_now: int = 0

    def __post_init__(self) -> None:
        for name, part in (("ledger", self.ledger), ("buffer", self.buffer)):
            if part.barrier is not self.barrier:
                raise UsageError(
                    f"{name} was made with another barrier than the checkpointer. A checkpoint is one cut of all "
                    "parts; give them the same barrier."
                )
        self.buffer.bind_ledger(self.ledger)
        self.pool.bind_ledger(self.ledger)
        needed = self.sampler.capacity_needed(self.groups_per_step)
        if self.buffer.capacity < needed:
            raise UsageError(
                f"capacity: the replay buffer has {counted(self.buffer.capacity, 'slot')}, and the "
                f"{self.sampler.name} sampler needs {needed} for batches of "
                f"{counted(self.groups_per_step, 'prompt')}. With fewer the run would stall; raise "
                "the capacity, or lower the batch size or the sampler's lookahead."
            )
        if self.config.spares and not getattr(self.sampler, "counts_admissions", True):
            raise UsageError(
                f"ControllerConfig: spares is {self.config.spares!r}, and the {self.sampler.name} sampler has no use "
                "for spares: it fills a step from whatever is ready, so the next prompt of the loader takes the place "
                "of a failed one. Leave spares at 0."
            )
        self.sampler.bind(self.groups_per_step, self.occupants)
        self.progress = Progress(self.barrier, self.sampler)

    @property
    def groups_per_step(self) -> int:
        """Prompts per train step and per batch of the loader."""
        return self.loader.batch_size

    def occupants(self, step: int) -> tuple[GroupId, ...]:
        """The living groups stamped with `step`, in the ledger or in the buffer."""
        return tuple(dict.fromkeys((*self.ledger.groups_of_step(step), *self.buffer.groups_of_step(step))))
