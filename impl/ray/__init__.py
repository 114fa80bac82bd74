"""The barrier as a Ray actor: writers and checkpointers in any process of a cluster (extra `ray`).

    barrier = RayBarrier.start(make_operations, lease=10.0)          # the actor; hand `barrier` to tasks and actors
    async with barrier.mutation("group_commits") as cut:             # shared, in any process
        await cut.call("commit", group, rows)                        # one operation, as a whole or not at all
    async with barrier.checkpoint() as cut:                          # exclusive
        state = await cut.call("snapshot")

A slot is a lease: see docs/leases.md. Imported by its own name alone; `import impl` does not import ray.
"""

from __future__ import annotations

from cleancut_leaf.extras import with_its_extra

from ..leases import Fence, FenceOrder, Token

try:
    from .barrier import RayBarrier, RayBarrierStatistics
    from .sections import RayCut
except ModuleNotFoundError as missing:
    raise with_its_extra(missing, "impl.ray") from missing

__all__ = ["Fence", "FenceOrder", "RayBarrier", "RayBarrierStatistics", "RayCut", "Token"]
