"""The accounts: trained keys as intervals, dropped keys with reasons, each key settled once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impl import Accounts, AccountsSnapshot, CheckpointCorrupt, Interval, InvariantViolated, Key, UsageError
from impl.run import CHUNK

trained_keys = st.sets(
    st.builds(
        Key,
        epoch=st.integers(0, 2),
        index=st.one_of(st.integers(0, 40), st.integers(CHUNK - 20, CHUNK + 20), st.integers(0, 5 * CHUNK)),
    ),
    max_size=60,
)


def plain_intervals(keys: set[Key]) -> list[tuple[int, int, int]]:
    """The same, by looking at every neighbour."""
    starts = sorted(key for key in keys if Key(key.epoch, key.index - 1) not in keys)
    ends = sorted(key for key in keys if Key(key.epoch, key.index + 1) not in keys)
    return [(start.epoch, start.index, end.index) for start, end in zip(starts, ends, strict=True)]


@given(trained_keys)
def test_intervals_are_the_fewest_that_hold_the_trained_keys(keys: set[Key]) -> None:
    """Across the edges of chunks and epochs, in whatever order they were trained."""
    accounts = Accounts()
    for key in keys:
        accounts.train(key)
    assert list(accounts.trained) == plain_intervals(keys)
    assert accounts.trained_count == len(keys)
    assert all(accounts.is_trained(key) for key in keys)
    taken = accounts.snapshot()
    assert (taken.trained, taken.trained_count) == (accounts.trained, len(keys))
    assert AccountsSnapshot.from_intervals(taken.trained, {}) == taken


def test_a_finished_epoch_shrinks_to_one_interval() -> None:
    """What a checkpoint holds of it, however shuffled it was trained."""
    accounts = Accounts()
    for index in (*range(0, 3 * CHUNK, 2), *range(3 * CHUNK - 1, 0, -2)):
        accounts.train(Key(1, index))
    assert accounts.trained == (Interval(1, 0, 3 * CHUNK - 1),)


def test_a_key_is_settled_once() -> None:
    """Trained twice, dropped twice, or both, is refused, names both events, and changes nothing."""
    accounts = Accounts()
    accounts.train(Key(0, 1))
    accounts.drop(Key(0, 2), "failed")
    before = accounts.snapshot()
    for key, settled in ((Key(0, 1), "already was trained"), (Key(0, 2), "already was dropped \\('failed'\\)")):
        with pytest.raises(InvariantViolated, match=settled):
            accounts.train(key)
        with pytest.raises(InvariantViolated, match=settled):
            accounts.drop(key, "stale_ready")
    assert accounts.snapshot() == before
    assert accounts.settled(Key(0, 1)) == "was trained"
    assert accounts.settled(Key(1, 1)) is None


@given(trained_keys, st.dictionaries(st.integers(100, 140), st.sampled_from(["failed", "stale_ready", "replaced"])))
def test_the_counts_that_are_kept_are_those_of_the_keys(keys: set[Key], drops: dict[int, str]) -> None:
    """Kept along, since counting again would walk through all; refusals and loading keep them right."""
    keys = {key for key in keys if key.epoch != 1}
    accounts = Accounts()
    for key in keys:
        accounts.train(key)
    for index, reason in drops.items():
        accounts.drop(Key(1, index), reason)
        with pytest.raises(InvariantViolated):
            accounts.drop(Key(1, index), "twice")
    loaded = Accounts()
    loaded.drop(Key(0, 0), "before")
    loaded.load(accounts.snapshot())
    for one in (accounts, loaded):
        assert dict(one.dropped_counts) == dict(Counter(drops.values()))
        assert one.trained_count == len(keys) == sum(last - first + 1 for _, first, last in one.trained)


def test_a_drop_needs_a_reason() -> None:
    """Counted by reason later; an empty one is a lost prompt with a nicer name."""
    for reason in ("", None, 3):
        with pytest.raises(UsageError, match="reason"):
            Accounts().drop(Key(0, 0), reason)  # type: ignore[arg-type]


def test_a_snapshot_is_immutable() -> None:
    """It is written long after it was taken."""
    accounts = Accounts()
    accounts.train(Key(0, 0))
    accounts.drop(Key(0, 1), "failed")
    taken = accounts.snapshot()
    accounts.train(Key(0, 2))
    accounts.drop(Key(0, 3), "failed")
    assert taken.trained == (Interval(0, 0, 0),)
    assert dict(taken.dropped) == {Key(0, 1): "failed"}
    with pytest.raises(TypeError):
        taken.dropped[Key(0, 9)] = "x"  # type: ignore[index]
    with pytest.raises(TypeError):
        accounts.dropped[Key(0, 9)] = "x"  # type: ignore[index]


def test_load_replaces_everything_and_does_not_tie_the_two_together() -> None:
    """What is trained after a restore must not show in the snapshot it came from."""
    taken = AccountsSnapshot.from_intervals([(0, 0, 4), (1, 2, 2)], {Key(1, 0): "remainder"})
    accounts = Accounts()
    accounts.train(Key(7, 7))
    accounts.load(taken)
    assert accounts.snapshot() == taken
    accounts.train(Key(0, 5))
    assert taken.trained == (Interval(0, 0, 4), Interval(1, 2, 2))
    assert accounts.trained == (Interval(0, 0, 5), Interval(1, 2, 2))


@pytest.mark.parametrize(
    ("trained", "dropped", "message"),
    [
        ([(0, 5, 4)], {}, "which is none"),
        ([(0, -1, 4)], {}, "which is none"),
        ([(-1, 0, 4)], {}, "which is none"),
        ([(0, 0, 4), (0, 4, 6)], {}, "trained twice"),
        ([(0, 0, 2 * CHUNK), (0, CHUNK + 5, CHUNK + 5)], {}, "trained twice"),
        ([(0, 0, 4)], {Key(0, 3): "failed"}, "trained and as dropped"),
        ([], {Key(0, 3): ""}, "no reason"),
    ],
)
def test_saved_accounts_that_contradict_themselves_are_refused(
    trained: list[tuple[int, int, int]], dropped: dict[Key, str], message: str
) -> None:
    """A file may hold anything; each of these would count a prompt wrongly for good."""
    with pytest.raises(CheckpointCorrupt, match=message):
        AccountsSnapshot.from_intervals(trained, dropped)
