"""The durable store: one directory of checkpoints, each published whole or not at all.

    staging directory beside the target   every file written and fsynced, the manifest last
    every directory fsynced, innermost first
    fencing number read again
    one rename to a name that was never used, the parent fsynced      <- durable from here on
    LATEST replaced, old ones renamed     neither can undo the checkpoint: their faults are notices
    whoever waits is told                 and the files of the old ones are removed while they go on

After any error before that point the attempt is abandoned, never continued: an fsync that failed may have dropped the
very pages it was asked about. Whatever a killed writer leaves is removed by the next writer.

A lock may be lost under a live writer (a clean-up job, a file server), so two may write at a time. Four rules keep what
either of them was told, and keep both out of each other's way:

- claim, put the attempts of earlier writers away, then read the catalogue. After its claim no other writer passes its
  look at the fence; one that had passed it finds its staging directory gone, or has published before it was looked for.
  So a sequence is given out once, and what comes after a claim is newer than all that came before;
- list, look at the fence, and remove only what was listed: what a later writer makes is made after its claim;
- no save goes beside a name that carries its number or a higher one, which this writer has not given out;
- of a directory under a name of ours that holds a whole checkpoint, the manifest has to say that it was made there.

Blocking and single-threaded: the checkpointer calls it on its one writer thread. Reading needs no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import (
    CheckpointCorrupt,
    CheckpointIncompatible,
    CleancutError,
    DurabilityUnknown,
    InvariantViolated,
    NameTaken,
    StoreBusy,
    StoreFailed,
    StoreFull,
    StoreOvertaken,
)
from . import names, retention
from .catalogue import Catalogue, scan
from .durable_file import make_directory, remove_tree, replace_whole
from .failures import READING, store_error, translated
from .files import Files
from .leftovers import is_from_a_writer, manifest_in
from .lock import WriterIdentity, WriterLock
from .manifest import SCHEMA, AcceptedDataset, Count, FileRecord, Identity, Kind, Manifest
from .reader import CheckpointReader
from .staging import StagedDirectory

_log = logging.getLogger("cleancut.store")


@dataclass(frozen=True, slots=True)
class Draft:
    """What is known of a checkpoint before it is written. `parent`, `anchor` and `run` as in the manifest."""

    step: int
    sequence: int
    kind: Kind
    parent: str | None
    anchor: str | None
    identity: Identity
    accepted: tuple[AcceptedDataset, ...] = ()
    run: str | None = None

    @property
    def name(self) -> str:
        """The name it will be published under."""
        return names.checkpoint_name(self.step, self.sequence)

    def manifest(
        self, counts: Mapping[str, Count], files: Mapping[str, FileRecord], fence: int = 0, attempt: str | None = None
    ) -> Manifest:
        """The manifest of what was written under it."""
        return Manifest(
            schema=SCHEMA,
            step=self.step,
            sequence=self.sequence,
            kind=self.kind,
            parent=self.parent,
            anchor=self.anchor,
            fence=fence,
            identity=self.identity,
            counts=dict(counts),
            files=dict(sorted(files.items())),
            accepted=self.accepted,
            run=self.run,
            attempt=attempt,
        )


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
        # Published names whose durability is unknown, each with its attempt: the fsync of the parent failed. They go
        # with the next retention.
        self._abandoned: dict[str, str] = {}
        self._next_sequence = 0
        # Names that this writer has to remove: its own, and what it found at its claim. A list would know of more, but
        # a name that was made since may be another writer's.
        self._doomed: dict[str, None] = {}

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
            # Before the claim only for the fencing number, which has to rise, and for refusals that change nothing.
            catalogue = self.catalogue()
            if catalogue.highest_sequence >= names.HIGHEST_SEQUENCE:
                raise CheckpointCorrupt(
                    f"{self.root}: a name in it carries the sequence {catalogue.highest_sequence}, after which no "
                    "checkpoint can come. Somebody made it by hand; move it elsewhere. Nothing was changed."
                )
            self._known = {}
            self._learn(candidate.name for candidate in catalogue.candidates)
            self._lock.claim(max((known.fence for known in self._known.values()), default=0))
            self._put_leftovers_away()
            self._look_again(catalogue)
            self._remove_leftovers()
        except BaseException:
            self._lock.release()
            raise

    def _learn(self, candidates: Iterable[str]) -> None:
        """Read the manifests of these, and note those that are sound."""
        for name in candidates:
            try:
                reader = self.reader(name)
                reader.check_lengths()
            except (CheckpointCorrupt, CheckpointIncompatible) as error:
                _log.warning("%s neither counts towards keep nor is removed: %s", name, error)
            else:
                self._known[name] = retention.Known.of(name, reader.manifest)

    def _look_again(self, before: Catalogue) -> None:
        """After the claim: what another writer has published or removed since, and the number for the next save."""
        with translated(f"{READING}{self.root}"):
            there = self._files.listdir(self.root)
        numbers = {name: parsed[1] for name in there if (parsed := names.parse_checkpoint_name(name)) is not None}
        for name in self._known.keys() - numbers.keys():
            del self._known[name]
        seen = {entry.name for entry in before.candidates} | {entry.name for entry in before.ignored}
        self._learn(name for name in numbers if name not in seen)
        self._next_sequence = max(self._next_sequence, max(numbers.values(), default=0) + 1)

    @property
    def claim_token(self) -> str:
        """What tells the claim of this writer from every other. `open` comes first."""
        return self._lock.token

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

        Raises StoreFull, StoreFailed, StoreBusy, NameTaken, or what `fill` raised; nothing was published then. Only
        DurabilityUnknown says that the very last fsync failed: the checkpoint is there then, whole, and is not counted
        on (`is_in_doubt`). What goes wrong once it counts, whatever it is, is a notice of `Published` and a warning in
        the log.
        """
        if not self.is_open:
            raise InvariantViolated("a checkpoint was to be published before the store was opened. Open it first.")
        self._remove_leftovers()
        attempt = self._identity.token()
        staging = names.staging_name(draft.sequence, attempt)
        try:
            manifest = self._stage(f"{self.root}/{staging}", draft, attempt, fill)
            known = retention.Known.of(draft.name, manifest)
            size = sum(record.length for record in manifest.files.values())
            self._lock.check_fence()
            self._rename(staging, draft, attempt)
        except Exception as error:
            # Its own only, which nobody else works on: this writer may have been overtaken by now.
            self._doomed[staging] = None
            self._remove_leftovers()
            if isinstance(error, StoreFailed | StoreFull) and (overtaken := self._overtaken()) is not None:
                raise StoreOvertaken(str(overtaken)) from error
            raise
        # Durable: below here every step is `_tolerated`, so that no fault of one reads as a checkpoint that failed.
        self._abandoned.pop(draft.name, None)
        self._known[draft.name] = known
        published = Published(manifest, size, (*self._point_to(draft.name), *self._retire(manifest)))
        untold: tuple[str, ...] = ()
        if self._doomed and durable is not None:
            untold = self._tolerated(
                lambda: durable(published), f"{draft.name} is durable, and whoever waits is not told before old ones go"
            )
        return replace(published, notices=(*published.notices, *untold, *self._remove_leftovers()))

    def is_in_doubt(self, name: str) -> bool:
        """Whether a save failed after its rename, so that a restart may find it under this name."""
        return name in self._abandoned

    def close(self) -> None:
        """Give the lock back. The store can be opened again."""
        self._lock.release()

    def _refuse_taken(self, draft: Draft) -> None:
        """Refuse a number that somebody else has used, or gone beyond: the save would clash, or be older than that."""
        there = self._files.listdir(self.root)
        numbers = {name: parsed[1] for name in there if (parsed := names.parse_checkpoint_name(name)) is not None}
        taken = max(numbers, key=lambda name: numbers[name], default=None)
        if taken is not None and numbers[taken] >= draft.sequence:
            self._next_sequence = max(self._next_sequence, min(numbers[taken] + 1, names.HIGHEST_SEQUENCE))
            raise self._taken(draft, taken)

    def _taken(self, draft: Draft, taken: str) -> CleancutError:
        """Whose the name is: another writer's, or somebody's who put it there by hand."""
        return self._overtaken() or NameTaken(
            f"{self.root}/{taken} is there, and {draft.name} was about to be published. This run has not written it: "
            "it was copied or moved in by hand, and a checkpoint beside it or below it would not be the newest. It was "
            "left alone and nothing was published; move it elsewhere if it does not belong here. The next save takes "
            "a number above it."
        )

    def _overtaken(self) -> StoreBusy | None:
        """The error of a writer that was overtaken; None while nothing shows that this one was."""
        try:
            self._lock.check_fence()
        except StoreBusy as error:
            return error
        except StoreFailed:
            return None
        return None

    def _rename(self, staging: str, draft: Draft, attempt: str) -> None:
        """Publish what is staged. DurabilityUnknown if it has its name and may lose it at a power cut."""
        source, target = f"{self.root}/{staging}", f"{self.root}/{draft.name}"
        doing = f"publishing {target}"
        try:
            self._files.rename(source, target)
        except OSError as error:
            # A file server may do what it reports as failed, so what is there decides.
            if not self._is_there(source) and self._is_attempt(draft.name, attempt):
                self._abandoned[draft.name] = attempt
                raise _in_doubt(error, doing, draft.name) from error
            if self._is_there(source) and self._is_there(target):
                raise self._taken(draft, draft.name) from error
            raise store_error(error, doing) from error
        self._abandoned[draft.name] = attempt
        try:
            self._files.fsync_dir(self.root)
        except OSError as error:
            raise _in_doubt(error, doing, draft.name) from error

    def _is_there(self, path: str) -> bool:
        try:
            self._files.stat(path)
        except OSError:
            return False
        return True

    def _is_attempt(self, name: str, attempt: str) -> bool:
        """Whether the checkpoint of that name is what one attempt of this writer has made."""
        manifest = manifest_in(self._files, f"{self.root}/{name}")
        return manifest is not None and manifest.attempt == attempt

    def _stage(
        self, path: str, draft: Draft, attempt: str, fill: Callable[[StagedDirectory], Mapping[str, Count]]
    ) -> Manifest:
        with translated(f"writing {self.root}/{draft.name}"):
            staged = StagedDirectory(self._files, path)
            counts = fill(staged)
            staged.take_in_folders()
            self._refuse_taken(draft)
            manifest = draft.manifest(counts, staged.records, self._lock.fence, attempt)
            staged.seal(manifest)
        return manifest

    def _point_to(self, name: str) -> tuple[str, ...]:
        token = self._identity.token()

        def replace_hint() -> None:
            try:
                # Not synced: nothing reads it, and a power cut may leave it one save behind.
                replace_whole(self._files, self.root, names.LATEST, f"{name}\n".encode("ascii"), token)
            except Exception:
                self._doomed[f"{names.TEMPORARY_PREFIX}{names.LATEST}-{token}"] = None
                raise

        return self._tolerated(replace_hint, f"{name} is durable, but {names.LATEST} still names an older checkpoint")

    def _retire(self, newest: Manifest) -> tuple[str, ...]:
        """Take old checkpoints out of the catalogue; their files go with the other leftovers."""

        def rename_old() -> None:
            ours = (name for name, attempt in sorted(self._abandoned.items()) if self._is_attempt(name, attempt))
            of_the_run = [known for known in self._known.values() if known.is_of_run(newest)]
            going = [*ours, *retention.removable(of_the_run, self._keep)]
            # Taken away by hand, or put in the place of one: nothing of ours any more.
            self._abandoned = {name: attempt for name, attempt in self._abandoned.items() if name in going}
            if going:
                self._lock.check_fence()
            # Renamed first: a removal that is cut short must not leave a directory that looks like a checkpoint.
            for name in going:
                # Missing: an abandoned name that never came to be, or somebody removed it by hand.
                doomed = f"{names.DELETING_PREFIX}{name}"
                try:
                    self._files.rename(f"{self.root}/{name}", f"{self.root}/{doomed}")
                    self._doomed[doomed] = None
                except FileNotFoundError:
                    pass
                except OSError as error:
                    if not self._is_there(f"{self.root}/{doomed}"):
                        raise
                    # Somebody's. The others go all the same; this one is asked about again by the next writer.
                    _log.warning("%s/%s stays: %s is there, and is not ours: %s", self.root, name, doomed, error)
                self._known.pop(name, None)
                self._abandoned.pop(name, None)
            if going:
                self._files.fsync_dir(self.root)

        return self._tolerated(rename_old, "an old checkpoint could not be removed, the next save tries again")

    def _put_leftovers_away(self) -> None:
        """Rename what earlier writers left, so that none of them can publish it any more. StoreBusy if overtaken.

        Never an error else: what stays is found by the next writer, and no number in it is used again.
        """
        there: list[str] = []

        def look() -> None:
            there.extend(self._files.listdir(self.root))

        self._tolerated(look, "leftovers of an earlier save stay until the next one")
        leftovers = [name for name in there if names.is_leftover(name)]
        if leftovers:
            # After the list: whoever claims from now on makes names that are not in it.
            self._lock.check_fence()
        for name in leftovers:
            if self._tolerated(lambda name=name: self._put_away(name), f"{name} stays until the next one"):  # type: ignore[misc]
                staged = names.parse_staging_name(name)
                if staged is not None and staged[0] is not None and staged[0] < names.HIGHEST_SEQUENCE:
                    self._next_sequence = max(self._next_sequence, staged[0] + 1)

    def _put_away(self, name: str) -> None:
        try:
            ours = is_from_a_writer(self._files, self.root, name)
        except FileNotFoundError:
            return  # removed by its writer since the list
        if not ours:
            _log.warning(
                "%s/%s is left alone: no writer of this directory has made it. Move it elsewhere, or remove it by "
                "hand.",
                self.root,
                name,
            )
            return
        if not name.startswith(names.DELETING_PREFIX):
            # Its writer may still live and be about to publish it. That rename has to fail, and not to publish what is
            # left of the files.
            doomed = f"{names.DELETING_PREFIX}{name}"
            try:
                self._files.rename(f"{self.root}/{name}", f"{self.root}/{doomed}")
            except FileNotFoundError:
                return  # published or given up by its writer since the list
            name = doomed
        self._doomed[name] = None

    def _remove_leftovers(self) -> tuple[str, ...]:
        """Remove what is doomed. Never an error: what stays is tried again by the next save."""

        def remove() -> None:
            for name in tuple(self._doomed):
                remove_tree(self._files, f"{self.root}/{name}")
                del self._doomed[name]

        return self._tolerated(remove, "leftovers of an earlier save stay until the next one") if self._doomed else ()

    def _tolerated(self, step: Callable[[], None], consequence: str) -> tuple[str, ...]:
        """Do something that no checkpoint stands or falls with. What goes wrong, an OSError or not, is a notice."""
        try:
            step()
        except (OSError, CleancutError) as error:
            notice = f"{consequence}: {error}"
            _log.warning("%s: %s", self.root, notice)
        except Exception as error:
            # Nothing that a disk does, so somebody has to look for the place.
            notice = f"{consequence}: {error!r}"
            _log.warning("%s: %s", self.root, notice, exc_info=error)
        else:
            return ()
        return (notice,)


def _in_doubt(error: OSError, doing: str, name: str) -> DurabilityUnknown:
    return DurabilityUnknown(
        f"{doing} failed after its rename: {error.strerror or error} (errno {error.errno}). {name} is there, whole, "
        "and a power cut may take it away. The attempt was abandoned: this run does not count on it and removes it "
        "once a later one is durable; a restart before that takes it. The disk or the file system reports a fault; "
        "look at it before the next save.",
        name,
    )
