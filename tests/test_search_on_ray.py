"""Searches on a real local Ray find just what one process finds: of the explorer, and of the machines.

Ray is started once, with more logical processors than there are; two commands come to it by its address. Workers are
killed with SIGKILL in the middle of a search.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from loop_turns import HANG_SECONDS

pytestmark = [pytest.mark.needs("ray"), pytest.mark.slow]
ray = pytest.importorskip("ray", reason="ray: ray is not installed")

import explorer_programs  # noqa: E402
import ray_programs  # noqa: E402
from compiled_agreement import expect_same  # noqa: E402

from impl.ray import actor  # noqa: E402
from interleavings import ExplorerUsageError, Result, explore  # noqa: E402
from interleavings.correspondence import Coverage  # noqa: E402
from interleavings.scenarios import scenario_named  # noqa: E402
from interleavings.search.parallel import on_ray  # noqa: E402
from spec.engines import Options  # noqa: E402
from spec.engines import choice as engines  # noqa: E402
from spec.engines import ray_shards as spec_on_ray  # noqa: E402
from spec.engines import reference as reference_engine  # noqa: E402
from spec.engines.compiled import engine  # noqa: E402
from spec.machines import MACHINES, UnknownName, scopes_named, variant_named  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PROCESSORS = 6


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[str]:
    """One Ray for the file, and its address. Its workers look for modules where this process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        context = ray.init(
            num_cpus=PROCESSORS,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
        yield context.address_info["gcs_address"]
        ray.shutdown()


def process_of(actor: Any) -> int:
    number: int = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    return number


class AsRayNamesIt:
    """The package, but that a process that is gone was killed by Ray itself, because memory ran low."""

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def get(self, *arguments: Any, **options: Any) -> Any:
        try:
            return ray.get(*arguments, **options)
        except ray.exceptions.RayActorError as gone:
            raise ray.exceptions.OutOfMemoryError(str(gone)) from None


@pytest.fixture(params=[ray, AsRayNamesIt()], ids=["killed", "killed for memory"])
def names_of_ray(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray has two errors for an actor that is gone, and neither is a kind of the other."""
    monkeypatch.setattr(on_ray, "imported_ray", lambda: request.param)
    monkeypatch.setattr(spec_on_ray, "imported_ray", lambda: request.param)


@pytest.mark.parametrize("module", [on_ray, spec_on_ray], ids=["interleavings", "spec"])
def test_whatever_says_that_an_actor_is_gone_is_known_as_such(module: Any) -> None:
    """The packages may not import each other, so the list stands in each of them."""
    assert set(module.lost_actor(ray)) == {*actor.LOST} - {ray.exceptions.ActorDiedError}
    assert issubclass(ray.exceptions.ActorDiedError, module.lost_actor(ray))


# --------------------------------------------------------------------------------------------------- the explorer


def found(result: Result) -> tuple[Any, ...]:
    """Everything that a search claims; only the number of runs is each search's own."""
    trace = result.counterexample
    return (
        result.verdict, result.complete, result.states, result.transitions, result.depth, result.schedules, result.why,
        result.spin, result.outcomes, None if trace is None else (trace.steps, trace.failure, trace.stock),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("program", "options"),
    [
        (explorer_programs.timed_out, {"cancels": 1}),
        (ray_programs.deadlocking_barrier, {}),
        (ray_programs.counting, {"state": ray_programs.declared, "invariant": ray_programs.never_three}),
    ],
    ids=lambda value: getattr(value, "__name__", None) or ",".join(value),
)
def test_programs_are_the_same_on_ray(program: Any, options: dict[str, Any]) -> None:
    """Verdict, counts, outcomes and the very counterexample."""
    assert found(explore(program, ray="local", workers=2, **options)) == found(explore(program, **options))


def test_scenario_is_the_same_on_ray() -> None:
    """The real library followed by its machine: the pinned counts, and what the runs counted comes back."""
    scenario, coverage = scenario_named("barrier"), Coverage()
    alone = Coverage()
    options: dict[str, Any] = {"cancels": scenario.cancels, "timers": scenario.timers}
    result = explore(scenario.program(coverage), ray="local", workers=3, **options)
    assert found(result) == found(explore(scenario.program(alone), **options))
    assert scenario.pinned is not None
    assert (result.states, result.schedules) == (scenario.pinned.states, scenario.pinned.schedules)
    assert coverage.actions.keys() == alone.actions.keys()
    assert min(coverage.actions.values()) > 0


@pytest.mark.usefixtures("names_of_ray")
def test_work_of_a_killed_actor_is_done_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL in the middle of a search costs its work, not the answer."""
    started: list[Any] = []
    start = on_ray.RayWorkers.start

    def noting(self: on_ray.RayWorkers, number: int) -> Any:
        started.append(start(self, number))
        return started[-1]

    monkeypatch.setattr(on_ray.RayWorkers, "start", noting)
    killed: list[int] = []

    def kill(states: int, *figures: Any) -> None:
        if states >= 100 and not killed:
            killed.append(process_of(started[0]._actor))
            os.kill(killed[0], signal.SIGKILL)

    result = explore(ray_programs.barrier, ray="local", workers=2, progress=kill)
    assert (result.verdict, result.states, result.schedules) == ("holds", 571, 71_352)
    assert killed
    assert len(started) == 3


def test_actors_that_die_again_and_again_end_the_search() -> None:
    """It is no verdict on the program, and the likely cause is named."""
    result = explore(ray_programs.ends_its_process, ray="local", workers=1)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "on Ray" in result.why
    assert "memory" in result.why


def test_search_on_ray_that_is_stopped_says_what_it_covered() -> None:
    """Ctrl-C and the time limit keep what is known."""

    def press(*figures: Any) -> None:
        raise KeyboardInterrupt

    result = explore(ray_programs.barrier, ray="local", workers=2, progress=press)
    assert (result.verdict, result.why) == ("bounded", "interrupted")
    assert result.states is not None
    assert result.states >= 50
    result = explore(ray_programs.larger_barrier, ray="local", workers=2, max_seconds=1.5)
    assert (result.verdict, result.why) == ("bounded", "max_seconds=1.5 passed")


async def _not_importable_from_a_worker() -> None:
    pass


@pytest.mark.parametrize(
    ("program", "options", "complaint"),
    [
        (lambda: _not_importable_from_a_worker(), {}, "cannot import"),
        (partial(_not_importable_from_a_worker), {}, "cannot import"),
        (explorer_programs.lost_update, {"state": lambda: 1}, "state= is"),
        (explorer_programs.lost_update, {"workers": PROCESSORS + 1}, f"has {PROCESSORS} processors"),
        (explorer_programs.lost_update, {"prune": False}, "one process"),
        (explorer_programs.lost_update, {"order": "depth"}, "breadth first"),
        (explorer_programs.lost_update, {"identical": ["a", "b"]}, "ray="),
        (explorer_programs.lost_update, {"ray": ""}, "address"),
    ],
)
def test_wrong_use_of_ray_is_refused(program: Any, options: dict[str, Any], complaint: str) -> None:
    """What cannot be sent to another process is said before anything runs there."""
    with pytest.raises(ExplorerUsageError, match=complaint):
        explore(program, **{"ray": "local", **options})


def test_address_where_nobody_listens_is_refused_at_once() -> None:
    """Ray itself would go on trying for minutes."""
    with pytest.raises(ExplorerUsageError, match="no cluster to connect to"):
        on_ray._connect(ray, "127.0.0.1:1", None)
    with pytest.raises(UnknownName, match="no cluster to connect to"):
        spec_on_ray._connect(ray, "127.0.0.1:1", None)


def test_without_ray_one_clear_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is an extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExplorerUsageError, match=r"pip install 'cleancut\[ray\]'"):
        explore(explorer_programs.lost_update, ray="local")
    machine, (scope, pinned) = MACHINES["cut"], scopes_named(MACHINES["cut"], "small/failures")["small/failures"]
    with pytest.raises(UnknownName, match=r"pip install 'cleancut\[ray\]'"):
        engines.search(machine, scope, (), pinned, Options(ray="local"))


def test_cluster_that_is_busy_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work has its processors: one clear error, and nothing is left waiting."""

    class Busy:
        def here(self) -> None:
            pass

    monkeypatch.setattr(on_ray, "PATIENCE_AT_THE_START", 0.5)
    monkeypatch.setattr(spec_on_ray, "PATIENCE_AT_THE_START", 0.5)
    busy = ray.remote(Busy).options(num_cpus=PROCESSORS).remote()
    ray.get(busy.here.remote())
    try:
        with pytest.raises(ExplorerUsageError, match="other work"):
            explore(explorer_programs.lost_update, ray="local", workers=2)
        with pytest.raises(UnknownName, match="other work"):
            owned("cut", "small/failures")
    finally:
        ray.kill(busy)


# --------------------------------------------------------------------------------------------------- the machines


def owned(name: str, member: str, owners: int = 2, **options: Any) -> Any:
    machine = MACHINES[name]
    ((scope, pinned),) = scopes_named(machine, member).values()
    return engines.search(machine, scope, (), pinned, Options(ray="local", workers=owners, **options))


@pytest.mark.parametrize(
    ("name", "member", "owners"),
    [
        ("cut", "small/failures", 3),
        ("store", "small/two_writers", 2),
        ("cut", "medium/features", 2),
    ],
)
def test_scopes_are_the_same_on_ray(name: str, member: str, owners: int) -> None:
    """Everything that is reported, but for the time."""
    ((scope, pinned),) = scopes_named(MACHINES[name], member).values()
    result = owned(name, member, owners)
    assert (result.states, result.transitions, result.depth) == (pinned.states, pinned.transitions, pinned.depth)
    expect_same(engine.search(MACHINES[name], scope, workers=1), result)


def test_shortest_counterexample_is_found_on_ray() -> None:
    """A path of the reference model through the states of several owners, as short as there is."""
    machine, variant = variant_named("cursor_ahead")
    ((scope, pinned),) = scopes_named(machine, variant.scope).values()
    names = (*variant.with_variants, variant.name)
    result = engines.search(machine, scope, names, pinned, Options(ray="local", workers=2), [variant.breaks])
    expected = reference_engine.search(machine.model(scope, names), properties=[variant.breaks])
    assert result.violation is not None
    assert expected.violation is not None
    assert result.violation.property == variant.breaks
    assert result.violation.length == expected.violation.length == variant.length
    assert result.violation.states[0] == expected.violation.states[0]


@pytest.mark.usefixtures("names_of_ray")
def test_states_of_a_killed_owner_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL in the middle of a search of hundreds of thousands of states: all counts are the same."""
    hired: list[Any] = []
    begin, take = spec_on_ray.RayOwners.begin, spec_on_ray.RayOwners.replace_the_lost
    replacing: list[int] = []

    def noting(self: Any) -> Any:
        hired.append(self)
        return begin(self)

    def counting(self: Any, settled: Any) -> None:
        replacing.append(len(settled))
        take(self, settled)

    monkeypatch.setattr(spec_on_ray.RayOwners, "begin", noting)
    monkeypatch.setattr(spec_on_ray.RayOwners, "replace_the_lost", counting)
    killed: list[int] = []

    def kill(states: int) -> None:
        if states > 100_000 and not killed:
            killed.append(process_of(hired[0].actors[1]))
            os.kill(killed[0], signal.SIGKILL)

    _, pinned = scopes_named(MACHINES["cut"], "medium/features")["medium/features"]
    result = owned("cut", "medium/features", counted=kill)
    assert killed
    assert replacing
    assert result.verdict == "holds"
    assert (result.states, result.transitions, result.depth) == (pinned.states, pinned.transitions, pinned.depth)


@pytest.mark.usefixtures("names_of_ray")
def test_an_owner_that_dies_before_it_owns_anything_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes memory; there is nothing yet that another could take over."""
    begun = []

    class DiesAsItCompiles:
        """Sent by value, so that a worker need not import it from here."""

        def __init__(self, plan: Any, number: int) -> None:
            pass

        def here(self) -> None:
            pass

        def prepare(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    wait = spec_on_ray.RayOwners._wait_for

    def noting(self: Any, *arguments: Any) -> None:
        wait(self, *arguments)
        begun.append(arguments)

    monkeypatch.setattr(spec_on_ray, "RayOwner", DiesAsItCompiles)
    monkeypatch.setattr(spec_on_ray.RayOwners, "_wait_for", noting)
    with pytest.raises(UnknownName, match="an owner cannot start"):
        owned("cut", "small/failures")
    assert len(begun) == 1  # all had started


def test_search_by_owners_on_ray_that_is_stopped_says_what_it_covered() -> None:
    """Ctrl-C, and a limit of memory for all of them together."""

    def press(states: int) -> None:
        raise KeyboardInterrupt

    interrupted = owned("cut", "medium/features", counted=press)
    assert (interrupted.verdict, interrupted.states > 0) == ("bounded", True)
    assert interrupted.why.startswith("interrupted, all of depth")
    small = owned("cut", "medium/features", memory_limit=20 << 20)
    assert small.verdict == "bounded"
    assert "memory limit of 20 MiB" in small.why
    assert 100_000 < small.states < 806_480


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"engine": "reference"}, "compiled"),
        ({"engine": "torch"}, "compiled"),
        ({"resume": True}, "resume"),
        ({"workers": PROCESSORS + 1}, f"has {PROCESSORS} processors"),
    ],
)
def test_what_does_not_go_with_ray_is_refused(options: dict[str, Any], complaint: str) -> None:
    """In one line."""
    machine, (scope, pinned) = MACHINES["cut"], scopes_named(MACHINES["cut"], "small/failures")["small/failures"]
    with pytest.raises(UnknownName, match=complaint):
        engines.search(machine, scope, (), pinned, Options(ray="local", **options))


# ----------------------------------------------------------------------------------------------------- the commands


@pytest.mark.parametrize(
    "arguments",
    [
        ["interleavings", "check", "barrier", "misuse"],
        ["spec", "check", "--machine", "store", "--scope", "small"],
    ],
    ids=["interleavings", "spec"],
)
def test_commands_come_to_a_cluster_by_its_address(cluster: str, tmp_path: Path, arguments: list[str]) -> None:
    """From another process, with the pinned counts."""
    file = tmp_path / "result.json"
    command = [sys.executable, "-m", *arguments, "--ray", cluster, "--workers", "2", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    items = document if isinstance(document, list) else [document]
    assert [item["verdict"] for item in items] == ["holds"] * len(items)
    assert all(item["complete"] for item in items)


def test_no_actor_outlives_its_search() -> None:
    """All processors are free again."""
    eventually(lambda: ray.available_resources().get("CPU") == PROCESSORS)


def eventually(what: Callable[[], bool]) -> None:
    """The cluster learns of what has ended after a while."""
    limit = time.monotonic() + HANG_SECONDS
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.1)
