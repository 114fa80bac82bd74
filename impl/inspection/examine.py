"""Examines one checkpoint: its bytes, what its files say of each other, and who owns each prompt.

Reads as it goes: of a file of tensors nothing but the header is kept. Needs no torch. Changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from cleancut_leaf.words import counted

from ..checkpoint import documents as doc
from ..checkpoint.checks import FILES, Checked, handed_out_by, keys_can_be_counted, refuse_first, require_whole
from ..checkpoint.file_checks import progress_is_of_a_run
from ..checkpoint.ownership import Ownership
from ..checkpoint.restoring import anchor_lost, read_documents, require_anchor, require_rows
from ..checkpoint.validation import without_buffered
from ..errors import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible, CleancutError
from ..store import names
from ..store.catalogue import Candidate
from ..store.failures import READING, store_error
from ..store.files import Files
from ..store.manifest import Manifest
from ..store.reader import CheckpointReader
from .unchanged import Fingerprint, fingerprint

#: whole: a resume takes it. damaged: a resume passes over it. contradictory, incompatible: a resume stops at it.
#: unreadable: this process could not find out. removed: retention took it while it was being read.
State = Literal["whole", "damaged", "contradictory", "incompatible", "unreadable", "removed"]


@dataclass(slots=True)
class Examined:
    """One checkpoint. `manifest` and `ownership` are None if they could not be read; `written` is in Unix seconds."""

    candidate: Candidate
    state: State = "whole"
    problems: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    manifest: Manifest | None = None
    ownership: Ownership | None = None
    written: float | None = None
    digests_checked: bool = False
    #: What it looked like before it was read, with its anchor; None if that could not be told.
    looked: Fingerprint | None = None

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.candidate.name

    @property
    def bytes(self) -> int | None:
        """The length of all files that the manifest lists."""
        return sum(each.length for each in self.manifest.files.values()) if self.manifest else None

    def note(self, state: State, problem: str) -> None:
        """Something is wrong; what a resume would do about it decides the state, and the first such thing counts."""
        self.state = state if self.state == "whole" else self.state
        self.tell(problem)

    def tell(self, problem: str) -> None:
        """Something is wrong, in more words than a resume would use; what it would do is noted apart."""
        text = problem if self.name in problem else f"{self.name}: {problem}"
        if text not in self.problems:
            self.problems.append(text)


class Readers:
    """The checkpoints of one survey, each opened once: what was read of an anchor for a snapshot is not read again."""

    def __init__(self, files: Files, root: str) -> None:
        self.files = files
        self.root = root
        self._opened: dict[str, CheckpointReader] = {}
        self._trainers: dict[str, doc.TrainerDocument] = {}

    def of(self, name: str) -> CheckpointReader:
        """The reader of a checkpoint, with its manifest read; what is wrong with that is raised each time."""
        if name not in self._opened:
            self._opened[name] = CheckpointReader(self.files, self.root, name)
        return self._opened[name]

    def trainer_of(self, name: str) -> doc.TrainerDocument:
        """What a full save or a snapshot says of its trainer."""
        if name not in self._trainers:
            self._trainers[name] = self.of(name).reader().read_document(doc.TRAINER, doc.TrainerDocument)
        return self._trainers[name]


def examine(readers: Readers, candidate: Candidate, *, digests: bool) -> Examined:
    """Everything about one checkpoint. Without `digests` the payload is not read, only its lengths are compared.

    In the order of a restore, so that of two faults the state is that of the one which a restore meets.
    """
    root, name = readers.root, candidate.name
    found = Examined(candidate, written=_written(f"{root}/{name}/{names.MANIFEST}"))

    def opened() -> None:
        found.manifest = readers.of(name).manifest
        found.looked = fingerprint(root, *filter(None, (name, found.manifest.anchor)))

    def payload() -> None:
        readers.of(name).verify()
        found.digests_checked = True

    if _noted(found, root, opened):
        sound = _noted(found, root, lambda: _check_meaning(readers, name, found))
        if found.state not in ("damaged", "removed"):
            sound = _noted(found, root, lambda: readers.of(name).check_lengths()) and sound
        if digests and found.state not in ("damaged", "removed"):
            sound = _noted(found, root, payload) and sound
        if sound:
            _noted(found, root, lambda: _check_anchor(readers, name, digests=digests))
            _noted(found, root, lambda: _check_folders(readers, name))
    return found


def unchanged(root: str, earlier: Examined) -> bool:
    """Whether to read a checkpoint again would find the same."""
    if earlier.manifest is None or earlier.looked is None or earlier.state == "unreadable":
        return False
    return fingerprint(root, *filter(None, (earlier.name, earlier.manifest.anchor))) == earlier.looked


def _noted(found: Examined, root: str, check: Callable[[], None]) -> bool:
    """Whether a check holds; what it raises is a problem, and decides the state unless another one has before."""
    try:
        check()
    except CheckpointDamaged as error:
        found.note("damaged" if os.path.lexists(f"{root}/{found.name}") else "removed", str(error))
    except CheckpointIncompatible as error:
        found.note("incompatible", str(error))
    except CheckpointCorrupt as error:
        found.note("contradictory", str(error))
    except CleancutError as error:
        found.note("unreadable", str(error))
    except FileNotFoundError as error:
        gone = not os.path.lexists(f"{root}/{found.name}")
        found.note("removed" if gone else "damaged", f"{error.filename} was removed while it was looked at.")
    except OSError as error:
        found.note("unreadable", str(store_error(error, f"{READING}{error.filename or found.name}")))
    except MemoryError:
        found.note("unreadable", "there is not enough memory to look at it. Run fsck where there is more.")
    else:
        return True
    return False


def _written(path: str) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def _check_anchor(readers: Readers, name: str, *, digests: bool) -> None:
    """A rollout snapshot is worth nothing without the trainer's files of its full save."""
    anchor = readers.of(name).manifest.anchor
    if anchor is None:
        return
    try:
        full = readers.of(anchor)
        version, of_full = readers.trainer_of(name).version, partial(readers.trainer_of, anchor)
        require_anchor(readers.of(name).manifest, version, full.manifest, of_full)
        full.check_lengths()
        if digests:
            full.verify(f"{doc.TRAINER_DIRECTORY}/")
        _check_folders(readers, anchor)
    except CheckpointDamaged as error:
        raise anchor_lost(name, anchor, error) from error


