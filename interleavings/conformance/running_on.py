"""Takes a controller from where a counterexample has left it to the end of its run, step by step with the machine.

A counterexample of `no_stall` ends where the machine with the variant can do nothing more. Ours can: every action that
the machine enables must then be possible on the controller too, until the run is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

# What the driver does by hand, in the order in which it is tried. Whatever else the machine enables, a retry or the
# end of a group that was given up, the library does by itself; faults, new saves and diverting are not needed.
BY_HAND = (
    *("finish_step", "write_back", "claim", "empty_step", "evict", "abort_stale", "commit_group", "dispatch"),
    *("commit_admission", "pass_gate", "reserve_batch", "drain_pool"),
)
MOST_STEPS = 400


async def run_on(
    controller: Any,
    model: Any,
    state: Callable[[], Any],
    finished: Callable[[Any], Any],
    settle: Callable[[asyncio.Task[Any]], Any],
    refusals: tuple[type[BaseException], ...],
) -> str | None:
    """Take enabled actions until the machine is finished; what stands in the way, or None."""
    for _ in range(MOST_STEPS):
        await settle(asyncio.ensure_future(asyncio.sleep(0)))
        controller.check()
        before = state()
        if finished(before):
            return None
        enabled = {(step.action.name, step.index) for step in model.steps(before)}
        by_hand = sorted((e for e in enabled if e[0] in BY_HAND), key=lambda e: BY_HAND.index(e[0]))
        for action, index in by_hand:
            method = getattr(controller, action)
            step = asyncio.ensure_future(method() if index is None else method(index))
            await settle(step)
            if not step.done():
                step.cancel()
            elif not isinstance(step.exception(), (*refusals, type(None))):
                step.result()
            controller.check()
            if state() != before:
                break
        else:
            await asyncio.sleep(0)
            controller.check()
            if state() == before:
                names = [
                    action if index is None else f"{action}({index})" for action, index in sorted(enabled, key=str)
                ]
                return f"the run stands still, where the machine enables {', '.join(names) or 'nothing'}"
    return f"the run has not ended after {MOST_STEPS} more steps"
