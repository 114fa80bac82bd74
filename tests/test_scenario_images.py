"""Faults that the scenarios find in what a checkpoint holds, in what production runs without a tracer, and at the end.

Each is one small fault in the library for the length of a test. One that changes a single thing in the files must be
told by that thing's name alone: no other comparison stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from impl.barrier import ENDED, AdmissionCore, MutationSection
from impl.checkpoint import Anchor, Checkpointer, accounts_document, artifacts, ledger_document
from impl.checkpoint import documents as doc
from impl.controller import Progress, SaveSchedule
from impl.store import CheckpointReader
from interleavings import explore
from interleavings.correspondence import Coverage, EventlessFollower, Remembered
from interleavings.correspondence.refinement import cut_model
from interleavings.runtime import Failure
from interleavings.scenarios import SCENARIOS, scenario_named
from interleavings.scenarios.whole_run import whole_run
from spec.machines.cut import CutScope

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")

THREE_STEPS = CutScope(batches=3, batch_size=1, lookahead=2, saves=3, crashes=0)
# Two admissions are pending at its first save. Too large for a scenario; a fault shows in one of its first schedules.
TWO_PENDING = whole_run("two_pending", "three steps", THREE_STEPS, cut_model(THREE_STEPS), None, turns=False)


def failure_of(name: str, order: Any = "depth", crashes: int | None = None) -> Failure:
    """The failure that a search of the scenario finds."""
    known = {TWO_PENDING.name: TWO_PENDING}
    scenario = known.get(name) or scenario_named(name if crashes is None else f"{name}_with_{crashes}_crashes")
    budgets = {"cancels": scenario.cancels, "crashes": scenario.crashes, "timers": scenario.timers}
    result = explore(scenario.program(Coverage()), order=order, **budgets)  # type: ignore[arg-type]
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    return result.failure


# ---------------------------------------------------------------------------------------------- what an image holds


def trainer_document(**changes: Callable[[Any], Any]) -> Callable[..., doc.TrainerDocument]:
    """`TrainerDocument` with some of its values changed as they are written."""

    def made(**given: Any) -> doc.TrainerDocument:
        return doc.TrainerDocument(**{name: changes.get(name, lambda value: value)(v) for name, v in given.items()})

    return made


class Documents:
    """The module of documents, with another form of one of them."""

    def __init__(self, **others: Any) -> None:
        self.__dict__.update({**vars(doc), **others})


def with_trainer(monkeypatch: pytest.MonkeyPatch, **changes: Callable[[Any], Any]) -> None:
    monkeypatch.setattr(artifacts, "doc", Documents(TrainerDocument=trainer_document(**changes)))


def other_next_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that is given twice over a restart: the next process begins at the group that was named last."""
    with_trainer(monkeypatch, next_group=lambda number: number - 1)


def other_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A permit too many that nobody holds."""
    with_trainer(monkeypatch, permits=lambda permits: doc.PermitsDocument(permits.capacity, permits.held + 1))


def other_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is not the trainer's version."""
    original = Progress.read
    monkeypatch.setattr(Progress, "read", lambda p, cut: replace(original(p, cut), step=original(p, cut).step + 1))


def other_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that failed is accounted for as one that was too old."""

    def changed(accounts: Any) -> doc.AccountsDocument:
        document = accounts_document(accounts)
        dropped = [doc.DroppedDocument(each.epoch, each.index, "stale_ready") for each in document.dropped]
        return doc.AccountsDocument(document.trained, dropped)

    monkeypatch.setattr(artifacts, "accounts_document", changed)


def other_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two admissions under one id: a restart would take their groups for one step's."""

    def changed(snapshot: Any) -> doc.LedgerDocument:
        entries = {group: replace(entry, admission=0) for group, entry in snapshot.entries.items()}
        return ledger_document(replace(snapshot, entries=entries))

    monkeypatch.setattr(artifacts, "ledger_document", changed)


def other_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that says it has no parent, so that retention may take the one it came from."""
    original = Checkpointer._draft
    monkeypatch.setattr(
        Checkpointer, "_draft", lambda saver, kind, captured: replace(original(saver, kind, captured), parent=None)
    )


@pytest.mark.parametrize(
    ("fault", "scenario", "aspect"),
    [
        (other_next_group, "commit", "next group"),
        (other_permits, "commit", "permits"),
        (other_step, "commit", "step"),
        (other_parent, "commit", "parent"),
        (other_reason, "spares", "reasons"),
        (other_admission, "two_pending", "admissions"),
    ],
)
def test_what_a_checkpoint_holds_and_the_cut_had_not_is_found_by_its_name(
    fault: Callable[[pytest.MonkeyPatch], None], scenario: str, aspect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aspect that another one stands in for would never be missed."""
    fault(monkeypatch)
    failure = failure_of(scenario)
    assert failure.property == "image_equals_cut"
    assert failure.message.endswith(f"does not hold the state at its cut; it differs in {aspect}")


