"""Admission and its gate against a save; and the sampler that waits for its gate in a slot, whose deadlock is found.

`gate` has no lookahead: each admission but the first waits for the trainer, which saves between two steps. `gate_limit`
is the same with a sampler of the `Sampler` protocol, without the split, under a drain limit: the run may fail, and then
it fails with an error that names the slot. `gate_in_slot` is that sampler without a limit. It is a control, which the
explorer must see fail; it is followed by the machine's variant of the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from impl.barrier import CheckpointBarrier, Cut
from impl.errors import DrainTimeout
from impl.keys import GroupId
from impl.loaders.prompt_loader import PromptLoader
from impl.run.samplers import InOrderSampler, Sampler, SamplerState
from impl.run.samplers.protocol import Occupants, SlotView
from impl.waiting import Wakeup
from spec.machines.cut import CutScope

from ..correspondence.follower import Coverage, Event, Follower, Path, Remembered, Stutter
from ..correspondence.refinement import cut_model
from ..errors import Violation
from ..runtime.waits import Wait, register_wait
from .scenario import Pinned
from .waiting import gate_of
from .whole_run import CLAIMS, WholeRun, loader_of, whole_run

ATOMIC = "enter_slot, leave_slot of another kind: slots are atomic in the cut machine"


class WaitsInSlot:
    """A sampler without the split, in order and without lookahead: `admit`, inside the slot, waits for the gate."""

    name = "waits_in_slot"
    stamped = True

    def __init__(self) -> None:
        self._inner = InOrderSampler(lookahead=0)
        self._moved = Wakeup()

    @property
    def cursor(self) -> int:
        return self._inner.cursor

    def bind(self, groups_per_step: int, occupants: Occupants | None = None) -> None:
        self._inner.bind(groups_per_step, occupants)

    async def admit(self, cut: Cut) -> int | None:
        while not self._inner.gate_open:
            await self._moved.wait()
        return self._inner.commit_admission(cut)

    def advance(self, version: int) -> None:
        self._inner.advance(version)
        self._moved.wake()

    def target(self, step: int) -> int:
        return self._inner.target(step)

    def credit(self, step: int, missing: int) -> None:
        self._inner.credit(step, missing)

    def record_drop(self) -> None:
        self._inner.record_drop()

    def select(self, slots: Mapping[GroupId, SlotView], version: int, target: int) -> tuple[GroupId, ...]:
        return self._inner.select(slots, version, target)

    def stale(self, slots: Mapping[GroupId, SlotView], version: int) -> tuple[GroupId, ...]:
        return self._inner.stale(slots, version)

    def capacity_needed(self, groups_per_step: int) -> int:
        return self._inner.capacity_needed(groups_per_step)

    def parameters(self) -> Mapping[str, int | str]:
        return self._inner.parameters()

    def state(self) -> SamplerState:
        return self._inner.state()

    def load_state(self, state: SamplerState) -> None:
        self._inner.load_state(state)


def _in_its_slot(held: Mapping[str, Any]) -> Wait:
    return gate_of(held["self"]._inner)


class WaitsForItsData(PromptLoader):
    """A loader that waits for its second batch, outside of any slot, as one with workers may."""

    async def prepare(self) -> None:
        if self.state().position == 1:
            await asyncio.sleep(0)


class GateInSlot(WholeRun):
    """A run with that sampler, followed by the machine in which the admitter waits in its slot.

    The loader waits for its data. While it does, a train step may end, and the save after it is asked for one turn of
    the loop later: in that turn the admitter may come to hold the slot in which it waits for the step after the save.
    """

    def loader(self) -> PromptLoader:
        return loader_of(self.scope, WaitsForItsData)

    def sampler(self) -> Sampler:
        register_wait(WaitsInSlot.admit, _in_its_slot)
        return WaitsInSlot()

    def follow(self, model: Remembered, coverage: Coverage) -> Follower:
        """As ever, and the slot in which the admission waits is the variant's `pass_gate`."""
        follower = super().follow(model, coverage)
        return follower.with_rules({"enter_slot": self.enter_slot, "leave_slot": self.leave_slot})

    def finish(self) -> str | None:
        """The run ends after its first step, or with the error of a save, and leaves nothing behind."""
        return self.left_behind()

    @staticmethod
    def enter_slot(event: Event, state: Any) -> Path | Stutter:
        """The variant's admitter enters its slot first, whatever the gate."""
        if event.fields["kind"] == "admissions":
            return [("pass_gate", None)]
        return Stutter(ATOMIC)

    def leave_slot(self, event: Event, state: Any) -> Stutter:
        """The end of a run cancels the admitter, which gives its slot back. The machine's runs end by themselves."""
        if event.fields["kind"] == "admissions" and state.admission_slot:
            self.follower.state = state._replace(admission_slot=0)
        return Stutter(ATOMIC)


class GateInSlotWithLimit(GateInSlot):
    """The same under a drain limit: what would be the deadlock ends with an error that names the slot."""

    claims = (*CLAIMS, "drain_limit_names_holders")

    def barrier(self) -> CheckpointBarrier:
        return CheckpointBarrier(trace=self.trace, drain_timeout=60.0)

    async def main(self) -> None:
        try:
            await super().main()
        except DrainTimeout as error:
            named = [(holder.task, holder.kind) for holder in error.holders]
            if named != [("rollout-pump", "admissions")] or "rollout-pump" not in str(error):
                raise Violation("drain_limit_names_holders", f"the drain limit named {named}: {error}") from error


SCOPE = CutScope(batches=2, batch_size=1, lookahead=0, saves=2, crashes=0)
GATE = whole_run(
    "gate",
    "2 batches of 1 prompt without lookahead: the gate opens with a train step, and the trainer saves between two",
    SCOPE,
    cut_model(SCOPE),
    Pinned(states=2_788, schedules=31_029_848_748),
    turns=False,
    quick=False,
    save_period=1,
)
# The third batch is only waited for: the run is over after its first step.
THREE = CutScope(batches=3, batch_size=1, lookahead=0, saves=2, crashes=0)
WAITS_IN_SLOT = ("gate_in_slot",)
LIMIT = whole_run(
    "gate_limit",
    "1 step with a sampler that waits for its gate in its slot: the drain limit ends the wait and names the slot",
    THREE,
    cut_model(THREE, WAITS_IN_SLOT),
    Pinned(states=1_608, schedules=308_179_419),
    turns=False,
    quick=False,
    run_of=GateInSlotWithLimit,
    variants=WAITS_IN_SLOT,
    save_period=1,
    max_steps=1,
    failed_saves_tolerated=0,
)
IN_SLOT = whole_run(
    "gate_in_slot",
    "a sampler that waits in its slot: the save waits for the slot, the slot for the trainer, the trainer for the save",
    THREE,
    cut_model(THREE, WAITS_IN_SLOT),
    None,
    turns=False,
    quick=False,
    run_of=GateInSlot,
    variants=WAITS_IN_SLOT,
    save_period=1,
    max_steps=1,
)
