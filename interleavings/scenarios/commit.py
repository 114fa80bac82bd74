"""A whole run of the real controller: admission, commit and claim against a save, on a disk in memory.

Two batches of one prompt, one step of lookahead, a full save after the first step and one at the end. Both pumps, the
generations, the barrier, the buffer over real tensors, the checkpointer and its store are the library's own; only the
file system and the two callables are ours. Every published checkpoint is read back: its image must be the machine's,
and every prompt handed out must have one owner in it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

from impl.barrier import CheckpointBarrier
from impl.checkpointer import Checkpointer
from impl.controller import Controller, ControllerConfig
from impl.loader import PromptLoader
from impl.samplers import InOrderSampler
from impl.store.lock import WriterIdentity
from spec.cut import CutScope
from spec.cut import cut as machine

from ..errors import Violation
from ..follower import Coverage, View
from ..refinement import Prompts, cut_model, follow_cut, image_of_files, image_of_machine, owners_of_files
from ..subject import Subject
from .fake_disk import FakeDisk
from .readings import register_barrier, register_tensors
from .scenario import Pinned, Scenario

BATCHES, SAVES = 2, 2
SCOPE = CutScope(batches=BATCHES, batch_size=1, lookahead=1, saves=SAVES, crashes=0)
MODEL = cut_model(SCOPE)
DIRECTORY = "/checkpoints"


class Run:
    """One controller, followed by the cut machine and read back at every publication."""

    def __init__(self, coverage: Coverage) -> None:
        import torch

        self.prompts = Prompts()
        self.follower = follow_cut(MODEL, lambda: self.controller, self.prompts, coverage)
        self.disk = FakeDisk(DIRECTORY)
        # What the machine has fixed with the end of a window, until it is found in files.
        self.images: list[View] = []
        self.published: list[str] = []
        self.rows = {"tokens": torch.zeros(1, 1, dtype=torch.uint8)}
        barrier = CheckpointBarrier(trace=self.trace)
        self.controller = Controller(
            loader=PromptLoader(["first", "second"], batch_size=1, seed=0),
            generate=self.generate,
            train=self.train,
            sampler=InOrderSampler(lookahead=1),
            checkpointer=Checkpointer(DIRECTORY, barrier, files=self.disk, executor=None, identity=self.identity()),
            config=ControllerConfig(save_period=1, stall_warning=None, generations=1),
        )

    def identity(self) -> WriterIdentity:
        """A writer whose names repeat from run to run."""
        tokens = itertools.count()
        return WriterIdentity("the scenario", lambda: str(next(tokens)))

    def trace(self, action: str, /, **fields: Any) -> None:
        """Pass events to the follower; note what was published."""
        self.follower(action, **fields)
        if action == "publish":
            self.published.append(fields["name"])

    async def generate(self, request: object) -> Mapping[str, Any]:
        """One group of one generation of one token, a turn of the loop later."""
        await asyncio.sleep(0)
        return self.rows

    async def train(self, batch: object) -> None:
        """Nothing to learn, and a turn of the loop to learn it in."""
        await asyncio.sleep(0)

    def observe(self) -> Any:
        """Follow the step; compare every new checkpoint with the machine's image, and count its owners."""
        state = self.follower.observe(self.on_action)
        for name in self.published:
            self.check_published(name)
        self.published.clear()
        return state

    def on_action(self, action: str, before: Any) -> None:
        """Keep the image that the machine publishes."""
        if action == "publish":
            self.images.append(image_of_machine(before))

    def check_published(self, name: str) -> None:
        """One owner for every key behind the loader's cursor, and the machine's image of the same window."""
        documents = self.disk.documents(f"{DIRECTORY}/{name}")
        owners = owners_of_files(documents)
        position = documents["loader.json"]["state"]["position"]
        handed_out = [key for key, number in self.prompts.known().items() if number < position]
        wrong = {key: owners.get(key, []) for key in handed_out if len(owners.get(key, [])) != 1}
        wrong |= {key: who for key, who in owners.items() if key not in handed_out}
        if wrong:
            raise Violation(
                "one_owner_on_disk",
                f"in {name} these keys do not have exactly one owner",
                {f"key {key}": who or ["nobody"] for key, who in wrong.items()},
            )
        expected, found = self.images.pop(0), image_of_files(documents, self.prompts)
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

    def finish(self) -> str | None:
        """The run trained everything and left nothing behind."""
        view = self.follower.state
        if not machine.progress or not machine.progress.finished(view):
            return f"the run ended, but the machine is not finished: {view}"
        return f"{len(self.images)} windows were never published" if self.images else None


def program_of(coverage: Coverage) -> Subject:
    """A fresh run."""
    register_barrier()
    register_tensors()
    run = Run(coverage)
    return Subject(run.controller.run(), observe=run.observe, finish=run.finish)


SCENARIO = Scenario(
    name="commit",
    sentence="a whole run of 2 batches of 1 prompt on the real controller: admission, commit and claim against a save",
    machine=machine,
    scope=SCOPE,
    cancels=0,
    program_of=program_of,
    claims=("refinement", "one_owner_on_disk", "image_equals_cut", "deadlock"),
    pinned=Pinned(states=2_792, schedules=9_853_565_711_520),
)
