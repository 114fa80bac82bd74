"""How a checkpoint is published: the order of calls, and what is on the disk when any of them fails or is the last."""

import errno
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from store_situations import (
    IDENTITY,
    Died,
    dying_files,
    failing_files,
    fill_with,
    new_store,
    open_store,
    publish,
    recording_files,
    text_of,
    valid_texts,
)

from impl import CleancutError, InvariantViolated, StoreFailed, StoreFull, UsageError
from impl.store import DELETING_PREFIX, CheckpointStore, Draft, Published, StagedDirectory


def names_in(root: Path) -> set[str]:
    """Everything in a checkpoint directory but the files of the writer itself."""
    return {path.name for path in root.iterdir()} - {".LOCK", "WRITER", "LATEST"}


def with_one_checkpoint(root: Path) -> Path:
    """A directory with one checkpoint, of step 1."""
    with open_store(root) as store:
        publish(store, 1)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with one checkpoint, of step 1."""
    return with_one_checkpoint(tmp_path / "run")


def test_everything_is_synced_before_the_rename_and_the_parent_after_it(root: Path) -> None:
    """Case E03: a rename that reaches the disk before the data gives a right name over zeros."""
    files, calls = recording_files()
    with open_store(root, files) as store:
        del calls[:]
        publish(store, 2)
    staging = str(next(arguments[0] for call, arguments in calls if call == "mkdir"))
    rename = calls.index(("rename", (staging, f"{root}/step_2-2")))
    before, after = calls[:rename], calls[rename + 1 :]

    created = [arguments[0] for call, arguments in before if call == "open_new"]
    assert sum(call == "fsync" for call, _ in before) == len(created) == 4
    assert [path.removeprefix(f"{staging}/") for path in created] == [
        "words.json",
        "trainer/weights.bin",
        "manifest.json",
        "manifest.sha256",
    ]
    synced = [arguments[0] for call, arguments in before if call == "fsync_dir"]
    assert synced == [f"{staging}/trainer", staging], "directories innermost first, after every file in them"
    assert before.index(("fsync_dir", (f"{staging}/trainer",))) > max(
        place for place, (call, _) in enumerate(before) if call == "fsync"
    )
    fencing = [call for call, _ in before[before.index(("fsync_dir", (staging,))) + 1 :]]
    assert fencing == ["open_read", "read_into", "close"], "the fencing number is read again last of all"
    assert after[0] == ("fsync_dir", (str(root),)), "durable from here on; nothing comes between"
    assert [call for call, _ in after[1:]] == ["open_new", "write", "fsync", "close", "replace", "unlock"]


def test_case_E03_a_save_that_returned_survives_with_no_call_after_the_parent_was_synced(root: Path) -> None:
    """Success means durable: whatever happens to LATEST and to retention afterwards, the checkpoint is the newest."""
    with open_store(root, failing_files(errno.EIO, call="replace", nth=1)) as store:
        published = publish(store, 2)
    assert valid_texts(root) == ["step 2", "step 1"]
    assert (root / "LATEST").read_text() == "step_1-1\n"
    assert "LATEST" in published.notices[0]


@pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
def test_case_C10_death_in_any_call_leaves_the_old_or_the_new_checkpoint_in_full(tmp_path: Path, effect: bool) -> None:
    """Cases C10, E01, E03: crash in every single file-system call from taking the lock to giving it back."""
    found = []
    for at in count():
        root = with_one_checkpoint(tmp_path / str(at))
        try:
            with open_store(root, dying_files(at, effect=effect)) as store:
                publish(store, 2)
        except Died:
            pass
        else:
            break
        found.append(valid_texts(root))
        with open_store(root) as store:
            publish(store, 3)
        assert valid_texts(root)[0] == "step 3", f"died in call {at}: the next save must work"
        assert not [name for name in names_in(root) if name.startswith(".")], f"died in call {at}: leftovers stay"
    old, new = ["step 1"], ["step 2", "step 1"]
    turning_point = found.index(new)
    assert found == [old] * turning_point + [new] * (len(found) - turning_point)
    files, calls = recording_files()
    with open_store(with_one_checkpoint(tmp_path / "counted"), files) as store:
        publish(store, 2)
    assert len(found) == len(calls), "every call of a whole life was the last one once"


def try_to_publish(store: CheckpointStore, step: int) -> Published | CleancutError:
    """Open and publish; what came of it."""
    try:
        store.open()
        return publish(store, step)
    except CleancutError as error:
        return error


@pytest.mark.parametrize("call", ["mkdir", "open_new", "write", "close"])
def test_case_E25_a_full_disk_in_any_call_keeps_the_previous_checkpoint_and_the_next_save_works(
    tmp_path: Path, call: str
) -> None:
    """Case E25: no room, or no inode, at each point of a save; the error says so and carries the errno."""
    failures = 0
    for nth in count():
        root = with_one_checkpoint(tmp_path / f"{call}-{nth}")
        store = new_store(root, failing_files(errno.ENOSPC, call=call, nth=nth))
        outcome = try_to_publish(store, 2)
        if isinstance(outcome, Published):
            assert valid_texts(root) == ["step 2", "step 1"]
            if not outcome.notices:
                break
        else:
            failures += 1
            # A file that is closed after it was read takes no room: case G18, told as a read that failed.
            was_read = call == "close" and str(outcome).startswith("reading ")
            assert isinstance(outcome, StoreFailed if was_read else StoreFull)
            assert isinstance(outcome.__cause__, OSError)
            assert outcome.__cause__.errno == errno.ENOSPC
            assert valid_texts(root) == ["step 1"]
            assert not [name for name in names_in(root) if "staging" in name], "the room is needed"
        assert isinstance(try_to_publish(store, 3), Published)
        assert valid_texts(root)[0] == "step 3"
        store.close()
    assert failures == {"mkdir": 2, "open_new": 5, "write": 5, "close": 9}[call], "each call was made to fail once"


@pytest.mark.parametrize("call", ["fsync", "fsync_dir"])
def test_after_a_failed_fsync_the_attempt_is_abandoned_and_nothing_is_synced_again(tmp_path: Path, call: str) -> None:
    """Case E03: a second fsync may report success for pages that the first one lost."""
    failures = 0
    for nth in count():
        root = with_one_checkpoint(tmp_path / f"{call}-{nth}")
        calls: list[tuple[str, tuple[Any, ...]]] = []
        store = new_store(root, failing_files(errno.EIO, call=call, nth=nth, calls=calls))
        outcome = try_to_publish(store, 2)
        if isinstance(outcome, Published):
            if not outcome.notices:
                break
        else:
            failures += 1
            assert isinstance(outcome, StoreFailed)
            assert "abandoned" in str(outcome)
            assert isinstance(outcome.__cause__, OSError), "whoever handles it may look at the errno"
            # What is left is only removed; a removal renames first, to a name under which nothing is published.
            renamed = [Path(arguments[1]).name for name, arguments in calls if name == "rename"]
            assert all(name.startswith(DELETING_PREFIX) for name in renamed), renamed
            assert not {name for name, _ in calls} & {"open_new", "write", "fsync", "fsync_dir", "replace"}
            assert not [name for name in names_in(root) if name.startswith(".staging")]
        assert isinstance(try_to_publish(store, 3), Published)
        assert valid_texts(root)[0] == "step 3"
        assert not [name for name in names_in(root) if name.startswith(".")]
        store.close()
    assert failures == {"fsync": 5, "fsync_dir": 4}[call], "each call was made to fail once; LATEST is only a notice"


def test_a_checkpoint_whose_last_sync_failed_is_never_counted_on(root: Path) -> None:
    """Its rename may not be on the disk: it must not push older ones out, and it goes with the next retention."""
    store = new_store(root, failing_files(errno.EIO, call="fsync_dir", nth=3), keep=2)
    store.open()
    with pytest.raises(StoreFailed, match=r"publishing .*step_2-2"):
        publish(store, 2)
    assert names_in(root) == {"step_1-1", "step_2-2"}, "it is there, whole, and a restore may use it"
    assert text_of(root, "step_2-2") == "step 2"
    publish(store, 3)
    assert names_in(root) == {"step_1-1", "step_3-3"}
    store.close()


def test_case_E05_another_file_system_below_the_directory_is_an_error_and_never_a_copy(root: Path) -> None:
    """Case E05: staging is beside the target; where a rename is impossible all the same, copying is not atomic."""
    store = new_store(root, failing_files(errno.EXDEV, call="rename", nth=0))
    store.open()
    with pytest.raises(StoreFailed, match="one file system"):
        publish(store, 2)
    assert names_in(root) == {"step_1-1"}
    store.close()


def test_case_E24_a_file_that_the_manifest_does_not_list_is_no_part_and_one_of_another_save_is_refused(
    root: Path,
) -> None:
    """Case E24: all parts belong to one commit."""
    with open_store(root) as store:
        publish(store, 2)
    (root / "step_2-2" / "extra.json").write_text("{}")
    assert text_of(root, "step_2-2") == "step 2"
    assert "extra.json" not in new_store(root).reader("step_2-2").reader().names()
    (root / "step_2-2" / "words.json").write_bytes((root / "step_1-1" / "words.json").read_bytes())
    with pytest.raises(Exception, match=r"step_2-2/words\.json is damaged"):
        text_of(root, "step_2-2")


def test_a_save_names_its_parts_once_and_only_with_names_that_code_chose(root: Path) -> None:
    """Two participants with one file name would silently overwrite each other; an id as a name could lead outside."""
    with open_store(root) as store:

        def twice(staged: StagedDirectory) -> dict[str, object]:
            staged.writer().write_bytes("same.bin", b"1")
            staged.writer().write_bytes("same.bin", b"2")
            return {}

        def outside(staged: StagedDirectory) -> dict[str, object]:
            staged.writer().write_bytes("../same.bin", b"1")
            return {}

        draft = Draft(2, store.take_sequence(), "full", None, None, IDENTITY)
        for fill, complaint in ((twice, "written twice"), (outside, "cannot name a file")):
            with pytest.raises(UsageError, match=complaint):
                store.publish(draft, fill)  # type: ignore[arg-type]
        assert names_in(root) == {"step_1-1"}
        assert not (root / "same.bin").exists()


def test_what_a_participant_raises_publishes_nothing_and_leaves_nothing(root: Path) -> None:
    """The error of a plane or a trainer passes through unchanged."""
    with open_store(root) as store:

        def broken(staged: StagedDirectory) -> dict[str, object]:
            fill_with("half")(staged)
            raise ZeroDivisionError("in the participant")

        draft = Draft(2, store.take_sequence(), "full", None, None, IDENTITY)
        with pytest.raises(ZeroDivisionError, match="in the participant"):
            store.publish(draft, broken)  # type: ignore[arg-type]
    assert names_in(root) == {"step_1-1"}


def test_a_store_that_is_not_open_publishes_nothing(root: Path) -> None:
    """Without the lock there is no right to write."""
    store = new_store(root)
    with pytest.raises(InvariantViolated, match="before the store was opened"):
        store.take_sequence()
    with pytest.raises(InvariantViolated, match="before the store was opened"):
        store.publish(Draft(2, 9, "full", None, None, IDENTITY), fill_with("no"))
    assert names_in(root) == {"step_1-1"}


def test_a_sequence_is_never_used_twice_even_if_everything_was_removed_by_hand(root: Path) -> None:
    """A step that is saved again after going back must not meet the abandoned checkpoint of the same step."""
    with open_store(root) as store:
        assert publish(store, 1, "again").manifest.name == "step_1-2"
    (root / "step_9-40.bak").mkdir()
    (root / "step_9-30").write_text("a file in the way")
    with open_store(root) as store:
        assert publish(store, 1, "and again").manifest.name == "step_1-31"


def test_LATEST_names_the_newest_checkpoint_and_is_replaced_whole(root: Path) -> None:
    """Case E10: a hint for people; a crash between removing and making it would lose it."""
    assert (root / "LATEST").read_text() == "step_1-1\n"
    files, calls = recording_files()
    with open_store(root, files) as store:
        publish(store, 2)
    assert (root / "LATEST").read_text() == "step_2-2\n"
    assert ("unlink", (f"{root}/LATEST",)) not in calls
    assert [call for call, arguments in calls if f"{root}/LATEST" in arguments] == ["stat", "replace"]


def test_missing_parents_of_the_directory_are_made_durable_too(tmp_path: Path) -> None:
    """A checkpoint in a directory whose own name was never synced is lost with it."""
    files, calls = recording_files()
    root = tmp_path / "a" / "b"
    with open_store(root, files) as store:
        publish(store, 1)
    made = [arguments[0] for call, arguments in calls if call == "mkdir"][:2]
    assert made == [str(tmp_path / "a"), str(root)]
    for directory in made:
        place = calls.index(("mkdir", (directory,)))
        assert calls[place + 1] == ("fsync_dir", (directory.rpartition("/")[0],))
