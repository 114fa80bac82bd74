"""What the checkpointer refuses because of the state of the run or of the directory. Looks only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CheckpointIncompatible, UsageError
from .participants import BufferPart

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier
    from ..store.manifest import Identity
    from ..store.retention import Known


def require_still(barrier: CheckpointBarrier, buffer: BufferPart) -> None:
    """Refuse a restore while something moves; UsageError says what."""
    if buffer.claim_open or buffer.dispatch_open:
        raise UsageError(
            "a restore was asked for while a train step has claimed groups, or a dispatch holds or awaits a permit of "
            "the buffer. Restore before the pumps start; nothing was changed."
        )
    figures = barrier.statistics()
    if figures.active_mutations or figures.checkpoint_active:
        raise UsageError(
            "a restore was asked for while sections are open: "
            f"{'; '.join(str(holder) for holder in figures.holders)}. What they change would be mixed with what is "
            "restored. Restore before the pumps start; nothing was changed."
        )


def require_own_directory(directory: str, newest: Known | None, identity: Identity | None) -> None:
    """Refuse a directory that holds another run's checkpoints."""
    if newest is not None and newest.identity != identity:
        raise CheckpointIncompatible(
            f"{directory} holds checkpoints of another run: {newest.name} has {newest.identity}, this run has "
            f"{identity}. Saving here would remove them in time. Use another directory."
        )
