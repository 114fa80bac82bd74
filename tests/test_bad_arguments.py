"""Wrong types, unknown names, negative sizes and tokens of another time: refused by name, and nothing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_arguments import LEDGER, LOADER, POOL, SAMPLER, Case, Situation, outcome
from bad_arguments_of_buffer import BARRIER, BUFFER, CHECKPOINTER, CONTROLLER, PLANE
from buffer_situations import make_ready
from memory_runs import SAMPLERS
from run_situations import Run, mixed

from impl import CleancutError, ReplayBuffer, TensorPlane
from impl.barrier import CheckpointBarrier
from impl.run.samplers import InOrderSampler

TABLE = [*LEDGER, *LOADER, *POOL, *BUFFER, *PLANE, *CHECKPOINTER, *CONTROLLER, *BARRIER]


async def situation(directory: Path) -> Situation:
    run = await mixed(Run(directory))
    await run.divert()
    claim = await run.claim(4)
    async with run.barrier.mutation() as stale:
        pass
    unclaimed = ReplayBuffer(run.barrier, 4, TensorPlane())
    await make_ready(unclaimed, 7)
    return Situation(run, claim, CheckpointBarrier(name="another"), stale, unclaimed)


def state(s: Situation) -> dict[str, object]:
    """Everything that a refused call might have moved."""
    run = s.run
    return {
        **run.state(),
        "unready": [slot.group for slot in run.buffer.slots.values() if not slot.ready],
        "permits": run.buffer.statistics(),
        "plane": run.plane.statistics(),
        "gate": (run.sampler.version, run.sampler.gate_open, run.sampler.groups_per_step),  # type: ignore[attr-defined]
        "claim": (s.claim.open, s.claim.groups, {group: list(s.claim.rows(group)) for group in s.claim.groups}),
        "mutations": run.barrier.statistics().closed_because,
        "unclaimed": s.unclaimed.statistics(),
        "failures": [entry.attempt for entry in run.ledger.entries.values()],
        "verify": run.plane.verify,
    }


async def refusal(s: Situation, case: Case, value: Any) -> BaseException | None:
    """What the call raises; an `assert` in a call counts as that."""
    try:
        if case.cut == "none":
            await outcome(case.call(s, s.stale, value))
        else:
            async with s.section(exclusive=case.cut == "exclusive") as cut:
                await outcome(case.call(s, cut, value))
    except BaseException as error:
        return error
    return None


@pytest.mark.parametrize("case", TABLE, ids=str)
async def test_a_wrong_argument_is_refused_by_name_and_changes_nothing(case: Case, tmp_path: Path) -> None:
    """One typed error for each wrong value, whichever it is."""
    assert await complaints(case, tmp_path, InOrderSampler) == []


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("case", SAMPLER, ids=str)
async def test_every_sampler_refuses_a_wrong_argument_by_name(case: Case, sampler: str, tmp_path: Path) -> None:
    """What to select and what is stale each of them decides by code of its own."""
    assert await complaints(case, tmp_path, SAMPLERS[sampler]) == []


async def complaints(case: Case, directory: Path, sampler: Callable[[int], Any]) -> list[str]:
    """What is wrong with the refusals of a case: another error, an argument that is not named, a change."""
    wrong = []
    for value in case.values:
        s = await situation(directory / "run")
        s.run.sampler = sampler(1)
        s.run.sampler.bind(4)
        s.run.sampler.advance(1)
        before = state(s)
        error = await refusal(s, case, value)
        after = state(s)
        if not isinstance(error, CleancutError):
            wrong.append(f"{value!r}: {type(error).__name__}: {error}"[:150])
        elif (case.names or case.argument) not in str(error):
            wrong.append(f"{value!r}: not named in {error}"[:250])
        if after != before:
            wrong.append(f"{value!r}: changed { {k: (before[k], after[k]) for k in before if before[k] != after[k]} }")
    return wrong
