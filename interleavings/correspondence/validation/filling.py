"""Events by which prompts come into the run, and by which one takes the place of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cleancut_leaf.words import counted
from impl.tracing import Event
from spec.language.expression import Vector
from spec.machines.cut.scope import IN_ORDER
from spec.machines.cut.state import DROPPED, READY

from .open_state import ANY_NUMBER
from .protocol import Protocol


class Filling:
    """The rules of the loader, the spare pool, and places that have become free."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._rules: dict[str, Callable[[Event], None]] = {
            **dict.fromkeys(("reserve_batch", "divert_batch"), self._handing_out),
            "drain_pool": self._drain_pool,
            "end_epoch": self._end_epoch,
            "substitute": self._substitute,
            "borrow": self._borrow,
            "shrink": self._shrink,
        }

    def actions(self) -> tuple[str, ...]:
        """The events it has rules for."""
        return tuple(self._rules)

    def follow(self, event: Event) -> None:
        """Take the step that the event stands for. Raises `Refused`."""
        self._rules[event.action](event)

    # -- the loader

    def _handing_out(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        keys: Sequence[Sequence[int]] = event.fields["keys"]
        groups: Sequence[int | None] = event.fields.get("groups") or [None] * len(keys)
        if len(groups) != len(keys):
            raise protocol.refused(f"{counted(len(keys), 'prompt')} cannot be {counted(len(groups), 'group')}")
        self._require_new(groups)
        if s.epoch_over == 1:
            if not protocol.epoch_ended or not s.take("end_epoch"):
                raise protocol.not_enabled(event.action)
            protocol.epoch_ended = False
        if not protocol.loader_known and keys:
            # It goes on with the epoch that its keys name; nobody has said how far that had come.
            s.__dict__.update(epoch=keys[0][0], batches=ANY_NUMBER)
        self._check_keys(event, keys)
        places = protocol.prompts.add(keys, groups, s.cursor)
        protocol.prompts.begin(groups)
        spares = s.spare
        if event.action == "divert_batch":
            # How many spares are enough is the run's policy; the machine, which has none, diverts into an empty pool.
            s.__dict__["spare"] = Vector([0] * len(spares))
        protocol.take(event.action)
        if event.action == "divert_batch":
            s.__dict__["spare"] = Vector(map(max, spares, s.spare))
        dropped = [p for p in places if s.account[p] == DROPPED]
        if bool(dropped) != (event.fields.get("reason") is not None):
            raise protocol.refused(
                "a short last batch is "
                + (
                    "dropped by this run's setting, and this one was not"
                    if dropped
                    else "trained, and this was dropped"
                )
            )
        protocol.prompts.end(dropped)
        if event.action == "reserve_batch":
            protocol.admission = event.fields["admission"]

    def _check_keys(self, event: Event, keys: Sequence[Sequence[int]]) -> None:
        protocol, s = self._protocol, self._protocol.state
        whole = s.batch_size
        last = protocol.loader_known and s.cursor + 1 == (s.epoch + 1) * s.batches
        size = s.last_batch if last else whole
        if protocol.loader_known and len(keys) != size:
            raise protocol.refused(
                f"the loader hands out {counted(len(keys), 'prompt')}, and this batch of the epoch has {size}; whole "
                f"ones {whole}"
            )
        wrong = next((key for key in keys if key[0] != s.epoch), None)
        if wrong is not None:
            raise protocol.refused(f"the prompt {list(wrong)} is not of the loader's epoch {s.epoch}")
        beyond = next((key for key in keys if not 0 <= key[1] < protocol.dataset_length), None)
        if beyond is not None:
            raise protocol.refused(f"the dataset has no row {beyond[1]}: its length is {protocol.dataset_length}")
        seen = next((key for key in keys if protocol.prompts.of_key(key) is not None), None)
        if seen is not None or len({tuple(key) for key in keys}) != len(keys):
            raise protocol.refused(
                f"the loader hands out {list(seen or keys[0])} a second time, while it is in the run"
            )
        again = [key for key in keys if protocol.handed_out.again(key)]
        if again:
            raise protocol.refused(f"the loader hands out {list(again[0])} a second time in its epoch")

    def _require_new(self, groups: Sequence[int | None]) -> None:
        protocol = self._protocol
        protocol.must_be_distinct(groups)
        for group in groups:
            if group is not None and protocol.prompts.of_group(group) is not None:
                raise protocol.refused(f"group {group} is alive already")

    def _end_epoch(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        protocol.must_be(event, "epoch", s.epoch)
        if not protocol.loader_known:
            batches = -(-protocol.dataset_length // s.batch_size)
            s.__dict__.update(batches=batches, cursor=(s.epoch + 1) * batches, epoch_over=1)
            protocol.loader_known = True
        if s.epoch_over != 1 or protocol.epoch_ended:
            raise protocol.not_enabled("end_epoch")
        protocol.epoch_ended = True

    # -- the spare pool

    def _drain_pool(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        if s.epochs == ANY_NUMBER and self._protocol.epoch_ended:
            # The pool is drained at the end of the data, so this epoch was the last.
            s.__dict__["epochs"] = s.epoch + 1
        keys, groups = event.fields["keys"], event.fields["groups"]
        spares = [p for p, spare in enumerate(s.spare) if spare]
        protocol.take("drain_pool")
        taken = [p for p in spares if not s.spare[p]]
        found = [protocol.prompts.of_key(key) for key in keys]
        if found != taken:
            right = counted(len(taken), "spare")
            raise protocol.refused(f"the machine takes {right}, the oldest first; these are others")
        dropped = [p for p in taken if s.account[p] == DROPPED]
        if bool(dropped) != (event.fields["reason"] is not None):
            raise protocol.refused(
                "spares that fill a whole step are reserved, and others are dropped; here it is not so"
            )
        if len(groups) != len(taken) - len(dropped):
            raise protocol.refused(f"{counted(len(keys), 'spare')} cannot be {counted(len(groups), 'group')}")
        self._require_new(groups)
        for place, group in zip(taken, groups, strict=False):
            protocol.prompts.name(place, group)
        protocol.prompts.begin(groups)
        protocol.prompts.end(dropped)
        if not dropped:
            protocol.admission = event.fields["admission"]

    # -- a place that has become free

    def _substitute(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        place, spare = self._place_and_spare(event)
        protocol.must_be(event, "step", s.stamp[place] if s.sampler == IN_ORDER else None)
        protocol.take("substitute", place)
        self._replaced(event, place, spare)

    def _borrow(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        place, spare = self._place_and_spare(event)
        lender = protocol.place(event.fields["lender"])
        protocol.must_be(event, "step", s.stamp[place])
        protocol.must_be(event, "later", s.stamp[lender])
        enabled, effects = s.guard("borrow", place)
        if not enabled:
            raise protocol.not_enabled("borrow", place)
        after: Any = s.worked_out("stamp", effects["stamp"])
        moved = [p for p, slot in enumerate(s.slot) if slot == READY and after[p] != s.stamp[p]]
        if len(moved) != 1 or not protocol.change_lender(moved[0], lender):
            raise protocol.refused(
                f"the group of the furthest later step lends: {protocol.prompts.said(moved[0])}, not "
                f"{protocol.prompts.said(lender)}"
            )
        protocol.take("borrow", place)
        self._replaced(event, place, spare)

    def _place_and_spare(self, event: Event) -> tuple[int, int]:
        protocol, s = self._protocol, self._protocol.state
        place = protocol.place(event.fields["group"])
        protocol.give_up(place)
        first = next((p for p, spare in enumerate(s.spare) if spare), None)
        if first is None or protocol.prompts.of_key(event.fields["key"]) != first:
            named = "the pool is empty" if first is None else f"the first spare is {protocol.prompts.said(first)}"
            raise protocol.refused(f"{named}, and {list(event.fields['key'])} takes the place")
        return place, first

    def _replaced(self, event: Event, place: int, spare: int) -> None:
        self._require_new([event.fields["spare"]])
        self._protocol.prompts.name(spare, event.fields["spare"])
        self._protocol.prompts.begin([event.fields["spare"]])
        self._protocol.prompts.end([place])

    def _shrink(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        place = protocol.place(event.fields["group"])
        protocol.give_up(place)
        protocol.must_be(event, "step", s.stamp[place] if s.sampler == IN_ORDER else None)
        protocol.take("shrink", place)
        protocol.prompts.end([place])
