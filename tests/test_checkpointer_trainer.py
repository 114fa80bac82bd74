"""The trainer's state in a checkpoint: model, optimizer and generators, bit for bit and without pickle."""

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from run_situations import Run, mixed

from impl import CheckpointCorrupt, CheckpointIncompatible, TorchTrainerState, UsageError
from impl.store import PosixFiles, StagedDirectory


def model(width: int = 5) -> torch.nn.Module:
    """Layers with and without buffers, one of them with a version of its own."""
    return torch.nn.Sequential(
        torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.5), torch.nn.Linear(width, 1)
    )


class Training:
    """A model in training: each step depends on parameters, moments, buffers, schedule and the random state."""

    def __init__(self, seed: int, optimizer: type[torch.optim.Optimizer] = torch.optim.Adam, width: int = 5) -> None:
        torch.manual_seed(seed)
        self.model = model(width)
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)  # type: ignore[call-arg]
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=1)
        self.state = TorchTrainerState(self.model, self.optimizer, {"schedule / rate": self.scheduler})

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(4, 3)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step(float(loss.detach()))

    def fingerprint(self) -> list[object]:
        """Everything there is, with tensors as bits."""
        flat: list[object] = [torch.get_rng_state().tolist(), repr(self.scheduler.state_dict())]

        def add(value: object) -> None:
            if isinstance(value, torch.Tensor):
                flat.append((str(value.dtype), tuple(value.shape), value.reshape(-1).view(torch.uint8).tolist()))
            elif isinstance(value, dict):
                for key, item in value.items():
                    flat.append(key)
                    add(item)
            elif isinstance(value, list | tuple):
                flat.append(type(value).__name__)
                for item in value:
                    add(item)
            else:
                flat.append((type(value).__name__, repr(value)))

        add(dict(self.model.state_dict()))
        add(self.optimizer.state_dict())
        return flat


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
async def test_a_resumed_trainer_is_the_same_bit_for_bit_and_so_is_its_next_step(
    tmp_path: Path, optimizer: type[torch.optim.Optimizer]
) -> None:
    """Parameters, buffers, moments, step counters, hyper-parameters, schedule and generator."""
    training = Training(1, optimizer)
    for _ in range(3):
        training.step()
    run = await mixed(Run(tmp_path))
    await run.checkpointer.save(training.state)
    await run.checkpointer.close()
    saved = training.fingerprint()
    training.step()
    after_one_more = training.fingerprint()
    assert after_one_more != saved

    resumed = Training(2, optimizer)
    assert resumed.fingerprint() != saved
    await Run(tmp_path).checkpointer.restore(trainer=resumed.state)
    assert resumed.fingerprint() == saved
    resumed.step()
    assert resumed.fingerprint() == after_one_more


async def test_case_D04_the_copy_is_of_the_moment_it_was_taken_at(tmp_path: Path) -> None:
    """Case D04: moving to the CPU copies nothing that is there already, and the optimizer writes in place."""
    training = Training(1)
    training.step()
    saved = training.fingerprint()
    run = Run(tmp_path)
    pending = await run.checkpointer.begin_save(training.state)
    training.step()
    for parameter in training.model.parameters():
        parameter.data.add_(1)
    await pending.durable()
    await run.checkpointer.close()
    resumed = Training(2)
    await Run(tmp_path).checkpointer.restore(trainer=resumed.state)
    assert resumed.fingerprint() == saved


def staged_in(directory: Path, training: Training) -> list[str]:
    """The files of a trainer without a checkpoint around them."""
    staged = StagedDirectory(PosixFiles(), str(directory / "staged"))
    training.state.persist(asyncio.run(training.state.stage()), staged.writer("trainer"))
    return list(staged.records)


def test_the_files_are_tensors_under_their_own_names_and_strict_json(tmp_path: Path) -> None:
    """Anybody can look into them; the name of an extra part, being data, is no file name."""
    from safetensors.torch import load_file

    training = Training(1)
    training.step()
    records = staged_in(tmp_path, training)
    assert sorted(records) == [
        "trainer/model-000.safetensors",
        "trainer/optimizer-000.safetensors",
        "trainer/random-000.safetensors",
        "trainer/state.json",
    ]
    found = load_file(tmp_path / "staged" / "trainer" / "model-000.safetensors")
    assert found.keys() == training.model.state_dict().keys()


def test_large_parts_are_split_so_that_a_restore_holds_a_bounded_amount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is read into memory as a whole."""
    monkeypatch.setattr("impl.trainer.torch_trainer_state._BYTES_PER_FILE", 64)
    records = staged_in(tmp_path, Training(1))
    names = [name for name in records if "model" in name]
    assert names[0] == "trainer/model-000.safetensors"
    assert len(names) > 3


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (
            lambda: Training(2, width=6).state,
            r"model's '0\.weight' is float32 \[5, 3\] in the checkpoint and .*\[6, 3\] here",
        ),
        (lambda: Training(2, torch.optim.SGD).state, "optimizer in the checkpoint is Adam, and here it is SGD"),
        (lambda: TorchTrainerState(model()), "trainer parts"),
        (lambda: TorchTrainerState(torch.nn.Linear(3, 5), torch.optim.Adam(model().parameters())), "trainer parts"),
        (lambda: half_precision(), "bfloat16"),
        (lambda: two_groups(), "group sizes"),
    ],
)
async def test_another_trainer_is_refused_and_left_as_it_is(tmp_path: Path, other: Any, complaint: str) -> None:
    """torch itself would load some of these halfway, or silently with the wrong hyper-parameters."""
    training = Training(1)
    training.step()
    run = Run(tmp_path)
    await run.checkpointer.save(training.state)
    await run.checkpointer.close()
    state = other()
    before = [tensor.clone() for tensor in state._model.state_dict().values()]
    with pytest.raises(CheckpointIncompatible, match=complaint):
        await Run(tmp_path).checkpointer.restore(trainer=state)
    assert all(map(torch.equal, before, state._model.state_dict().values()))


def half_precision() -> TorchTrainerState:
    training = Training(2)
    training.model.to(torch.bfloat16)
    return training.state


def two_groups() -> TorchTrainerState:
    training = Training(2)
    parameters = list(training.model.parameters())
    optimizer = torch.optim.Adam([{"params": parameters[:2]}, {"params": parameters[2:]}])
    return TorchTrainerState(training.model, optimizer, {"schedule / rate": training.scheduler})


class Odd:
    """A part whose state is whatever the test says."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


