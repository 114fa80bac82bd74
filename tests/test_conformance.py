"""Counterexamples of the machines, driven on real controllers: they fail on a naive one and hold on ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from impl import Slot, SparePool
from impl.run.samplers import CountedGateSampler, WeightFifoSampler
from interleavings.command_line import main
from interleavings.conformance import DEFAULTS, FeatureMissing, NotConformant, SpecTrace, controller_named, drive, emit
from interleavings.errors import TraceUnreadable, Violation
from spec.command import check_variant
from spec.machines import all_variants

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")

HERE = Path(__file__).parent
NAIVE = "naive_controller:NaiveController"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The counterexample of every variant, as the command line writes it."""
    directory = tmp_path_factory.mktemp("traces")
    found = {variant.name: check_variant(machine, variant, directory) for machine, variant in all_variants()}
    return {name: result.counterexample for name, result in found.items() if result.counterexample is not None}


def run_pytest(test: Path, controller: str | None) -> subprocess.CompletedProcess[str]:
    """Run one generated file in a process of its own, as a user would."""
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    environment.pop("CLEANCUT_CONTROLLER", None)
    if controller:
        environment["CLEANCUT_CONTROLLER"] = controller
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    return subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)


def test_the_cursor_ahead_trace_as_a_pytest_fails_on_the_naive_controller_and_holds_on_ours(
    traces: dict[str, Path], tmp_path: Path
) -> None:
    """The way back, end to end: machine, trace, generated pytest, two controllers."""
    test = tmp_path / "test_cursor_ahead.py"
    assert main(["emit", str(traces["cursor_ahead"]), "-o", str(test)]) == 0
    ours = run_pytest(test, None)
    assert ours.returncode == 0, ours.stdout
    assert "1 passed" in ours.stdout
    naive = run_pytest(test, NAIVE)
    assert naive.returncode == 1, naive.stdout
    assert "was handed out and has no owner on disk: it is lost" in naive.stdout
    assert "one_owner_on_disk is broken" in naive.stdout


#: Writers in other processes, which the driven controllers have not.
OF_LEASES = {v.name for _, v in all_variants() if v.scope.startswith("leases")}


@pytest.mark.parametrize("name", [v.name for m, v in all_variants() if m.name in DEFAULTS])
def test_no_counterexample_of_a_variant_happens_on_our_controller(name: str, traces: dict[str, Path]) -> None:
    """Each faulty schedule, action by action: the library refuses the step, or does it without harm, and goes on."""
    trace = SpecTrace.load(traces[name])
    steps = [(action, index) for action, index, _ in trace.steps]
    controller = controller_named(DEFAULTS[trace.machine], trace.bounds)
    if name in OF_LEASES:
        with pytest.raises(FeatureMissing, match="has nothing that does fall_silent, an action of the machine"):
            drive(controller, steps, property=trace.property)
    else:
        drive(controller, steps, property=trace.property)


def broken(name: str, traces: dict[str, Path]) -> str:
    """What the drive of a counterexample says of a library that has the fault itself."""
    trace = SpecTrace.load(traces[name])
    steps = [(action, index) for action, index, _ in trace.steps]
    with pytest.raises((NotConformant, Violation)) as found:
        drive(controller_named(DEFAULTS[trace.machine], trace.bounds), steps, property=trace.property)
    return str(found.value)


