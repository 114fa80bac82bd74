"""`validate` where a kill took the end of a trace and the next process did not find what the trace saw being saved.

What may be on the disk then: checkpoints that nobody saw, and other ones under names that were seen, since the numbers
of deleted ones are taken anew. A right run is accepted whatever was lost; a wrong one is refused where it can be told.
"""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from memory_runs import SAMPLERS, Image
from traced_runs import Lines, TracedRun, lines_of, nth, write

from interleavings.correspondence.validation import Validation, validate
from interleavings.scenarios import FakeDisk

pytestmark = pytest.mark.usefixtures("quiet_library")  # groups that fail on purpose warn of it

SETTINGS: dict[str, Any] = {"prompts": 10, "batch_size": 2, "max_in_flight": 8, "save_period": 1, "capacity": 8}


def lived(path: Path, disk: FakeDisk | None, sampler: str, chance: int) -> tuple[Lines, list[Image]]:
    """One process from a disk to the end of the data; its trace, and the disk after each publication."""
    run = TracedRun(path, deepcopy(disk), chance=chance, sampler=SAMPLERS[sampler](1), **SETTINGS)
    run.run_to_the_end()
    return lines_of(path), run.images


def said(result: Validation) -> str:
    """Everything that the result would tell, for an assertion."""
    return json.dumps(result.document(), indent=1)


def joined(path: Path, *lives: Lines) -> Validation:
    """The verdict about the processes of one run."""
    return validate([write(path, json.loads(json.dumps([line for life in lives for line in life])))])


def places(lines: Lines, action: str) -> list[int]:
    """Where the events of an action are."""
    return [at for at, line in enumerate(lines) if line.get("action") == action]


def restored(lines: Lines) -> dict[str, Any]:
    """The fields of the restore."""
    fields: dict[str, Any] = lines[nth(lines, "restore")]["fields"]
    return fields


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_numbers_of_deleted_checkpoints_are_taken_anew(tmp_path: Path, sampler: str) -> None:
    """The newest were deleted, or only an older copy of the directory was left; and then a kill takes the tail of the
    process that wrote others under the same names: all of it, its header alone kept, up to its restore, or more."""
    first, images = lived(tmp_path / "first.jsonl", None, sampler, 6)
    published = places(first, "publish")
    names = {first[at]["fields"]["name"] for at in published}
    taken_anew = 0
    for kept in range(3):
        second, later = lived(tmp_path / f"{kept}.jsonl", images[kept].disk, sampler, 31 + kept)
        for image in range(2):
            third, _ = lived(tmp_path / f"{kept}-{image}.jsonl", later[image].disk, sampler, 6)
            taken_anew += restored(third)["name"] in names
            written = places(second, "publish")[image]
            ends = {0, nth(second, "restore"), written}
            ends |= {at for at in places(second, "close_cut") if at <= written}
            for end in sorted(ends):
                for seen in (published[kept], published[kept + 2], places(first, "close_cut")[kept + 1]):
                    result = joined(tmp_path / "all.jsonl", first[: seen + 1], second[: end + 1], third)
                    assert result.verdict == "holds", (kept, image, end, seen, said(result))
                    if end == written:
                        assert result.restores_compared >= 1, said(result)
    assert taken_anew, "or no name is used twice"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_process_that_was_lost_whole_may_have_taken_a_number_anew(tmp_path: Path, sampler: str) -> None:
    """Not one event of it is left, as where a file is missing in the middle: who wrote a checkpoint tells it apart."""
    first, images = lived(tmp_path / "first.jsonl", None, sampler, 6)
    published = places(first, "publish")
    names = {first[at]["fields"]["name"] for at in published}
    taken_anew = 0
    for kept in range(2):
        _, later = lived(tmp_path / f"{kept}.jsonl", images[kept].disk, sampler, 31 + kept)
        for image in range(3):
            third, _ = lived(tmp_path / f"{kept}-{image}.jsonl", later[image].disk, sampler, 6)
            taken_anew += restored(third)["name"] in names
            for end in (published[-1], *(at for at in places(first, "close_cut") if published[2] < at < published[-1])):
                result = joined(tmp_path / "all.jsonl", first[: end + 1], third)
                assert result.verdict == "holds", (kept, image, end, said(result))
    assert taken_anew, "or no name is used twice"


