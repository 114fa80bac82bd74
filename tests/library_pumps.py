"""What the two pumps would do next, for runs that are to get somewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from library_model import Model
from library_twin import Twin

#: More actions than any run here has left.
TO_THE_END = 1000


def undispatched(model: Model) -> list[int]:
    return [group.group for group in model.where(admitted=True, place="none")]


def doing(model: Model, what: str) -> list[int]:
    return [group.group for group in model.where(doing=what)]


def lingering(model: Model) -> list[int]:
    return [group.group for group in model.where(entry=True) if group.buffered]


def pool_is_low(twin: Twin) -> bool:
    setting, model = twin.setting, twin.model
    return setting.keeps_spares and model.cursor >= 0 and len(model.pool) < setting.whole and not model.exhausted


def go_on(twin: Twin, count: int = 1, undone: str = "", place: int = 0) -> Iterator[str]:
    """Up to `count` actions that the pumps would take, but for `undone`; yields the name of each after it.

    `place` says which of the groups that generate ends next: 0 the oldest, -1 the youngest.
    """
    for _ in range(count):
        action = next(((name, act) for name, act in _next(twin, place) if name != undone), None)
        if action is None:
            return
        action[1]()
        yield action[0]


def go_to_the_end(twin: Twin) -> None:
    """no_stall: from any state the pumps reach the end of the data, with every prompt trained or dropped."""
    for name in go_on(twin, TO_THE_END):
        twin.check(name)
    model, setting = twin.model, twin.setting
    settled = model.trained | set(model.dropped)
    assert len(settled) == setting.length * setting.epochs, f"no_stall: {model.memory()}"
    assert not model.groups
    assert (model.free, model.in_flight_free) == (setting.capacity, setting.in_flight)


def _next(twin: Twin, place: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """What may be done now, the most urgent first: the trainer's, then what is admitted, then new work."""
    model = twin.model
    able = model.in_flight_free > 0
    waiting, reserved = sorted(undispatched(model)), model.reserved()
    generating, backing_off, given_up = (doing(model, what) for what in ("generating", "backing_off", "given_up"))
    over = model.exhausted and not reserved and not waiting
    if model.claimed:
        yield "finish_step", twin.finish_step
    if model.stale():
        yield "give_up_stale", twin.give_up_stale
    if not model.claimed and model.selection():
        yield "claim", twin.claim
    if not model.claimed and model.step_is_empty():
        yield "empty_step", twin.empty_step
    if able and waiting and model.free:
        yield "dispatch", lambda: twin.dispatch(waiting[0])
    if able and given_up:
        yield "fill_place", lambda: twin.fill_place(given_up[0])
    if able and backing_off:
        yield "retry", lambda: twin.retry(backing_off[0])
    if generating:
        yield "commit_group", lambda: twin.commit_group(generating[place])
    if reserved and model.gate_open:
        yield "commit_admission", lambda: twin.commit_admission(min(reserved))
    if pool_is_low(twin) and not reserved:
        yield "divert_batch", twin.divert_batch
    if not model.exhausted and not reserved:
        yield "reserve_batch", twin.reserve_batch
    if over and model.pool and not model.where(place="unready"):
        yield "drain_pool", twin.drain_pool
    if over and not model.pool and not model.fed:
        yield "the end of the data", twin.say_fed
