"""A whole run of the real controller in one scope of the cut machine, on a disk in memory.

Both pumps, the generations, the barrier, the buffer over real tensors, the checkpointer and its store are the library's
own; only the file system and the two callables are ours. Every published checkpoint is read back: its image must be the
machine's, and every prompt handed out must have one owner in it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from cleancut_leaf.words import counted
from impl.barrier import CheckpointBarrier
from impl.checkpoint.checkpointer import Checkpointer
from impl.controller import Controller, ControllerConfig
from impl.errors import CleancutError
from impl.loaders.prompt_loader import PromptLoader
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, Sampler, WeightFifoSampler, WindowedSampler
from impl.store import names
from impl.store.lock import WriterIdentity
from impl.trainer.trainer_state import TrainerState
from spec.machines.cut import IN_ORDER, READY_FIRST, WEIGHT_FIFO, CutScope
from spec.machines.cut import cut as machine
from spec.machines.cut.state import OUTSIDE_WINDOW

from ..correspondence.follower import Coverage, Follower, Remembered, View
from ..correspondence.refinement import (
    Prompts,
    follow_cut,
    follow_silent_cut,
    image_of_files,
    image_of_machine,
    owners_of_files,
)
from ..correspondence.refinement.images import OutsideOfTheMachine, handed_out_count, reasons_told
from ..errors import Violation
from ..runtime.subject import Subject
from .fake_disk import FakeDisk
from .readings import register_barrier, register_disk, register_tensors
from .scenario import Pinned, Scenario, Timers
from .waiting import register_waits

DIRECTORY = "/checkpoints"
CLAIMS = ("refinement", "one_owner_on_disk", "image_equals_cut", "deadlock")


def sampler_of(scope: CutScope) -> Sampler:
    """The library's sampler that the scope names."""
    if scope.sampler == IN_ORDER:
        return InOrderSampler(lookahead=scope.lookahead)
    if scope.sampler == WEIGHT_FIFO:
        return WeightFifoSampler(staleness=scope.lookahead)
    if scope.sampler == READY_FIRST:
        return ReadyFirstSampler(staleness=scope.lookahead)
    return WindowedSampler(staleness=scope.lookahead)


def loader_of(scope: CutScope, kind: type[PromptLoader] = PromptLoader) -> PromptLoader:
    """A loader over the prompts of the scope."""
    prompts = [f"prompt {i}" for i in range(scope.prompts_of_an_epoch)]
    return kind(prompts, batch_size=scope.batch_size, seed=0, epochs=scope.epochs)


def writer_identity(who: str) -> WriterIdentity:
    """A writer whose names repeat from run to run."""
    tokens = itertools.count()
    return WriterIdentity(who, lambda: str(next(tokens)))


