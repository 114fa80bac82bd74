"""docs/exploring.md and docs/neighbours.md name the cause of a deadlock that the trace of the explorer shows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import interleavings

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "exploring.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## A barrier on a Condition that one cancellation stops") : PAGE.index("## In a test suite")]


def of_the_page() -> dict[str, Any]:
    """The names that the first block of the section makes; its searches are run by tests/test_docs.py."""
    names: dict[str, Any] = {"asyncio": asyncio, "interleavings": interleavings, "__name__": "page"}
    block = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)[0]
    exec(compile(block.partition("\n\nprint(")[0], "the block of the page", "exec"), names)
    return names


def cancelled_steps(result: Any) -> list[tuple[str, str]]:
    """Task and function of each cancellation in the trace."""
    lines = result.counterexample.describe().splitlines()
    return [(line.split()[2].rstrip(":"), line.split()[-1]) for line in lines if " cancel " in line]


def test_case_G43_the_page_names_the_step_that_the_trace_shows() -> None:
    """The text blamed the await on the way out; whoever mended that had the same deadlock still."""
    names = of_the_page()
    result = interleavings.explore(names["writers_and_a_checkpoint"](names["ConditionBarrier"]), cancels=1)
    assert (str(result.verdict), cancelled_steps(result)) == ("fails", [("saver", "ConditionBarrier.checkpoint")])
    assert "cancelled: saver in ConditionBarrier.checkpoint" in SECTION
    assert result.failure is not None
    blocked = {task["task"]: task["at"] for task in result.failure.details["blocked"]}
    assert blocked.keys() == {"main", "writer-2"}
    assert "mutation" in blocked["writer-2"]
    text = " ".join(SECTION.split())
    assert "The saver is cancelled while it waits for the writers." in text
    neighbours = " ".join((DOCS / "neighbours.md").read_text(encoding="utf-8").split())
    assert "leaves the flag up when a checkpoint is cancelled in its wait" in neighbours
    for page in (text, neighbours):
        assert not re.search(r"await (?:on the way out|in the `finally`)[^.]*(?:deadlock|never given back)", page)


def test_case_G43_mending_the_way_out_alone_leaves_the_deadlock() -> None:
    """The cause that the page named before, as a mutant: a barrier that leaves without an await is stopped as well."""
    names = of_the_page()

    @asynccontextmanager
    async def mutation(self: Any) -> AsyncIterator[None]:
        async with self.condition:
            await self.condition.wait_for(lambda: not self.checkpointing)
            self.writers += 1
        try:
            yield
        finally:
            self.writers -= 1
            for waiter in self.condition._waiters:  # notify_all without the lock, and so without an await
                if not waiter.done():
                    waiter.set_result(True)

    leaves_at_once = type("LeavesAtOnce", (names["ConditionBarrier"],), {"mutation": mutation})
    result = interleavings.explore(names["writers_and_a_checkpoint"](leaves_at_once), cancels=1)
    assert (str(result.verdict), cancelled_steps(result)[0][0]) == ("fails", "saver")
