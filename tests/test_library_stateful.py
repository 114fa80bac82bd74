"""The whole library against a plain model, in random orders of everything that may happen."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from library_machine import machine_of
from library_model import Setting
from library_pumps import go_to_the_end
from library_twin import Twin
from memory_runs import SAMPLERS

WALKS = settings(max_examples=120, stateful_step_count=40)

#: What the walks must meet, for a walk that never gets there shows nothing.
EVERYWHERE = {
    *("reserve_batch", "end_epoch", "pass_gate", "commit_admission", "dispatch", "commit_group", "remove_committed"),
    *("claim", "write_back", "finish_step", "fail_attempt", "retry", "shrink", "drop"),
    *("publish", "skip_snapshot", "fail_save", "restore"),
    *("an image with a lingering entry", "an image with claimed groups", "an image with reserved groups"),
    *("an image with groups in flight", "an image that differs from now", "a restore without rows"),
}
WITH_SPARES = {"divert_batch", "drain_pool", "substitute", "an image with spares"}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_library_does_what_its_model_says(sampler: str) -> None:
    """One owner each, none lost, permits balanced, steps whole, an image is the cut, and a restore is the image."""
    machine = machine_of(sampler)
    run_state_machine_as_test(machine, settings=WALKS)
    wanted = EVERYWHERE if sampler == "windowed" else EVERYWHERE | WITH_SPARES
    assert wanted <= machine.met, wanted - machine.met


@pytest.fixture
def begin() -> Iterator[Callable[[Setting], Twin]]:
    """Twins that are closed at the end."""
    twins: list[Twin] = []

    def new(setting: Setting) -> Twin:
        twins.append(Twin(setting))
        return twins[-1]

    yield new
    for twin in twins:
        twin.close()


def admit(twin: Twin) -> list[int]:
    """A batch through the gate and into generation; its groups."""
    twin.reserve_batch()
    (admission, groups), *_ = twin.model.reserved().items()
    twin.commit_admission(admission)
    for group in groups:
        twin.dispatch(group)
    twin.check("an admission")
    return groups


def image_restored_to_the_end(twin: Twin, *, load_buffer: bool) -> None:
    """Save here, die, come back, and go on to the end."""
    twin.begin_save(snapshot=False)
    twin.publish()
    twin.crash(load_buffer=load_buffer)
    go_to_the_end(twin)


@pytest.mark.parametrize("load_buffer", [True, False])
@pytest.mark.parametrize("saved", ["before", "after"])
def test_a_borrow_leaves_one_owner_each_and_whole_steps(
    begin: Callable[[Setting], Twin], saved: str, load_buffer: bool
) -> None:
    """The rarest action: a hole, a ready group of a later step, and a spare at once."""
    twin = begin(Setting("in_order", length=9, epochs=1, in_flight=4, retries=0))
    hole, other = admit(twin)
    twin.divert_batch()
    later = admit(twin)
    twin.commit_group(later[1])
    twin.fail_attempt(hole, "data")
    if saved == "after":
        twin.fill_place(hole)
        twin.check("a borrow")
        assert "borrow" in twin.met
        assert twin.model.groups[later[1]].step == 0
    image_restored_to_the_end(twin, load_buffer=load_buffer)
    assert any("an image with " + what in twin.met for what in ("counted failures", "groups in flight")), other


@pytest.mark.parametrize("sampler", ["weight_fifo", "windowed"])
def test_what_is_given_up_for_its_age_is_dropped_once_and_gives_its_permit_back(
    begin: Callable[[Setting], Twin], sampler: str
) -> None:
    """More groups of one version than a step takes, and the next step wants none of that age."""
    twin = begin(Setting(sampler, bound=0, length=8, epochs=1, room=2, in_flight=4, retries=0))
    first, second = admit(twin)
    twin.fail_attempt(first, "data")
    third, fourth = admit(twin)
    for group in (second, third) if sampler == "windowed" else (second, third, fourth):
        twin.commit_group(group)
    twin.claim()
    twin.finish_step()
    twin.check("a step")
    assert twin.model.stale() == [fourth]
    twin.begin_save(snapshot=False)
    twin.give_up_stale()
    twin.check("evict and abort_stale")
    assert {"evict", "abort_stale"} & twin.met == {"abort_stale" if sampler == "windowed" else "evict"}
    twin.publish()
    image_restored_to_the_end(twin, load_buffer=True)
