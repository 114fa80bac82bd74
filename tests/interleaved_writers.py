"""Two writers in one directory whose lock excludes nobody, in any order of their file calls, on a disk in memory.

Each writer is a thread that runs only while it has the turn, so an order is a list of (writer, number of calls) and the
same order gives the same run. What must hold afterwards is `broken_rule`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, cast

from simulated_disk import SimulatedDisk
from store_situations import CALLS, publish

from impl import CheckpointCorrupt, StoreBusy
from impl.store import (
    CheckpointReader,
    CheckpointStore,
    Files,
    Handle,
    WriterIdentity,
    WriterRecord,
    read_front,
    scan,
    strict_json,
)

ROOT = Path("/disk/run")
MakeStore = Callable[[str, Files, int, WriterIdentity], CheckpointStore]

__all__ = ["ROOT", "Outcome", "broken_rule", "every_order_with_two_switches", "run", "unlocked_disk"]


class UnlockedDisk(SimulatedDisk):
    """Its lock excludes nobody, as where the file was removed under its holder, or where flock does nothing."""

    def lock(self, path: str) -> Handle:
        handle = super().lock(path)
        self._locked.clear()
        return handle


def unlocked_disk() -> UnlockedDisk:
    """A disk on which an earlier run has published a checkpoint and left half of another."""
    disk = UnlockedDisk((("disk", ()),))
    store = CheckpointStore(str(ROOT), disk, 1, _identity("earlier"))
    store.open()
    publish(store, 0, "earlier 0")
    store.close()
    disk.mkdir(f"{ROOT}/.staging-2-dead")
    disk.close(disk.open_new(f"{ROOT}/.staging-2-dead/words.json"))
    return disk


def _identity(name: str) -> WriterIdentity:
    """All have one holder, as two containers of one image may: only the token tells them apart."""
    tokens = count()
    return WriterIdentity("process 1 on host", lambda: f"{name}{next(tokens)}")


@dataclass
class Outcome:
    """What one writer was told."""

    claimed: str | None = None
    told: list[tuple[str, str]] = field(default_factory=list)
    error: BaseException | None = None


class Turns:
    """One writer at a time makes its calls, as many as it was given."""

    def __init__(self, bodies: dict[str, Callable[[Files], None]], disk: Any) -> None:
        self._left: dict[str, float] = dict.fromkeys(bodies, 0)
        self._go = {name: threading.Semaphore(0) for name in bodies}
        self._back = threading.Semaphore(0)
        self.ended = dict.fromkeys(bodies, False)
        self._threads = [threading.Thread(target=self._live, args=(name, body, disk)) for name, body in bodies.items()]
        for thread in self._threads:
            thread.start()

    def give(self, name: str, calls: float) -> None:
        """Let one writer go on for so many calls, or to its end."""
        if calls and not self.ended[name]:
            self._left[name] = calls
            self._go[name].release()
            self._back.acquire()

    def finish(self) -> None:
        for name in self.ended:
            self.give(name, inf)
        for thread in self._threads:
            thread.join()

    def _live(self, name: str, body: Callable[[Files], None], disk: Any) -> None:
        self._go[name].acquire()
        body(cast(Files, _InTurn(self, name, disk)))
        self.ended[name] = True
        self._back.release()

    def before_call(self, name: str) -> None:
        if self.ended[name]:
            return  # a store that is collected later gives its lock back
        if not self._left[name]:
            self._back.release()
            self._go[name].acquire()
        self._left[name] -= 1


class _InTurn:
    def __init__(self, turns: Turns, name: str, disk: Any) -> None:
        self._turns, self._name, self._disk = turns, name, disk

    def __getattr__(self, call: str) -> Callable[..., Any]:
        if call not in CALLS:
            raise AttributeError(call)

        def in_turn(*arguments: Any) -> Any:
            self._turns.before_call(self._name)
            return getattr(self._disk, call)(*arguments)

        return in_turn


def run(
    order: Sequence[tuple[str, float]],
    *,
    saves: int = 1,
    make: MakeStore = CheckpointStore,
    disk: UnlockedDisk | None = None,
) -> tuple[UnlockedDisk, dict[str, Outcome], bool]:
    """Two writers "a" and "b" that open and save; the disk, what they were told, whether the order had its full length.

    Each ends with its first error, as a run does.
    """
    disk = unlocked_disk() if disk is None else disk
    outcomes = {"a": Outcome(), "b": Outcome()}

    def live(name: str) -> Callable[[Files], None]:
        def body(files: Files) -> None:
            outcome, identity = outcomes[name], _identity(name)
            store = make(str(ROOT), files, 1, identity)
            try:
                store.open()
                outcome.claimed = store.claim_token
                for number in range(saves):
                    text = f"{name} {number}"
                    # Steps differ between the two, so that one sequence would not be one name.
                    outcome.told.append((publish(store, 1 + (name == "b"), text).manifest.name, text))
            except Exception as error:
                outcome.error = error

        return body

    turns = Turns({name: live(name) for name in outcomes}, disk)
    full = True
    for name, calls in order:
        full = full and not turns.ended[name]
        turns.give(name, calls)
    turns.finish()
    return disk, outcomes, full


def every_order_with_two_switches(thinned: int = 1) -> Iterator[tuple[tuple[str, float], ...]]:
    """First "a" makes any number of calls, then "b" any number, then "a" goes to its end, and "b" to its own.

    `thinned` takes every so-manieth number for "b", beginning with another one for each of "a".
    """
    alone = next(calls for calls in count(1) if not run((("a", calls), ("a", 1)))[2])
    for first in range(alone + 1):
        for second in range(1 + first % thinned, alone + 1, thinned):
            yield (("a", first), ("b", second), ("a", inf))


def broken_rule(disk: UnlockedDisk, outcomes: dict[str, Outcome]) -> str | None:
    """The first rule that a run broke, with what is wrong; None if it kept them all."""
    try:
        candidates = scan(disk, str(ROOT)).candidates
    except CheckpointCorrupt as error:
        return f"a_resume_exists: {error}"
    texts: dict[str, str] = {}
    for candidate in candidates:
        reader = CheckpointReader(disk, str(ROOT), candidate.name)
        try:
            reader.verify()
        except CheckpointCorrupt as error:
            return f"published_is_whole: {error}"
        document = cast(dict[str, str], reader.reader().read_json("words.json"))
        texts[candidate.name] = document["text"]
    told = [entry for outcome in outcomes.values() for entry in outcome.told]
    numbers = [int(name.rpartition("-")[2]) for name, _ in told]
    if len(set(numbers)) < len(numbers):
        return f"one_sequence_one_save: {told}"
    if not candidates or candidates[0].sequence < max(numbers, default=1):
        return f"acknowledged_is_durable: {told}, and there is {list(texts)}"
    for name, text in told:
        if texts.get(name, text) != text:
            return f"acknowledged_is_durable: {name} holds {texts[name]!r} and not {text!r}"
    handle = disk.open_read(f"{ROOT}/WRITER")
    last = strict_json.decode(read_front(disk, handle, 1 << 16), WriterRecord, "WRITER").token
    for name, outcome in outcomes.items():
        if outcome.error is None:
            continue
        if last.startswith(name):
            return f"the_live_writer_loses_no_save: {outcome.error!r}"
        if not isinstance(outcome.error, StoreBusy):
            return f"who_was_overtaken_is_told_so: {outcome.error!r}"
    return _broken_by_the_next(disk, max(numbers, default=1))


def _broken_by_the_next(disk: UnlockedDisk, highest: int) -> str | None:
    """The next writer goes on above everything, and leaves nothing of the two behind."""
    store = CheckpointStore(str(ROOT), disk, 1, _identity("next"))
    store.open()
    sequence = publish(store, 9).manifest.sequence
    store.close()
    if sequence <= highest:
        return f"the_next_goes_on: {sequence} after {highest}"
    left = [name for name in disk.listdir(str(ROOT)) if name not in (".LOCK", "WRITER", "LATEST")]
    return None if left == [f"step_9-{sequence}"] else f"nothing_is_left: {left}"
