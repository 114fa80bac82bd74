"""A trace of any length, as a run in order writes it, restarted now and then, without running anything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from impl.tracing import SCHEMA, VERSION, Event, Header

ROLLOUT, TRAIN = "rollout-pump", "train-pump"


class LongTrace:
    """Writes the events of a run over `prompts` prompts an epoch, saving every `save_every` steps.

    Groups become ready in a random order; every `restart_every` steps the process dies after a save and another one
    goes on from it.
    """

    def __init__(self, batch_size: int, lookahead: int, save_every: int = 5, restart_every: int = 50) -> None:
        self._size = batch_size
        self._lookahead = lookahead
        self._save_every = save_every
        self._restart_every = restart_every
        self._batches = 50
        self._random = random.Random(0)
        self._number = self._section = self._time = 0
        self._encode = msgspec.json.Encoder().encode

    def write(self, path: Path, events: int) -> int:
        """Write at least so many events; how many there are."""
        written = 0
        with path.open("wb") as file:
            for record in self._run():
                file.write(self._encode(record) + b"\n")
                written += isinstance(record, Event)
                if written >= events:
                    break
        return written

    def _header(self) -> Header:
        self._number = self._section = 0
        identity: dict[str, Any] = {
            "dataset_length": self._batches * self._size, "dataset_digest": "", "seed": 0, "batch_size": self._size,
            "generations": 8, "sampler": {"name": "in_order", "parameters": {"lookahead": self._lookahead}},
            "capacity": self._size * (self._lookahead + 1), "remainder": "train", "recovery": True,
        }  # fmt: skip
        now = self._time * 1e-4
        return Header(SCHEMA, VERSION, f"{self._random.getrandbits(128):032x}", identity, 1, "host", now, now)

    def _event(self, action: str, task: str | None, /, **fields: Any) -> Event:
        self._time += 1
        self._number += 1
        return Event(self._number - 1, self._time * 1e-4, self._time * 1e-4, action, task, fields)

    def _in_slot(self, task: str, kind: str, *inside: tuple[str, dict[str, Any]]) -> Iterator[Event]:
        self._section += 1
        section = {"section": self._section, "task": task, "kind": kind}
        yield self._event("request_slot", task, **section)
        yield self._event("enter_slot", task, **section)
        for action, fields in inside:
            yield self._event(action, task, **fields)
        yield self._event("leave_slot", task, **section)

    def _run(self) -> Iterator[Event | Header]:
        yield self._header()
        batch = version = sequence = 0
        generating: list[int] = []
        while True:
            # Admit as far as the gate lets, then let the generations of the oldest step end, in any order.
            while batch <= version + self._lookahead:
                generating.extend(self._groups(batch))
                yield from self._admit(batch)
                batch += 1
            due = self._groups(version)
            self._random.shuffle(due)
            for group in due:
                task = f"generate-{group}"
                yield from self._in_slot(task, "group_commits", ("commit_group", {"group": group}))
                yield self._event("remove_committed", task, group=group)
                generating.remove(group)
            groups = {"groups": self._groups(version), "step": version}
            yield from self._in_slot(TRAIN, "step_claims", ("claim", groups))
            yield from self._in_slot(TRAIN, "step_finishes", ("finish_step", groups))
            version += 1
            if version % self._save_every == 0:
                sequence += 1
                yield from self._save(version, sequence)
                if version % self._restart_every == 0:
                    yield self._header()
                    yield from self._restore(version, sequence, batch, generating)
                    for group in generating:
                        yield from self._in_slot(ROLLOUT, "dispatches", ("dispatch", {"group": group}))

    def _groups(self, batch: int) -> list[int]:
        return list(range(batch * self._size, (batch + 1) * self._size))

    def _key(self, group: int) -> tuple[int, int]:
        return divmod(group, self._batches * self._size)

    def _admit(self, batch: int) -> Iterator[Event]:
        groups = self._groups(batch)
        reserved: dict[str, Any] = {"admission": batch, "groups": groups, "keys": [self._key(g) for g in groups]}
        actions = [("reserve_batch", {**reserved, "reason": None})]
        if (batch + 1) % self._batches == 0:
            actions.append(("end_epoch", {"epoch": batch // self._batches}))
        yield from self._in_slot(ROLLOUT, "prompt_reservations", *actions)
        yield self._event("pass_gate", ROLLOUT, admission=batch)
        admitted = {"admission": batch, "groups": groups, "step": batch}
        yield from self._in_slot(ROLLOUT, "admissions", ("commit_admission", admitted))
        for group in groups:
            yield from self._in_slot(ROLLOUT, "dispatches", ("dispatch", {"group": group}))

    def _save(self, version: int, sequence: int) -> Iterator[Event]:
        yield from self._cut(*(f"read_{part}" for part in ("sampler", "loader", "pool", "buffer", "ledger", "trainer")))
        yield self._event(
            "publish", None, name=f"step_{version}-{sequence}", sequence=sequence, step=version, kind="full"
        )

    def _cut(self, *inside: str) -> Iterator[Event]:
        self._section += 1
        section = {"section": self._section, "task": TRAIN, "kind": "checkpoint"}
        yield self._event("request_cut", TRAIN, **section)
        yield self._event("open_cut", TRAIN, **section)
        for action in inside:
            yield self._event(action, TRAIN)
        yield self._event("close_cut", TRAIN, **section)

    def _restore(self, version: int, sequence: int, batch: int, pending: list[int]) -> Iterator[Event]:
        epoch, batches = divmod(batch, self._batches)
        section = {"section": 0, "task": ROLLOUT, "kind": "checkpoint"}
        yield self._event("request_cut", ROLLOUT, **section)
        yield self._event("open_cut", ROLLOUT, **section)
        yield self._event(
            "restore", ROLLOUT,
            name=f"step_{version}-{sequence}", sequence=sequence, step=version, version=version, cursor=batch - 1,
            shortfalls=[], dropped=0, loader=(epoch, batches * self._size, False),
            pending=[(g, *self._key(g), "admitted", g // self._size, g // self._size) for g in pending],
            ready=[], spares=[],
        )  # fmt: skip
        yield self._event("close_cut", ROLLOUT, **section)
