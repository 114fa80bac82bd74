"""The order of fewest preemptions: the first counterexample interrupts tasks as seldom as any, and is as short as that.

A choice is a preemption when the task that made the last step could go on at once and something else happens instead.
A schedule without one lets each task run until it has to wait; a bug that needs one preemption is easier to understand
than the shortest trace with five. The cost of a choice depends on who ran last, so a state is visited once for each
task that may have, and counted once. After a callback, a timer, a job or a cancellation nobody is interrupted.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from .pruned import Exploration, Search, State

_STEP = "task-step "


@dataclass(slots=True)
class Visit:
    """A state reached with a certain task last: at what price, how far from the start, and from where."""

    state: State
    last: str  # the name of the choice that continues the task which made the last step; empty for any other
    preemptions: int
    depth: int
    before: Visit | None
    via: str

    def keys(self) -> list[str]:
        """Return the choices that lead here."""
        keys: list[str] = []
        visit = self
        while visit.before is not None:
            keys.append(visit.via)
            visit = visit.before
        keys.reverse()
        return keys


class FewestPreemptions(Search):
    """Dijkstra's search: cheapest first, then shortest, then in the order of the search by breadth."""

    _firsts: dict[int, Visit]

    def keys_to(self, state: State) -> list[str]:
        """Return the cheapest way to a state."""
        return self._firsts[id(state)].keys()

    def run(self) -> Exploration:
        """Search until a failure, a bound, or the end. Raises what `Search.run` raises."""
        found, limits = self.found, self._limits
        self._firsts = {}
        settled: set[tuple[int, str]] = set()
        number = 0
        heap: list[tuple[int, int, int, Visit]] = [(0, 0, 0, Visit(self._root(), "", 0, 0, None, ""))]
        while heap:
            visit = heapq.heappop(heap)[3]
            state = visit.state
            if (id(state), visit.last) in settled:
                continue
            settled.add((id(state), visit.last))
            if id(state) not in self._firsts:
                if limits.max_states is not None and len(found.states) >= limits.max_states:
                    found.stopped = f"max_states={limits.max_states} reached"
                    return found
                self._firsts[id(state)] = visit
                found.transitions += len(state.options)
                if self._visit(state, None if visit.before is None else visit.before.state, visit.via):
                    return found
            may_go_on = visit.last in state.names
            for index, key in enumerate(state.options):
                target = state.targets[index]
                if target is None:
                    if limits.out_of_time():
                        found.stopped = f"max_seconds={limits.max_seconds} passed"
                        return found
                    target = self._evaluate(state, index)
                cost = visit.preemptions + (may_go_on and key != visit.last)
                last = key if key.startswith(_STEP) else ""
                number += 1
                reached = Visit(target, last, cost, visit.depth + 1, visit, key)
                heapq.heappush(heap, (cost, reached.depth, number, reached))
            self._report()
        return found
