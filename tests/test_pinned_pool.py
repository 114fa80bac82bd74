"""The pool of pinned memory: bounded, reused, and never handed out twice at a time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impl import UsageError
from impl.rows import Lease, PinnedPool


def pool_of(limit: int, made: list[int] | None = None) -> PinnedPool:
    """A pool of plain memory; `made` is given the size of each new piece."""

    def allocate(nbytes: int) -> bytearray:
        if made is not None:
            made.append(nbytes)
        return bytearray(nbytes)

    return PinnedPool(allocate, limit)


def test_a_piece_is_used_again_and_nothing_new_is_made() -> None:
    """A save after the first makes no pinned memory."""
    made: list[int] = []
    pool = pool_of(1024, made)
    for nbytes in (100, 512, 3):
        pool.take(nbytes).give_back()
    assert made == [512]


def test_the_smallest_piece_that_fits_is_taken() -> None:
    """A large one is kept for who needs it."""
    pool = pool_of(1 << 30)
    small, large = pool.take(1 << 20), pool.take(1 << 24)
    large.give_back()
    small.give_back()
    assert pool.take(10).size == 1 << 20
    assert pool.take(10).size == 1 << 24


def test_kept_pieces_make_way_for_one_that_fits_none() -> None:
    """The limit is for everything together."""
    pool = pool_of(1024)
    first, second = pool.take(512), pool.take(512)
    first.give_back()
    second.give_back()
    assert pool.take(1024).size == 1024
    statistics = pool.statistics()
    assert (statistics["staging_in_use"], statistics["staging_kept"], statistics["staging_oversized"]) == (1024, 0, 0)


def test_more_than_the_limit_is_given_alone_and_not_kept() -> None:
    """One tensor may be larger than the pool; a save is not refused for it."""
    pool = pool_of(1024)
    lease = pool.take(5000)
    assert lease.size == 8192
    assert pool.take(1, wait=False) is None
    lease.give_back()
    statistics = pool.statistics()
    assert (statistics["staging_oversized"], statistics["staging_kept"], statistics["staging_peak"]) == (1, 0, 8192)


def test_a_second_give_back_does_nothing() -> None:
    """Otherwise two files would get the same memory."""
    pool = pool_of(1024)
    lease = pool.take(512)
    lease.give_back()
    lease.give_back()
    assert pool.take(512).memory is not pool.take(512).memory


def test_lost_memory_is_referred_to_and_never_handed_out() -> None:
    """A failed device may still write to it; the room in the pool comes back."""
    pool = pool_of(512)
    lost = pool.take(512)
    lost.lose()
    lost.give_back()
    assert pool.take(512).memory is not lost.memory
    assert pool.statistics()["staging_lost"] == 1


def test_who_finds_no_room_waits_until_something_comes_back() -> None:
    """On other threads: several files may be written at a time."""
    pool = pool_of(512)
    held = pool.take(512)
    got: list[Lease] = []
    waiting = threading.Thread(target=lambda: got.append(pool.take(512)))
    waiting.start()
    while not pool.statistics()["staging_waits"]:
        pass
    assert not got
    held.give_back()
    waiting.join()
    assert got[0].memory is held.memory


@pytest.mark.parametrize("limit", [0, -1, 1.5, None, True])
def test_a_limit_that_is_none_is_refused_by_name(limit: Any) -> None:
    """A pool without room would wait for ever."""
    with pytest.raises(UsageError, match="staging_bytes is"):
        PinnedPool(bytearray, limit)


@given(st.integers(1, 4000), st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=40))
def test_whatever_is_taken_and_given_back_the_bound_holds(limit: int, calls: list[tuple[bool, int]]) -> None:
    """Within the limit, or one piece alone; no piece with two owners; each at least as large as was asked for."""
    pool, out = pool_of(limit), list[Lease]()
    for give, number in calls:
        if give and out:
            out.pop(number % len(out)).give_back()
        elif (lease := pool.take(number, wait=False)) is not None:
            assert len(lease.memory) >= number
            out.append(lease)
        statistics = pool.statistics()
        in_use, kept = statistics["staging_in_use"], statistics["staging_kept"]
        assert in_use == sum(lease.size for lease in out)
        assert in_use + kept <= limit or (len(out) == 1 and kept == 0)
        assert len({id(lease.memory) for lease in out}) == len(out)
