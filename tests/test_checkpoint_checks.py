"""The one list of checks of a checkpoint: each notices what no other does; a restore, fsck and a save ask the same."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from loop_turns import until
from run_situations import HeldExecutor, NumberTrainer, Run, forge, mixed, rows_of, saved

from impl import (
    CheckpointBarrier,
    CheckpointCorrupt,
    Checkpointer,
    CheckpointIncompatible,
    CleancutError,
    Counters,
    HeldCounters,
    InOrderSampler,
    InvariantViolated,
    Ledger,
    Phase,
    PromptLoader,
    ReplayBuffer,
    TensorPlane,
    UsageError,
    steps,
)
from impl.__main__ import main
from impl.checkpoint import CHECKS, Checked, Documents, checks, first_problem, read_documents
from impl.store import CheckpointReader, PosixFiles

Edit = Callable[[dict[str, Any]], object]


def fsck(directory: Path) -> tuple[int, list[dict[str, Any]]]:
    """The status, and what fsck says of each checkpoint."""
    report = directory.parent / "report.json"
    status = main(["fsck", str(directory), "--json", str(report)])
    return status, json.loads(report.read_text())["checkpoints"]


async def restore_refuses(directory: Path) -> CleancutError | None:
    """The refusal of a restore in fresh parts; None where it is taken. Nothing may be changed by a refusal."""
    run = Run(directory)
    before = run.state()
    try:
        await run.checkpointer.restore()
    except CleancutError as error:
        assert run.state() == before, "a refusal changes nothing"
        return error
    finally:
        await run.checkpointer.close()
    return None


# ------------------------------------------------------------------------------------- each check, by what only it sees


def of_the_first_group(documents: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = documents["ledger"]["entries"][0]
    return entry


def swap_a_trained_prompt_for_one_not_drawn(documents: dict[str, Any]) -> None:
    """As many owners as before, of other prompts."""
    owned = {(entry["epoch"], entry["index"]) for entry in documents["ledger"]["entries"]}
    owned |= {(slot["epoch"], slot["index"]) for slot in documents["buffer"]["slots"]}
    for interval in documents["trainer"]["accounts"]["trained"]:
        owned |= {(interval["epoch"], row) for row in range(interval["first"], interval["last"] + 1)}
    length = documents["manifest"]["identity"]["dataset_length"]
    of_the_first_group(documents)["index"] = next(row for row in range(length) if (0, row) not in owned)


ONLY_IT_SEES: dict[str, Edit] = {
    "steps_agree": lambda d: d["trainer"].update(step=2),
    "numbers_are_counts": lambda d: d["trainer"].update(next_group=2**70),
    "keys_are_of_the_dataset": lambda d: d["spares"]["spares"].append(
        {"epoch": 0, "index": 10**6, "payload": {"kind": "dataset", "value": None}}
    ),
    "parts_name_one_run": lambda d: d["loader"]["state"].update(seed=d["loader"]["state"]["seed"] + 1),
    "parts_are_of_one_save": lambda d: d["buffer"]["rows"].update(ledger_sha256="0" * 64),
    "words_are_known": lambda d: of_the_first_group(d)["payload"].update(kind="value"),
    "free_values_are_plain": lambda d: of_the_first_group(d)["payload"].update(kind="value", value="\ud800"),
    "owners_are_distinct": lambda d: of_the_first_group(d).update(group=d["buffer"]["slots"][0]["group"]),
    "ids_are_fresh": lambda d: d["trainer"].update(next_admission=0),
    "admissions_are_whole": lambda d: of_the_first_group(d).update(admission=d["ledger"]["entries"][-1]["admission"]),
    "states_have_their_form": lambda d: d["loader"]["state"].update(exhausted=True),
    "stamps_fit_the_sampler": lambda d: [
        entry.update(step=None) for entry in d["ledger"]["entries"] if entry["phase"] == Phase.ADMITTED.value
    ],
    "cursor_covers_stamps": lambda d: d["sampler"]["state"].update(cursor=0),
    "steps_can_be_trained": lambda d: d["sampler"]["state"].update(cursor=7),
    "weights_are_of_the_past": lambda d: d["buffer"]["slots"][0].update(weight=9),
    "budgets_name_groups": lambda d: d["trainer"]["budgets"].update({"5/data": 3}),
    "accounts_agree": lambda d: d["trainer"]["accounts"]["trained"].append(d["trainer"]["accounts"]["trained"][0]),
    "owners_are_counted": lambda d: d["ledger"]["entries"].pop(),
    "owners_were_handed_out": swap_a_trained_prompt_for_one_not_drawn,
    "counts_of_the_manifest_agree": lambda d: d["manifest"]["counts"]["trained"].update(value=77),
}


@pytest.fixture(scope="module")
def plain_documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The documents of a checkpoint with every kind of owner, as plain values."""
    root = tmp_path_factory.mktemp("run")
    asyncio.run(_saved(root))
    documents = read_documents(CheckpointReader(PosixFiles(), str(root), "step_1-1"))
    names = ("manifest", "sampler", "loader", "spares", "buffer", "ledger", "trainer")
    return {name: msgspec.to_builtins(getattr(documents, name)) for name in names}


