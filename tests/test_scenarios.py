"""The scenarios over the real library: complete, pinned, and able to fail when the library is broken.

Each mutant below is one small fault put into `impl` for the length of a test; the search must find it, and name the
property or say that the machine does not allow the step.
"""

from __future__ import annotations

from collections.abc import Container, Set
from types import MappingProxyType
from typing import Any

import pytest

from impl import Ledger, LedgerSnapshot, ReplayBuffer, SparePool
from impl.barrier import AdmissionCore, Ticket
from impl.controller import Generation, RolloutPump
from interleavings import explore
from interleavings.correspondence import Coverage, Event, Follower, Remembered, Stutter
from interleavings.runtime import Result, fresh_subject
from interleavings.scenarios import CONTROLS, SCENARIOS, scenario_named

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")

LARGEST = 10_000
"""States of the largest scenario that is searched here."""


BEFORE_IT_ASKS = {"cancel_outside", "cancel_before_request"}
CANCELLATIONS = {"withdraw_slot", "withdraw_cut", "cancel_inside", "cancel_in_cut", "cancel_child"} | BEFORE_IT_ASKS
NEVER_TAKEN: dict[str, Set[str]] = {
    # Who is cancelled before it asks emits nothing; no drain limit is set in these.
    "barrier": {"expire_cut"} | BEFORE_IT_ASKS,
    "queue": {"expire_cut"} | BEFORE_IT_ASKS,
    "misuse": {"expire_cut"} | CANCELLATIONS,
    "drain_limit": BEFORE_IT_ASKS,
    **dict.fromkeys(("commit", "gate", "gate_limit", "retries", "abort", "stall"), frozenset()),
    "spares": {"drain_pool"},
}
"""Coverage from the machine's side: the actions that no step of the implementation ever took, by name."""


def searched(name: str, **options: object) -> Result:
    """One search of a scenario with its own budgets."""
    scenario = scenario_named(name)
    settings = {"cancels": scenario.cancels, "crashes": scenario.crashes, "timers": scenario.timers, **options}
    return explore(scenario.program(Coverage()), **settings)  # type: ignore[arg-type]


def in_the_tests() -> list[object]:
    """The scenarios as parameters; the largest, of minutes, are searched by `make check SCOPE=medium` alone."""
    searched = [s for s in SCENARIOS.values() if s.pinned is not None and s.pinned.states <= LARGEST]
    return [pytest.param(s.name, marks=() if s.quick else pytest.mark.slow) for s in searched]


def test_only_the_largest_scenarios_are_left_to_the_command() -> None:
    """What is left out here is named; each is pinned, and `check` calls a search that counts otherwise no pass."""
    left_out = {s.name for s in SCENARIOS.values() if s.pinned is None or s.pinned.states > LARGEST}
    assert left_out == {"commit_cancelled", "commit_cancelled_untraced", "abort_cancelled", "watchdog"}
    assert all(scenario_named(name).pinned is not None and not scenario_named(name).quick for name in left_out)


@pytest.mark.parametrize("name", in_the_tests())
def test_a_scenario_holds_in_every_schedule_with_the_pinned_counts(name: str) -> None:
    """Complete, no schedule fails, and nobody changed the program without noticing; what no step took is known."""
    scenario, coverage = scenario_named(name), Coverage()
    program: Any = scenario.program(coverage)
    program.collected = coverage  # what the other process has covered comes back in it
    result = explore(
        program,
        cancels=scenario.cancels,
        crashes=scenario.crashes,
        timers=scenario.timers,
        workers=1 if scenario.quick else 2,
    )
    assert result.verdict == "holds", result.summary()
    assert result.complete
    assert scenario.pinned is not None
    assert (result.states, result.schedules) == (scenario.pinned.states, scenario.pinned.schedules)
    if name in NEVER_TAKEN:
        assert {action for action in scenario.actions() if not coverage.actions[action]} == NEVER_TAKEN[name]


def test_generated_pytests_find_every_scenario_by_its_name_and_nothing_else() -> None:
    """`run_NAME` is no function of its own: a new scenario has one without anybody writing it."""
    from interleavings import scenarios

    for name in (*SCENARIOS, *CONTROLS):
        program = getattr(scenarios, f"run_{name}")
        assert program.trace_identity == {"scenario": name}
    assert not any(hasattr(scenarios, missing) for missing in ("run_nothing", "run_", "barrier_run"))


def test_a_checkpoint_granted_straight_from_the_release_of_another_is_followed() -> None:
    """The queue holds in every schedule: one checkpoint behind another once was left waiting for ever.

    Found by driving the counterexample of `queue_is_ignored` on the library; the fault was in what the grant recorded.
    """
    scenario, coverage = scenario_named("queue"), Coverage()
    explore(scenario.program(coverage), cancels=scenario.cancels).assert_holds()
    assert coverage.actions["open_cut"] > coverage.actions["cancel_in_cut"] > 0


