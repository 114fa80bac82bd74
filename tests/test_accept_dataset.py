"""A restore over another dataset: refused, unless that is wanted, and then named in every later manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_situations import Run, forge, saved

from impl import CheckpointIncompatible, ControllerConfig, UsageError
from impl.loaders import dataset_digest


def rows(changed: int | None = None, count: int = 16) -> list[Any]:
    """Large arrays, of which one has another value in its middle."""
    found = [np.full(5_000, row, dtype=np.float32) for row in range(count)]
    if changed is not None:
        found[changed][2_500] += 1
    return found


def accepted(directory: Path, name: str) -> Any:
    return json.loads((directory / name / "manifest.json").read_text()).get("accepted")


async def test_case_G21_a_restore_over_a_changed_large_row_is_refused_and_names_the_way_in(tmp_path: Path) -> None:
    """Every kind of start asks: the restore, and the first save of a run that did not restore."""
    await saved(tmp_path, dataset=rows())
    changed = Run(tmp_path, dataset=rows(changed=7))
    with pytest.raises(CheckpointIncompatible, match=r"dataset_digest.*accept_dataset=True"):
        await changed.checkpointer.restore()
    with pytest.raises(CheckpointIncompatible, match="another run"):
        await Run(tmp_path, dataset=rows(changed=7)).checkpointer.prepare()
    same = Run(tmp_path, dataset=rows())
    assert (await same.checkpointer.restore()).step == 1
    assert accepted(tmp_path, "step_1-1") is None


async def test_case_G21_a_wanted_change_of_the_dataset_is_in_the_lineage(tmp_path: Path) -> None:
    """What was trained on what can be told from the manifests, however many restarts and changes come after."""
    await saved(tmp_path, dataset=rows(), keep=9)
    digests = [dataset_digest(rows(changed), None) for changed in (None, 7, 8)]
    second = Run(tmp_path, dataset=rows(changed=7), keep=9, accept_dataset=True)
    await second.checkpointer.prepare()
    await second.checkpointer.restore()
    info = await second.checkpointer.save()
    await second.checkpointer.close()
    assert accepted(tmp_path, info.name) == [{"checkpoint": "step_1-1", "dataset_digest": digests[0]}]
    # Without the override from here on, for the dataset is the one of the newest checkpoint; then a second change.
    third = Run(tmp_path, dataset=rows(changed=7), keep=9)
    await third.checkpointer.restore()
    info = await third.checkpointer.save()
    await third.checkpointer.close()
    assert accepted(tmp_path, info.name) == [{"checkpoint": "step_1-1", "dataset_digest": digests[0]}]
    fourth = Run(tmp_path, dataset=rows(changed=8), keep=9, accept_dataset=True)
    await fourth.checkpointer.restore()
    last = await fourth.checkpointer.save()
    await fourth.checkpointer.close()
    assert accepted(tmp_path, last.name) == [
        {"checkpoint": "step_1-1", "dataset_digest": digests[0]},
        {"checkpoint": info.name, "dataset_digest": digests[1]},
    ]


async def test_an_accepted_dataset_has_as_many_rows(tmp_path: Path) -> None:
    """Their number decides the order of an epoch; with another one the place in it would mean nothing."""
    await saved(tmp_path, dataset=rows())
    longer = Run(tmp_path, dataset=rows(count=17), accept_dataset=True)
    with pytest.raises(CheckpointIncompatible, match="dataset_length: 16 in the checkpoint, 17 here"):
        await longer.checkpointer.restore()


async def test_only_the_dataset_is_accepted(tmp_path: Path) -> None:
    """The override opens one door."""
    await saved(tmp_path, dataset=rows())
    other = Run(tmp_path, dataset=rows(changed=1), seed=4, accept_dataset=True)
    with pytest.raises(CheckpointIncompatible, match="seed: 3 in the checkpoint, 4 here") as refused:
        await other.checkpointer.restore()
    assert "dataset_digest:" not in str(refused.value)


async def test_a_checkpoint_with_an_earlier_digest_is_restored_and_its_successor_has_the_new_one(
    tmp_path: Path,
) -> None:
    """What version 0.1.0 wrote of arrays is compared by what it saw of them, and is no change to be recorded."""
    await saved(tmp_path, dataset=rows())
    now = dataset_digest(rows(), None)
    _, _, earlier = now.split(":")

    forge(tmp_path, "loader.json", lambda loader: loader["state"].update(dataset_digest=earlier))
    manifest_file = tmp_path / "step_1-1" / "manifest.json"
    data = manifest_file.read_bytes().replace(now.encode(), earlier.encode())
    manifest_file.write_bytes(data)
    manifest_file.with_suffix(".sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")
    resumed = Run(tmp_path, dataset=rows())
    await resumed.checkpointer.restore()
    info = await resumed.checkpointer.save()
    await resumed.checkpointer.close()
    manifest = json.loads((tmp_path / info.name / "manifest.json").read_text())
    assert manifest["identity"]["dataset_digest"] == now
    assert "accepted" not in manifest


async def test_a_trainer_is_taken_up_over_an_accepted_dataset(tmp_path: Path) -> None:
    """Without recovery the data begins anew, and the lineage tells of the change all the same."""
    await saved(tmp_path, dataset=rows(), recovery=False)
    changed = Run(tmp_path, dataset=rows(changed=2), recovery=False)
    with pytest.raises(CheckpointIncompatible, match="accept_dataset=True"):
        await changed.checkpointer.restore()
    wanted = Run(tmp_path, dataset=rows(changed=2), recovery=False, accept_dataset=True)
    await wanted.checkpointer.restore()
    info = await wanted.checkpointer.save()
    await wanted.checkpointer.close()
    assert len(accepted(tmp_path, info.name)) == 1


def test_a_configuration_names_the_override() -> None:
    """Refused at once when it is no truth value."""
    assert not ControllerConfig().accept_dataset
    with pytest.raises(UsageError, match="accept_dataset is 1"):
        ControllerConfig(accept_dataset=1)  # type: ignore[arg-type]