async def _saved(root: Path) -> None:
    await saved(root)


def checked(plain: dict[str, Any]) -> Checked:
    kinds = {name: field for name, field in Documents.__annotations__.items() if name not in ("name",)}
    import typing

    kinds = typing.get_type_hints(Documents)
    converted = {name: msgspec.convert(value, kinds[name]) for name, value in plain.items()}
    return Checked(Documents("step_1-1", **converted))


def consistent(plain: dict[str, Any], check: str) -> None:
    """Let counts and stamps follow an edit, except where they are what is edited."""
    if check != "parts_are_of_one_save":
        plain["buffer"]["rows"]["ledger_entries"] = len(plain["ledger"]["entries"])
    if check != "counts_of_the_manifest_agree":
        plain["manifest"]["counts"]["pending"]["value"] = len(plain["ledger"]["entries"])
        plain["manifest"]["counts"]["spares"]["value"] = len(plain["spares"]["spares"])


def test_every_check_has_an_edit_that_it_is_first_to_see() -> None:
    """A check that nothing shows to notice may as well be left out."""
    assert ONLY_IT_SEES.keys() == {check.__name__ for check in CHECKS}
    assert len(CHECKS) >= 20


@pytest.mark.parametrize("name", ONLY_IT_SEES)
def test_a_check_is_the_first_to_see_its_edit_and_is_needed_for_it(
    name: str, plain_documents: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check the edit is told by a later one, if at all, and by none of those before."""
    plain = copy.deepcopy(plain_documents)
    assert first_problem(checked(plain)) is None
    ONLY_IT_SEES[name](plain)
    consistent(plain, name)
    found = {check.__name__: list(check(checked(plain))) for check in CHECKS[: _place(name) + 1]}
    assert [other for other, problems in found.items() if problems] == [name]
    for problem in found[name]:
        assert problem.file.endswith(".json")
        assert problem.key
        assert problem.what


def _place(name: str) -> int:
    return [check.__name__ for check in CHECKS].index(name)


# ------------------------------------------------------------------------------------------------- a restore and fsck


def named(member: str, old: str) -> Edit:
    def change(manifest: dict[str, Any]) -> None:
        manifest["files"][f"{old}."] = manifest["files"].pop(old)

    return change


def of_a_tensor(**changes: Any) -> Edit:
    def change(manifest: dict[str, Any]) -> None:
        listed = next(record for record in manifest["files"].values() if record["tensors"])
        next(iter(listed["tensors"].values())).update(changes)

    return change


G07: dict[str, tuple[str, Edit, str]] = {
    "unknown dtype": ("manifest.json", of_a_tensor(dtype="float12"), "tensors"),
    "negative shape": ("manifest.json", of_a_tensor(shape=[-1]), "tensors"),
    "shape beyond memory": ("manifest.json", of_a_tensor(shape=[2**62, 0]), "tensors"),
    "shape below zero": ("manifest.json", of_a_tensor(shape=[0, -3]), "tensors"),
    "version beyond 64 bits": ("trainer.json", lambda d: d.update(version=2**70), "trainer.json"),
    "next group beyond 64 bits": ("trainer.json", lambda d: d.update(next_group=2**70), "trainer.json"),
    "next group beyond any run": ("trainer.json", lambda d: d.update(next_group=2**60), "next_group"),
    "attempt of 400 digits": ("ledger.json", lambda d: d["entries"][0].update(attempt=int("9" * 400)), "ledger.json"),
    "a true for a number": ("trainer.json", lambda d: d.update(version=True), "version"),
    "a name ending in a dot": ("manifest.json", named("files", "spares.json"), "spares.json."),
    "step of another": ("trainer.json", lambda d: d.update(step=9), "step"),
    "a digest that is none": ("manifest.json", lambda d: d["files"]["spares.json"].update(sha256="x"), "sha256"),
    "a sequence below zero": ("manifest.json", lambda d: d.update(fence=-1), "fence"),
    "a parent that comes later": ("manifest.json", lambda d: d.update(parent="step_9-9"), "parent"),
}


def rewrite_manifest(root: Path, change: Edit) -> None:
    import hashlib

    manifest = json.loads((root / "manifest.json").read_text())
    change(manifest)
    data = json.dumps(manifest).encode()
    (root / "manifest.json").write_bytes(data)
    (root / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


async def jagged_run(directory: Path) -> None:
    """One saved group with a jagged field, beside a plain one."""
    run = Run(directory)
    admission = await run.admit()
    await run.dispatch(*admission.groups[:1])
    nested = torch.nested.nested_tensor([torch.arange(2), torch.arange(3)], layout=torch.jagged)
    rows = {"tokens": nested, "rewards": torch.zeros(2)}
    await steps.commit(run.ledger, run.buffer, admission.groups[0], rows)
    await run.checkpointer.save()
    await run.checkpointer.close()


ROWS: dict[str, Edit] = {
    "a group that is not buffered": lambda d: d["fields"].update({"9": ["rewards"]}),
    "a field twice": lambda d: d["fields"]["0"].append("rewards"),
    "a field that is not there": lambda d: d["fields"]["0"].append("zz"),
    "a field left out": lambda d: d["fields"]["0"].remove("rewards"),
    "a group left out": lambda d: d["fields"].clear(),
    "a group under another spelling": lambda d: d["fields"].update({"00": d["fields"].pop("0")}),
    "a plain field called jagged": lambda d: d["jagged"]["0"].update(rewards=1),
    "another ragged dimension": lambda d: d["jagged"]["0"].update(tokens=2),
    "a ragged dimension below one": lambda d: d["jagged"]["0"].update(tokens=0),
    "jagged rows of nobody": lambda d: d["jagged"].update({"7": {}}),
}


@pytest.mark.parametrize("case", ROWS)
async def test_case_G07_an_index_of_rows_that_no_plane_wrote_is_refused_by_restore_and_fsck(
    tmp_path: Path, case: str
) -> None:
    """What the index says of jagged rows was found wrong by a restore alone, and the rest by nobody."""
    await jagged_run(tmp_path / "run")
    whole = Run(tmp_path / "run")
    await whole.checkpointer.restore()
    assert whole.plane.rows(0)["tokens"].is_nested
    forge(tmp_path / "run", "rows.json", ROWS[case], "step_0-1")
    error = await restore_refuses(tmp_path / "run")
    assert isinstance(error, CheckpointCorrupt)
    assert re.search(r"rows\.json: (fields|jagged)\.|manifest\.json: files: tensor", str(error))
    status, found = fsck(tmp_path / "run")
    assert (status, found[0]["state"]) == (1, "contradictory")
    assert str(error) in found[0]["problems"]


async def test_case_G07_a_snapshot_anchored_on_the_trainer_of_another_version_is_refused(tmp_path: Path) -> None:
    """It was called whole, and a resume put an older trainer beside a version whose steps that had not seen."""
    run = Run(tmp_path / "run", keep=3)
    await run.checkpointer.save(NumberTrainer(0))
    first = await run.admit()
    await run.finish(*first.groups)
    await run.train(await run.claim(*first.groups))
    await run.checkpointer.save(NumberTrainer(1))
    await (await run.checkpointer.begin_snapshot()).durable()  # type: ignore[union-attr]
    await run.checkpointer.close()
    snapshot = tmp_path / "run" / "step_1-3"
    rewrite_manifest(snapshot, lambda manifest: manifest.update(anchor="step_0-1"))
    fresh = Run(tmp_path / "run")
    with pytest.raises(CheckpointCorrupt, match=r"anchor: step_0-1 holds the trainer at version 0.* of version 1"):
        await fresh.checkpointer.restore(trainer=NumberTrainer())
    status, found = fsck(tmp_path / "run")
    assert (status, found[0]["state"]) == (1, "contradictory")
    rewrite_manifest(snapshot, lambda manifest: manifest.update(anchor="step_1-2"))
    trainer = NumberTrainer()
    assert (await fresh.checkpointer.restore(trainer=trainer)).name == "step_1-3"
    assert trainer.value == 1


@pytest.mark.parametrize("field", ["step", "version"])
async def test_case_G07_a_trainer_alone_of_another_step_is_refused(tmp_path: Path, field: str) -> None:
    """Its progress is its own, and what the directory and the manifest say was not looked at."""
    run = Run(tmp_path / "run", recovery=False)
    run.checkpointer.counters.version = 2  # type: ignore[attr-defined]
    await run.checkpointer.save(NumberTrainer(2))
    await run.checkpointer.close()
    forge(tmp_path / "run", "progress.json", lambda document: document.update({field: 7}), "step_2-1")
    fresh = Run(tmp_path / "run", recovery=False)
    with pytest.raises(CheckpointCorrupt, match=r"progress\.json: step|manifest\.json: counts\.steps"):
        await fresh.checkpointer.restore(trainer=NumberTrainer())
    assert fresh.version == 0
    assert fsck(tmp_path / "run")[0] == 1


async def test_case_G07_a_restore_without_recovery_asks_the_list_too(tmp_path: Path) -> None:
    """It takes the trainer and its version alone, and took a version that no trainer has had."""
    await saved(tmp_path / "run")
    forge(tmp_path / "run", "trainer.json", lambda document: document.update(version=-1))
    fresh = Run(tmp_path / "run", recovery=False)
    with pytest.raises(CheckpointCorrupt, match=r"trainer\.json: version: it is -1"):
        await fresh.checkpointer.restore()
    assert fresh.version == 0


@pytest.mark.parametrize("case", G07)
async def test_case_G07_what_no_writer_wrote_is_refused_by_restore_and_fsck_with_file_and_key(
    tmp_path: Path, case: str
) -> None:
    """All digests are right. fsck called such checkpoints whole, and a restore failed in torch or took them."""
    member, change, key = G07[case]
    await saved(tmp_path / "run")
    if member == "manifest.json":
        rewrite_manifest(tmp_path / "run" / "step_1-1", change)
    else:
        forge(tmp_path / "run", member, change)
    error = await restore_refuses(tmp_path / "run")
    assert isinstance(error, CheckpointCorrupt | CheckpointIncompatible)
    assert member in str(error)
    assert key in str(error)
    status, found = fsck(tmp_path / "run")
    assert status == 1
    assert found[0]["state"] != "whole"
    assert any(key in problem for problem in found[0]["problems"])


async def test_case_G08_an_admitted_group_without_its_stamp_is_refused(tmp_path: Path) -> None:
    """It would be generated and never trained, and the run would end with an account that does not add up."""
    await saved(tmp_path / "run")
    forge(tmp_path / "run", "ledger.json", lambda d: [e.update(step=None) for e in d["entries"] if e["step"] == 1])
    error = await restore_refuses(tmp_path / "run")
    assert isinstance(error, CheckpointCorrupt)
    assert "ledger.json: entries[" in str(error)
    assert "stamps every group that it admits" in str(error)
    assert fsck(tmp_path / "run")[0] == 1


# --------------------------------------------------------------------------------------------- groups that make a step


class Parts:
    """A run on the parts alone, in which nothing but the loader says how many groups make a step."""

    def __init__(self, directory: Path, batch_size: int = 4, bind: int | None = None) -> None:
        self.barrier = CheckpointBarrier()
        self.ledger, self.sampler = Ledger(self.barrier), InOrderSampler(lookahead=1)
        self.loader = PromptLoader(list(range(24)), batch_size, seed=0)
        capacity = self.sampler.capacity_needed(batch_size)
        self.buffer = ReplayBuffer(self.barrier, capacity, TensorPlane(), self.ledger)
        if bind is not None:
            self.sampler.bind(bind)
        self.checkpointer = Checkpointer(directory, self.barrier)
        self.counters = HeldCounters()
        self.checkpointer.attach(
            ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer, counters=self.counters
        )


async def test_case_G09_the_size_of_a_step_is_said_once_by_the_loader(tmp_path: Path) -> None:
    """Said in four places it was four numbers that had to agree."""
    parts = Parts(tmp_path)
    admission = await steps.reserve(parts.ledger, parts.loader)
    assert admission is not None
    await steps.admit(parts.ledger, parts.sampler, admission)
    assert parts.sampler.groups_per_step == 4
    assert parts.sampler.target(0) == 4
    await parts.checkpointer.save()
    await parts.checkpointer.close()
    manifest = json.loads((tmp_path / "step_0-1" / "manifest.json").read_text())
    assert manifest["identity"]["groups_per_step"] == 4


@pytest.mark.parametrize(("at_save", "at_restore"), [(4, 2), (2, 4)])
async def test_case_G09_another_size_of_steps_is_refused_with_both_values(
    tmp_path: Path, at_save: int, at_restore: int
) -> None:
    """Two finished prompts were dropped as stale one way round, and the run hung the other."""
    first = Parts(tmp_path, bind=at_save)
    await first.checkpointer.save()
    await first.checkpointer.close()
    other = Parts(tmp_path, bind=at_restore)
    with pytest.raises(CheckpointIncompatible) as refused:
        await other.checkpointer.restore()
    assert f"groups_per_step: {at_save} in the checkpoint, {at_restore} here" in str(refused.value)
    await other.checkpointer.close()
    again = Parts(tmp_path, bind=at_restore)
    with pytest.raises(CheckpointIncompatible, match="groups_per_step"):
        await again.checkpointer.prepare()


async def test_case_G09_a_checkpoint_that_does_not_say_is_taken_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Format 1 had no such field at first."""
    first = Parts(tmp_path)
    await first.checkpointer.save()
    await first.checkpointer.close()
    rewrite_manifest(tmp_path / "step_0-1", lambda manifest: manifest["identity"].pop("groups_per_step"))
    fresh = Parts(tmp_path, bind=2)
    with caplog.at_level(logging.INFO, "cleancut.checkpointer"):
        await fresh.checkpointer.restore()
    await fresh.checkpointer.close()
    assert [record.message for record in caplog.records if "how many groups made a step" in record.message] == [
        "step_0-1 does not say how many groups made a step, so that is not compared with this run's"
    ]


# ------------------------------------------------------------------------------------------------- work of this process


@pytest.mark.parametrize("held", ["ledger", "buffer", "pool"])
async def test_case_G10_a_restore_over_work_of_this_process_is_refused_and_changes_nothing(
    tmp_path: Path, held: str
) -> None:
    """A late result of before was committed, and the step after the restore trained rows of another version."""
    await saved(tmp_path / "run")
    run = Run(tmp_path / "run")
    if held == "pool":
        await run.divert()
    else:
        admission = await run.admit()
        if held == "buffer":
            await run.finish(*admission.groups)
    before = run.state()
    with pytest.raises(UsageError, match="this process has work under way: ") as refused:
        await run.checkpointer.restore()
    assert {"ledger": "in the ledger", "buffer": "in the buffer", "pool": "in the spare pool"}[held] in str(
        refused.value
    )
    assert run.state() == before


async def test_case_G10_what_a_restore_brought_is_no_work_until_somebody_touches_it(tmp_path: Path) -> None:
    """A restore may follow a restore; after a mutation it may not, and a result of a group that is gone is refused."""
    await saved(tmp_path / "run")
    run = Run(tmp_path / "run")
    await run.checkpointer.restore()
    again = run.state()
    await run.checkpointer.restore()
    assert run.state() == again
    await run.dispatch(5)
    with pytest.raises(UsageError, match="work under way"):
        await run.checkpointer.restore()


@pytest.mark.parametrize("gone", ["released", "aborted", "handed over"])
@pytest.mark.parametrize("by", ["steps.commit", "buffer.commit"])
async def test_case_G10_a_late_result_of_before_a_restore_is_not_taken_for_a_restored_group(
    tmp_path: Path, gone: str, by: str
) -> None:
    """Everything was empty, the producer was not: its rows became those of the restored group with the same id."""
    await saved(tmp_path / "run")
    run = Run(tmp_path / "run")
    bring = await given_up_while_it_is_made(run, gone, by)
    before = run.state()
    named = "5, 8" if gone == "handed over" else "5"  # the group in its place was in flight too
    with pytest.raises(UsageError, match=rf"gave up while they were being made: {named}\. ") as refused:
        await run.checkpointer.restore()
    assert "fresh parts" in str(refused.value)
    assert run.state() == before
    assert await bring(), "what comes late for a group that is gone is refused"
    assert run.state() == before
    assert await restore_refuses(tmp_path / "run") is None, "in fresh parts it is taken"


async def test_case_G10_without_the_refusal_a_late_result_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: it is the one thing that keeps rows of before out of a restored group."""
    from impl.checkpoint import restoring

    monkeypatch.setattr(restoring, "require_no_late_results", lambda *arguments: None)
    await saved(tmp_path / "run")
    run = Run(tmp_path / "run")
    bring = await given_up_while_it_is_made(run, "released", "buffer.commit")
    await run.checkpointer.restore()
    await run.dispatch(5)
    assert not await bring()
    assert run.plane.rows(5)["tokens"][0, 0] == 99


async def given_up_while_it_is_made(run: Run, gone: str, by: str) -> Callable[[], Any]:
    """Give up group 5 in flight and all else; what comes back brings its result, and says if that was refused."""
    first, second = await run.admit(), await run.admit()
    await run.dispatch(5)
    staged = await run.plane.stage(5, rows_of(99))
    rest = [*first.groups, *second.groups]
    if gone == "handed over":
        async with run.barrier.mutation("spare") as cut:
            batch = run.loader.next_batch(cut)
            assert batch is not None
            run.pool.divert(cut, batch)
            spare = run.pool.take(cut)
            entry = run.ledger.replace(cut, 5, spare.key, spare.payload, run.ledger.entries[5].step)
            run.buffer.hand_over(cut, 5, entry.group, entry.key, entry.step, 0)
            while run.pool.spares:
                run.ledger.accounts.drop(run.pool.take(cut).key, "failed")
        rest = [*(group for group in rest if group != 5), entry.group]
    for group in rest:
        async with run.barrier.mutation("give_up") as cut:
            if group == 5 and gone == "aborted":
                run.buffer.abort_stale(cut, group)
                continue
            if group in run.buffer.slots:
                run.buffer.release_unready(cut, group)
            run.ledger.drop(cut, group, "failed")

    async def bring() -> bool:
        if by == "steps.commit":
            return not await steps.commit(run.ledger, run.buffer, 5, rows_of(99))
        try:
            async with run.barrier.mutation("late") as cut:
                run.buffer.commit(cut, 5, staged)
        except InvariantViolated:
            return True
        return False

    return bring


async def test_case_G10_a_group_given_up_that_the_checkpoint_has_settled_is_no_obstacle(tmp_path: Path) -> None:
    """Its id is not given again: what comes for it late is refused where it is committed."""
    run = await mixed(Run(tmp_path / "run"))
    async with run.barrier.mutation("give_up") as cut:
        steps.shrink(cut, run.ledger, run.buffer, run.sampler, 5)
    await run.checkpointer.save()
    await run.finish(6)
    for group in (4, 6, 7):
        async with run.barrier.mutation("evict") as cut:
            run.buffer.evict(cut, group)
    for group in (8, 9, 10, 11):
        async with run.barrier.mutation("drop") as cut:
            run.ledger.drop(cut, group, "failed")
    assert 5 in run.buffer.given_up_in_flight
    await run.checkpointer.restore()
    assert run.state() != Run(tmp_path / "empty").state()
    assert not await steps.commit(run.ledger, run.buffer, 5, rows_of(99))


@pytest.mark.parametrize("begun", ["a group", "a permit", "a dispatch"])
async def test_case_G10_work_that_begins_while_a_restore_reads_is_not_replaced(tmp_path: Path, begun: str) -> None:
    """The parts were empty when it was asked for; what was dispatched since was lost, and its result taken."""
    await saved(tmp_path / "run")
    executor = HeldExecutor()
    run = Run(tmp_path / "run", executor=executor)
    restoring = asyncio.ensure_future(run.checkpointer.restore())
    await until(lambda: bool(executor.jobs))
    if begun == "a permit":
        await run.buffer.acquire_permit()
    else:
        admission = await run.admit()
        if begun == "a dispatch":
            await run.dispatch(admission.groups[0])
    before = run.state()
    while not restoring.done() and executor.jobs:
        await executor.run_next()
    with pytest.raises(UsageError, match="a restore was asked for while"):
        await restoring
    assert run.state() == before
    async with run.barrier.mutation("goes on"):
        pass  # the barrier was not closed: nothing had been replaced


async def test_case_G10_rows_in_the_plane_without_a_slot_are_work_of_this_process(tmp_path: Path) -> None:
    """They were replaced without a word."""
    await saved(tmp_path / "run")
    run = Run(tmp_path / "run")
    staged = await run.plane.stage(77, rows_of(77))
    async with run.barrier.mutation("by hand") as cut:
        run.plane.commit(cut, 77, staged)
    with pytest.raises(UsageError, match="1 group in the data plane alone"):
        await run.checkpointer.restore()


# ----------------------------------------------------------------------------------- a save asks what a restore does


async def test_case_G11_groups_in_another_buffer_on_the_same_ledger_are_not_saved_as_lost(tmp_path: Path) -> None:
    """The save succeeded, retention deleted the last good checkpoint, and no restore was possible."""
    run = await mixed(Run(tmp_path / "run", keep=1))
    await run.checkpointer.save()
    stranger = ReplayBuffer(run.barrier, 8, TensorPlane(), run.ledger)
    entry = run.ledger.entries[6]
    permit = await stranger.acquire_permit()
    async with run.barrier.mutation("dispatch") as cut:
        stranger.reserve(cut, 6, entry.key, entry.step, run.version, permit)
    staged = await stranger.plane.stage(6, rows_of(6))
    async with run.barrier.mutation("commit") as cut:
        stranger.commit(cut, 6, staged)
    run.ledger.remove_committed(6)
    with pytest.raises(InvariantViolated, match=r"no restore would take it: .*\.json: "):
        await run.checkpointer.save()
    await run.checkpointer.close()
    assert await restore_refuses(tmp_path / "run") is None, "the one before is still there, and whole"


async def test_case_G11_a_batch_that_was_drawn_and_not_reserved_is_not_saved_as_lost(tmp_path: Path) -> None:
    """The cursor is past it and nobody owns it."""
    run = await mixed(Run(tmp_path / "run", keep=1))
    await run.checkpointer.save()
    async with run.barrier.mutation("draw") as cut:
        assert run.loader.next_batch(cut) is not None
    with pytest.raises(InvariantViolated, match=r"loader.json: state.position: the loader has handed out"):
        await run.checkpointer.save()
    await run.checkpointer.close()
    assert await restore_refuses(tmp_path / "run") is None


async def test_case_G11_a_save_that_does_not_ask_publishes_what_no_restore_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: without the question at its end the save is acknowledged."""
    from impl.checkpoint import publication

    monkeypatch.setattr(publication, "first_problem", lambda checked: None)
    run = await mixed(Run(tmp_path / "run"))
    async with run.barrier.mutation("draw") as cut:
        assert run.loader.next_batch(cut) is not None
    await run.checkpointer.save()
    await run.checkpointer.close()
    assert isinstance(await restore_refuses(tmp_path / "run"), CheckpointCorrupt)


async def test_case_G11_a_save_looks_at_what_is_new_since_the_one_before(tmp_path: Path) -> None:
    """What was found to be handed out stays so; a prompt trained since that nobody drew is found all the same."""
    run = await mixed(Run(tmp_path / "run"))
    await run.checkpointer.save()
    assert run.checkpointer._known.trained_count == 4
    assert list(run.ledger.accounts.snapshot().trained_since(run.checkpointer._known)) == []
    never = next(key for key in _rows_never_drawn(run))
    run.ledger.accounts.train(never)
    assert list(run.ledger.accounts.snapshot().trained_since(run.checkpointer._known)) == [tuple(never)]
    entry = run.ledger.entries[8]
    async with run.barrier.mutation("lose") as cut:
        run.ledger.drop(cut, 8, "failed")
    del run.ledger.accounts._dropped.places[entry.key]
    run.ledger.accounts._dropped.drops.pop()
    with pytest.raises(InvariantViolated, match="was trained and was never handed out"):
        await run.checkpointer.save()


async def test_case_G11_a_save_of_the_trainer_alone_asks_as_well(tmp_path: Path) -> None:
    """No restore takes a version below 0, so none is published."""
    run = Run(tmp_path / "run", recovery=False)
    run.checkpointer.counters.read = lambda cut: Counters(-1, 0)  # type: ignore[method-assign]
    with pytest.raises(InvariantViolated, match=r"not published.*progress\.json: version"):
        await run.checkpointer.save()
    assert run.checkpointer.latest() is None


def _rows_never_drawn(run: Run) -> list[Any]:
    from impl import Key
    from impl.loaders import EpochOrder

    where = run.loader.state()
    order = EpochOrder(where.dataset_length, where.seed, 0)
    return [Key(0, order[place]) for place in range(where.position, where.dataset_length)]


# ------------------------------------------------------------------------------------------------- the trainer's state


async def test_case_G14_a_resume_that_forgets_the_trainer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """The run went on at the saved version with weights that had seen nothing."""
    run = await mixed(Run(tmp_path / "run"))
    await run.checkpointer.save(NumberTrainer(7))
    await run.checkpointer.close()
    fresh = Run(tmp_path / "run")
    before = fresh.state()
    with pytest.raises(CheckpointIncompatible, match="holds a trainer's state, and no trainer was given"):
        await steps.resume(fresh.checkpointer, fresh.sampler)
    assert fresh.state() == before
    trainer = NumberTrainer(0)
    restored = await steps.resume(fresh.checkpointer, fresh.sampler, trainer)
    assert restored is not None
    assert trainer.value == 7
    by_hand = Run(tmp_path / "run")
    taken = (await by_hand.checkpointer.restore()).trainer
    assert taken is not None
    assert taken.read_json("value.json") == 7


def test_the_list_is_one() -> None:
    """Restore, fsck and the end of a save call it; none of them has checks of its own."""
    root = Path(checks.__file__).parent.parent
    callers = {
        "checkpoint/restoring.py": "require_whole(",
        "checkpoint/publication.py": "first_problem(",
        "inspection/examine.py": "require_whole(",
    }
    for member, call in callers.items():
        assert call in (root / member).read_text(), member
