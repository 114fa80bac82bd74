"""The checkpoint barrier for trio, the twin of `impl.CheckpointBarrier`; needs the extra `trio`.

    from impl.trio import CheckpointBarrier

Everything else of `impl` that opens no section by itself works with it as it is: the ledger, the loader, the cuts.
"""

from __future__ import annotations

from cleancut_leaf.extras import with_its_extra

try:
    from .barrier.trio_barrier import CheckpointBarrier
    from .barrier.trio_sections import CheckpointSection, ImmediateSection, MutationSection
except ModuleNotFoundError as missing:
    raise with_its_extra(missing, "impl.trio") from missing

__all__ = ["CheckpointBarrier", "CheckpointSection", "ImmediateSection", "MutationSection"]