STATES = {
    "numbers": {"a": 1, "b": 1.5, "c": True, "d": None, "e": float("inf"), "f": -0.0},
    "keys": {0: "zero", "0": "text zero", "a/b": torch.ones(1), "a": {"b": torch.zeros(1)}, "~": 1},
    "marks": {"$tensor": "not one", "x": {"$tuple": [1]}, "$pairs": []},
    "tuples": (1, (2, [3, (4,)]), {"t": (torch.ones(2),)}),
    "empty": {"a": {}, "b": [], "c": ()},
    "tensor alone": torch.arange(3),
}


@pytest.mark.parametrize("name", STATES)
async def test_extra_parts_come_back_exactly(tmp_path: Path, name: str) -> None:
    """JSON has no tuples, no keys but text and no infinities; a part may have all of them."""
    part = Odd(STATES[name])
    run = Run(tmp_path)
    await run.checkpointer.save(TorchTrainerState(torch.nn.Linear(1, 1), extra={"odd": part}))
    await run.checkpointer.close()
    back = Odd(None)
    await Run(tmp_path).checkpointer.restore(trainer=TorchTrainerState(torch.nn.Linear(1, 1), extra={"odd": back}))
    assert repr(back.state) == repr(STATES[name])


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        ({"f": len}, "at 'f' is a builtin_function"),
        ({"a": [{"s": {1, 2}}]}, "at 'a/0/s' is a set"),
        ({"a": {(1, 2): 3}}, "has the key"),
        ({"a": {True: 3}}, "has the key True"),
        ({"t": torch.eye(2).to_sparse()}, "tensor 't' cannot be saved"),
    ],
)
async def test_case_D13_a_state_that_would_need_pickle_is_refused_when_it_is_staged(
    tmp_path: Path, state: Any, complaint: str
) -> None:
    """Case D13: before anything is written, naming the place."""
    run = Run(tmp_path)
    with pytest.raises(UsageError, match=complaint):
        await run.checkpointer.save(TorchTrainerState(torch.nn.Linear(1, 1), extra={"odd": Odd(state)}))
    assert not list(tmp_path.glob("step_*"))
    await run.checkpointer.close()


def test_a_part_without_state_is_refused_at_once() -> None:
    """It would be missing only when it is needed."""
    with pytest.raises(UsageError, match=r"extra\['clock'\]"):
        TorchTrainerState(torch.nn.Linear(1, 1), extra={"clock": object()})


class Marker:
    """Unpickling one makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


async def test_case_D13_no_file_of_a_checkpoint_is_ever_unpickled(tmp_path: Path) -> None:
    """Case D13: a pickle that makes a marker in place of each file in turn; the marker never appears."""
    marker = tmp_path / "marker"
    payload = pickle.dumps(Marker(marker))
    pickle.loads(payload)
    assert marker.exists(), "the pickle does what it is meant to do"
    marker.unlink()
    training = Training(1)
    training.step()
    run = await mixed(Run(tmp_path / "run"))
    await run.checkpointer.save(training.state)
    await run.checkpointer.close()
    files = [path for path in (tmp_path / "run" / "step_1-1").rglob("*") if path.is_file()]
    assert len(files) == 14
    for path in files:
        good = path.read_bytes()
        path.write_bytes(payload)
        with pytest.raises(CheckpointCorrupt):
            await Run(tmp_path / "run").checkpointer.restore(trainer=training.state)
        path.write_bytes(good)
    assert not marker.exists()


async def test_an_optimizer_keeps_the_type_of_its_state(tmp_path: Path) -> None:
    """torch casts loaded state to the type of the parameter: single-precision moments of a half-precision one."""

    def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        module = torch.nn.Linear(2, 1).to(torch.bfloat16)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        return module, optimizer

    module, optimizer = build()
    for parameter in module.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, 1 / 3, dtype=torch.float32)
    run = Run(tmp_path)
    await run.checkpointer.save(TorchTrainerState(module, optimizer))
    await run.checkpointer.close()
    other, restored = build()
    await Run(tmp_path).checkpointer.restore(trainer=TorchTrainerState(other, restored))
    for parameter in other.parameters():
        moments = restored.state[parameter]["momentum_buffer"]
        assert moments.dtype == torch.float32
        assert torch.equal(moments, torch.full_like(moments, 1 / 3))


async def test_the_random_state_can_be_left_to_the_program(tmp_path: Path) -> None:
    """A program that owns its generators does not want them moved."""
    run = Run(tmp_path)
    await run.checkpointer.save(TorchTrainerState(torch.nn.Linear(1, 1), random_state=False))
    await run.checkpointer.close()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    fresh = torch.nn.Linear(1, 1, bias=True)
    torch.set_rng_state(before)
    await Run(tmp_path).checkpointer.restore(trainer=TorchTrainerState(fresh, random_state=False))
    assert torch.equal(torch.get_rng_state(), before)
