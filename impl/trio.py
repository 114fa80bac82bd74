"""The checkpoint barrier for trio, the twin of `impl.CheckpointBarrier`; needs the extra `trio`.

    from impl.trio import CheckpointBarrier

Everything else of `impl` that opens no section by itself works with it as it is: the ledger, the loader, the cuts.
"""

from __future__ import annotations

try:
    from .barrier.trio_barrier import CheckpointBarrier
    from .barrier.trio_sections import CheckpointSection, ImmediateSection, MutationSection
except ModuleNotFoundError as error:
    if error.name != "trio":
        raise
    raise ModuleNotFoundError(
        "impl.trio needs the package trio, which is not installed. Install it with: pip install 'cleancut[trio]'",
        name="trio",
    ) from error

__all__ = ["CheckpointBarrier", "CheckpointSection", "ImmediateSection", "MutationSection"]
