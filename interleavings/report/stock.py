"""Asks whether stock asyncio can show a failure: first in, first out, with only the environment's choices open.

The environment chooses when a task is cancelled, when a timer fires and when an executor's job completes; ready
handles run in the order in which they became ready. The search is bounded, and `unknown` is its honest third answer.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import Diverged, ForbiddenCall, SeenLate, Unwalkable
from ..runtime.result import Failure, Stock
from ..search.graph import traps
from ..search.pruned import Search
from ..search.setting import Limits, Setting
from .counterexample import NO_PROGRESS

_MAX_STATES = 3_000


def stock_label(setting: Setting, failure: Failure) -> Stock:
    """Return whether a failure of this kind and property is reachable in FIFO order."""
    rules = replace(setting.rules, fifo=True, atomic_callbacks=False, identical=None)
    search = Search(setting.under(rules), Limits(max_states=_MAX_STATES), stop_at=failure.same_as)
    try:
        found = search.run()
    except SeenLate as error:
        return stock_label(replace(setting, rules=replace(setting.rules, sights=rules.sights | error.sights)), failure)
    except (Diverged, ForbiddenCall, Unwalkable):
        return "unknown"
    if found.failing is not None:
        return "yes"
    if not found.complete:
        return "unknown"
    if failure.kind == NO_PROGRESS and traps(found.states):
        return "yes"
    return "no"
