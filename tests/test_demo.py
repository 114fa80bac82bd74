"""The demo: real processes, real kills, and an audit that can say no."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from impl import Key, PromptLoader, TorchTrainerState, UsageError
from impl.__main__ import main
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import Controller, ControllerConfig, GenerationRequest, TrainBatch
from impl.demo import (
    CHECKPOINTS,
    MOMENTS,
    STEPS,
    TRAINED_LOG,
    VOCABULARY,
    Lineage,
    ToyTrainer,
    balance,
    plan_kills,
    read_lineage,
)
from impl.demo.audit import audit
from impl.run.samplers import InOrderSampler

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One demo with two kills, as a user would start it."""
    directory = tmp_path_factory.mktemp("demo") / "run"
    command = [sys.executable, "-m", "impl", "demo", "--kills", "2", "--seed", "3", "--directory", str(directory)]
    process = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=3000, check=False)
    return directory, process


@pytest.mark.slow
def test_a_run_killed_twice_loses_and_doubles_nothing(
    killed_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """The claim of the library, on real processes; the table says so and the status too."""
    _, process = killed_run
    assert process.returncode == 0, process.stderr + process.stdout
    words = " ".join(process.stdout.split())
    assert words.count("killed") >= 2
    for row in ("prompts handed out 92", "trained 88", "dropped: failed 4", "pending 0", "lost 0", "duplicated 0"):
        assert row in words
    assert f"{STEPS} train steps" in words
    assert process.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("tampering", ["none", "step forgotten", "step doubled"])
def test_the_audit_of_a_real_run_notices_a_forgotten_and_a_doubled_step(
    killed_run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, tampering: str
) -> None:
    """An audit that cannot fail proves nothing: the log alone is changed, the checkpoint stays."""
    directory, _ = killed_run
    lines = (directory / TRAINED_LOG).read_text().splitlines()
    changed = {"none": lines, "step forgotten": lines[:-1], "step doubled": [*lines, lines[-1]]}[tampering]
    log = tmp_path / "trained.jsonl"
    log.write_text("\n".join(changed) + "\n")
    keys = {Key(*key) for key in json.loads(lines[-1])["keys"]}
    result = audit(directory / CHECKPOINTS, log)
    assert result.lost == (keys if tampering == "step forgotten" else set())
    assert result.doubled == (keys if tampering == "step doubled" else set())
    assert result.balanced == (tampering == "none")


LOADER = {"dataset_length": 3, "epoch": 0, "position": 3, "seed": 0, "exhausted": True}


def accounts(*rows: int, dropped: Mapping[int, str] | None = None) -> dict[str, Any]:
    """The accounts of epoch 0 as they are on disk."""
    return {
        "trained": [{"epoch": 0, "first": row, "last": row} for row in rows],
        "dropped": [{"epoch": 0, "index": row, "reason": reason} for row, reason in (dropped or {}).items()],
    }


def lineage(*rows: int) -> Lineage:
    """One step for each row."""
    return Lineage({step: (Key(0, row),) for step, row in enumerate(rows)}, dict.fromkeys(range(len(rows)), 0.0), 0)


@pytest.mark.parametrize(
    ("on_disk", "living", "in_log", "lost", "doubled"),
    [
        (accounts(0, 1, 2), [], (0, 1, 2), set(), set()),
        (accounts(0, 1, dropped={2: "failed"}), [], (0, 1), set(), set()),
        (accounts(0, 1), [2], (0, 1), set(), set()),
        (accounts(0, 1), [], (0, 1), {2}, set()),
        (accounts(0, 1, 2), [], (0, 1), {2}, set()),
        (accounts(0, 1, 2), [], (0, 1, 2, 2), set(), {2}),
        (accounts(0, 1), [1, 2], (0, 1), set(), {1}),
        (accounts(0, 1, dropped={2: "failed"}), [], (0, 1, 2), set(), {2}),
        (accounts(0, 1), [2], (0, 1, 2), set(), {2}),
    ],
    ids=[
        "all trained", "one dropped", "one pending", "nobody's", "trained on paper only", "trained twice",
        "trained and pending on disk", "dropped and trained", "trained and pending",
    ],
)  # fmt: skip
def test_the_balance_counts_what_is_lost_and_doubled(
    on_disk: Any, living: list[int], in_log: tuple[int, ...], lost: set[int], doubled: set[int]
) -> None:
    """Each way to go wrong shows in the column it belongs to."""
    entries = [{"epoch": 0, "index": row} for row in living]
    result = balance(LOADER, on_disk, entries, lineage(*in_log))
    assert {key.index for key in result.lost} == lost
    assert {key.index for key in result.doubled} == doubled
    assert result.handed_out == {Key(0, 0), Key(0, 1), Key(0, 2)}


def test_prompts_that_were_not_read_yet_are_not_lost() -> None:
    """In the middle of an epoch only what is behind the cursor counts, in the loader's own order."""
    loader = PromptLoader(["a", "b", "c"], batch_size=1, seed=5)

    async def first_key() -> Key:
        async with CheckpointBarrier().mutation() as cut:
            batch = loader.next_batch(cut)
            assert batch is not None
            return batch.keys[0]

    key = asyncio.run(first_key())
    state = {"dataset_length": 3, "epoch": 0, "position": 1, "seed": 5, "exhausted": False}
    result = balance(state, accounts(key.index), [], lineage(key.index))
    assert result.handed_out == {key}
    assert not result.lost


def test_of_another_loader_the_keys_are_known_at_the_end_of_the_data_and_not_before() -> None:
    """A loader over torchdata does not say which rows it gave out; at the end it was all of them."""
    state = {"dataset_length": 2, "epoch": 1, "seed": 5, "exhausted": True}
    result = balance(state, accounts(0, 1), [], lineage(0, 1))
    assert result.handed_out == {Key(0, 0), Key(0, 1), Key(1, 0), Key(1, 1)}
    assert result.lost == {Key(1, 0), Key(1, 1)}
    with pytest.raises(UsageError, match="not come to the end of its data"):
        balance({**state, "exhausted": False}, accounts(0, 1), [], lineage(0, 1))


def test_a_later_lineage_supersedes_the_steps_it_did_again() -> None:
    """Killed after step 2, resumed at step 1: the first steps 1 and 2 are forgotten, with their keys."""
    trained = [{"event": "trained", "step": step, "keys": [[0, step]], "reward": 0.5} for step in range(4)]
    lines: list[Mapping[str, Any]] = [
        {"event": "resumed", "step": 0}, *trained[:3], {"event": "resumed", "step": 1}, *trained[1:],
    ]  # fmt: skip
    found = read_lineage(lines)
    assert found.steps == {step: (Key(0, step),) for step in range(4)}
    assert found.superseded == 2
    assert read_lineage([*lines, trained[3]]).steps[3] == (Key(0, 3), Key(0, 3)), "without a resumption it counts twice"


def test_the_kill_plan_repeats_and_spreads() -> None:
    """Same seed, same plan; the kills come at rising steps and at different moments."""
    assert plan_kills(5, 1, STEPS) == plan_kills(5, 1, STEPS) != plan_kills(5, 2, STEPS)
    assert plan_kills(0, 0, STEPS) == []
    for kills in (1, 3, 12, 50):
        plan = plan_kills(kills, 4, STEPS)
        assert [kill.version for kill in plan] == sorted(kill.version for kill in plan)
        assert all(1 <= kill.version <= STEPS * 3 // 4 for kill in plan)
        assert len({kill.moment for kill in plan}) >= min(kills, len(set(MOMENTS))) - 1


def frozen(trainer: ToyTrainer) -> dict[str, torch.Tensor]:
    """A copy of every tensor of model and optimizer, by name."""
    state = {f"model/{name}": value for name, value in trainer.policy.state_dict().items()}
    for number, values in trainer.optimizer.state_dict()["state"].items():
        state |= {f"optimizer/{number}/{name}": value for name, value in values.items()}
    return copy.deepcopy(state)


def run_of(directory: Path, trainer: ToyTrainer, train: Any, **settings: Any) -> Controller:
    """A small run of the toy task over a real checkpoint directory."""

    async def generate(request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        return trainer.generate(request)

    return Controller(
        loader=PromptLoader([row % VOCABULARY for row in range(24)], batch_size=4, seed=0),
        generate=generate,
        train=train,
        sampler=InOrderSampler(lookahead=1),
        checkpointer=Checkpointer(directory, CheckpointBarrier(), verify="digest"),
        trainer=TorchTrainerState(trainer.policy, trainer.optimizer),
        config=ControllerConfig(generations=4, stall_warning=None, **settings),
    )


async def test_model_and_optimizer_come_back_bit_for_bit(tmp_path: Path) -> None:
    """At the first step after the resume every tensor equals the one of the save, and steps go on from there."""
    first = ToyTrainer(seed=0)

    async def train(batch: TrainBatch) -> None:
        first.train(batch)

    await run_of(tmp_path, first, train, max_steps=3, save_period=3).run()
    saved = frozen(first)
    assert any(name.startswith("optimizer/0/exp_avg") for name in saved)

    second = ToyTrainer(seed=99)
    assert not torch.equal(frozen(second)["model/0.weight"], saved["model/0.weight"])
    seen: list[dict[str, torch.Tensor]] = []

    async def train_again(batch: TrainBatch) -> None:
        seen.append(frozen(second))
        second.train(batch)

    report = await run_of(tmp_path, second, train_again).run()
    assert report.restored is not None
    assert report.restored.step == 3
    assert len(seen) == 3
    assert seen[0].keys() == saved.keys()
    for name, value in saved.items():
        assert seen[0][name].dtype == value.dtype
        assert torch.equal(seen[0][name], value), name
    assert not torch.equal(frozen(second)["model/0.weight"], saved["model/0.weight"])


async def test_a_resumed_trainer_takes_the_very_step_the_first_would_have_taken(tmp_path: Path) -> None:
    """Two trainers at one state, one batch: equal parameters afterwards, bit for bit."""
    first = ToyTrainer(seed=0)
    after: list[dict[str, torch.Tensor]] = []

    async def train(batch: TrainBatch) -> None:
        # The step after is buffered when this one ends, so the checkpoint holds the rows it is made of.
        while sum(slot.ready for slot in controller.buffer.slots.values()) < 8:
            await controller.buffer.wait_changed()
        first.train(batch)
        after.append(frozen(first))

    controller = run_of(tmp_path / "first", first, train, max_steps=2)
    await controller.run()
    second = ToyTrainer(seed=7)

    async def train_again(batch: TrainBatch) -> None:
        second.train(batch)
        after.append(frozen(second))

    await run_of(tmp_path / "first", second, train_again, max_steps=3).run()
    third = ToyTrainer(seed=8)
    # The same resume once more, from the same checkpoint: the third step must be the same step.
    restored = run_of(tmp_path / "first", third, train_again)
    assert restored._checkpointer is not None
    await restored._checkpointer.restore(step=2, trainer=TorchTrainerState(third.policy, third.optimizer))
    assert all(torch.equal(value, after[1][name]) for name, value in frozen(third).items())
    claim = await restored.train_pump.claim()
    assert claim is not None
    slots = {group: restored.buffer.slots[group] for group in claim.groups}

    async def refuse(group: int, columns: Any) -> None:
        raise AssertionError("the toy task writes nothing back")

    third.train(TrainBatch.of(claim, slots, refuse))
    assert all(torch.equal(value, after[2][name]) for name, value in frozen(third).items())
    await restored._checkpointer.close()


def test_the_toy_policy_learns() -> None:
    """A demo of training has to train: a few epochs raise the mean reward far above chance."""
    trainer = ToyTrainer(seed=0)
    rewards: list[float] = []

    async def train(batch: TrainBatch) -> None:
        rewards.append(trainer.train(batch))

    controller = Controller(
        loader=PromptLoader(list(range(VOCABULARY)), batch_size=8, seed=0, epochs=30),
        generate=trainer.generate,
        train=train,
        sampler=InOrderSampler(lookahead=0),
        config=ControllerConfig(recovery=False, generations=16, stall_warning=None),
    )
    asyncio.run(controller.run())
    assert sum(rewards[:4]) / 4 < 0.15
    assert sum(rewards[-4:]) / 4 > 0.6


def test_a_generation_repeats_from_its_key() -> None:
    """The demo's generations need no shared random state: same key, same weights, same tokens."""
    trainer = ToyTrainer(seed=1)
    request = GenerationRequest(5, Key(0, 3), 3, 4, 0, 0, 0)
    first, again = trainer.generate(request), trainer.generate(request)
    other = trainer.generate(GenerationRequest(5, Key(0, 3), 3, 4, 0, 0, 1))
    assert torch.equal(first["tokens"], again["tokens"])
    assert not torch.equal(first["tokens"], other["tokens"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--kills", "-1"], "argument --kills: '-1' is not a whole number from 0 to 50"),
        (["demo", "--kills", "many"], "'many' is not a whole number"),
        (["demo", "--seed", "x"], "argument --seed"),
        (["demo", "--directory", "{occupied}"], "is not an empty directory"),
        (["fsck", "{occupied}"], "holds no checkpoints and no sign of a run that saves"),
        (["inspect", "{occupied}"], "holds no checkpoints and no sign of a run that saves"),
        (["fsck", "{missing}"], "missing is not a directory"),
        (["inspect", "{missing}"], "missing is not a directory"),
        (["watch", "{missing}/run"], "missing/run is not a directory, nor is the one above it"),
        (["fsck"], "the following arguments are required: DIR"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_wrong_use_gets_one_line_and_status_two(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, nothing on standard output, and the line says what is wrong."""
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "file").write_text("")
    places = {"occupied": str(tmp_path / "occupied"), "missing": str(tmp_path / "missing")}
    try:
        status: object = main([argument.format(**places) for argument in arguments])
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_a_life_that_fails_by_itself_fails_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the run is no kill: the demo says what it was and ends with status 1."""
    from rich.console import Console

    from impl.demo import parent

    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert parent.run_demo(0, 0, tmp_path / "run", Console()) == 1
    assert "a life of the run failed by itself" in capsys.readouterr().err
