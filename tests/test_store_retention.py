"""Which checkpoints go, and that none goes because of a save that failed."""

import errno
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from store_situations import IDENTITY, failing_files, new_store, open_store, publish, valid_texts

from impl import CleancutError, UsageError
from impl.store import Kind, Known, check_keep, removable


def known(sequence: int, kind: Kind = "full", anchor: str | None = None) -> Known:
    return Known(f"step_{sequence}-{sequence}", sequence, sequence, kind, anchor, 1, IDENTITY)


def test_saves_of_the_trainer_alone_take_the_place_of_no_full_one() -> None:
    """A run taken up without recovery must not remove the checkpoints that still hold prompts."""
    saves = [known(1), known(2), known(3, "rollout", "step_2-2"), *(known(number, "trainer") for number in (4, 5, 6))]
    assert removable(saves, keep=2) == ("step_4-4",)


@pytest.mark.parametrize("keep", [0, -1, None, 1.0, True, "3"])
def test_case_E06_a_limit_that_would_remove_the_checkpoint_just_written_is_refused(
    keep: object, tmp_path: Path
) -> None:
    """Cases E06, E07: 0 removed everything, -1 was taken for a small limit."""
    with pytest.raises(UsageError, match="keep="):
        new_store(tmp_path, keep=keep)  # type: ignore[arg-type]
    assert check_keep(10**9) == 10**9


@pytest.mark.parametrize("call", ["mkdir", "open_new", "write", "fsync", "close", "fsync_dir", "rename"])
def test_case_E06_saves_that_fail_at_any_stage_five_times_remove_nothing(tmp_path: Path, call: str) -> None:
    """Case E06: rotation before writing loses the only good copy, or pushes a good one out with each try."""
    for nth in range(20):
        root = tmp_path / str(nth)
        with open_store(root, keep=1) as store:
            publish(store, 1)
        store = new_store(root, failing_files(errno.EIO, call=call, nth=nth, lasting=True), keep=1)
        failures = 0
        for attempt in range(5):
            try:
                store.open()
                publish(store, 2 + attempt)
            except CleancutError:
                failures += 1
            assert valid_texts(root), f"{call} {nth}, attempt {attempt}"
        store.close()
        if failures == 0:
            break
        if failures == 5:
            assert "step 1" in valid_texts(root)


def test_only_the_newest_are_kept_and_each_goes_after_its_successor_is_durable(tmp_path: Path) -> None:
    """The ordinary course."""
    with open_store(tmp_path, keep=2) as store:
        for step in range(1, 6):
            publish(store, step)
            assert len(valid_texts(tmp_path)) == min(step, 2)
    assert valid_texts(tmp_path) == ["step 5", "step 4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".LOCK", "LATEST", "WRITER", "step_4-4", "step_5-5"]


def test_case_C04_after_going_back_the_parent_stays_until_the_child_is_durable(tmp_path: Path) -> None:
    """Case C04: an old checkpoint restored beside newer ones; retention counts what was saved, not the step."""
    with open_store(tmp_path, keep=2) as store:
        publish(store, 10)
        publish(store, 20)
    store = new_store(tmp_path, failing_files(errno.ENOSPC, call="write", nth=1), keep=2)
    store.open()
    with pytest.raises(CleancutError):
        publish(store, 11)
    assert valid_texts(tmp_path) == ["step 20", "step 10"]
    publish(store, 11)
    assert valid_texts(tmp_path) == ["step 11", "step 20"]
    store.close()


def test_a_damaged_checkpoint_neither_counts_nor_goes(tmp_path: Path) -> None:
    """Counting it would push out a good one; removing it would destroy what somebody wants to look at."""
    with open_store(tmp_path, keep=2) as store:
        for step in (1, 2):
            publish(store, step)
    (tmp_path / "step_2-2" / "words.json").write_text("{}")
    with open_store(tmp_path, keep=2) as store:
        publish(store, 3)
        publish(store, 4)
    assert {path.name for path in tmp_path.glob("step_*")} == {"step_2-2", "step_3-3", "step_4-4"}


def test_a_removal_that_was_cut_short_never_looks_like_a_checkpoint(tmp_path: Path) -> None:
    """It is renamed before its files go."""
    with open_store(tmp_path, keep=1) as store:
        publish(store, 1)
    store = new_store(tmp_path, failing_files(errno.EIO, call="unlink", nth=1), keep=1)
    store.open()
    notices = publish(store, 2).notices
    assert "next one" in notices[0]
    assert {path.name for path in tmp_path.iterdir() if "step" in path.name} == {"step_2-2", ".deleting-step_1-1"}
    assert publish(store, 3).notices == ()
    assert {path.name for path in tmp_path.iterdir() if "step" in path.name} == {"step_3-3"}
    store.close()


def test_a_rollout_snapshot_keeps_its_anchor_and_goes_with_the_next_full_save() -> None:
    """Without its full save it has no trainer to go with."""
    anchored = [known(1), known(2), known(3, "rollout", "step_2-2"), known(4, "rollout", "step_2-2")]
    assert removable(anchored, keep=1) == ("step_3-3", "step_1-1")
    back_to_one = [known(1), known(2), known(3, "rollout", "step_1-1")]
    assert removable(back_to_one, keep=1) == (), "the anchor may be older than the newest full save"
    assert removable([*anchored, known(5)], keep=1) == ("step_3-3", "step_4-4", "step_1-1", "step_2-2")


@st.composite
def histories(draw: st.DrawFn) -> list[Known]:
    """Full saves and rollout snapshots on any earlier full save."""
    history: list[Known] = [known(1)]
    for sequence in range(2, draw(st.integers(2, 12))):
        full = [entry.name for entry in history if entry.kind == "full"]
        if draw(st.booleans()):
            history.append(known(sequence))
        else:
            history.append(known(sequence, "rollout", draw(st.sampled_from(full))))
    return history


@hypothesis.given(histories(), st.integers(1, 4))
def test_the_newest_always_stays_with_everything_it_needs(history: list[Known], keep: int) -> None:
    """Whatever came before: the newest one, its anchor, and `keep` full saves if there are as many."""
    gone = removable(history, keep)
    stay = [entry for entry in history if entry.name not in gone]
    names = {entry.name for entry in stay}
    assert history[-1].name in names
    assert all(entry.anchor is None or entry.anchor in names for entry in stay)
    full = [entry for entry in history if entry.kind == "full"]
    assert {entry.name for entry in full[-keep:]} <= names
    assert len(stay) <= 3 * keep
    for number in range(len(gone)):
        left = {entry.name: entry for entry in history if entry.name not in gone[:number]}
        assert all(entry.anchor is None or entry.anchor in left for entry in left.values()), "a kill may come here"
