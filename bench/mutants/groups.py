"""The protocol part of `impl`, by group: the files that are edited, and what is expected to notice an edit."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

GROUPS: dict[str, tuple[str, ...]] = {
    "barrier": tuple(
        f"impl/barrier/{name}.py"
        for name in ("admission", "asyncio_barrier", "asyncio_sections", "cut", "detached", "front_end", "section")
    ),
    "ledger": (
        *(f"impl/run/{name}.py" for name in ("accounts", "ledger", "pending_groups")),
        "impl/loaders/prompt_loader.py",
    ),
    "buffer": ("impl/run/buffer.py", "impl/run/slots.py"),
    "permits": ("impl/run/permits.py", "impl/waiting.py"),
    "samplers": ("impl/run/samplers/*.py",),
    "spares": ("impl/controller/replacement.py", "impl/run/spare_pool.py"),
    "pumps": (
        "impl/steps.py",
        *(f"impl/controller/{name}.py" for name in ("generation", "progress", "rollout_pump", "train_pump")),
    ),
    "checkpointing": tuple(
        f"impl/checkpoint/{name}.py"
        for name in (
            *("artifacts", "capture", "checkpointer", "documents", "ledger_documents", "participants"),
            *("pending", "publication", "restoring", "trainer_only", "writer_thread"),
        )
    ),
    "restore checks": tuple(
        f"impl/checkpoint/{name}.py" for name in ("checks", "file_checks", "ownership", "refusals", "validation")
    ),
    "store": ("impl/store/*.py",),
    "leases": ("impl/leases/*.py",),
    "controller": tuple(
        f"impl/controller/{name}.py" for name in ("controller", "saves", "snapshots", "supervisor", "watchdog")
    ),
    "trio": ("impl/barrier/trio_barrier.py", "impl/barrier/trio_sections.py"),
}
"""Not among them: figures, reports and texts, argument checks, adapters of other packages, the command lines."""

BY_SCENARIOS = ("barrier", "ledger", "buffer", "permits", "samplers", "spares", "pumps", "checkpointing")
"""The groups of which scenarios alone have to notice most. What only refuses a damaged file is a group of its own."""


def group_of(path: str) -> str | None:
    """The group that a file belongs to; None for one that is not edited."""
    return next((name for name, files in GROUPS.items() if any(fnmatch(path, file) for file in files)), None)


def edited_files(root: Path) -> list[str]:
    """Every file that is edited, in a fixed order."""
    found = {str(path.relative_to(root)) for files in GROUPS.values() for file in files for path in root.glob(file)}
    return sorted(found)