def test_a_trace_without_fences_is_followed_as_before(tmp_path: Path, seen: tuple[Lines, Lines, list[Image]]) -> None:
    """They came later; what is compared by name alone still is."""
    first, second = json.loads(json.dumps(seen[:2]))
    kept = first[: places(first, "publish")[2] + 1]
    for line in (*kept, *second):
        line.get("fields", {}).pop("fence", None)
    right = joined(tmp_path / "right.jsonl", kept, second)
    assert (right.verdict, right.restores_compared) == ("holds", 1), said(right)
    forgotten(restored(second))
    assert joined(tmp_path / "wrong.jsonl", kept, second).verdict == "fails"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_going_back_to_an_older_one_and_then_to_one_that_nobody_saw(tmp_path: Path, sampler: str) -> None:
    """The newest could not be read for a while; what the process that passed it over read next is not that one."""
    first, images = lived(tmp_path / "first.jsonl", None, sampler, 6)
    published = places(first, "publish")
    others = 0
    for kept in range(3):
        second, _ = lived(tmp_path / f"{kept}.jsonl", images[kept].disk, sampler, 31 + kept)
        third, _ = lived(tmp_path / f"{kept}-again.jsonl", images[kept + 1].disk, sampler, 6)
        # Up to its first publication it does not show which number it took: one that is free.
        for end in (at for at in places(second, "close_cut") if at < nth(second, "publish")):
            result = joined(tmp_path / "all.jsonl", first[: published[kept] + 1], second[: end + 1], third)
            assert result.verdict == "holds", (kept, end, said(result))
            others += result.restores_compared == 1
    assert others, "or each window is that of the checkpoint"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lines, Lines, list[Image]]:
    """A process, and the next one, which goes on from the third of its checkpoints."""
    directory = tmp_path_factory.mktemp("seen")
    first, images = lived(directory / "first.jsonl", None, "in_order", 6)
    second, _ = lived(directory / "second.jsonl", images[2].disk, "in_order", 6)
    return first, second, images


def forgotten(fields: dict[str, Any]) -> None:
    """A prompt is lost."""
    (fields["pending"] or fields["ready"]).pop()


def doubled(fields: dict[str, Any]) -> None:
    """A prompt comes back as a spare too."""
    row = (fields["pending"] or fields["ready"])[0]
    fields["spares"].append(row[1:3])


def skewed(fields: dict[str, Any]) -> None:
    """The trainer is a version behind what was saved with it."""
    fields["version"] -= 1


def restamped(fields: dict[str, Any]) -> None:
    """A prompt comes back for another step."""
    row = (fields["pending"] or fields["ready"])[0]
    row[5 if fields["pending"] else 3] += 1


@pytest.mark.parametrize("fault", [forgotten, doubled, skewed, restamped])
@pytest.mark.parametrize("unsaid", [False, True])
def test_a_wrong_restore_is_refused_though_the_kill_took_the_publication(
    tmp_path: Path, seen: tuple[Lines, Lines, list[Image]], fault: Any, unsaid: bool
) -> None:
    """Its number can only be that of the last window: the process had published before, and the next one followed."""
    first, second = json.loads(json.dumps(seen[:2]))
    published = places(first, "publish")[2]
    window = max(at for at in places(first, "close_cut") if at < published)
    kept = first[: (window if unsaid else published) + 1]
    assert joined(tmp_path / "right.jsonl", kept, second).restores_compared == 1
    fault(restored(second))
    result = joined(tmp_path / "wrong.jsonl", kept, second)
    assert result.refusal is not None, said(result)
    assert result.refusal.event.startswith("restore")