def _check_folders(readers: Readers, name: str) -> None:
    """Nobody has put a file into a folder that others read by themselves: a restore stops there, and says so.

    Which directories are folders is told by names in them that the store gives to no file.
    """
    reader = readers.of(name)
    listed = {"/".join(parts[:end]) for member in reader.manifest.files for parts in (member.split("/"),)
              for end in range(1, len(parts) + 1)}  # fmt: skip
    for folder in sorted({folder for member in reader.manifest.files if (folder := names.folder_of(member))}):
        try:
            below = _below(readers.files, f"{readers.root}/{name}", folder)
            strange = next((each for each in below if each not in listed), None)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise reader.unreadable(error, folder) from error
        if strange is not None:
            raise CheckpointCorrupt(
                f"{name}/{strange} is not listed in the manifest: somebody put it into a folder of the trainer, "
                "and a restore of that folder stops at it. Take it away if you know what it is."
            )


def _below(files: Files, checkpoint: str, folder: str) -> Iterator[str]:
    """Everything in a folder, directories too, named as in the manifest; they may be nested as deep as paths go."""
    waiting = [folder]
    while waiting:
        directory = waiting.pop()
        for name in files.listdir(f"{checkpoint}/{directory}"):
            yield f"{directory}/{name}"
            if files.stat(f"{checkpoint}/{directory}/{name}").kind == "directory":
                waiting.append(f"{directory}/{name}")


def _check_meaning(readers: Readers, name: str, found: Examined) -> None:
    """Read the documents, count the owners, and ask what a restore would ask."""
    reader = readers.of(name)
    if reader.manifest.kind == "trainer":
        progress = reader.reader().read_document(doc.PROGRESS, doc.ProgressDocument)
        refuse_first(reader.name, progress_is_of_a_run(reader.manifest, progress))
        found.notices.append(
            f"{reader.name} was saved without recovery: it holds the trainer alone, and no prompt has an owner in it. "
            "A run with recovery refuses it; one with recovery=False takes up the trainer and begins the data anew."
        )
        return
    if missing := sorted(set(FILES) - reader.manifest.files.keys()):
        raise CheckpointCorrupt(
            f"{reader.name}: {missing[0]} is not listed: it lacks files that every checkpoint of a run has (it lists "
            f"{', '.join(sorted(reader.manifest.files)[:8])}). It was written by something else; a restore refuses it."
        )
    checked = Checked(read_documents(reader, readers.trainer_of(name)))
    if keys_can_be_counted(checked):
        found.ownership = _ownership(checked, found)
        _note_imbalance(found, found.ownership)
    require_whole(checked)
    _, subtracted = without_buffered(checked.documents)
    if subtracted:
        found.notices.append(
            f"{reader.name}: {counted(len(subtracted), 'group is', 'groups are')} in ledger and buffer; a restore "
            "keeps the buffer's copy."
        )
    require_rows(reader, checked.documents)


def _note_imbalance(found: Examined, ownership: Ownership) -> None:
    """Say what a resume from here would lose or do twice."""
    lost, doubled, ahead = ownership.lost, ownership.doubled, ownership.ahead
    for keys, what, then in (
        (lost, f"lost: {lost.number} handed out with no owner", "A resume never draws it again. "),
        (doubled, f"doubled: {doubled.number} with two owners", ""),
        (
            ahead,
            f"doubled: {ahead.number} with an owner, and never handed out",
            "A resume draws it. ",
        ),
    ):
        if keys.count:
            found.tell(f"{found.name}: {what}: {keys}. {then}Restore an earlier checkpoint.")


def _ownership(checked: Checked, found: Examined) -> Ownership:
    if handed_out_by(checked.documents.loader.state) is None:
        found.notices.append(
            f"{checked.documents.name}: the loader's state does not say which prompts it handed out, so lost ones "
            "cannot be told. Only prompts with two owners were looked for."
        )
    return checked.ownership
