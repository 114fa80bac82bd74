"""All the owners of states of one search in this process, and what a test does to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spec.engines.compiled import Expanded, Inserted, Kept, Owner, OwnersLost, Plan, Settled


class OwnersHere:
    """They die where `dies(call, times)` says so: in the middle of what is asked, after some owners have done it."""

    def __init__(self, plan: Plan, a_round: int, dies: Callable[[str, int], bool] = lambda call, times: False) -> None:
        self.plan = replace(plan, a_round=a_round)
        self.number = plan.owners
        self.owners = [Owner(self.plan, k) for k in range(self.number)]
        self.levels: list[list[Kept]] = [[] for _ in self.owners]
        self.dies = dies
        self.times = dict.fromkeys(("begin", "expand", "insert", "settle"), 0)
        self.lost: set[int] = set()
        self.replaced = 0

    def perhaps(self, call: str, owner: int) -> None:
        self.times[call] += 1
        if self.dies(call, self.times[call]):
            self.lost.add(owner)
            raise OwnersLost

    def begin(self) -> list[tuple[bool, Inserted]]:
        answers = []
        for k, owner in enumerate(self.owners):
            self.perhaps("begin", k)
            answers.append(owner.begin(self.plan.initial))
        return answers

    def round(self) -> list[tuple[Expanded, Inserted]]:
        sent = []
        for k, owner in enumerate(self.owners):
            self.perhaps("expand", k)
            sent.append(owner.expand())
        answers = []
        for k, owner in enumerate(self.owners):
            self.perhaps("insert", k)
            answers.append((sent[k][0], owner.insert([batches[k] for _, batches in sent])))
        return answers

    def settle(self) -> list[Settled]:
        answers = []
        for k, owner in enumerate(self.owners):
            self.perhaps("settle", k)
            answers.append(owner.settle())
        for levels, (_, kept) in zip(self.levels, answers, strict=True):
            levels.append(kept)
        return [settled for settled, _ in answers]

    def look(self, owner: int, row: int) -> tuple[list[int], int, int]:
        return self.owners[owner].look(row)

    def replace_the_lost(self, settled: Sequence[Settled]) -> None:
        ends = list(settled) or [self.plan.before_anything] * self.number
        for k, end in enumerate(ends):
            if k in self.lost:
                self.owners[k] = Owner(self.plan, k)
                self.owners[k].take_over(self.levels[k], end)
                self.replaced += 1
            else:
                self.owners[k].roll_back(end)
        self.lost.clear()
