"""What tasks of `impl` wait for, in words, and who can end the wait: for the explorer's report of a deadlock.

Only where a task waits on a future of the library's own; asyncio's primitives the explorer knows by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from impl.barrier import CheckpointBarrier
from impl.barrier.asyncio_sections import AsyncioSection
from impl.controller.supervisor import Supervisor
from impl.run.buffer import ReplayBuffer
from impl.run.permits import PermitPool
from impl.run.samplers.step_sampler import StepSampler

from ..runtime.waits import Wait, register_wait


def register_waits() -> None:
    """Teach the explorer the waits of the barrier and of a run."""
    register_wait(CheckpointBarrier._wait, _for_the_barrier)
    register_wait(ReplayBuffer.wait_changed, _for_the_buffer)
    register_wait(PermitPool.acquire, _for_a_permit)
    register_wait(StepSampler.wait_until_admissible, _at_the_gate)
    register_wait(Supervisor.wait_ended, _for_a_task)
    register_wait(Supervisor.wait_done_or_failed, _for_a_task)


def _for_the_barrier(held: Mapping[str, Any]) -> Wait:
    """A slot waits for the checkpoints before it; a checkpoint waits for the cut before it, or for the open slots."""
    barrier, section = held["self"], held["section"]
    core = barrier._core
    name = f"barrier {barrier.name!r}"
    if core.cut is not None:
        return Wait(f"{_asked(section)} of {name}, shut by the open {_section(core.cut)}", [core.cut.task])
    if section.exclusive:
        slots = list(core.inside)
        first = ", ".join(map(_section, slots)) or "none"
        return Wait(f"{_asked(section)} of {name}, before which must end: {first}", [slot.task for slot in slots])
    draining = core.draining
    before = "which is shut" if draining is None else f"shut by the {_section(draining)}, which drains"
    return Wait(f"{_asked(section)} of {name}, {before}", [] if draining is None else [draining.task])


def _asked(section: AsyncioSection) -> str:
    return "the checkpoint" if section.exclusive else f"a slot (kind {section.kind!r})"


def _section(section: Any) -> str:
    what = "checkpoint" if section.exclusive else f"slot of kind {section.kind!r}"
    return f"{what} of {section.task_name or 'a callback'}, opened at {section.place.rpartition('/')[2]}"


def _for_the_buffer(held: Mapping[str, Any]) -> Wait:
    counts = held["self"].statistics()
    slots = ", ".join(f"{counts[name]} {name}" for name in ("unready", "ready", "claimed"))
    return Wait(f"a change of the replay buffer, whose slots are {slots}")


def _for_a_permit(held: Mapping[str, Any]) -> Wait:
    pool = held["self"]
    return Wait(f"a permit of {pool.name!r}, of which {pool.free} of {pool.capacity} are free")


def _at_the_gate(held: Mapping[str, Any]) -> Wait:
    return gate_of(held["self"])


def gate_of(sampler: StepSampler) -> Wait:
    """The gate of a sampler: the train pump opens it, with its next step."""
    where = f"dispatch cursor {sampler.cursor}, trainer version {sampler.version}"
    return Wait(f"the {sampler.name} gate, which the trainer opens ({where})", ["train-pump"])


def _for_a_task(held: Mapping[str, Any]) -> Wait:
    task = held["task"]
    return Wait(f"the end of task {task.get_name()}", [task])