def test_a_gate_that_ignores_drops_is_found_in_the_library(
    traces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gate_ignores_drops`, put into the library: the run stands still, and the enabled action is named."""
    monkeypatch.setattr(
        CountedGateSampler,
        "gate_open",
        property(lambda sampler: sampler._cursor < sampler._version + sampler.staleness),
    )
    assert "the run stands still, where the machine enables pass_gate" in broken("gate_ignores_drops", traces)


def test_a_select_by_the_bare_minimum_is_found_in_the_library(
    traces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fifo_bare_minimum`, put into the library: one group of the lowest weight is left, and a step takes two."""

    def select(sampler: object, slots: Mapping[int, Slot], version: int, target: int) -> tuple[int, ...]:
        lowest = min((slot.weight for slot in slots.values()), default=0)
        ready = tuple(slot.group for slot in slots.values() if slot.ready and slot.weight == lowest)
        return ready[:target] if len(ready) >= target else ()

    monkeypatch.setattr(WeightFifoSampler, "select", select)
    assert "the run stands still, where the machine enables claim" in broken("fifo_bare_minimum", traces)


def test_a_pool_that_is_not_saved_is_found_in_the_library(
    traces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pool_not_saved`, put into the library: the files leave the spares to nobody."""
    monkeypatch.setattr(SparePool, "snapshot", lambda pool, cut: ())
    assert "has no owner on disk: it is lost" in broken("pool_not_saved", traces)


@pytest.mark.parametrize("name", [v.name for m, v in all_variants() if m.name not in DEFAULTS])
def test_a_counterexample_of_a_machine_without_a_controller_is_refused(name: str, traces: dict[str, Path]) -> None:
    """The store and the step-by-step slots have nothing to be driven on yet, and say so."""
    with pytest.raises(TraceUnreadable, match="have no controller"):
        emit(SpecTrace.load(traces[name]))


def test_the_drive_sees_a_lost_and_a_doubled_prompt() -> None:
    """The check can fail: no owner, two owners, and an owner of a prompt that was never handed out."""

    class Fixed:
        """A controller with one published image."""

        async def publish(self) -> None:
            """The image is there already."""

        def handed_out(self) -> list[str]:
            """Two keys."""
            return ["a", "b"]

        def owners_on_disk(self) -> dict[str, list[str]]:
            """One key twice, one never, one too many."""
            return {"a": ["ledger", "buffer"], "c": ["ledger"]}

    with pytest.raises(NotConformant) as broken:
        drive(Fixed(), [("publish", None)], property="one_owner_on_disk")
    message = str(broken.value)
    assert "key b was handed out and has no owner" in message
    assert "key a has 2 owners on disk: ledger, buffer" in message
    assert "key c was not handed out" in message


def test_a_property_that_an_image_does_not_show_needs_a_check() -> None:
    """What cannot be checked on a controller is an error, not a pass."""

    class Mute:
        """Shows nothing."""

    with pytest.raises(FeatureMissing, match="'no_stall' is not seen in an image"):
        drive(Mute(), [], property="no_stall")


def test_a_controller_without_any_of_the_steps_is_not_taken_for_a_sound_one() -> None:
    """One that does nothing hands out nothing, so nothing is lost: a name mistyped in every method would pass."""

    class Idle:
        """Shows an empty image."""

        def handed_out(self) -> list[str]:
            return []

        def owners_on_disk(self) -> dict[str, list[str]]:
            return {}

    with pytest.raises(FeatureMissing, match="Idle has none of the methods reserve_batch, publish"):
        drive(Idle(), [("reserve_batch", None), ("publish", None)], property="one_owner_on_disk")


@pytest.mark.parametrize("property", ["one_owner_on_disk", "none_lost"])
def test_a_controller_that_cannot_publish_is_not_taken_for_a_sound_one(property: str) -> None:
    """Its image stays that of the start, in which nothing was handed out yet."""

    class Mistyped:
        """Reserves, and publishes under a wrong name."""

        async def reserve_batch(self) -> None:
            """Hands out what no image ever shows."""

        async def pubish(self) -> None:
            """Never called."""

        def handed_out(self) -> list[str]:
            return []

        def owners_on_disk(self) -> dict[str, list[str]]:
            return {}

    with pytest.raises(FeatureMissing, match="Mistyped has no method publish"):
        drive(Mistyped(), [("reserve_batch", None), ("publish", None)], property=property)


@pytest.mark.parametrize("reference", ["no_such_module:Class", "tests.no_such_module:Class", "json:NoSuchClass"])
def test_a_controller_that_is_not_there_is_said_by_name(reference: str) -> None:
    """The reference comes from the environment, so the traceback alone does not show it."""
    with pytest.raises(ValueError, match=f"the controller '{reference}' cannot be imported"):
        controller_named(reference, {})


def test_emitting_twice_gives_the_same_text(traces: dict[str, Path]) -> None:
    """A generated file is a function of its trace, so it can be committed and compared."""
    trace = SpecTrace.load(traces["cursor_ahead"])
    assert emit(trace, "test_x.py") == emit(trace, "test_x.py")
    compile(emit(trace), "test_x.py", "exec")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        ("not json", "is no JSON"),
        ("[]", "its format is not"),
        ('{"format": "cleancut-spec-trace", "version": 99}', "has version 99"),
        ('{"format": "cleancut-spec-trace", "version": 1}', "is damaged"),
    ],
)
@pytest.mark.parametrize("command", ["replay", "emit"])
def test_an_unreadable_trace_gets_one_clear_line_and_status_2(
    command: str, content: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, no JSON, another format, a newer version, damaged: each says so."""
    path = tmp_path / "trace.json"
    if content is not None:
        path.write_text(content)
    arguments = [command, str(path), *(["-o", str(tmp_path / "t.py")] if command == "emit" else [])]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["check", "nonesuch"],
            "no scenario 'nonesuch'; there are: barrier, queue, misuse, commit",
        ),
        (["check", "barrier", "--crashes", "1"], "barrier does not say what survives a crash"),
        (["check", "barrier", "--workers", "0"], "workers=0"),
        (["check", "barrier", "--ray", ""], "the address of a Ray cluster"),
        (["check", "barrier", "--cancels", "-1"], "cancels=-1"),
        (["explain", "not-there.json", "-o", "page.html"], "not-there.json: cannot be read"),
        (["validate", "not-there.jsonl"], "the trace not-there.jsonl cannot be opened"),
    ],
)
def test_wrong_use_gets_one_clear_line_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown scenarios, numbers that are none and files that are not there are said in one line."""
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


def test_a_replay_on_our_controller_says_that_the_property_holds(
    traces: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`replay` of a machine's counterexample drives the library and exits 0."""
    assert main(["replay", str(traces["cursor_ahead"])]) == 0
    assert "one_owner_on_disk holds on impl after the 10 steps of cursor_ahead" in capsys.readouterr().out


def test_the_json_of_check_has_the_items_of_the_contract(tmp_path: Path) -> None:
    """A list whose items carry verdict, counts, properties, counterexample, scenario, schedules and runs."""
    target = tmp_path / "out.json"
    assert main(["check", "barrier", "--json", str(target), "--output", str(tmp_path)]) == 0
    (item,) = json.loads(target.read_text())
    assert item.keys() >= {
        "verdict", "complete", "states", "transitions", "depth", "seconds", "properties", "counterexample",
        "scenario", "schedules", "runs",
    }  # fmt: skip
    assert (item["verdict"], item["complete"], item["counterexample"]) == ("holds", True, None)
    assert item["properties"] == dict.fromkeys(["refinement", "cut_excludes_writers", "deadlock", "finish"], "holds")


def test_a_bounded_check_exits_3_and_is_not_called_holding(tmp_path: Path) -> None:
    """A search cut short is bounded, in the JSON and in the exit status."""
    target = tmp_path / "out.json"
    assert main(["check", "commit", "--max-seconds", "0.5", "--json", str(target)]) == 3
    (item,) = json.loads(target.read_text())
    assert (item["verdict"], item["complete"]) == ("bounded", False)
    assert set(item["properties"].values()) == {"bounded"}


def test_a_trace_of_no_machine_with_a_controller_is_refused() -> None:
    """A machine without a controller has nothing to be driven on."""
    trace = SpecTrace("store", "small", {}, (), "published_is_whole", "It is whole.", ())
    with pytest.raises(TraceUnreadable, match="have no controller"):
        emit(trace)
