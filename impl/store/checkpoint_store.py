"""The durable store: one directory of checkpoints, each published whole or not at all.

    staging directory beside the target   every file written and fsynced, the manifest last
    every directory fsynced, innermost first
    fencing number read again
    one rename to a name that was never used, the parent fsynced      <- durable from here on
    LATEST replaced, old ones renamed     neither can undo the checkpoint: their faults are notices
    whoever waits is told                 and the files of the old ones are removed while they go on

After any error before that point the attempt is abandoned, never continued: an fsync that failed may have dropped the
very pages it was asked about. Whatever a killed writer leaves is removed by the next writer.

Blocking and single-threaded: the checkpointer calls it on its one writer thread. Reading needs no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ..errors import CheckpointCorrupt, CheckpointIncompatible, InvariantViolated
from . import names, retention
from .catalogue import Catalogue, scan
from .durable_file import make_directory, remove_tree, replace_whole
from .failures import translated
from .files import Files
from .lock import WriterIdentity, WriterLock
from .manifest import SCHEMA, AcceptedDataset, Count, Identity, Kind, Manifest
from .reader import CheckpointReader
from .staging import StagedDirectory

_log = logging.getLogger("cleancut.store")


@dataclass(frozen=True, slots=True)
class Draft:
    """What is known of a checkpoint before it is written. `parent` and `anchor` as in the manifest."""

    step: int
    sequence: int
    kind: Kind
    parent: str | None
    anchor: str | None
    identity: Identity
    accepted: tuple[AcceptedDataset, ...] = ()

    @property
    def name(self) -> str:
        """The name it will be published under."""
        return names.checkpoint_name(self.step, self.sequence)


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint that is durable. `notices` are faults of the steps after that point."""

    manifest: Manifest
    bytes: int
    notices: tuple[str, ...]


