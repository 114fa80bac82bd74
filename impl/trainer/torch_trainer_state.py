"""Model, optimizer and random state of a torch trainer, saved without pickle and loaded bit for bit.

    model-000.safetensors      the tensors of the model's state_dict, each named by its path
    optimizer-000.safetensors  those of the optimizer's
    random-000.safetensors     the CPU generator, and that of each CUDA device in use
    state.json                 everything that is no tensor, with a mark where each tensor stood

Names inside the files are data; the names of the files are fixed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cleancut_leaf.words import counted

from ..errors import CheckpointCorrupt, CheckpointIncompatible, UsageError
from ..rows.torch_copying import copied_to_the_cpu
from ..store.directory import DirectoryReader, DirectoryWriter
from ..store.tensor_format import check_kind
from .torch_structure import put_together, take_apart

_STRUCTURE = "state.json"
_MODEL = "model"
_OPTIMIZER = "optimizer"
_RANDOM = "random"
_EXTRA = "extra"
#: A part is split over files of about this size: a restore has one file in memory beside the tensors themselves.
_BYTES_PER_FILE = 64 << 20


@dataclass(frozen=True)
class StagedTrainer:
    """A copy of the trainer's state: plain structure, and the tensors of each part by path."""

    about: Mapping[str, Any]
    parts: Mapping[str, Any]
    tensors: Mapping[str, Mapping[str, torch.Tensor]]


class TorchTrainerState:
    """A `TrainerState` over a module, an optimizer and any further objects with `state_dict`/`load_state_dict`.

    `extra` may hold a learning-rate scheduler or a second model, by name. Their state must consist of tensors, numbers,
    text, lists, tuples and dictionaries; anything else is refused when it is staged. `random_state=False` leaves the
    generators alone, for a program that owns them itself.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None,
        *,
        random_state: bool = True,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._extra = dict(extra or {})
        self._random_state = random_state
        for name, part in self._extra.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise UsageError(
                    f"extra[{name!r}] is a {type(part).__name__} without state_dict and load_state_dict, so it cannot "
                    "be saved and restored. Give an object that has both, or leave it out."
                )

    async def stage(self) -> StagedTrainer:
        """Copy everything to the CPU; on a thread where it takes long, so that the rest of the run goes on.

        Training does not: UsageError if a tensor was changed meanwhile, as far as torch counts changes.
        """
        forms: dict[str, Any] = {}
        live: dict[str, dict[str, torch.Tensor]] = {}
        for part, state in self._parts().items():
            live[part] = {}
            forms[part] = take_apart(state, f"the trainer's {part}", live[part])
            for path, tensor in live[part].items():
                check_kind(path, tensor, f"the trainer's {part}")
        about = self._about()
        return StagedTrainer(about, forms, await copied_to_the_cpu(live))

    def persist(self, staged: StagedTrainer, writer: DirectoryWriter) -> None:
        """Write the copy."""
        files: dict[str, list[str]] = {}
        chunks: list[tuple[str, dict[str, torch.Tensor]]] = []
        for number, (part, tensors) in enumerate(staged.tensors.items()):
            # The names of extra parts are data; their files are numbered.
            stem = part if part in (_MODEL, _OPTIMIZER, _RANDOM) else f"extra-{number:03d}"
            files[part] = []
            for chunk in _split(tensors):
                name = f"{stem}-{len(files[part]):03d}.safetensors"
                chunks.append((name, chunk))
                files[part].append(name)
        writer.write_tensor_files(chunks)
        writer.write_json(_STRUCTURE, {"files": files, "about": dict(staged.about), "parts": dict(staged.parts)})

    def load(self, reader: DirectoryReader) -> None:
        """Replace the live state. Parts, names, shapes and types are compared before anything is changed."""
        about, saved = _read(reader)
        live = self._parts()
        if saved.keys() != live.keys():
            raise CheckpointIncompatible(
                f"the checkpoint holds the trainer parts {sorted(saved)} and this trainer has {sorted(live)}. It was "
                "written by another set-up; give TorchTrainerState the same model, optimizer and extra parts."
            )
        _compare_model(saved[_MODEL], live[_MODEL])
        if self._optimizer is not None:
            _compare("optimizer", about[_OPTIMIZER], type(self._optimizer).__name__)
            _compare("optimizer's group sizes", _group_sizes(saved[_OPTIMIZER]), _group_sizes(live[_OPTIMIZER]))
        with torch.no_grad():
            self._model.load_state_dict(_with_versions(saved[_MODEL], about[_MODEL]))
            if self._optimizer is not None:
                _load_optimizer(self._optimizer, saved[_OPTIMIZER])
        for name, part in self._extra.items():
            part.load_state_dict(saved[f"{_EXTRA}/{name}"])
        if self._random_state:
            _load_random(saved[_RANDOM])

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {_MODEL: self._model.state_dict()}
        if self._optimizer is not None:
            parts[_OPTIMIZER] = self._optimizer.state_dict()
        for name, part in self._extra.items():
            parts[f"{_EXTRA}/{name}"] = part.state_dict()
        if self._random_state:
            parts[_RANDOM] = _random()
        return parts

    def _about(self) -> dict[str, Any]:
        """What a state_dict does not say: the versions of the model's modules, and which optimizer it is."""
        versions = getattr(self._model.state_dict(), "_metadata", {})
        about: dict[str, Any] = {_MODEL: {name: dict(entry) for name, entry in versions.items()}}
        if self._optimizer is not None:
            about[_OPTIMIZER] = type(self._optimizer).__name__
        return about


