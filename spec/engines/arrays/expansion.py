"""A run of states expanded: what they lead to, what is new among that, and what breaks.

All instances are looked at in all states at once. What they lead to is put in the order of the reference engine, state
by state and in each the instances in the order of the text, so that the same states get the same numbers and the first
thing that breaks is the one the reference engine meets first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ...language.packing import Field
from ...language.scalar_checks import claims_by_property, faults, rises
from ...language.scalar_form import ScalarModel
from ...language.scalar_nodes import Node, in_order
from ..retrace import Finding
from .chunk import Chunk, Constants
from .known import Known
from .layout import Layout, laid_out

BRANCHES: Final = 12
"""Transitions of a state for which memory is set aside; runs that have more are halved."""


@dataclass(frozen=True)
class Unit:
    """What an instance does to one unit of a state: bits that stay, bits that are set, values that are put in."""

    place: int
    kept: int
    constant: int
    values: tuple[tuple[Node, int, Field], ...]
    """Each with how far left it goes, and its field."""


@dataclass(frozen=True)
class Taken:
    """An instance of an action, as it is taken in many states."""

    units: tuple[Unit, ...]
    fault: Node
    rises: Node
    order: tuple[Node, ...]
    """All nodes that are needed to take it."""
    done: tuple[Node, ...]
    """Those that no later instance needs."""


class Plan:
    """What is worked out for a model, and in which order: made once, before the search."""

    def __init__(self, form: ScalarModel, wanted: Iterable[str], progress: bool) -> None:
        self.form, self.progress = form, progress
        chosen = set(wanted)
        true = form.nodes.true

        def whole(at: str | None, taken: tuple[str, int | None] | None = None) -> Node:
            named = claims_by_property(form, at, taken)
            return form.nodes.all_of(node for name, node in named.items() if name in chosen)

        # What must hold in every state (None), as an action is taken, and as one instance of it is.
        self.whole = {at: whole(at) for at in dict.fromkeys(c.at for c in form.claims if c.taken is None)}
        self.whole = {at: node for at, node in self.whole.items() if node is not true}
        taken = {c.taken for c in form.claims}
        steps = [(n, (i.action, i.index)) for n, i in enumerate(form.instances) if (i.action, i.index) in taken]
        self.of_steps = {number: node for number, by in steps if (node := whole(None, by)) is not true}
        self.premises = [(i, w.at, w.occurs) for i, w in enumerate(form.witnesses) if w.property in chosen]
        self.numbers: dict[str, list[int]] = defaultdict(list)
        for number, instance in enumerate(form.instances):
            self.numbers[instance.action].append(number)
        wrong = [faults(form, instance) for instance in form.instances]
        onward = [rises(form, instance) if progress else true for instance in form.instances]
        self.finished = form.finished if progress else None
        guards = [instance.guard for instance in form.instances]
        first = [form.misread, *guards, *([self.finished] if self.finished is not None else [])]
        self.first = tuple(in_order(first))
        assigned = [list(instance.assignments.values()) for instance in form.instances]
        orders = [
            tuple(in_order([*values, fault, up])) for values, fault, up in zip(assigned, wrong, onward, strict=True)
        ]
        claimed = [*self.whole.values(), *self.of_steps.values(), *(occurs for _, _, occurs in self.premises)]
        self.layout = laid_out(form, [*first, *(n for order in orders for n in order), *claimed])
        last = {node: number for number, order in enumerate(orders) for node in order}
        kept = set(in_order([*(node for at, node in self.whole.items() if at is not None), *self.of_steps.values()]))
        done: dict[int, list[Node]] = defaultdict(list)
        for node, number in last.items():
            if node not in kept:
                done[number].append(node)
        self.unneeded = tuple(node for node in self.first if node not in last and node not in kept)
        self.instances = [
            Taken(self.units(number), wrong[number], onward[number], orders[number], tuple(done[number]))
            for number in range(len(form.instances))
        ]
        self.nodes = len({*self.first, *last})

    def units(self, number: int) -> tuple[Unit, ...]:
        """What an instance changes, unit by unit."""
        layout, by_unit = self.layout, defaultdict[int, list[tuple[Node, int, Field]]](list)
        for position, node in self.form.instances[number].assignments.items():
            place, shift, element = layout.place(position)
            if element.bits:
                by_unit[place].append((node, shift, element))
        units = []
        for place, parts in by_unit.items():
            cleared = constant = 0
            values = []
            for node, shift, element in parts:
                cleared |= element.mask << shift
                if node.is_constant:
                    constant |= (node.value - element.low) << shift
                else:
                    values.append((node, shift, element))
            units.append(Unit(place, layout.wrapped(~cleared), layout.wrapped(constant), tuple(values)))
        return tuple(units)

    def row_bytes(self) -> int:
        """Bytes that the work on one state takes, by and large."""
        transition = 4 * 8 * self.layout.words + 100
        return self.nodes * self.layout.unit // 8 + 3 * len(self.instances) + BRANCHES * transition


@dataclass
class Watch:
    """What was counted and not met so far."""

    taken: list[int]
    """How often each instance was taken."""
    missing: list[int]
    """For each premise, whether it has not occurred yet."""


@dataclass(frozen=True)
class Expansion:
    """What came of expanding a run of states."""

    transitions: int
    stalled: int = -1
    """The first of the states that cannot go on and has not ended, or -1."""
    finding: Finding | None = None
    """Of what breaks one step on, what comes first in the order of the search."""
    fault: tuple[int, int] | None = None
    """A state and an instance (or -1) where the text itself is wrong; then nothing else is said."""


class TooMany(Exception):
    """A run of states leads to more transitions than memory was set aside for."""


class Expander:
    """Expands runs of states; see `expand`."""

    def __init__(self, plan: Plan, known: Known, watch: Watch, most: int) -> None:
        self.plan, self.known, self.watch, self.most = plan, known, watch, most
        self.layout: Layout = plan.layout
        self.constants = Constants(plan.layout, known.device)
        self.count_type = torch.int8 if len(plan.instances) < 128 else torch.int16

    def begin(self, words: list[int]) -> bool:
        """Put the initial state in; whether it keeps all that is wanted."""
        known = self.known
        known.make_room(1)
        row = torch.tensor([words], dtype=torch.int64, device=known.device)
        known.add(row, torch.tensor([-1], dtype=torch.int32, device=known.device))
        return self.broken(0) < 0

    def expand(self, first: int, last: int, depth: int) -> list[Expansion]:
        """Expand the states from `first` up to `last`, all at once or, where they lead to very many, in halves."""
        try:
            return [self.whole(first, last, depth)]
        except TooMany:
            # Left first: what is being handled keeps all tensors of the whole run, and the halves need their memory.
            pass
        middle = (first + last) // 2
        return [*self.expand(first, middle, depth), *self.expand(middle, last, depth)]

    def whole(self, first: int, last: int, depth: int) -> Expansion:
        """Expand the states from `first` up to `last` at once."""
        run = _Run(self, first, last)
        run.find()
        fault = run.fault()
        if fault is not None:
            return Expansion(0, fault=fault)
        self.known.make_room(run.transitions)
        for number, times in enumerate(run.times):
            self.watch.taken[number] += times
        self.meet_before(run)
        forbidden = run.first_where(run.forbidden())
        falls = run.first_where(run.falls)
        stalled = run.stalled()
        before = self.known.count
        new = self.known.add(run.following, run.origins + first)
        broken = self.broken(before)
        met: list[tuple[int, int, Finding]] = []
        for where, of_progress in ((forbidden, False), (falls, True)):
            if where is not None:
                at, row, number = where
                met.append((at, int(of_progress), Finding(depth + 1, row, number, of_progress)))
        if broken >= 0:
            met.append((int(new[broken - before]), 2, Finding(depth + 1, broken, None, False)))
        finding = min(met, key=lambda item: item[:2])[2] if met else None
        return Expansion(run.transitions, stalled, finding)

    def broken(self, before: int) -> int:
        """The first state from that number on that a property wanted forbids, or -1."""
        known, step = self.known, self.most
        found = -1
        for first in range(before, known.count, step):
            chunk = self.chunk(first, min(first + step, known.count))
            for number, at, occurs in self.plan.premises:
                if at is None and self.watch.missing[number] and chunk.somewhere(chunk.value(occurs)):
                    self.watch.missing[number] = 0
            holds = self.plan.whole.get(None)
            if holds is not None and found < 0:
                wrong = ~chunk.value(holds)
                if chunk.somewhere(wrong):
                    found = first + int(wrong.nonzero()[0])
        return found

    def chunk(self, first: int, last: int) -> Chunk:
        return Chunk(self.layout, self.constants, self.known.states[first:last])

    def meet_before(self, run: _Run) -> None:
        """Cross off the premises of claims about actions that are to be taken here."""
        for number, at, occurs in self.plan.premises:
            if at is not None and self.watch.missing[number]:
                enabled = run.enabled(at)
                if enabled is not None and run.chunk.somewhere(enabled & run.chunk.value(occurs)):
                    self.watch.missing[number] = 0


Suspects = list[tuple[int, Tensor]]
"""Instances, each with the states in which something about it breaks."""


class _Run:
    """One run of states while it is expanded."""

    def __init__(self, expander: Expander, first: int, last: int) -> None:
        self.expander, self.plan, self.first = expander, expander.plan, first
        self.chunk = expander.chunk(first, last)
        self.rows_here = last - first
        self.device = expander.known.device
        self.falls: Suspects = []
        self.faults: Suspects = []

    def find(self) -> None:
        """Which instances are enabled where, and what they lead to."""
        plan, chunk, length = self.plan, self.chunk, self.chunk.length
        chunk.work_out(plan.first)
        instances = plan.form.instances
        many = len(instances)
        self.masks = torch.empty((many, length), dtype=torch.bool, device=self.device)
        counts = self.masks.view(torch.int8)
        # How many instances of a state come before each instance: its place among the transitions of the state.
        ranks = torch.empty((many, length), dtype=self.expander.count_type, device=self.device)
        total = torch.zeros(length, dtype=self.expander.count_type, device=self.device)
        for number, instance in enumerate(instances):
            self.masks[number] = chunk.value(instance.guard)
            self.masks[number, self.rows_here :] = False
            ranks[number] = total
            total += counts[number]
        self.unfinished = None if plan.finished is None else ~chunk.value(plan.finished)
        if self.unfinished is not None:
            self.unfinished[self.rows_here :] = False
        chunk.forget(plan.unneeded)
        flat = torch.nonzero(self.masks.view(-1)).squeeze(1)
        bounds = torch.arange(many + 1, device=self.device) * length
        self.bounds: list[int] = torch.searchsorted(flat, bounds).tolist()
        self.times = [b - a for a, b in zip(self.bounds, self.bounds[1:], strict=False)]
        self.transitions = self.bounds[-1]
        if self.transitions > BRANCHES * self.expander.most and self.rows_here > 1:
            raise TooMany
        rows = torch.empty_like(flat)
        for number in range(many):
            low, high = self.bounds[number], self.bounds[number + 1]
            torch.sub(flat[low:high], number * length, out=rows[low:high])
        starts = torch.cumsum(total, 0, dtype=torch.int64) - total
        places = starts.index_select(0, rows) + ranks.view(-1).index_select(0, flat)
        self.places, self.rows = places, rows
        del ranks, flat
        after = chunk.words.index_select(0, rows)
        units = after.view(chunk.layout.dtype)
        for number, taken in enumerate(plan.instances):
            low, high = self.bounds[number], self.bounds[number + 1]
            if low < high:
                self.take(number, taken, units[low:high], rows[low:high])
            chunk.forget(taken.done)
        self.following = torch.empty_like(after)
        self.following.index_copy_(0, places, after)
        origins = torch.empty(self.transitions, dtype=torch.int32, device=self.device)
        self.origins = origins.index_copy_(0, places, rows.int())

    def take(self, number: int, taken: Taken, units: Tensor, rows: Tensor) -> None:
        """Change the copies of the states in which an instance is enabled to what it leads to."""
        chunk, nodes = self.chunk, self.plan.form.nodes
        chunk.work_out(taken.order)
        for unit in taken.units:
            column = units[:, unit.place]
            value = column & unit.kept if unit.kept else torch.zeros_like(column)
            if unit.constant:
                value |= unit.constant
            if unit.values:
                value |= chunk.put(unit.values).index_select(0, rows)
            column.copy_(value)
        if taken.fault is not nodes.false:
            self.faults.append((number, self.masks[number] & chunk.value(taken.fault)))
        if taken.rises is not nodes.true:
            self.falls.append((number, self.masks[number] & ~chunk.value(taken.rises)))

    # ------------------------------------------------------------------------------------- What breaks

    def first_where(self, suspects: Suspects) -> tuple[int, int, int] | None:
        """The first transition that is suspected: its place in this run, its state and its instance."""
        met = [(int(mask.nonzero()[0]), number) for number, mask in suspects if self.chunk.somewhere(mask)]
        if not met:
            return None
        row, number = min(met)
        low, high = self.bounds[number], self.bounds[number + 1]
        at = int(torch.searchsorted(self.rows[low:high], row))
        return int(self.places[low + at]), self.first + row, number

    def fault(self) -> tuple[int, int] | None:
        """The first state and instance where the text is wrong; -1 for a guard or a claim of the state."""
        suspects = list(self.faults)
        misread = self.plan.form.misread
        wrong = [] if misread is self.plan.form.nodes.false else self.chunk.value(misread).nonzero()[:1].tolist()
        found = self.first_where(suspects)
        rows = [(self.first + wrong[0][0], -1)] if wrong else []
        return min([*rows, *([found[1:]] if found else [])], default=None)

    def enabled(self, action: str) -> Tensor | None:
        """Where some instance of an action is enabled; None where the scope has none."""
        numbers = self.plan.numbers.get(action)
        return self.masks[numbers[0] : numbers[-1] + 1].any(0) if numbers else None

    def forbidden(self) -> Suspects:
        """The instances that a property wanted forbids where they are to be taken."""
        found: Suspects = []
        for action, holds in self.plan.whole.items():
            if action is None or not any(self.times[n] for n in self.plan.numbers.get(action, ())):
                continue
            wrong = ~self.chunk.value(holds)
            found += [(n, self.masks[n] & wrong) for n in self.plan.numbers[action]]
        for number, holds in self.plan.of_steps.items():
            if self.times[number]:
                found.append((number, self.masks[number] & ~self.chunk.value(holds)))
        return found

    def stalled(self) -> int:
        """The first state that can take no action of progress and has not ended, or -1."""
        if self.unfinished is None:
            return -1
        stuck = self.unfinished
        for number, instance in enumerate(self.plan.form.instances):
            if instance.progress:
                stuck = stuck & ~self.masks[number]
        return self.first + int(stuck.nonzero()[0]) if self.chunk.somewhere(stuck) else -1
