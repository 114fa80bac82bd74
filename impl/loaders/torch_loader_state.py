"""The state of a torch data loader as JSON text and back: no pickle, and nothing that would come back as another thing.

Such a state is nested dictionaries of numbers and text, and tensors with the state of a generator in between. Lists,
tuples, dictionaries with any plain keys, bytes and CPU tensors come back as they were; anything else is refused.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from typing import Any

import torch

from ..errors import CheckpointCorrupt, UsageError

_MARK = "!"


def encode_state(state: object, where: str) -> str:
    """The state as one line of JSON; UsageError names the place of what cannot be saved."""
    return json.dumps(_taken_apart(state, where), separators=(",", ":"), allow_nan=False)


def decode_state(text: str, where: str) -> Any:
    """The state that `encode_state` was given; CheckpointCorrupt if the text is not of its making."""
    try:
        return _put_together(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointCorrupt(
            f"{where} cannot be read back: {error!r}. The checkpoint was damaged or edited; restore an older one."
        ) from error


def _taken_apart(value: object, where: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float and math.isfinite(value):  # type: ignore[arg-type]
        return value
    if isinstance(value, list):
        return [_taken_apart(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if kind is tuple:
        items = _taken_apart(list(value), where)  # type: ignore[call-overload]
        return {_MARK: "tuple", "items": items}
    if isinstance(value, dict):
        if all(type(key) is str and key != _MARK for key in value):
            return {key: _taken_apart(item, f"{where}.{key}") for key, item in value.items()}
        pairs = [
            [_taken_apart(key, f"{where} (a key)"), _taken_apart(value[key], f"{where}[{key!r}]")] for key in value
        ]
        return {_MARK: "dict", "items": pairs}
    if kind in (bytes, bytearray):
        return {_MARK: "bytes", "data": b64encode(value).decode()}  # type: ignore[arg-type]
    if kind is torch.Tensor and value.device.type == "cpu" and value.layout is torch.strided:  # type: ignore[attr-defined]
        return _tensor_taken_apart(value)  # type: ignore[arg-type]
    raise UsageError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, which cannot be saved without pickle. A data loader's "
        "state (that of its dataset and sampler included) must consist of numbers, text, bytes, lists, tuples, "
        "dictionaries and CPU tensors."
    )


def _tensor_taken_apart(tensor: torch.Tensor) -> dict[str, Any]:
    data = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
    name = str(tensor.dtype).removeprefix("torch.")
    return {_MARK: "tensor", "dtype": name, "shape": list(tensor.shape), "data": b64encode(data).decode()}


def _put_together(value: Any) -> Any:
    if isinstance(value, list):
        return [_put_together(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(_MARK):
        case None:
            return {key: _put_together(item) for key, item in value.items()}
        case "tuple":
            return tuple(_put_together(item) for item in value["items"])
        case "dict":
            return {_put_together(key): _put_together(item) for key, item in value["items"]}
        case "bytes":
            return b64decode(value["data"], validate=True)
        case "tensor":
            data = bytearray(b64decode(value["data"], validate=True))
            dtype = getattr(torch, value["dtype"])
            if not data:
                return torch.empty(value["shape"], dtype=dtype)
            return torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype).reshape(value["shape"])
        case mark:
            raise ValueError(f"the mark {mark!r} is unknown")
