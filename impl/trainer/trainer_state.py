"""The trainer's own state as part of a checkpoint: parameters, optimizer, random generators.

It changes in place with every optimizer step, so it cannot be captured by reference: `stage` copies it, and training
resumes only after that. Writing the copy happens later, on the writer thread.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..store.directory import DirectoryReader, DirectoryWriter


class TrainerState(Protocol):
    """What a full save asks of the trainer. Its files stand in the same manifest, and publication waits for them."""

    async def stage(self) -> Any:
        """Copy the state as it is now. Awaited before training resumes; no optimizer step runs meanwhile."""
        ...

    def persist(self, staged: Any, writer: DirectoryWriter) -> None:
        """Write what `stage` returned; on the writer thread. It must not look at the live state."""
        ...

    def load(self, reader: DirectoryReader) -> None:
        """Replace the live state by a saved one.

        Validate everything first and raise CheckpointIncompatible or CheckpointCorrupt while nothing is changed. Any
        other error is taken for a half-loaded trainer, and the run is closed.
        """
        ...