class WholeRun:
    """One controller, followed by the cut machine and read back at every publication."""

    claims: ClassVar[tuple[str, ...]] = CLAIMS
    """What holds when no schedule fails: the properties that this run can break."""

    def __init__(
        self,
        scope: CutScope,
        model: Remembered,
        coverage: Coverage,
        failing: frozenset[int],
        turns: bool,
        traced: bool = True,
        **config: Any,
    ) -> None:
        import torch

        self.scope = scope
        self.prompts = self.numbers()
        self.follower = self.follow(model, coverage)
        # Without a tracer the machine is followed by what shows alone, and published is what newly lies on the disk.
        self.silent = None if traced else follow_silent_cut(model, lambda: self.controller, self.prompts)
        self.read_back: set[str] = set()
        self.disk = self.disk_to_write()
        # What the machine has fixed with the end of a window, until it is found in files.
        self.images: list[tuple[View, Prompts]] = []
        self.outside = OutsideOfTheMachine()
        # Of each window that is closed: the number of groups named by then, and the reason of each drop.
        self.closed: list[tuple[int, dict[int | tuple[int, int], str]]] = []
        self.reasons: dict[int | tuple[int, int], str] = {}
        # Those of the window whose image was published last.
        self.saved_reasons: dict[int | tuple[int, int], str] = {}
        self.published: list[str] = []
        self.failed_saves: list[str] = []
        # A task of the run was cancelled from outside, which ends the run.
        self.cancelled = False
        self.failing = failing
        self.turns = turns
        self.rows = {"tokens": torch.zeros(1, 1, dtype=torch.uint8)}
        barrier = self.barrier()
        identity = writer_identity("the scenario")
        settings: dict[str, Any] = {
            "save_period": 1,
            "stall_warning": None,
            "generations": 1,
            "capacity": scope.capacity,
            "max_in_flight": scope.in_flight,
            "data_retries": scope.retries,
            "backoff": 0.0,
            "spares": scope.spares,
            "borrow": bool(scope.borrow),
            "remainder": "drop" if scope.drop_short else "train",
        }
        self.controller = Controller(
            loader=self.loader(),
            generate=self.generate,
            train=self.train,
            sampler=self.sampler(),
            checkpointer=Checkpointer(DIRECTORY, barrier, files=self.disk, executor=None, identity=identity),
            config=ControllerConfig(**{**settings, **config}),
            trainer=self.trainer(),
        )

    # -- what a scenario of its own may have in another way

    def follow(self, model: Remembered, coverage: Coverage) -> Follower:
        """The follower of this run."""
        return follow_cut(model, self.scope, lambda: self.controller, self.prompts, coverage)

    def numbers(self) -> Prompts:
        """The machine's numbers of the prompts known so far."""
        return Prompts()

    def disk_to_write(self) -> FakeDisk:
        """The disk of this run."""
        return FakeDisk(DIRECTORY)

    def trainer(self) -> TrainerState | None:
        """What a full save keeps of the trainer."""
        return None

    def barrier(self) -> CheckpointBarrier:
        """The barrier of this run, with the follower as its tracer."""
        return CheckpointBarrier(trace=self.trace if self.silent is None else None)

    def loader(self) -> PromptLoader:
        """The loader of this run."""
        return loader_of(self.scope)

    def sampler(self) -> Sampler:
        """The sampler of this run."""
        return sampler_of(self.scope)

    async def main(self) -> None:
        """The program."""
        try:
            await self.controller.run()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        except CleancutError as error:
            # The background task of a save was cancelled before it wrote: whoever asks next learns of it.
            if not self.tells_of_a_failed_save(error):
                raise
            self.cancelled = True

    def tells_of_a_failed_save(self, error: CleancutError) -> bool:
        """Whether an error is that of a save which the events, or without them the statistics, say has failed."""
        if self.silent is not None:
            return self.checkpointer.statistics().failed > 0 and "background task was cancelled" in str(error)
        return any(name in str(error) for name in self.failed_saves)

    # -- the run

    @property
    def checkpointer(self) -> Checkpointer:
        """The checkpointer of this run."""
        assert self.controller.checkpointer is not None
        return self.controller.checkpointer

    def trace(self, action: str, /, **fields: Any) -> None:
        """Pass events to the follower; note what was published."""
        self.follower(action, **fields)
        self.reasons |= reasons_told(action, fields)
        if action == "publish":
            self.published.append(fields["name"])
        elif action == "fail_save":
            self.failed_saves.append(fields["name"])

    async def generate(self, request: Any) -> Mapping[str, Any]:
        """One group of one generation of one token, a turn of the loop later; some groups fail."""
        if self.turns:
            await asyncio.sleep(0)
        if request.group in self.failing:
            raise ValueError(f"group {request.group} cannot be generated")
        return self.rows

    async def train(self, batch: object) -> None:
        """Nothing to learn, and a turn of the loop to learn it in."""
        if self.turns:
            await asyncio.sleep(0)

    def observe(self) -> Any:
        """Follow the step; compare every new checkpoint with the machine's image, and count its owners."""
        if self.silent is not None:
            possible = self.silent.observe()
            on_disk = {name for name in self.disk.listdir(DIRECTORY) if names.parse_checkpoint_name(name)}
            for name in sorted(on_disk - self.read_back):
                self.check_owners(name, self.disk.documents(f"{DIRECTORY}/{name}"))
            self.read_back = on_disk
            return possible
        state = self.follower.observe(self.on_action)
        for name in self.published:
            self.check_published(name)
        self.published.clear()
        return state

    def narrate(self) -> list[str]:
        """What the last step did."""
        return self.follower.did()

    def on_action(self, action: str, before: Any) -> None:
        """Keep the image that the machine publishes, with the numbers that the prompts have in it."""
        if action == ("close_window" if self.scope.background else "publish"):
            self.closed.append((self.prompts.groups_named(), dict(self.reasons)))
        if action == "fail_save" and self.scope.background:
            self.closed.pop(0)
        if action == "publish":
            next_group, self.saved_reasons = self.closed.pop(0)
            reasons = frozenset((self.prompts.of_owner(owner), reason) for owner, reason in self.saved_reasons.items())
            outside = replace(self.outside, next_group=next_group, reasons=reasons)
            self.images.append((image_of_machine(before, outside), self.prompts.copy()))

    def check_owners(self, name: str, documents: Mapping[str, Any]) -> None:
        """One owner for every key behind the loader's cursor, and for no other."""
        owners = owners_of_files(documents)
        handed_out = self.prompts.handed_out(handed_out_count(documents))
        wrong = {key: owners.get(key, []) for key in handed_out if len(owners.get(key, [])) != 1}
        wrong |= {key: who for key, who in owners.items() if key not in handed_out}
        if wrong:
            raise Violation(
                "one_owner_on_disk",
                f"in {name} " + "; ".join(_owners_in_words(key, who) for key, who in wrong.items()),
                {f"until now, {_named(key)}": ", ".join(self.events_of(key)) or "not handed out" for key in wrong},
            )

    def check_published(self, name: str) -> None:
        """One owner for every key behind the loader's cursor, and the machine's image of the same window."""
        documents = self.disk.documents(f"{DIRECTORY}/{name}")
        self.check_owners(name, documents)
        expected, prompts = self.images.pop(0)
        found = image_of_files(documents, prompts, self.scope.retries)
        if expected != found:
            different = [aspect for aspect in expected if expected[aspect] != found[aspect]]
            raise Violation(
                "image_equals_cut",
                f"{name} does not hold the state at its cut; it differs in {', '.join(different)}",
                {
                    "at the cut": {aspect: expected[aspect] for aspect in different},
                    "on disk": {aspect: found[aspect] for aspect in different},
                },
            )
        self.outside = replace(
            self.outside, parent=name, anchor=name if found["kind"] == "full" else self.outside.anchor
        )

    def events_of(self, key: tuple[int, int]) -> list[str]:
        """What happened to a key, and when its checkpoint was read: for the report of a failure."""
        groups = self.prompts.groups_of(key)

        def concerns(fields: Mapping[str, Any]) -> bool:
            named = {fields.get("group"), fields.get("spare"), *fields.get("groups", ())}
            return bool(groups & named) or key in {tuple(k) for k in fields.get("keys", ())}

        shown = ("open_cut", "close_cut", "publish")
        return [e.action for e in self.follower.history if concerns(e.fields) or e.action in shown]

    def finish(self) -> str | None:
        """The run trained or dropped everything and left nothing behind; one that was cancelled, what it must."""
        if self.cancelled:
            return self.left_behind()
        assert machine.progress is not None
        if not any(machine.progress.finished(state) for state in self.possible_states()):
            return f"the run ended, but the machine is not finished: {self.possible_states()[0]}"
        return self.left_behind()

    def possible_states(self) -> tuple[Any, ...]:
        """Where the machine may be: one state if it is told what happens."""
        return (self.follower.state,) if self.silent is None else tuple(self.silent.states)

    def left_behind(self) -> str | None:
        """What a run must have seen to, however it ends: images past their window, tasks, permits, the barrier."""
        controller = self.controller
        core, in_flight = controller.barrier._core, controller.generation.in_flight
        wrong = {
            "windows never published": len(self.images)
            + all(state.window != OUTSIDE_WINDOW for state in self.possible_states()),
            "generations still running": len(controller.generation.running),
            "in-flight permits not given back": in_flight.capacity - in_flight.free,
            "buffer permits that belong to no slot": controller.buffer.statistics()["permits_held"],
            "sections left open or waiting": len(core.inside) + len(core._mutations) + len(core._checkpoints),
        }
        found = [f"{count} {what}" for what, count in wrong.items() if count]
        found += [] if core.closed_because is not None else ["the barrier was not closed"]
        return f"the run ended with {', '.join(found)}" if found else None


