"""One save after its window: what the writer thread does with what was captured."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..store.checkpoint_store import CheckpointStore, Draft, Published
from ..store.manifest import Count
from ..store.staging import StagedDirectory
from .artifacts import write_artifacts
from .capture import Captured
from .documents import TRAINER_DIRECTORY

if TYPE_CHECKING:
    from ..plane import DataPlane
    from ..trainer_state import TrainerState

_log = logging.getLogger("cleancut.checkpointer")


@dataclass(frozen=True, slots=True)
class Publication:
    """A captured instant on its way to the disk."""

    store: CheckpointStore
    draft: Draft
    captured: Captured
    plane: DataPlane
    trainer: TrainerState | None

    def write(self, staged_trainer: Any) -> Published:
        """Write and publish; on the writer thread. The references to the rows are dropped here, not on the loop."""
        try:
            return self.store.publish(self.draft, lambda staged: self._fill(staged, staged_trainer))
        except BaseException as error:
            # Also said here: a program may end before anybody asks what became of the save.
            _log.error("checkpoint %s was not published: %s", self.draft.name, error)
            raise
        finally:
            self.captured.rows.drop()

    def _fill(self, staged: StagedDirectory, staged_trainer: Any) -> Mapping[str, Count]:
        counts = write_artifacts(self.captured, self.draft.identity, staged)
        self.plane.persist(self.captured.rows, staged.writer())
        if self.trainer is not None:
            self.trainer.persist(staged_trainer, staged.writer(TRAINER_DIRECTORY))
        return counts