def test_a_snapshot_that_calls_itself_its_anchor_after_a_restore_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine keeps the version of the anchor, which is right; the name is of a checkpoint without a trainer."""
    original = Checkpointer.restore

    async def restore(saver: Checkpointer, *arguments: Any, **options: Any) -> Any:
        restored = await original(saver, *arguments, **options)
        saver._anchor = Anchor(restored.name, restored.version)
        return restored

    monkeypatch.setattr(Checkpointer, "restore", restore)
    failure = failure_of("snapshots", crashes=1)
    assert failure.property == "image_equals_cut"
    assert failure.message.endswith("it differs in anchor")


# ---------------------------------------------------------------------------------------------- damage


def test_a_trainer_that_is_loaded_without_a_look_at_its_digest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The damaged file is JSON still, and of the same length: the restore takes a checkpoint that it must pass over."""
    original = CheckpointReader.verified_chunks

    def unverified(reader: CheckpointReader, member: str, room: Any = None) -> Any:
        if not member.startswith("trainer/"):
            return original(reader, member, room)
        reader._verified.add(member)
        return reader._chunks(member, room)

    monkeypatch.setattr(CheckpointReader, "verified_chunks", unverified)
    assert failure_of("damaged").property in ("refinement", "trained_matches_trainer")


def test_an_anchor_that_is_not_looked_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is worth what the full save is worth that holds its trainer."""
    monkeypatch.setattr(CheckpointReader, "verify", lambda reader, below="": None)
    failure_of("damaged")


# ---------------------------------------------------------------------------------------------- without a tracer


def test_a_short_way_out_that_does_not_open_a_cut_that_waits_is_found_without_a_tracer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a run without a tracer takes the short way out, so a traced one holds: production would hang."""
    original = MutationSection.__aexit__

    async def leave(section: MutationSection, *of_the_error: Any) -> None:
        core = section.barrier._core
        if not section.barrier._watched and section in core.inside:
            del core.inside[section]
            section.standing = ENDED
            core.mutation_version += 1
            section.task = None
        else:
            await original(section, *of_the_error)

    monkeypatch.setattr(MutationSection, "__aexit__", leave)
    assert failure_of("barrier_untraced", order="breadth").property in ("refinement", "deadlock")
    scenario = scenario_named("barrier")
    assert explore(scenario.program(Coverage()), cancels=scenario.cancels).verdict == "holds"


def test_a_slot_that_is_not_counted_is_found_without_a_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count tells a last save whether anything has happened since the one before."""
    original = AdmissionCore.leave

    def leave(core: AdmissionCore, ticket: Any) -> Any:
        before = core.mutation_version
        granted = original(core, ticket)
        core.mutation_version = before
        return granted

    monkeypatch.setattr(AdmissionCore, "leave", leave)
    assert failure_of("barrier_untraced").property == "finish"


def test_a_follower_without_events_refuses_what_too_many_actions_lead_to() -> None:
    """It takes no step of the library for more actions than one can do."""

    class Counter:
        initial = 0

        def steps(self, state: int) -> list[Any]:
            return [type("Step", (), {"state": state + 1})]

        def step_named(self, state: int, name: str, index: int | None) -> None: ...

    shown = [0]
    model = Remembered(Counter(), lambda state: {"count": state})
    follower = EventlessFollower("counter", model, lambda: {"count": shown[0]}, longest=2)
    assert follower.observe() == (0,)
    shown[0] = 2
    assert follower.observe() == (2,)
    shown[0] = 5
    with pytest.raises(Exception, match="no 2 actions of the machine 'counter'"):
        follower.observe()


def test_a_run_without_a_tracer_has_the_schedules_of_the_traced_one() -> None:
    """Who listens decides nothing: the same orders, however differently the states are told apart."""
    pairs = [(s, SCENARIOS[f"{name}_untraced"]) for name, s in SCENARIOS.items() if f"{name}_untraced" in SCENARIOS]
    assert len(pairs) >= 8
    for traced, untraced in pairs:
        assert traced.pinned is not None
        assert untraced.pinned is not None
        assert traced.pinned.schedules == untraced.pinned.schedules, traced.name


# ---------------------------------------------------------------------------------------------- the end


def test_a_last_save_that_is_skipped_although_groups_were_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version alone does not tell that nothing has happened since the newest save."""

    async def save_last(saves: SaveSchedule) -> None:
        if saves._counted_from != saves._parts.progress.version:
            await saves._save()
        await saves.settle()

    monkeypatch.setattr(SaveSchedule, "save_last", save_last)
    assert failure_of("late_commits").property == "last_save_holds_what_was_ready"
