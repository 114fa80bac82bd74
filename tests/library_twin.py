"""The library and its model side by side: each action is done on both, and everything is compared after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from typing import Any

from library_model import Key, Model, Setting, View
from library_parts import FillingDisk, LibraryRun, image_of
from loop_turns import turns
from memory_runs import DIRECTORY

from impl import Admission, StoreFull, UsageError
from impl.checkpoint import SnapshotSkipped


class Twin:
    """One machine's run over all its processes. An action whose guard does not hold is not for the caller to take.

    `images` has the model at the cut of each checkpoint that was published, by name.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.loop = asyncio.new_event_loop()
        self.processes = 0
        self.disk = FillingDisk(DIRECTORY)
        self.images: dict[str, Model] = {}
        #: The model at the cut of the save that is being written.
        self.cut: Model | None = None
        self.handed: dict[tuple[int, int], Key] = {}
        #: Events of the library, and situations at a cut, for a test that the walks get there.
        self.met: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """A process on the disk as it is, from nothing."""
        self.processes += 1
        self.model = Model(self.setting, self.handed)
        self.run = LibraryRun(self.setting, self.disk, self.loop, self.processes, self.met)
        self.cut = None

    def close(self) -> None:
        self.run.die()
        self.loop.close()

    # -- comparing

    def check(self, after: str) -> None:
        """The library is as the model says, and the model keeps the rules of the protocol."""
        memory, expected = self.run.memory(), self.model.memory()
        require_same(f"in memory after {after}", memory, expected)
        require_owners(f"in memory after {after}", self.model, owners_in_memory(memory))
        require_whole_steps(f"in memory after {after}", self.setting, memory, stamps_in_memory(memory))

    def _act(self, action: Coroutine[Any, Any, Any]) -> Any:
        return self.run.do(action)

    def refused(self, action: Callable[[], Coroutine[Any, Any, Any]], error: type[Exception]) -> None:
        """The action is refused, and nothing has changed."""
        before = self.run.memory()
        try:
            self._act(action())
        except error:
            require_same("after a refusal", self.run.memory(), before)
            return
        raise AssertionError(f"not refused: {action}")

    # -- the rollout side

    def reserve_batch(self) -> None:
        before = self.run.loader.state()
        admission = self._act(self.run.rollout.reserve_batch())
        if self.model.exhausted:
            assert admission is None, "a batch came after the end of the data"
            return
        assert admission is not None, "the data ended too early"
        self.model.reserve_batch(self._drawn(admission, before))

    def _drawn(self, admission: Admission | None, before: Any) -> list[Key]:
        """The keys of a batch; one that was dropped as it was read is known from the accounts, in order."""
        if admission is not None and admission.keys:
            return [(key.epoch, key.index) for key in admission.keys]
        left = self.setting.length - before.position
        dropped = list(self.run.parts.ledger.accounts.dropped)[-min(self.setting.whole, left) :]
        return [(key.epoch, key.index) for key in dropped]

    def divert_batch(self) -> None:
        model, run = self.model, self.run
        if model.cursor < 0:
            self.refused(run.rollout.divert_batch, UsageError)
            return
        before, spares = run.loader.state(), len(model.pool)
        diverted = self._act(run.rollout.divert_batch())
        assert diverted is not model.exhausted, "whether a batch was diverted"
        if diverted:
            new = [(spare.key.epoch, spare.key.index) for spare in run.parts.pool.spares[spares:]]
            model.divert_batch(new or self._drawn(None, before))

    def drain_pool(self) -> None:
        model, drain = self.model, self.run.rollout.drain_pool
        if not model.exhausted:
            self.refused(drain, UsageError)
            return
        admission = self._act(drain())
        if not model.pool or model.where(place="unready"):
            assert admission is None, "the pool was drained while something may still need a spare"
            return
        model.drain_pool()

    def pass_gate(self, number: int) -> None:
        """The wait at the gate ends if and only if it is open; given up, it leaves no trace."""
        waiting = self.loop.create_task(self.run.rollout.pass_gate(self.run.admission(number)))
        self._act(turns(3))
        assert waiting.done() is self.model.gate_open, "whether the gate lets an admission pass"
        waiting.cancel()
        self._act(turns(2))

    def commit_admission(self, number: int) -> None:
        self._act(self.run.rollout.commit_admission(self.run.admission(number)))
        self.model.commit_admission(number)

    def dispatch(self, group: int) -> None:
        """Both permits and a slot; without a permit the dispatch waits, and given up it leaves no trace."""
        may = self.model.free > 0 and self.model.in_flight_free > 0
        dispatching = self.loop.create_task(self.run.rollout.dispatch(group))
        self._act(turns(6))
        assert dispatching.done() is may, "whether a dispatch gets its permits"
        if may:
            dispatching.result()
            self.model.dispatch(group)
        else:
            dispatching.cancel()
            self._act(turns(3))

    # -- generation

    def commit_group(self, group: int) -> None:
        assert self._act(self.run.commit_group(group))
        self.model.commit_group(group)

    def remove_committed(self, group: int) -> None:
        self.run.generation.remove_committed(group)
        self.model.remove_committed(group)

    def fail_attempt(self, group: int, cause: str) -> None:
        error = TimeoutError("slow") if cause == "transient" else ValueError("odd")
        delay = self._act(self.run.fail_attempt(group, error))
        self.model.fail_attempt(group, cause)
        again = group in self.model.groups and self.model.groups[group].doing == "backing_off"
        assert (delay is not None) is again, "whether a group is tried again"

    def retry(self, group: int) -> None:
        self._act(self.run.retry(group))
        self.model.retry(group)

    def fill_place(self, group: int) -> None:
        """Substitute or borrow; shrink when others have taken the last spare."""
        self._act(self.run.generation.fill_place(group))
        self.model.fill_place(group)

    # -- training

    def claim(self) -> None:
        expected = self.model.selection()
        claim = self._act(self.run.training.claim())
        assert (list(claim.groups) if claim else []) == expected, f"the groups of step {self.model.version}"
        if claim is not None:
            self.run.open_claim = claim
            self.model.claim()

    def write_back(self, group: int) -> None:
        self._act(self.run.write_back(group))
        # In the claim, not in the plane: what a save finds there is what was committed.
        assert self.run.wrong_rows() == [], "rows in the plane after a write_back"

    def finish_step(self) -> None:
        claim, self.run.open_claim = self.run.open_claim, None
        assert claim is not None
        self._act(self.run.training.finish_step(claim))
        self.run.trainer.steps += 1
        self.model.finish_step()

    def empty_step(self) -> None:
        self._act(self.run.training.empty_step())
        if self.model.step_is_empty():
            self.run.trainer.steps += 1
            self.model.empty_step()

    def give_up_stale(self) -> None:
        self._act(self.run.training.give_up_stale())
        self.model.give_up_stale()

    def say_fed(self) -> None:
        """The rollout pump has nothing left: an unstamped sampler may now train a short last step."""
        self.run.parts.fed = self.model.fed = True

    # -- checkpoints

    def begin_save(self, *, snapshot: bool, room: int | None = None) -> None:
        """The window; what is written is held back until `publish`. `room`: the disk is full after so many writes."""
        run, model = self.run, self.model
        if model.claimed and not snapshot:
            self.refused(lambda: run.checkpointer.begin_save(run.trainer), UsageError)
            return
        # The store is opened by the first save, or has been by a restore.
        self._act(run.checkpointer.prepare())
        run.writer.holding, run.disk.room = True, room
        begin = run.checkpointer.begin_snapshot() if snapshot else run.checkpointer.begin_save(run.trainer)
        pending = self._act(begin)
        if isinstance(pending, SnapshotSkipped):
            assert model.anchor != model.version, f"the snapshot was skipped: {pending.reason}"
            run.writer.holding, run.disk.room = False, None
            return
        assert not snapshot or model.anchor == model.version, "a snapshot was taken past its full save"
        run.pending, self.cut = pending, deepcopy(model)

    def publish(self) -> None:
        """The save in flight becomes durable, and holds the model at the cut, or fails for want of room."""
        run, cut, pending = self.run, self.cut, self.run.pending
        assert pending is not None
        assert cut is not None
        self._act(turns(2))
        run.writer.holding = False
        run.writer.run_all()
        run.pending, self.cut = None, None
        full = run.disk.room == 0
        run.disk.room = None
        try:
            info = self._act(pending.durable())
        except StoreFull:
            assert full, "a save failed on a disk that has room"
            return
        assert not full, "a save was published on a full disk"
        image, name = image_of(run.disk, info.name), f"in the image {info.name}"
        require_same(name, image, cut.image())
        require_owners(name, cut, owners_on_disk(image))
        require_whole_steps(name, self.setting, image, stamps_on_disk(image))
        assert image["permits held"] <= self.setting.capacity, name
        self.images[info.name] = cut
        self.met |= {f"an image with {what}" for what, there in situations(cut).items() if there}
        self.met |= {"an image that differs from now"} if cut.memory() != self.model.memory() else set()
        if info.kind == "full":
            self.model.anchor = cut.version

    def crash(self, *, load_buffer: bool) -> None:
        """The process dies; the next one takes up the newest image, without its rows where `load_buffer` is False."""
        self.disk = self.run.die()
        self.begin()
        newest = max(self.images, key=lambda name: int(name.rpartition("-")[2]))
        self.met |= {"a restore without rows"} if self.images[newest].arrived and not load_buffer else set()
        restored = self._act(self.run.checkpointer.restore(load_buffer=load_buffer, trainer=self.run.trainer))
        assert restored.name == newest, f"{restored.name} was restored, and {newest} is the newest"
        self.model = self.images[newest].restored(load_buffer=load_buffer)
        assert self.run.trainer.steps == self.model.version, "steps that the restored trainer has done"
        assert self.run.wrong_rows() == [], f"rows restored from {newest}"
        self.check(f"a restore of {newest}")