def test_the_scenarios_of_spares_take_every_action_of_the_pool() -> None:
    """Divert, substitute, shrink and an empty step in one, borrow in the other; `drain` could not end otherwise."""
    taken: set[str] = set()
    for name in ("spares", "borrow"):
        coverage = Coverage()
        explore(scenario_named(name).program(coverage)).assert_holds()
        taken |= {action for action, times in coverage.actions.items() if times}
    assert taken >= {"divert_batch", "fail_attempt", "substitute", "shrink", "borrow", "empty_step"}


# ------------------------------------------------------------------------------------------- mutants of the barrier


def test_a_release_that_forgets_its_slot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that stays counted in after its section: the machine has it outside."""

    def leave(core: AdmissionCore, ticket: Ticket) -> tuple[Ticket, ...]:
        return ()

    monkeypatch.setattr(AdmissionCore, "leave", leave)
    result = searched("barrier")
    assert result.verdict == "fails"
    assert result.failure is not None
    assert result.failure.property == "refinement"
    assert "inside" in result.failure.message


def test_a_gate_that_stays_open_during_a_drain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """`writers_overtake`, put into the library: a writer enters while a checkpoint drains."""
    original = AdmissionCore.request_cut

    def request_cut(core: AdmissionCore, ticket: Ticket) -> bool:
        granted = original(core, ticket)
        core.gate_open = not granted
        return granted

    monkeypatch.setattr(AdmissionCore, "request_cut", request_cut)
    result = searched("barrier")
    assert result.verdict == "fails"
    assert result.failure is not None
    assert result.failure.property == "refinement"
    assert "does not enable enter_slot" in result.failure.message


def test_a_cancellation_that_leaks_a_slot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """`leak_on_cancel`, put into the library: a waiting request that is cancelled stays in the queue."""

    def withdraw(core: AdmissionCore, ticket: Ticket) -> tuple[Ticket, ...]:
        return ()

    monkeypatch.setattr(AdmissionCore, "withdraw", withdraw)
    result = searched("barrier")
    assert result.verdict == "fails"
    assert result.failure is not None
    assert result.failure.property == "refinement"


# -------------------------------------------------------------------------------------------- mutants of the protocol


def failure_of(name: str) -> tuple[str, str]:
    """The property and the message of the first failure."""
    result = searched(name, max_states=20_000)
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    return result.failure.property, result.failure.message


def test_cursor_ahead_in_the_library_is_found_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint without the ledger: the real files of a real save leave a prompt to nobody."""
    original = Ledger.snapshot

    def snapshot(ledger: Ledger, cut: object, owned_elsewhere: Container[int]) -> LedgerSnapshot:
        whole = original(ledger, cut, owned_elsewhere)  # type: ignore[arg-type]
        return LedgerSnapshot(MappingProxyType({}), whole.next_group, whole.next_admission, whole.accounts)

    monkeypatch.setattr(Ledger, "snapshot", snapshot)
    assert failure_of("commit")[0] == "one_owner_on_disk"


def test_no_subtraction_in_the_library_is_found_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger stored with the entries of groups that the buffer owns: two owners in the files."""
    original = Ledger.snapshot

    def snapshot(ledger: Ledger, cut: object, owned_elsewhere: Container[int]) -> LedgerSnapshot:
        return original(ledger, cut, ())  # type: ignore[arg-type]

    async def run(generation: Generation, group: int, prompt: object, permit: object) -> None:
        """As ever, but a turn of the loop between the commit and the removal, where a save may fall."""
        import asyncio

        rows = await generation._attempts(group, prompt, permit)  # type: ignore[arg-type]
        assert rows is not None
        staged = await generation._parts.buffer.plane.stage(group, rows)
        await generation.commit_group(group, staged)
        await asyncio.sleep(0)
        generation.remove_committed(group)

    monkeypatch.setattr(Ledger, "snapshot", snapshot)
    monkeypatch.setattr(Generation, "_run", run)
    assert failure_of("commit")[0] == "one_owner_on_disk"


def test_a_gate_that_is_not_waited_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event the machine does not allow there: the pump says it passed the gate before it did."""
    original = RolloutPump.pass_gate

    async def pass_gate(pump: RolloutPump, admission: object) -> None:
        pump._parts.barrier.emit("pass_gate", admission=0)
        await original(pump, admission)  # type: ignore[arg-type]

    monkeypatch.setattr(RolloutPump, "pass_gate", pass_gate)
    name, message = failure_of("commit")
    assert name == "refinement"
    assert "does not enable pass_gate" in message


