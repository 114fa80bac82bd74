"""`@pytest.mark.every_schedule(cancels=1)`: runs an async test under the explorer instead of once.

The test function is the program: it is called afresh for every run, with the same fixture values, so fixtures should
hand out factories rather than objects that runs change. The marker takes the keyword arguments of `explore`. It works
beside pytest-asyncio in either mode: a marked test is collected as a synchronous one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Generator
from typing import Any

import pytest

MARKER = "every_schedule"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", f"{MARKER}(**options): run an async test through every schedule of its tasks")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> Generator[None, Any, Any]:
    """Make marked async tests synchronous, before another plugin turns them into coroutine items.

    Last of the wrappers means nearest to the collection itself: pytest-asyncio then sees an ordinary function.
    """
    items = yield
    for item in items if isinstance(items, list) else [items]:
        if isinstance(item, pytest.Function) and item.get_closest_marker(MARKER) is not None:
            if not inspect.iscoroutinefunction(item.obj):
                raise pytest.UsageError(f"{item.nodeid}: {MARKER} marks async tests only; this one is not async")
            item.obj = _explored(item.obj, item)
    return items


def _explored(function: Any, item: pytest.Function) -> Any:
    @functools.wraps(function)
    def run(*args: Any, **fixtures: Any) -> None:
        from interleavings.exploring import explore

        marker = item.get_closest_marker(MARKER)
        options: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
        program = functools.partial(function, *args, **fixtures)
        explore(program, **options).assert_holds()

    return run
