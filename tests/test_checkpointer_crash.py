"""Cases C10, E01, E03 with a whole run: whichever call is the last, it comes back as it was at one of its saves."""

import shutil
from pathlib import Path

import pytest
from run_situations import Run, mixed
from store_situations import Died, dying_files, recording_files

from impl.store import Files


async def second_life(directory: Path, files: Files) -> Run:
    """Restore, go on a little, save again, and end in order; or die in one of the calls."""
    run = Run(directory, files=files, name="second")
    try:
        await run.checkpointer.restore()
        await run.dispatch(5)
        await run.commit(5)
        await run.reserve()
        await run.checkpointer.save()
        await run.checkpointer.close()
    except Died:
        run.died = True
    return run


@pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
async def test_case_C10_a_run_that_dies_in_any_call_comes_back_as_the_old_or_the_new_one(
    tmp_path: Path, effect: bool
) -> None:
    """Restoring, saving, publishing, closing: every call of the second life is the last one once."""
    first = await mixed(Run(tmp_path / "first"))
    await first.checkpointer.save()
    await first.checkpointer.close()
    old = first.state()
    files, calls = recording_files()
    shutil.copytree(tmp_path / "first", tmp_path / "undisturbed")
    new = (await second_life(tmp_path / "undisturbed", files)).state()
    assert new != old
    found = []
    for at in range(len(calls)):
        directory = tmp_path / str(at)
        shutil.copytree(tmp_path / "first", directory)
        assert (await second_life(directory, dying_files(at, effect=effect))).died
        resumed = Run(directory, name="third")
        await resumed.checkpointer.restore()
        assert resumed.state() in (old, new), f"died in call {at}, {calls[at]}"
        found.append(resumed.state() == new)
    assert found == sorted(found), "once the new one is there it stays"
    assert set(found) == {False, True}