def _split(tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    chunk: dict[str, torch.Tensor] = {}
    size = 0
    for path, tensor in tensors.items():
        if chunk and size + tensor.nbytes > _BYTES_PER_FILE:
            yield chunk
            chunk, size = {}, 0
        chunk[path] = tensor
        size += tensor.nbytes
    if chunk:
        yield chunk


def _read(reader: DirectoryReader) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is said about the parts, and the parts."""
    document = reader.read_json(_STRUCTURE)
    match document:
        case {"files": dict(files), "about": dict(about), "parts": dict(parts)} if files.keys() == parts.keys():
            pass
        case _:
            raise CheckpointCorrupt(
                f"the trainer's {_STRUCTURE} does not list parts and their files. It was edited, or written by another "
                "version of this library; restore another checkpoint."
            )
    saved: dict[str, Any] = {}
    for part, form in parts.items():
        tensors: dict[str, torch.Tensor] = {}
        for read in reader.read_tensor_files(files[part]):
            tensors.update(read)
        saved[part] = put_together(form, f"the trainer's {part}", tensors)
    return about, saved


def _compare_model(saved: Mapping[str, Any], live: Mapping[str, Any]) -> None:
    if saved.keys() != live.keys():
        odd = sorted(saved.keys() ^ live.keys())
        others = f", as with {counted(len(odd) - 1, 'other')}" if len(odd) > 1 else ""
        raise CheckpointIncompatible(
            f"the model in the checkpoint and this one do not have the same entries: only one of them has "
            f"{odd[0]!r}{others}. Build the model as it was when it was saved."
        )
    for name, tensor in live.items():
        mine, theirs = _described(tensor), _described(saved[name])
        if mine != theirs:
            raise CheckpointIncompatible(
                f"the model's {name!r} is {theirs} in the checkpoint and {mine} here. Build the model as it was when "
                "it was saved."
            )


def _compare(what: str, saved: object, live: object) -> None:
    if saved != live:
        raise CheckpointIncompatible(
            f"the {what} in the checkpoint is {saved}, and here it is {live}. Build the trainer as it was when it was "
            "saved."
        )


def _group_sizes(state: Mapping[str, Any]) -> list[int]:
    return [len(group["params"]) for group in state["param_groups"]]


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return f"a {type(value).__name__}"


def _with_versions(saved: Mapping[str, Any], versions: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """The state_dict with the versions of its modules, which some need to read it right."""
    state: OrderedDict[str, Any] = OrderedDict(saved)
    state._metadata = OrderedDict(versions)  # type: ignore[attr-defined]
    return state


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load the state exactly: torch casts it to the type of each parameter, which is not always the type it had."""
    optimizer.load_state_dict(saved)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for name, value in saved["state"].get(number, {}).items():
            loaded = optimizer.state[parameter][name]
            if isinstance(value, torch.Tensor) and loaded.dtype != value.dtype:
                optimizer.state[parameter][name] = value.to(loaded.device)


def _random() -> dict[str, Any]:
    devices = torch.cuda.device_count() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]
    return {"cpu": torch.get_rng_state(), "cuda": [torch.cuda.get_rng_state(device) for device in range(devices)]}


def _load_random(saved: Mapping[str, Any]) -> None:
    """Set the generators; those of devices that this machine does not have are passed over."""
    torch.set_rng_state(saved["cpu"])
    if saved["cuda"] and torch.cuda.is_available():
        for device, state in zip(range(torch.cuda.device_count()), saved["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device)