def test_a_spare_that_keeps_its_place_in_the_pool_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spare admitted and still in the pool: two owners, in memory at once and then in the files."""
    monkeypatch.setattr(SparePool, "take", lambda pool, cut: pool.next)
    name, message = failure_of("spares")
    assert name == "refinement"
    assert "disagree about spares" in message


def test_a_pool_that_is_not_saved_is_found_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pool_not_saved`, put into the library: the save after the first step leaves the spare to nobody."""
    monkeypatch.setattr(SparePool, "snapshot", lambda pool, cut: ())
    assert failure_of("drain")[0] == "one_owner_on_disk"


def test_a_finished_step_without_its_event_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of state without an event is no stutter: all compared variables must stand still."""
    original = ReplayBuffer.finish

    def finish(buffer: ReplayBuffer, *arguments: object, **named: object) -> None:
        trace, buffer.barrier._trace = buffer.barrier._trace, None
        try:
            original(buffer, *arguments, **named)  # type: ignore[arg-type]
        finally:
            buffer.barrier._trace = trace

    monkeypatch.setattr(ReplayBuffer, "finish", finish)
    name, message = failure_of("commit")
    assert name == "refinement"
    assert "disagree about slots, trained, stamps, version, permits" in message


# ------------------------------------------------------------------------------------------------------ the follower


class Light:
    """A machine of two states, on and off."""

    initial = "off"

    def step_named(self, state: str, name: str, index: int | None) -> object:
        """Turning on is enabled when off."""
        return type("Step", (), {"state": "on"}) if (state, name) == ("off", "turn_on") else None

    def steps(self, state: str) -> list[object]:
        """Nothing to list."""
        return []


def follower_of(shown: list[str]) -> Follower:
    """A follower of the light whose implementation shows the last of `shown`."""

    def turn(event: Event, state: str) -> list[tuple[str, int | None]] | Stutter:
        return Stutter("is on") if state == "on" else [("turn_on", None)]

    return Follower(
        "light",
        Remembered(Light(), lambda state: {"light": state}),
        {"turn": turn},
        frozenset({"hum"}),
        of_implementation=lambda: {"light": shown[-1]},
        coverage=Coverage(),
    )


def test_a_step_with_its_event_is_followed_and_a_second_one_is_a_named_stutter() -> None:
    """The event moves the machine once; again, it is counted under its reason."""
    shown = ["off"]
    follower = follower_of(shown)
    assert follower.observe() == "off"
    shown.append("on")
    follower("turn")
    assert follower.observe() == "on"
    follower("turn")
    follower("hum")
    assert follower.observe() == "on"
    assert follower._coverage.stutters == {"is on": 1}


@pytest.mark.parametrize(("event", "shown", "says"), [("turn", "off", "disagree about light"), ("", "on", "disagree")])
def test_an_event_without_change_and_a_change_without_event_are_refused(event: str, shown: str, says: str) -> None:
    """Both ends are compared after every step, with or without events."""
    from interleavings import Violation

    follower = follower_of([shown])
    if event:
        follower(event)
    with pytest.raises(Violation, match=says):
        follower.observe()


def test_an_unknown_event_is_refused_by_name() -> None:
    """Nothing is ignored by default: a new event must be given a meaning."""
    from interleavings import Violation

    follower = follower_of(["off"])
    follower("flicker", times=2)
    with pytest.raises(Violation, match=r"flicker\(times=2\), which the machine 'light' neither follows nor ignores"):
        follower.observe()


def test_every_event_the_library_emits_is_named_on_the_refinement_page() -> None:
    """The vocabulary is closed: an emit in `impl` that the page does not know fails here."""
    import ast
    from pathlib import Path

    import impl
    from interleavings.correspondence import refinement

    known = refinement.BARRIER_EVENTS | refinement.CUT_EVENTS | refinement.FIGURE_EVENTS
    emitted: set[str] = set()
    for path in Path(impl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("emit", "_trace"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    emitted.add(str(first.value))
    assert emitted >= {"reserve_batch", "commit_group", "publish", "read_ledger"}
    assert emitted - known == set()


def test_a_scenario_names_a_scope_of_its_machine() -> None:
    """The states of a scenario lie inside a scope that can be enumerated, and it holds there completely."""
    from spec import search

    for scenario in (*SCENARIOS.values(), *CONTROLS.values()):
        if scenario.name in CONTROLS:
            # What is followed there is a variant of the machine, which breaks a property; its own tests say which.
            assert scenario.pinned is None
        elif scenario.machine is not None:
            result = search(scenario.machine.model(scenario.scope))
            assert (result.verdict, result.complete) == ("holds", True)
        subject = fresh_subject(scenario.program(Coverage()))
        assert (subject.observe is not None) == (scenario.machine is not None)
        for main in subject.mains():
            main.close()