def _named(key: tuple[int, int]) -> str:
    return f"prompt (epoch {key[0]}, row {key[1]})"


def _owners_in_words(key: tuple[int, int], owners: list[str]) -> str:
    if not owners:
        return (
            f"{_named(key)} has no owner: it is behind the loader's cursor, and neither in the ledger nor in the "
            "buffer, the spare pool or the accounts; a run that resumes here never draws it again"
        )
    return f"{_named(key)} has {counted(len(owners), 'owner')}, {' and '.join(owners)}, where it must have exactly one"


def untraced(scenario: Scenario, pinned: Pinned) -> Scenario:
    """The same run without a tracer, as production runs it."""
    assert scenario.without_tracer is not None
    made = scenario.without_tracer()
    sentence = f"the run of {scenario.name}, without a tracer"
    return replace(made, name=f"{scenario.name}_untraced", sentence=sentence, pinned=pinned, quick=False, told=False)


def whole_run(
    name: str,
    sentence: str,
    scope: CutScope,
    model: Remembered,
    pinned: Pinned | None,
    *,
    failing: frozenset[int] = frozenset(),
    turns: bool = True,
    quick: bool = True,
    run_of: type[WholeRun] = WholeRun,
    cancels: int = 0,
    timers: Timers = "idle",
    horizon: float = 0.0,
    variants: tuple[str, ...] = (),
    traced: bool = True,
    **config: Any,
) -> Scenario:
    """A scenario of a whole run; the groups in `failing` fail at every attempt. `variants` are those of the `model`.

    Without `turns` the two callables return at once, which leaves fewer orders. `run_of` is what runs, if it is more
    than a plain run. No distance of time above `horizon` is compared with anything, which is so of every run that has
    neither a watchdog nor a `hold_warning`: what else reads the clock makes figures of it.
    """

    def program_of(coverage: Coverage) -> Subject:
        register_barrier()
        register_tensors()
        register_disk()
        register_waits()
        run = run_of(scope, model, coverage, failing, turns, traced, **config)
        return Subject(run.main(), observe=run.observe, finish=run.finish, horizon=horizon, narrate=run.narrate)

    def without_tracer() -> Scenario:
        options: dict[str, Any] = {"failing": failing, "turns": turns, "run_of": run_of, "cancels": cancels, **config}
        options |= {"timers": timers, "horizon": horizon, "variants": variants, "traced": False}
        return whole_run(name, sentence, scope, model, None, **options)

    return Scenario(
        name=name,
        sentence=sentence,
        machine=machine,
        scope=scope,
        cancels=cancels,
        program_of=program_of,
        claims=run_of.claims,
        pinned=pinned,
        quick=quick,
        timers=timers,
        variants=variants,
        without_tracer=without_tracer,
    )
