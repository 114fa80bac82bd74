"""What the checkpointer refuses: wrong arguments, and a run or a directory in the wrong state. Looks only."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from cleancut_leaf.words import counted

from ..arguments import require_abilities, require_flag, require_kind, require_step
from ..barrier import CheckpointBarrier, Unset
from ..errors import CheckpointIncompatible, UsageError
from ..store.lock import WriterIdentity
from .participants import BufferPart, Participants
from .validation import identity_as_here

if TYPE_CHECKING:
    from ..run.ledger import LedgerSnapshot
    from ..store.manifest import Identity
    from ..store.retention import Known


_log = logging.getLogger("cleancut.checkpointer")


def require_settings(
    directory: object, barrier: object, verify: object, files: object, executor: object, identity: object
) -> None:
    """Refuse what a checkpointer cannot be made with; UsageError names it."""
    if not isinstance(directory, str | os.PathLike) or not os.fspath(directory):
        raise UsageError(f"directory is {directory!r}; it must be a path, as a text or a Path.")
    require_kind("barrier", barrier, CheckpointBarrier, "a CheckpointBarrier, asyncio's")
    if verify not in ("off", "sampled", "digest"):
        raise UsageError(f"verify={verify!r} is unknown; it is 'off', 'sampled' or 'digest'.")
    if files is not None:
        require_abilities("files", files, ("open_new", "rename", "lock"), "a Files, like PosixFiles()")
    if executor is not None:
        require_kind("executor", executor, (Executor, Unset), "an Executor, or None for the loop's own")
    if identity is not None:
        require_kind("identity", identity, WriterIdentity, "a WriterIdentity, or None")


def require_choice(step: int | None, load_buffer: bool, trainer: object, trainer_by_hand: bool) -> None:
    """Refuse what a restore cannot be asked for."""
    require_step(step)
    require_flag("trainer_by_hand", trainer_by_hand)
    require_flag("load_buffer", load_buffer)
    require_trainer(trainer)


def require_trainer(trainer: object) -> None:
    """Refuse what can be neither saved nor loaded as the trainer's state; None is no trainer."""
    if trainer is not None:
        require_abilities("trainer", trainer, ("stage", "persist", "load"), "a TrainerState, or None")


def require_still(barrier: CheckpointBarrier, buffer: BufferPart) -> None:
    """Refuse a restore while something moves; UsageError says what."""
    require_no_step(buffer)
    figures = barrier.statistics()
    if figures.active_mutations or figures.checkpoint_active:
        raise UsageError(
            "a restore was asked for while sections are open: "
            f"{'; '.join(str(holder) for holder in figures.holders)}. What they change would be mixed with what is "
            "restored. Restore before the pumps start; nothing was changed."
        )


def require_no_step(buffer: BufferPart) -> None:
    """Refuse a restore between the sections of a train step or of a dispatch."""
    if buffer.claim_open or buffer.dispatch_open:
        raise UsageError(
            "a restore was asked for while a train step has claimed groups, or a dispatch holds or awaits a permit of "
            "the buffer. Restore before the pumps start; nothing was changed."
        )


def require_empty(parts: Participants) -> None:
    """Refuse a restore over work of this process, whose late results would be taken for those of what is restored."""
    slots = getattr(parts.buffer, "slots", {})
    held = {
        ("pending prompt", "in the ledger"): len(getattr(parts.ledger, "entries", ())),
        ("group", "in the buffer"): len(slots),
        ("group", "in the data plane alone"): sum(group not in slots for group in parts.buffer.plane.groups()),
        ("prompt", "in the spare pool"): len(getattr(parts.pool, "spares", ())),
    }
    found = ", ".join(f"{counted(count, one)} {where}" for (one, where), count in held.items() if count)
    if found:
        raise UsageError(
            f"a restore was asked for while this process has work under way: {found}. What still generates would be "
            "committed as a result of what is restored, made with other weights. Restore before anything is reserved, "
            "in a fresh process or with fresh parts; nothing was changed."
        )


def require_no_late_results(buffer: BufferPart, name: str, restored: LedgerSnapshot) -> None:
    """Refuse a restore that gives an id once more whose group this process has given up while it was made.

    Nobody can tell whether its producer has ended, and a result says no more than the id of its group. An id that is
    settled in the checkpoint is not given again: what comes for it is refused where it is committed.
    """
    given_up: Iterable[int] = getattr(buffer, "given_up_in_flight", ())
    again = sorted(group for group in given_up if group in restored.entries or group >= restored.next_group)
    if again:
        groups = ", ".join(map(str, again[:8])) + (" and others" if len(again) > 8 else "")
        raise UsageError(
            f"{name} was to be restored, which gives ids once more of groups that this process gave up while they were "
            f"being made: {groups}. A late result of one would be committed as that of the restored group, made with "
            "other weights. Restore in a fresh process or with fresh parts; nothing was changed."
        )


def require_own_directory(
    directory: str, newest: Known | None, identity: Identity | None, accept_dataset: bool = False
) -> None:
    """Refuse a directory that holds another run's checkpoints."""
    if newest is None:
        return
    if identity is None or identity_as_here(newest.identity, identity, accept_dataset) != identity:
        raise CheckpointIncompatible(
            f"{directory} holds checkpoints of another run: {newest.name} has {newest.identity}, this run has "
            f"{identity}. Saving here would remove them in time. Use another directory."
        )


def warn_of_another_life(directory: str, newest: Known | None) -> None:
    """Say that a run which restored nothing saves beside checkpoints of its own identity; none of them will go."""
    if newest is not None:
        _log.warning(
            "%s holds checkpoints of this run (newest: %s), and none was restored: a run is begun anew beside them, "
            "and the next resume will take it. They count towards no limit and are not removed. If that is not meant, "
            "end this run, move what it saves elsewhere and restore; else give it a directory of its own.",
            directory,
            newest.name,
        )
