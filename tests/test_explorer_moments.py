"""Programs that look at the clock for ever, of which only distances of time matter: finitely many states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from interleavings import Subject, explore
from interleavings.errors import ExplorerUsageError
from interleavings.runtime import Moment, plain


def watching(limit: float, horizon: float | None, late: bool = False) -> Callable[[], Subject]:
    """A job that takes any time, and a watcher that looks how long ago it saw it begin."""

    async def watch(seen: list[bool]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            await asyncio.sleep(1.0)
            if loop.time() - began >= limit and not seen[0]:
                seen[0] = True

    async def main() -> None:
        seen = [False]
        watcher = asyncio.create_task(watch(seen), name="watcher")
        await asyncio.to_thread(int)
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        assert not (late and seen[0]), "seen late"

    return lambda: Subject(main(), horizon=horizon)


def test_a_watcher_of_an_endless_job_is_searched_completely() -> None:
    """Ages above the horizon are alike, so the states come round, and the circle has an exit."""
    result = explore(watching(3.0, 3.0))
    assert (result.verdict, result.complete, result.schedules) == ("holds", True, None)
    assert result.spin is not None


def test_without_a_horizon_the_same_program_has_states_without_end() -> None:
    """Absolute time is in each of them: the control."""
    assert explore(watching(3.0, None), max_states=200).verdict == "bounded"


def test_what_happens_late_is_still_found() -> None:
    """The states below the horizon are told apart: the third look is another than the second."""
    result = explore(watching(3.0, 3.0, late=True))
    assert result.verdict == "fails"
    assert result.failure is not None
    assert "seen late" in result.failure.message


def test_a_horizon_below_what_is_compared_is_trusted_and_hides_what_comes_later() -> None:
    """The horizon is a declaration, as `state=` is: nothing shows that the program looks further than it says."""
    assert explore(watching(6.0, 6.0, late=True)).verdict == "fails"
    assert explore(watching(6.0, 1.0, late=True)).verdict == "holds"


@pytest.mark.parametrize(
    "use",
    [
        lambda now: now > 5.0,
        lambda now: int(now),
        lambda now: f"{now:.1f}",
        lambda now: now * 2,
        lambda now: hash(now),
        lambda now: 5.0 - now,
        lambda now: now + now,
    ],
)
def test_absolute_time_is_refused_where_only_distances_were_declared(use: Callable[[float], object]) -> None:
    """The declaration is checked by what the program does."""

    async def main() -> None:
        use(asyncio.get_running_loop().time())

    result = explore(lambda: Subject(main(), horizon=1.0))
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "absolute time" in result.why


def test_distances_and_later_moments_are_plain_arithmetic() -> None:
    """Moment + duration is a moment, moment - moment a number; outside a run the rest is refused as well."""
    early, late = Moment(2.0), Moment(5.0)
    assert type(late - early) is float
    assert late - early == 3.0
    assert type(early + 3) is Moment
    assert plain(early + 3) == plain(3 + early) == 5.0
    assert early < late
    assert plain(late - 1.0) == 4.0
    with pytest.raises(ExplorerUsageError, match="subtract another moment first"):
        str(late)