def situations(model: Model) -> dict[str, bool]:
    """What makes an image of this instant worth looking at."""
    return {
        "a lingering entry": any(group.entry for group in model.groups.values() if group.buffered),
        "claimed groups": bool(model.claimed),
        "spares": bool(model.pool),
        "counted failures": any(group.failures for group in model.groups.values()),
        "reserved groups": bool(model.reserved()),
        "groups in flight": bool(model.where(place="unready")),
    }


def require_same(where: str, found: View, expected: View) -> None:
    for name in expected:
        assert found[name] == expected[name], f"{where}: {name} is {found[name]}, and should be {expected[name]}"


def require_owners(where: str, model: Model, owners: list[Key]) -> None:
    """one_owner and none_lost: every prompt behind the cursor belongs to exactly one."""
    assert len(owners) == len(set(owners)), f"{where}: one_owner: {sorted(owners)}"
    assert set(owners) == model.handed_out(), f"{where}: none_lost: {set(owners) ^ model.handed_out()}"


def require_whole_steps(where: str, setting: Setting, view: View, stamps: list[int]) -> None:
    """stamps_complete and cursor_covers_stamps, for the sampler that stamps."""
    cursor, shortfalls, _ = view["sampler"]
    if not setting.stamped:
        assert stamps == [], where
        return
    assert all(stamp <= cursor for stamp in stamps), f"{where}: cursor_covers_stamps"
    for step in range(view["version"], cursor + 1):
        there = stamps.count(step) + shortfalls.get(step, 0)
        assert there == setting.whole, f"{where}: stamps_complete: step {step} has {there} of {setting.whole}"


def owners_in_memory(view: View) -> list[Key]:
    """An entry and the ready slot of one group are one owner: that is the time between commit and removal."""
    buffered = {group: key for group, (key, _, _, place) in view["slots"].items() if place != "unready"}
    pending = [entry[0] for group, entry in view["ledger"].items() if group not in buffered]
    return [*pending, *buffered.values(), *view["spares"], *view["trained"], *view["dropped"]]


def owners_on_disk(view: View) -> list[Key]:
    pending = [entry[0] for entry in view["ledger"].values()]
    buffered = [slot[1] for slot in view["buffer"]]
    return [*pending, *buffered, *view["spares"], *view["trained"], *view["dropped"]]


def stamps_in_memory(view: View) -> list[int]:
    steps = {group: step for group, (_, step, _, _) in view["slots"].items()}
    for group, (_, _, _, step, _) in view["ledger"].items():
        steps.setdefault(group, step)
    return [step for step in steps.values() if step is not None]


def stamps_on_disk(view: View) -> list[int]:
    steps = [entry[3] for entry in view["ledger"].values()] + [slot[2] for slot in view["buffer"]]
    return [step for step in steps if step is not None]
