"""A plain model of the whole library: who owns each prompt, and what each action moves. Imports nothing of it.

The rules of the protocol and of the four samplers, written out as dictionaries and `if`: slow, small and meant to be
read. Two views of it are held against the library: `memory()`, which must be right after every action, and `image()`,
which must be what a checkpoint of this instant holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

Key = tuple[int, int]
View = dict[str, Any]
Place = Literal["none", "unready", "ready", "claimed"]


@dataclass(frozen=True)
class Setting:
    """One run: `bound` is the lookahead or the staleness, `whole` the prompts of a batch and of a train step."""

    sampler: str
    bound: int = 1
    whole: int = 2
    length: int = 5
    epochs: int = 2
    #: Slots beyond those that the sampler needs.
    room: int = 0
    in_flight: int = 3
    train_remainder: bool = True
    borrow: bool = True
    #: Whether the pool is kept filled; not by the windowed sampler, which has no use for it.
    spares: bool = True
    #: Retries after a failure, of either cause.
    retries: int = 1

    @property
    def capacity(self) -> int:
        return self.whole * (1 if self.sampler == "windowed" else self.bound + 1) + self.room

    @property
    def stamped(self) -> bool:
        return self.sampler == "in_order"

    @property
    def keeps_spares(self) -> bool:
        return self.spares and self.sampler != "windowed"


@dataclass
class Group:
    """A living group. `entry`: the ledger lists it; `doing`: what its generation does while its slot is unready."""

    group: int
    key: Key
    admission: int
    step: int | None = None
    admitted: bool = False
    attempt: int = 0
    entry: bool = True
    place: Place = "none"
    weight: int = 0
    doing: Literal["", "generating", "backing_off", "given_up"] = ""
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def buffered(self) -> bool:
        return self.place in ("ready", "claimed")


class Model:
    """The state of a run, and one method for each action."""

    def __init__(self, setting: Setting, handed: dict[tuple[int, int], Key]) -> None:
        self.setting = setting
        # (epoch, position) -> key. Of the data, not of the run: after a restore the same place gives the same prompt.
        self.handed = handed
        self.loader: tuple[int, int, bool] = (0, 0, False)
        self.cursor = -1
        self.shortfalls: dict[int, int] = {}
        self.lost = 0
        self.version = 0
        self.pool: list[Key] = []
        self.groups: dict[int, Group] = {}
        #: Buffered groups in the order in which they became ready.
        self.arrived: list[int] = []
        self.trained: set[Key] = set()
        self.dropped: dict[Key, str] = {}
        self.next_group = 0
        self.next_admission = 0
        self.claimed: list[int] = []
        #: Version of the newest full save that is durable.
        self.anchor: int | None = None
        self.fed = False

    # -- what may happen: the guards

    @property
    def gate_open(self) -> bool:
        setting, whole = self.setting, self.setting.whole
        if setting.sampler == "in_order":
            return self.cursor < self.version + setting.bound
        if setting.sampler == "windowed":
            return True
        return whole * self.cursor - self.lost < whole * (self.version + setting.bound)

    @property
    def free(self) -> int:
        """Buffer permits: one belongs to each slot, from dispatch to the end of the train step."""
        return self.setting.capacity - sum(group.place != "none" for group in self.groups.values())

    @property
    def in_flight_free(self) -> int:
        return self.setting.in_flight - len(self.where(doing="generating"))

    @property
    def exhausted(self) -> bool:
        return self.loader[2]

    def where(self, **wanted: object) -> list[Group]:
        """The living groups with these values, oldest first."""
        return [g for g in self.groups.values() if all(getattr(g, name) == value for name, value in wanted.items())]

    def reserved(self) -> dict[int, list[int]]:
        """Admissions that have not passed the gate, and their groups."""
        found: dict[int, list[int]] = {}
        for group in self.where(admitted=False):
            found.setdefault(group.admission, []).append(group.group)
        return found

    def target(self) -> int:
        return self.setting.whole - self.shortfalls.get(self.version, 0)

    def selection(self) -> list[int]:
        """The groups that the next train step takes: a whole step, or at the end of the data what an unstamped has."""
        eligible = self._eligible()
        target = self.target()
        over = self.fed and not self.where(place="unready")
        if len(eligible) >= target or (over and not self.setting.stamped):
            return eligible[: max(target, 0)]
        return []

    def _eligible(self) -> list[int]:
        setting, version = self.setting, self.version
        ready = [self.groups[group] for group in self.arrived if self.groups[group].place == "ready"]
        if setting.sampler == "in_order":
            return [group.group for group in ready if group.step == version]
        if setting.sampler == "ready_first":
            return [group.group for group in ready if group.weight <= version]
        highest = version
        if setting.sampler == "weight_fifo":
            highest = min([version, *(group.weight for group in self.where(place="unready"))])
        inside = [group for group in ready if max(0, version - setting.bound) <= group.weight <= highest]
        return [group.group for group in sorted(inside, key=lambda group: group.weight)]

    def stale(self) -> list[int]:
        """Groups that are too old, ready ones and, windowed, those in flight."""
        if self.setting.sampler == "ready_first":
            return []
        if self.setting.sampler == "in_order":
            return [g.group for g in self.where(place="ready") if g.step is not None and g.step < self.version]
        old = [g for g in self.groups.values() if g.weight < self.version - self.setting.bound]
        places = ("ready", "unready") if self.setting.sampler == "windowed" else ("ready",)
        return [g.group for g in old if g.place in places]

    def step_is_empty(self) -> bool:
        return self.setting.stamped and self.cursor >= self.version and self.target() == 0

    def lender(self, group: int) -> Group | None:
        """The ready group of the furthest later step that may move up into the hole that `group` leaves."""
        hole = self.groups[group].step
        if not (self.setting.borrow and self.setting.stamped) or hole is None or hole < self.version:
            return None
        later = [g for g in self.where(place="ready") if g.step is not None and g.step > hole]
        return max(later, key=lambda g: (g.step or 0, -g.group), default=None)

    # -- the loader: which keys come next

    def next_batch(self, keys: list[Key]) -> bool:
        """Move the cursor over one batch, which the library says was `keys`; whether it is too short to be trained."""
        epoch, position, exhausted = self.loader
        assert not exhausted, "a batch was handed out after the end of the data"
        setting = self.setting
        assert len(keys) == min(setting.whole, setting.length - position), f"a batch of {len(keys)} at {self.loader}"
        for place, key in enumerate(keys, position):
            assert self.handed.setdefault((epoch, place), key) == key, f"{(epoch, place)} gave another prompt: {key}"
            assert key[0] == epoch, f"{key} was handed out in epoch {epoch}"
            assert 0 <= key[1] < setting.length, f"{key} is no row of the dataset"
        of_epoch = [key for (other, _), key in self.handed.items() if other == epoch]
        assert len(of_epoch) == len(set(of_epoch)), f"a prompt was handed out twice in epoch {epoch}: {of_epoch}"
        position += len(keys)
        if position == setting.length and epoch + 1 < setting.epochs:
            self.loader = (epoch + 1, 0, False)
        else:
            self.loader = (epoch, position, position == setting.length)
        return not setting.train_remainder and len(keys) < setting.whole

    def handed_out(self) -> set[Key]:
        """Every prompt behind the cursor."""
        return {key for place, key in self.handed.items() if place < self.loader[:2]}

    # -- the actions

    def reserve(self, keys: list[Key]) -> None:
        for group, key in enumerate(keys, self.next_group):
            self.groups[group] = Group(group, key, self.next_admission)
        self.next_group += len(keys)
        self.next_admission += 1

    def reserve_batch(self, keys: list[Key]) -> None:
        if self.next_batch(keys):
            self.dropped.update(dict.fromkeys(keys, "remainder"))
        else:
            self.reserve(keys)

    def divert_batch(self, keys: list[Key]) -> None:
        if self.next_batch(keys):
            self.dropped.update(dict.fromkeys(keys, "remainder"))
        else:
            self.pool += keys

    def drain_pool(self) -> None:
        step, whole = self.pool[: self.setting.whole], self.setting.whole
        self.pool = self.pool[len(step) :]
        if len(step) == whole:
            self.reserve(step)
        else:
            self.dropped.update(dict.fromkeys(step, "remainder"))

    def commit_admission(self, admission: int) -> None:
        members = self.reserved()[admission]
        missing = self.setting.whole - len(members)
        step: int | None = None
        if self.setting.sampler != "windowed":
            self.cursor += 1
            if self.setting.stamped:
                step = self.cursor
                if missing:
                    self.shortfalls[step] = missing
            else:
                self.lost += missing
        for group in members:
            self.groups[group].admitted, self.groups[group].step = True, step

    def dispatch(self, group: int) -> None:
        entry = self.groups[group]
        entry.place, entry.weight, entry.doing = "unready", self.version, "generating"

    def commit_group(self, group: int) -> None:
        entry = self.groups[group]
        entry.place, entry.doing, entry.failures = "ready", "", {}
        self.arrived.append(group)

    def remove_committed(self, group: int) -> None:
        self.groups[group].entry = False

    def fail_attempt(self, group: int, cause: str) -> None:
        entry = self.groups[group]
        entry.attempt += 1
        entry.failures[cause] = entry.failures.get(cause, 0) + 1
        entry.doing = "backing_off"
        if entry.failures[cause] > self.setting.retries:
            entry.doing = "given_up"
            if not self.pool:
                self._shrink(group)

    def retry(self, group: int) -> None:
        self.groups[group].doing = "generating"

    def fill_place(self, group: int) -> None:
        if not self.pool:
            self._shrink(group)
            return
        old, lender = self.groups[group], self.lender(group)
        step, admission = old.step, old.admission
        del self.groups[group]
        if lender is not None:
            step = lender.step
            pending = [g.admission for g in self.groups.values() if g.entry and g.step == step]
            admission = pending[0] if pending else self.next_admission
            self.next_admission = max(self.next_admission, admission + 1)
            lender.step, lender.entry = old.step, False
        self.dropped[old.key] = "replaced"
        self.groups[self.next_group] = Group(
            self.next_group, self.pool.pop(0), admission, step, True, 0, True, "unready", self.version, "generating"
        )
        self.next_group += 1

    def _shrink(self, group: int) -> None:
        gone = self.groups.pop(group)
        self.dropped[gone.key] = "failed"
        if gone.step is None:
            self.lost += 1
        else:
            self.shortfalls[gone.step] = self.shortfalls.get(gone.step, 0) + 1

    def claim(self) -> None:
        self.claimed = self.selection()
        for group in self.claimed:
            self.groups[group].place, self.groups[group].entry = "claimed", False

    def finish_step(self) -> None:
        for group in self.claimed:
            key = self.groups.pop(group).key
            assert key not in self.trained, f"{key} is trained twice"
            self.trained.add(key)
            self.arrived.remove(group)
        self.claimed = []
        self._pass_step()

    def _pass_step(self) -> None:
        self.version += 1
        self.shortfalls = {step: missing for step, missing in self.shortfalls.items() if step >= self.version}

    def empty_step(self) -> None:
        self._pass_step()

    def give_up_stale(self) -> None:
        for group in self.stale():
            gone = self.groups.pop(group)
            self.dropped[gone.key] = "stale_ready" if gone.buffered else "stale_inflight"
            if gone.buffered:
                self.arrived.remove(group)
            self.lost += 1

    # -- checkpoints

    def restored(self, *, load_buffer: bool) -> Model:
        """The run that comes up from a checkpoint of this instant."""
        again = deepcopy(self)
        again.handed = self.handed
        again.claimed, again.fed, again.anchor = [], False, self.version
        made: dict[tuple[int | None, int], int] = {}
        pending = {g.step: g.admission for g in self.groups.values() if not g.buffered and g.step is not None}
        for group in [*self.arrived, *(g for g in self.groups if g not in self.arrived)]:
            entry = again.groups[group]
            entry.doing = ""
            entry.place = "ready" if entry.buffered and load_buffer else "none"
            if not self.groups[group].buffered:
                entry.entry, entry.weight = True, 0
            elif load_buffer:
                entry.entry = False
            else:
                place = (entry.step, 0 if entry.step is not None else entry.weight)
                if entry.step not in pending and place not in made:
                    made[place] = again.next_admission
                    again.next_admission += 1
                entry.admission = pending[entry.step] if entry.step in pending else made[place]
                entry.entry, entry.attempt, entry.weight = True, 0, 0
        if not load_buffer:
            again.arrived = []
        return again

    # -- what is held against the library

    def image(self) -> View:
        """What a checkpoint of this instant holds: the ledger less what is ready or claimed."""
        buffer = [self.groups[group] for group in self.arrived]
        pending = [group for group in self.groups.values() if not group.buffered]
        return {
            **self._shared(),
            "ledger": {g.group: (g.key, g.admitted, g.admission, g.step, g.attempt) for g in pending},
            "buffer": [(g.group, g.key, g.step, g.weight) for g in buffer],
            "permits held": len(buffer),
        }

    def memory(self) -> View:
        """What the library holds in memory now."""
        living = self.groups.values()
        return {
            **self._shared(),
            "ledger": {g.group: (g.key, g.admitted, g.admission, g.step, g.attempt) for g in living if g.entry},
            "slots": {g.group: (g.key, g.step, g.weight, g.place) for g in living if g.place != "none"},
            "arrived": self.arrived,
            "rows": sorted(self.arrived),
            "free permits": self.free,
            "free in-flight permits": self.in_flight_free,
            "gate open": self.gate_open,
        }

    def _shared(self) -> View:
        budgets: Mapping[str, int] = {
            f"{g.group}/{cause}": count for g in self.groups.values() for cause, count in g.failures.items()
        }
        return {
            "loader": self.loader,
            "sampler": (self.cursor, self.shortfalls, self.lost),
            "spares": self.pool,
            "ids": (self.next_group, self.next_admission),
            "version": self.version,
            "budgets": budgets,
            "trained": self.trained,
            "dropped": self.dropped,
        }
