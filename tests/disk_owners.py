"""Who owns each key in a checkpoint directory, read from its JSON files alone: no code of the library takes part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Key = tuple[int, int]


def newest(directory: Path) -> Path:
    """The published checkpoint with the highest sequence."""
    return max(directory.glob("step_*-*"), key=lambda path: int(path.name.rpartition("-")[2]))


def document(checkpoint: Path, name: str) -> Any:
    """One of the checkpoint's JSON files."""
    return json.loads((checkpoint / f"{name}.json").read_text())


def owners(checkpoint: Path) -> dict[Key, list[str]]:
    """Every owner of every key that has any."""
    found: dict[Key, list[str]] = {}
    accounts = document(checkpoint, "trainer")["accounts"]
    for name, records in (
        ("ledger", document(checkpoint, "ledger")["entries"]),
        ("buffer", document(checkpoint, "buffer")["slots"]),
        ("spares", document(checkpoint, "spares")["spares"]),
        ("dropped", accounts["dropped"]),
    ):
        for record in records:
            found.setdefault((record["epoch"], record["index"]), []).append(name)
    for interval in accounts["trained"]:
        for index in range(interval["first"], interval["last"] + 1):
            found.setdefault((interval["epoch"], index), []).append("trained")
    return found


def handed_out_count(checkpoint: Path) -> int:
    """How many prompts of the first epoch are behind the loader's cursor."""
    state = document(checkpoint, "loader")["state"]
    assert state["epoch"] == 0
    return int(state["position"])


def stamps(checkpoint: Path) -> list[int]:
    """The stamps of all living groups."""
    living = [*document(checkpoint, "ledger")["entries"], *document(checkpoint, "buffer")["slots"]]
    return [record["step"] for record in living if record["step"] is not None]


def dispatch_cursor(checkpoint: Path) -> int:
    """The step stamped last."""
    return int(document(checkpoint, "sampler")["state"]["cursor"])
