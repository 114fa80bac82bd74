"""Which checkpoints may go. Decides over values; the store does the removing, after a child is durable, never before.

Only those of the run that saves are asked about. A life that restored nothing is a run of its own: what it finds
neither counts towards its `keep` nor goes.

Only full saves count towards `keep`: a rollout snapshot is worth nothing without the full save it is anchored on. A
damaged directory neither counts nor is removed here, so that it cannot push out a good one and stays for inspection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import UsageError
from .manifest import Identity, Kind, Manifest

#: The run of all that goes on from a checkpoint of an older version, which named none.
UNNAMED = ""


@dataclass(frozen=True, slots=True)
class Known:
    """A checkpoint this writer has found whole, or has published itself."""

    name: str
    step: int
    sequence: int
    kind: Kind
    anchor: str | None
    fence: int
    identity: Identity
    run: str | None = None

    @classmethod
    def of(cls, name: str, manifest: Manifest) -> Known:
        """What retention needs of a manifest; `name` is the directory's own, whatever its padding."""
        return cls(
            name=name,
            step=manifest.step,
            sequence=manifest.sequence,
            kind=manifest.kind,
            anchor=manifest.anchor,
            fence=manifest.fence,
            identity=manifest.identity,
            run=manifest.run,
        )

    def is_of_run(self, manifest: Manifest) -> bool:
        """Whether the run that wrote `manifest` has written this one too, or has restored what came of it.

        An older version named no run. What it wrote, and what came of it (`UNNAMED`), belongs together where the
        identities are the same. A manifest that names none at all asks for every checkpoint.
        """
        if manifest.run is None:
            return True
        of_old = manifest.run == UNNAMED
        return (self.run or UNNAMED) == manifest.run and (not of_old or self.identity == manifest.identity)


def check_keep(keep: int) -> int:
    """Refuse a limit that would remove what was just written."""
    if type(keep) is not int or keep < 1:
        raise UsageError(
            f"keep={keep!r} is no number of checkpoints to keep; it must be 1 or more. There is no value that keeps "
            "all: give a number larger than the run will reach."
        )
    return keep


def removable(known: Iterable[Known], keep: int) -> tuple[str, ...]:
    """The names to remove now that the newest of `known` is durable: rollout snapshots first, each kind oldest first.

    A removal may be cut short after any of them, and a snapshot whose anchor has gone before it is damaged.

    Kept are the newest `keep` full saves, the newest `keep` of the rollout snapshots that are newer than all of these,
    and the anchor of each; and the newest `keep` saves of the trainer alone, which take the place of no full one.
    """
    ordered = sorted(known, key=lambda entry: entry.sequence, reverse=True)
    full = [entry for entry in ordered if entry.kind == "full"][:keep]
    newest_full = full[0].sequence if full else 0
    rollout = [entry for entry in ordered if entry.kind == "rollout" and entry.sequence > newest_full][:keep]
    trainer = [entry for entry in ordered if entry.kind == "trainer"][:keep]
    kept = {entry.name for entry in full + rollout + trainer} | {entry.anchor for entry in rollout}
    gone = [entry for entry in reversed(ordered) if entry.name not in kept]
    return tuple(entry.name for entry in sorted(gone, key=lambda entry: entry.anchor is None))
