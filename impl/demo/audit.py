"""Counts what became of every prompt: by the final checkpoint, and by a log that owes nothing to it.

The log has the trained keys of each step, in the order of the steps' ends, over all lives of the run. A life that
resumed at step s has forgotten the steps from s on that an earlier life had done, so a later lineage supersedes them.
A prompt is lost if it was handed out and neither source says that it was trained and none that it was dropped; it is
doubled if one lineage trained it twice, or trained and dropped it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointNotFound, UsageError
from ..keys import Key
from ..loaders.permutation import EpochOrder
from ..store.catalogue import scan
from ..store.posix_files import PosixFiles
from ..store.reader import CheckpointReader


@dataclass(frozen=True)
class Audit:
    """The balance of a run."""

    handed_out: frozenset[Key]
    trained: frozenset[Key]
    dropped: Mapping[Key, str]
    pending: frozenset[Key]
    lost: frozenset[Key]
    doubled: frozenset[Key]
    steps: int
    superseded_steps: int
    rewards: tuple[float, ...]

    @property
    def balanced(self) -> bool:
        """Whether nothing is lost and nothing doubled."""
        return not self.lost and not self.doubled


@dataclass(frozen=True)
class Lineage:
    """The steps that count, of all that were trained."""

    steps: Mapping[int, tuple[Key, ...]]
    rewards: Mapping[int, float]
    superseded: int


def read_lineage(lines: Iterable[Mapping[str, Any]]) -> Lineage:
    """Follow the log: a resumption at step s forgets the steps from s on."""
    steps: dict[int, tuple[Key, ...]] = {}
    rewards: dict[int, float] = {}
    superseded = 0
    for line in lines:
        if line["event"] == "resumed":
            forgotten = [step for step in steps if step >= line["step"]]
            superseded += len(forgotten)
            for step in forgotten:
                del steps[step], rewards[step]
        elif line["event"] == "trained":
            # A step trained again without a resumption in between would be a fault; its keys then count twice.
            keys = tuple(Key(*key) for key in line["keys"])
            steps[line["step"]] = steps.get(line["step"], ()) + keys
            rewards[line["step"]] = line["reward"]
    return Lineage(steps, rewards, superseded)


def audit(checkpoints: Path, log: Path) -> Audit:
    """Read the newest checkpoint, with every digest compared, and the log; balance them."""
    files = PosixFiles()
    candidates = scan(files, str(checkpoints)).candidates
    if not candidates:
        raise CheckpointNotFound(f"{checkpoints} holds no checkpoint; the run ended before its first save.")
    checkpoint = CheckpointReader(files, str(checkpoints), candidates[0].name)
    checkpoint.verify()
    reader = checkpoint.reader()
    loader: Any = reader.read_json("loader.json")
    trainer: Any = reader.read_json("trainer.json")
    ledger: Any = reader.read_json("ledger.json")
    buffer: Any = reader.read_json("buffer.json")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    spares: Any = reader.read_json("spares.json")
    living = [*ledger["entries"], *buffer["slots"], *spares["spares"]]
    return balance(loader["state"], trainer["accounts"], living, read_lineage(lines))


def balance(loader: Any, accounts: Any, living: Iterable[Any], lineage: Lineage) -> Audit:
    """Compare who owns each key on disk with what the lineage trained."""
    handed_out = _handed_out(loader)
    owners: Counter[Key] = Counter()
    in_accounts = {
        Key(interval["epoch"], row)
        for interval in accounts["trained"]
        for row in range(interval["first"], interval["last"] + 1)
    }
    dropped = {Key(entry["epoch"], entry["index"]): entry["reason"] for entry in accounts["dropped"]}
    pending = [Key(entry["epoch"], entry["index"]) for entry in living]
    owners.update([*in_accounts, *dropped, *pending])
    in_log = Counter(key for keys in lineage.steps.values() for key in keys)
    settled_by_log = in_log + Counter(dropped.keys())
    return Audit(
        handed_out=frozenset(handed_out),
        trained=frozenset(in_accounts & set(in_log)),
        dropped=dropped,
        pending=frozenset(pending),
        # Handed out, but missing on disk, or called trained there although the log never saw it.
        lost=frozenset(handed_out - set(owners)) | frozenset(in_accounts - set(in_log)),
        doubled=frozenset(key for count in (owners, settled_by_log) for key, times in count.items() if times > 1)
        | frozenset(set(in_log) & set(pending)),
        steps=len(lineage.steps),
        superseded_steps=lineage.superseded,
        rewards=tuple(lineage.rewards[step] for step in sorted(lineage.rewards)),
    )


def _handed_out(loader: Any) -> set[Key]:
    """The keys behind the cursor. Of another loader than `PromptLoader` they are known at the end of the data only."""
    length, epoch = loader["dataset_length"], loader["epoch"]
    keys = {Key(before, row) for before in range(epoch) for row in range(length)}
    if "position" in loader:
        order = EpochOrder(length, loader["seed"], epoch)
        return keys | {Key(epoch, order[place]) for place in range(loader["position"])}
    if not loader["exhausted"]:
        raise UsageError("the run has not come to the end of its data, and its loader does not say what it gave out.")
    return keys | {Key(epoch, row) for row in range(length)}
