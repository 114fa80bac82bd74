"""Every field of every JSON document of a checkpoint, edited in every way: fsck and a restore say the same of each.

All digests fit after an edit, as if a faulty version had written it. No edit may end in anything but a public error.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import golden_runs
import pytest
from inspection_damage import replaced, seal

from impl import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible
from impl.inspection import Readers
from impl.inspection import examine as examine_module
from impl.inspection.examine import examine
from impl.store import PosixFiles, listing

pytestmark = [
    pytest.mark.usefixtures("quiet_library"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

#: One run of each kind: with every kind of owner, anchored, without stamps, without prompts, another loader, payloads.
KINDS = ("in_order", "rollout", "weight_fifo", "trainer_alone", "torchdata", "by_hand")
#: Values that a field may not expect, of every type.
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 7, 2**53, 2**63 - 1, 2**70, 10**400, 1.5, "", "x", "admitted", "reserved", "value",
    "dataset", "step_1-1", [], {}, [1], ["a"], {"a": 1},
)  # fmt: skip
#: What no look at a directory can know: which run it is, what is left of its data, what its trainer and torchdata want.
OF_THE_RUN = re.compile(
    r"written by another run|this one has 2 epochs|the saved loader is another one|trainer/(value|weights|ranks)"
    r"|the saved loader has drawn \d+ batch\w* of \d+ of|the dataloader's state cannot be read back"
)
#: Every refusal says in which file it lies.
NAMES_A_FILE = re.compile(r"[a-z]+\.json|rows-\d+\.safetensors|trainer/")

Path_ = tuple[Any, ...]


class Edit(NamedTuple):
    """One change of one document."""

    member: str
    place: Path_
    how: str
    change: Callable[[Any], None]

    def __str__(self) -> str:
        return f"{self.member} {'.'.join(map(str, self.place))}: {self.how}"


class Answer(NamedTuple):
    """What is said of an edited checkpoint."""

    state: str
    reason: str


def places(document: Any, above: Path_ = ()) -> Iterator[Path_]:
    """Every field; of a long list the first two items, since the others are of the same form."""
    for key in list(document) if isinstance(document, dict) else range(min(len(document), 2)):
        yield (*above, key)
        if isinstance(document[key], dict | list):
            yield from places(document[key], (*above, key))


def at(document: Any, place: Path_) -> Any:
    for key in place:
        document = document[key]
    return document


def edits(member: str, document: Any) -> Iterator[Edit]:
    """Each field set to each value, moved by a little, removed, renamed; and lists and objects with something more."""

    def put(place: Path_, value: Any) -> Callable[[Any], None]:
        return lambda d: at(d, place[:-1]).__setitem__(place[-1], copy.deepcopy(value))

    def renamed(place: Path_) -> Callable[[Any], None]:
        def change(d: Any) -> None:
            holder = at(d, place[:-1])
            holder[f"{place[-1]}."] = holder.pop(place[-1])

        return change

    def removed(place: Path_) -> Callable[[Any], None]:
        return lambda d: at(d, place[:-1]).__delitem__(place[-1])

    for place in places(document):
        old = at(document, place)
        for value in VALUES:
            if type(value) is not type(old) or value != old:
                yield Edit(member, place, f"{value!r:.40}", put(place, value))
        if type(old) is int:
            for delta in (-4, -1, 1, 4):
                yield Edit(member, place, f"{delta:+}", put(place, old + delta))
        yield Edit(member, place, "removed", removed(place))
        if isinstance(place[-1], str):
            yield Edit(member, place, "renamed", renamed(place))
        if isinstance(old, dict):
            yield Edit(member, (*place, "zz"), "added", put((*place, "zz"), 1))
        if isinstance(old, list) and old:
            yield Edit(member, place, "one twice", put(place, [*old, old[-1]]))


class Edited:
    """The newest checkpoint of one run, to be edited over and over."""

    def __init__(self, kind: str, whole: Path, scratch: Path) -> None:
        self.kind = kind
        self._whole = whole
        self._root = scratch / "run"
        self.names = sorted((path.name for path in whole.glob("step_*")), key=lambda name: int(name.partition("-")[2]))
        self.name = self.names[-1]
        self.manifest = json.loads((whole / self.name / "manifest.json").read_bytes())
        members = [m for m in self.manifest["files"] if m.endswith(".json") and not m.startswith("trainer/")]
        self.documents = {
            member: json.loads((whole / self.name / member).read_bytes()) for member in ("manifest.json", *members)
        }

    def edits(self) -> list[Edit]:
        return [edit for member, document in self.documents.items() for edit in edits(member, document)]

    def answers(self, edit: Edit | None) -> tuple[Answer, Answer]:
        """What fsck says, and a restore in a fresh process."""
        shutil.rmtree(self._root, ignore_errors=True)
        for name in self.names:
            shutil.copytree(self._whole / name, self._root / name)
        if edit is not None:
            document = copy.deepcopy(self.documents[edit.member])
            edit.change(document)
            data = json.dumps(document).encode()
            if edit.member == "manifest.json":
                seal(self._root / self.name, data)
            else:
                replaced(self._root / self.name, edit.member, data)
        return self._of_fsck(), asyncio.run(self._of_a_restore())

    def _of_fsck(self) -> Answer:
        candidates = listing(PosixFiles(), str(self._root)).candidates
        candidate = next(each for each in candidates if each.name == self.name)
        found = examine(Readers(PosixFiles(), str(self._root)), candidate, digests=True)
        return Answer(found.state, " ".join(found.problems))

    async def _of_a_restore(self) -> Answer:
        parts = golden_runs.fresh(self.kind, self._root)
        try:
            # By its step, so that a damaged one is an error; of those with that step the newest is taken.
            restored = await parts.restore(step=self.manifest["step"])
        except CheckpointDamaged as error:
            return Answer("damaged", str(error))
        except CheckpointIncompatible as error:
            return Answer("incompatible", str(error))
        except CheckpointCorrupt as error:
            return Answer("contradictory", str(error))
        assert restored.name == self.name
        return Answer("whole", "")


def disagreements(edited: Edited, wanted: list[Edit]) -> list[str]:
    """Where fsck and a restore disagree, or one of them names no file."""
    found = []
    for edit in wanted:
        fsck, restore = edited.answers(edit)
        if fsck.state != restore.state and not OF_THE_RUN.search(restore.reason):
            found.append(f"{edit}: fsck {fsck}, restore {restore}")
        for answer in (fsck, restore):
            ours = answer.state != "whole" and not OF_THE_RUN.search(answer.reason)
            if ours and not NAMES_A_FILE.search(answer.reason):
                found.append(f"{edit}: no file is named: {answer}")
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoints of a run of one kind, written once by this version."""
    there: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in there:
            there[kind] = tmp_path_factory.mktemp(kind) / "run"
            logging.disable(logging.WARNING)  # groups fail on purpose
            golden_runs.write(kind, there[kind])
            logging.disable(logging.NOTSET)
        return there[kind] / "checkpoints"

    return of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("one_in", [101, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_case_G07_after_any_edit_of_any_field_fsck_and_a_restore_agree(
    kind: str, one_in: int, written: Callable[[str], Path], tmp_path: Path
) -> None:
    """Whatever one of them takes and the other refuses is found by a user first, after the run has ended."""
    edited = Edited(kind, written(kind), tmp_path)
    assert edited.answers(None) == (Answer("whole", ""), Answer("whole", ""))
    everything = edited.edits()
    assert len(everything) > 1000
    assert disagreements(edited, everything[::one_in]) == []


@pytest.mark.parametrize("form", ["format-1"])
@pytest.mark.parametrize("kind", ["in_order", "by_hand"])
def test_case_G07_a_checkpoint_without_the_later_fields_is_judged_alike_too(
    form: str, kind: str, tmp_path: Path
) -> None:
    """Absent means unchecked, for both: but for what only those fields tell, whose loader and whose budgets it is."""
    edited = Edited(kind, golden_runs.GOLDEN / form / kind / "checkpoints", tmp_path)
    told_by_later_fields = re.compile(r"with other fields than this version has|names no group and cause")
    found = disagreements(edited, edited.edits()[::101])
    assert [each for each in found if not told_by_later_fields.search(each)] == []


@pytest.mark.parametrize("left_out", ["require_whole", "require_rows", "require_anchor", "refuse_first"])
def test_an_fsck_that_leaves_out_a_part_of_the_list_disagrees(
    left_out: str, written: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison notices: otherwise it would agree about nothing."""
    kind, member, field = {
        "require_whole": ("in_order", "trainer.json", "version"),
        "require_rows": ("in_order", "rows.json", "fields"),
        "require_anchor": ("rollout", "manifest.json", "anchor"),
        "refuse_first": ("trainer_alone", "progress.json", "step"),
    }[left_out]
    edited = Edited(kind, written(kind), tmp_path)
    wanted = [edit for edit in edited.edits() if edit.member == member and edit.place[0] == field]
    if left_out == "require_anchor":
        # The full save before it is there too, whole, and has the trainer of another version.
        older = next(name for name in edited.names if name not in (edited.name, edited.manifest["anchor"]))
        wanted = [Edit(member, (field,), older, lambda manifest: manifest.update(anchor=older))]
    wanted = wanted[:40]
    assert disagreements(edited, wanted) == []
    monkeypatch.setattr(examine_module, left_out, lambda *arguments: None)
    assert disagreements(edited, wanted) != []
