"""`rows.json`: which fields each group has in the files of rows, and which of them are parts of jagged rows.

Needs no torch, so that whoever only looks at a checkpoint reads it as a restore does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import CheckpointCorrupt
from ..keys import GroupId
from ..store.strict_json import convert

ROWS_INDEX = "rows.json"
#: How the names of the files of rows begin.
ROWS_FILES = "rows-"
#: The parts in which a jagged field is kept.
VALUES, OFFSETS, LENGTHS = "values", "offsets", "lengths"


class RowsIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields by group; and of the jagged ones among them, by group and field, the dimension that is ragged."""

    fields: dict[str, list[str]]
    jagged: dict[str, dict[str, int]]

    def of(self, group: GroupId) -> list[str]:
        """The fields of a group; CheckpointCorrupt if it has none."""
        found = self.fields.get(str(group))
        if found is None:
            raise rows_missing(group, str(group))
        return found


def key_of(group: GroupId, field: str) -> str:
    """Under which name a row stands in its file."""
    return f"{group}/{field}"


def part_of(field: str, part: str) -> str:
    """The name under which a part of a jagged field is kept, and found in a checkpoint."""
    return f"{field}/{part}"


def rows_index(plain: Any) -> RowsIndex:
    """The index in a plain value; CheckpointCorrupt if it is none."""
    return convert(plain, RowsIndex, f"{ROWS_INDEX} of the checkpoint")


def rows_missing(group: GroupId, what: str) -> CheckpointCorrupt:
    """The error for a buffered group without its rows."""
    return CheckpointCorrupt(
        f"group {group} is in the buffer index of the checkpoint, but its rows are not there ({what!r} is missing). "
        "The checkpoint was damaged or edited; restore an earlier one."
    )