@pytest.mark.parametrize("fault", [forgotten, doubled, skewed, restamped])
def test_a_wrong_restore_is_refused_though_its_writer_published_nothing_before_the_kill(
    tmp_path: Path, seen: tuple[Lines, Lines, list[Image]], fault: Any
) -> None:
    """The first window after a restore says which number it was read for, and nobody has to guess it."""
    first, _ = json.loads(json.dumps(seen[:2]))
    second, images = lived(tmp_path / "second.jsonl", seen[2][2].disk, "in_order", 31)
    third, _ = lived(tmp_path / "third.jsonl", images[0].disk, "in_order", 6)
    window = max(at for at in places(second, "close_cut") if at < places(second, "publish")[0])
    kept = first[: places(first, "publish")[2] + 1], second[: window + 1]
    right = joined(tmp_path / "right.jsonl", *kept, third)
    assert (right.verdict, right.restores_compared) == ("holds", 2), said(right)
    fault(restored(third))
    assert joined(tmp_path / "wrong.jsonl", *kept, third).verdict == "fails"


def test_what_a_program_traces_before_its_controller_hides_no_wrong_restore(
    tmp_path: Path, seen: tuple[Lines, Lines, list[Image]]
) -> None:
    """Events before the run is named have a segment of their own; the run goes on behind it."""
    first, second = json.loads(json.dumps(seen[:2]))
    kept = first[: places(first, "publish")[2] + 1]
    begins = {**first[1], "action": "program_begins", "task": None, "fields": {}}
    before = [{**first[0], "run": None, "segment": "before"}, begins, {"record": "end", "events": 1}]
    right = joined(tmp_path / "right.jsonl", kept, before, second)
    assert (right.verdict, right.restores_compared) == ("holds", 1), said(right)
    forgotten(restored(second))
    assert joined(tmp_path / "wrong.jsonl", kept, before, second).verdict == "fails"


def test_a_wrong_restore_of_a_name_that_was_not_taken_anew_is_refused_after_going_back(
    tmp_path: Path, seen: tuple[Lines, Lines, list[Image]]
) -> None:
    """Doubt is about what is newer than the checkpoint that a process went back to, and about nothing else."""
    first, second = json.loads(json.dumps(seen[:2]))
    back, _ = lived(tmp_path / "back.jsonl", seen[2][3].disk, "in_order", 6)
    kept = first[: places(first, "publish")[4] + 1], back[: nth(back, "restore") + 1]
    assert joined(tmp_path / "right.jsonl", *kept, second).restores_compared == 2
    forgotten(restored(second))
    assert joined(tmp_path / "wrong.jsonl", *kept, second).verdict == "fails"


@pytest.mark.parametrize("sampler", ["in_order", "weight_fifo"])
def test_a_process_may_restore_several_times_before_it_goes_on(tmp_path: Path, sampler: str) -> None:
    """With the buffer and without, older ones in between: each is put in the place of what was there."""
    first, images = lived(tmp_path / "first.jsonl", None, sampler, 6)
    kept = first[: places(first, "publish")[6] + 1]
    path = tmp_path / "second.jsonl"
    second = TracedRun(path, deepcopy(images[6].disk), chance=6, sampler=SAMPLERS[sampler](1), **SETTINGS)

    async def go_on() -> None:
        for step in (None, images[6].version - 1, None):
            for load_buffer in (True, False):
                await second.checkpointer.restore(step=step, load_buffer=load_buffer)
        await second.controller.run()

    asyncio.run(go_on())
    second._tracer.close()
    result = joined(tmp_path / "all.jsonl", kept, lines_of(path))
    assert (result.verdict, result.restores) == ("holds", result.restores_compared), said(result)
    assert result.restores >= 6
