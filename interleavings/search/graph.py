"""Reads the finished state graph: how many schedules it holds, where it turns in circles, what never ends."""

from __future__ import annotations

from collections import deque

from .pruned import State


def successors(state: State) -> list[State]:
    """Return where the choices of a fully expanded state lead, one entry for each choice."""
    return [target for target in state.targets if target is not None]


def count_schedules(states: list[State]) -> int | None:
    """Return the number of paths from the root to an end; None when the graph has a cycle.

    Two choices that lead to the same state are two schedules, as they are when schedules are enumerated.
    """
    waiting = {id(state): 0 for state in states}
    for state in states:
        for target in successors(state):
            waiting[id(target)] += 1
    paths = {id(state): 0 for state in states}
    paths[id(states[0])] = 1
    ready = deque(state for state in states if waiting[id(state)] == 0)
    total = settled = 0
    while ready:
        state = ready.popleft()
        settled += 1
        onwards = successors(state)
        if not onwards:
            total += paths[id(state)]
        for target in onwards:
            paths[id(target)] += paths[id(state)]
            waiting[id(target)] -= 1
            if waiting[id(target)] == 0:
                ready.append(target)
    return total if settled == len(states) else None


def components(states: list[State]) -> list[list[State]]:
    """Return the strongly connected components, each after all that it leads to (Tarjan, without recursion)."""
    found: list[list[State]] = []
    index: dict[int, int] = {}
    lowest: dict[int, int] = {}
    pending: list[State] = []
    on_stack: set[int] = set()
    for start in states:
        if id(start) in index:
            continue
        work = [(start, iter(successors(start)))]
        index[id(start)] = lowest[id(start)] = len(index)
        pending.append(start)
        on_stack.add(id(start))
        while work:
            state, onwards = work[-1]
            target = next(onwards, None)
            if target is None:
                work.pop()
                if work:
                    above = id(work[-1][0])
                    lowest[above] = min(lowest[above], lowest[id(state)])
                if lowest[id(state)] == index[id(state)]:
                    found.append(_pop_component(state, pending, on_stack))
            elif id(target) not in index:
                index[id(target)] = lowest[id(target)] = len(index)
                pending.append(target)
                on_stack.add(id(target))
                work.append((target, iter(successors(target))))
            elif id(target) in on_stack:
                lowest[id(state)] = min(lowest[id(state)], index[id(target)])
    return found


def _pop_component(root: State, pending: list[State], on_stack: set[int]) -> list[State]:
    component: list[State] = []
    while True:
        state = pending.pop()
        on_stack.discard(id(state))
        component.append(state)
        if state is root:
            return component


def circles(states: list[State]) -> list[list[State]]:
    """Return the components in which a schedule can go round."""
    return [
        component
        for component in components(states)
        if len(component) > 1 or any(target is component[0] for target in successors(component[0]))
    ]


def traps(states: list[State]) -> list[State]:
    """Return the states of circles without an exit, first visited first: whoever is there never comes to an end."""
    never = []
    for component in circles(states):
        inside = {id(state) for state in component}
        if all(id(target) in inside for state in component for target in successors(state)):
            never.extend(component)
    order = {id(state): number for number, state in enumerate(states)}
    return sorted(never, key=lambda state: order[id(state)])


def choices_of_a_circle(states: list[State]) -> list[str]:
    """Return the names of the choices that lead round in one circle; empty when there is none."""
    for component in circles(states):
        inside = {id(state) for state in component}
        names = [
            option
            for state in component
            for option, target in zip(state.options, state.targets, strict=True)
            if target is not None and id(target) in inside
        ]
        return sorted(set(names))
    return []
