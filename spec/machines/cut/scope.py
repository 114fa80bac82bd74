"""How large a cut machine is, and which features of the protocol it has."""

from __future__ import annotations

from dataclasses import dataclass

IN_ORDER, WEIGHT_FIFO, READY_FIRST, WINDOWED = 0, 1, 2, 3


@dataclass(frozen=True)
class CutScope:
    """The size of one enumeration. Every feature is off unless the scope switches it on, so small stays small."""

    batches: int
    """Batches of one epoch."""
    batch_size: int
    """Prompts of a batch, which are the prompts of one train step."""
    lookahead: int
    """In order: how many steps may be admitted ahead of the trainer. The other samplers: the staleness they allow."""
    saves: int
    """Full saves that may be asked for in all."""
    crashes: int
    """Crashes, each followed by a restore, in all."""
    sampler: int = IN_ORDER
    """IN_ORDER, WEIGHT_FIFO, READY_FIRST or WINDOWED."""
    capacity: int = 0
    """Slots of the replay buffer; 0 takes what the sampler needs."""
    in_flight: int = 8
    """Generations that may run at once."""
    epochs: int = 1
    """Passes over the data."""
    last_batch: int = 0
    """Prompts of the last batch of an epoch; 0: as many as in every other."""
    drop_short: int = 0
    """1: a short last batch is dropped as remainder. 0: it is trained as a step with fewer groups."""
    failures: int = 0
    """Attempts that may fail in all."""
    retries: int = 0
    """How often one prompt is attempted again before it is given up."""
    spares: int = 0
    """1: whole batches may be diverted into the spare pool."""
    borrow: int = 0
    """1: a ready group of a later step may fill a hole, and the spare takes its place."""
    snapshots: int = 0
    """Rollout snapshots that may be asked for in all."""
    failed_saves: int = 0
    """Saves that may fail after their window, in all."""
    background: int = 0
    """1: the window closes before the image is durable, and the run goes on meanwhile."""
    replay_free: int = 0
    """1: a restore may leave the buffer out and have its groups generated again."""
    write_back: int = 0
    """1: a train step writes derived columns into its claimed groups."""
    leases: int = 0
    """Writers are in other processes and hold their slots as leases: how many may fall silent in all. 0: no leases."""

    def __post_init__(self) -> None:
        """Resolve what follows from other fields."""
        needed = self.batch_size if self.sampler == WINDOWED else self.batch_size * (self.lookahead + 1)
        object.__setattr__(self, "capacity", self.capacity or needed)
        object.__setattr__(self, "last_batch", self.last_batch or self.batch_size)

    @property
    def batches_in_all(self) -> int:
        """Batches of all epochs."""
        return self.batches * self.epochs

    @property
    def prompts_of_an_epoch(self) -> int:
        """Prompts of one epoch, a short last batch included."""
        return (self.batches - 1) * self.batch_size + self.last_batch

    @property
    def prompts_in_all(self) -> int:
        """Prompts of all epochs; one of the second epoch is another prompt than the same of the first."""
        return self.prompts_of_an_epoch * self.epochs

    def batch_of(self, prompt: int) -> int:
        """The batch of a prompt, counted over all epochs."""
        epoch, index = divmod(prompt, self.prompts_of_an_epoch)
        return epoch * self.batches + index // self.batch_size