class CheckpointStore:
    """Reads and writes one directory. `open` before the first `publish`; `close` gives the lock back."""

    # Invariant a_valid_checkpoint_exists: a name leaves `_known` only after a checkpoint with a higher sequence is
    # durable, and only names in `_known` or `_abandoned` are ever removed.
    _known: dict[str, retention.Known]

    def __init__(self, root: str, files: Files, keep: int, identity: WriterIdentity) -> None:
        self.root = root
        self._files = files
        self._keep = retention.check_keep(keep)
        self._identity = identity
        self._lock = WriterLock(files, root, identity)
        self._known = {}
        # Published names whose durability is unknown: the fsync of the parent failed. They go with the next retention.
        self._abandoned: set[str] = set()
        self._next_sequence = 0
        self._leftovers = False

    # -- reading --------------------------------------------------------------------------------------------------

    def catalogue(self) -> Catalogue:
        """What lies in the directory now."""
        return scan(self._files, self.root)

    def reader(self, name: str) -> CheckpointReader:
        """Open one checkpoint by name: reads and checks its manifest."""
        return CheckpointReader(self._files, self.root, name)

    # -- writing --------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether this store holds the lock of the directory."""
        return self._lock.held

    @property
    def newest_known(self) -> retention.Known | None:
        """The sound checkpoint with the highest sequence, as of `open` and the saves since."""
        return max(self._known.values(), key=lambda known: known.sequence, default=None)

    def open(self) -> None:
        """Make the directory, take the lock, learn what is there. StoreBusy, or StoreFailed if it cannot be written."""
        if self.is_open:
            return
        with translated(f"making {self.root}"):
            make_directory(self._files, self.root)
        self._lock.acquire()
        try:
            catalogue = self.catalogue()
            if catalogue.highest_sequence >= names.HIGHEST_SEQUENCE:
                raise CheckpointCorrupt(
                    f"{self.root}: a name in it carries the sequence {catalogue.highest_sequence}, after which no "
                    "checkpoint can come. Somebody made it by hand; move it elsewhere. Nothing was changed."
                )
            self._known = {}
            for candidate in catalogue.candidates:
                try:
                    reader = self.reader(candidate.name)
                    reader.check_lengths()
                except (CheckpointCorrupt, CheckpointIncompatible) as error:
                    _log.warning("%s neither counts towards keep nor is removed: %s", candidate.name, error)
                else:
                    self._known[candidate.name] = retention.Known.of(candidate.name, reader.manifest)
            self._leftovers = bool(catalogue.leftovers)
            self._remove_leftovers()
            self._lock.claim(max((known.fence for known in self._known.values()), default=0))
        except BaseException:
            self._lock.release()
            raise
        self._next_sequence = max(self._next_sequence, catalogue.highest_sequence + 1)

    def next_number(self) -> tuple[int, int]:
        """What tells the next attempt from every other: its sequence, and the fence of this process."""
        return self._next_sequence, self._lock.fence

    def take_sequence(self) -> int:
        """A sequence number for one attempt. An attempt that fails leaves a gap, which is harmless."""
        if not self.is_open:
            raise InvariantViolated("a sequence number was asked for before the store was opened. Open it first.")
        sequence = self._next_sequence
        self._next_sequence += 1
        return sequence

    def publish(
        self,
        draft: Draft,
        fill: Callable[[StagedDirectory], Mapping[str, Count]],
        durable: Callable[[Published], None] | None = None,
    ) -> Published:
        """Write a checkpoint and make it durable. `fill` writes its files and returns the counts for the manifest.

        `durable` is called as soon as the checkpoint counts, where something is still to be removed: that may take as
        long as a good part of the writing, and nobody need wait for it.

        Raises StoreFull, StoreFailed, StoreBusy, or what `fill` raised; nothing was published then, unless the very
        last fsync failed: the checkpoint may be there then, whole, and is not counted on. What goes wrong once it
        counts, whatever it is, is a notice of `Published` and a warning in the log.
        """
        if not self.is_open:
            raise InvariantViolated("a checkpoint was to be published before the store was opened. Open it first.")
        self._remove_leftovers()
        staging = f"{self.root}/{names.staging_name(draft.sequence, self._identity.token())}"
        try:
            manifest = self._stage(staging, draft, fill)
            known = retention.Known.of(draft.name, manifest)
            size = sum(record.length for record in manifest.files.values())
            self._lock.check_fence()
            self._abandoned.add(draft.name)
            with translated(f"publishing {self.root}/{draft.name}"):
                self._files.rename(staging, f"{self.root}/{draft.name}")
                self._files.fsync_dir(self.root)
        except Exception:
            self._leftovers = True
            self._remove_leftovers()
            raise
        # Durable: below here every step is `_tolerated`, so that no fault of one reads as a checkpoint that failed.
        self._abandoned.discard(draft.name)
        self._known[draft.name] = known
        published = Published(manifest, size, (*self._point_to(draft.name), *self._retire()))
        untold: tuple[str, ...] = ()
        if self._leftovers and durable is not None:
            untold = self._tolerated(
                lambda: durable(published), f"{draft.name} is durable, and whoever waits is not told before old ones go"
            )
        return replace(published, notices=(*published.notices, *untold, *self._remove_leftovers()))

    def close(self) -> None:
        """Give the lock back. The store can be opened again."""
        self._lock.release()

    def _stage(self, path: str, draft: Draft, fill: Callable[[StagedDirectory], Mapping[str, Count]]) -> Manifest:
        with translated(f"writing {self.root}/{draft.name}"):
            staged = StagedDirectory(self._files, path)
            counts = fill(staged)
            staged.take_in_folders()
            manifest = Manifest(
                schema=SCHEMA,
                step=draft.step,
                sequence=draft.sequence,
                kind=draft.kind,
                parent=draft.parent,
                anchor=draft.anchor,
                fence=self._lock.fence,
                identity=draft.identity,
                counts=dict(counts),
                files=dict(sorted(staged.records.items())),
                accepted=draft.accepted,
            )
            staged.seal(manifest)
        return manifest

    def _point_to(self, name: str) -> tuple[str, ...]:
        def replace_hint() -> None:
            try:
                # Not synced: nothing reads it, and a power cut may leave it one save behind.
                replace_whole(self._files, self.root, names.LATEST, f"{name}\n".encode("ascii"), self._identity.token())
            except Exception:
                self._leftovers = True
                raise

        return self._tolerated(replace_hint, f"{name} is durable, but {names.LATEST} still names an older checkpoint")

    def _retire(self) -> tuple[str, ...]:
        """Take old checkpoints out of the catalogue; their files go with the other leftovers."""

        def rename_old() -> None:
            going = [*sorted(self._abandoned), *retention.removable(self._known.values(), self._keep)]
            # Renamed first: a removal that is cut short must not leave a directory that looks like a checkpoint.
            for name in going:
                # Missing: an abandoned name that never came to be, or somebody removed it by hand.
                with suppress(FileNotFoundError):
                    self._files.rename(f"{self.root}/{name}", f"{self.root}/{names.DELETING_PREFIX}{name}")
                self._known.pop(name, None)
                self._abandoned.discard(name)
                self._leftovers = True
            if going:
                self._files.fsync_dir(self.root)

        return self._tolerated(rename_old, "an old checkpoint could not be removed, the next save tries again")

    def _remove_leftovers(self) -> tuple[str, ...]:
        """Remove what failed or killed attempts left. Never an error: what stays is tried again by the next save."""

        def remove() -> None:
            for name in self._files.listdir(self.root):
                if names.is_leftover(name):
                    self._remove_leftover(name)
            self._leftovers = False

        return (
            self._tolerated(remove, "leftovers of an earlier save stay until the next one") if self._leftovers else ()
        )

    def _remove_leftover(self, name: str) -> None:
        # Renamed first: where the file system lost the lock, its writer may still live and be about to publish it. That
        # rename has to fail, and not to publish what is left of the files.
        if not name.startswith(names.DELETING_PREFIX):
            doomed = f"{names.DELETING_PREFIX}{name}"
            self._files.rename(f"{self.root}/{name}", f"{self.root}/{doomed}")
            name = doomed
        remove_tree(self._files, f"{self.root}/{name}")

    def _tolerated(self, step: Callable[[], None], consequence: str) -> tuple[str, ...]:
        """Do something that no checkpoint stands or falls with. What goes wrong, an OSError or not, is a notice."""
        try:
            step()
        except OSError as error:
            notice = f"{consequence}: {error}"
            _log.warning("%s: %s", self.root, notice)
        except Exception as error:
            # Nothing that a disk does, so somebody has to look for the place.
            notice = f"{consequence}: {error!r}"
            _log.warning("%s: %s", self.root, notice, exc_info=error)
        else:
            return ()
        return (notice,)
