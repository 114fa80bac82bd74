"""Takes a nested state_dict apart into strict JSON and a flat set of tensors, and puts it together again exactly.

JSON has no tuples, no keys but text, no infinities and no tensors; each is written as an object with one marked key.
Dictionaries with such a key, or with keys that are not text, are written as lists of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import CheckpointCorrupt, UsageError

_TENSOR = "$tensor"
_TUPLE = "$tuple"
_PAIRS = "$pairs"
_FLOAT = "$float"
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def take_apart(value: object, where: str, tensors: dict[str, torch.Tensor], path: str = "") -> object:
    """The JSON form of `value`; its tensors are put into `tensors`, by path. UsageError names what has no form."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return {_TENSOR: path}
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if type(value) is list:
        return _items(value, where, tensors, path)
    if type(value) is tuple:
        return {_TUPLE: _items(value, where, tensors, path)}
    if isinstance(value, dict):
        return _mapping(value, where, tensors, path)
    raise UsageError(
        f"{where}{path and f' at {path!r}'} is a {type(value).__name__}, which cannot be saved without pickle. State "
        "may consist of tensors, numbers, text, None, lists, tuples and dictionaries; convert it in state_dict()."
    )


def put_together(form: object, where: str, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The value that `take_apart` was given. CheckpointCorrupt if the form or a tensor is not as it was written."""
    if isinstance(form, list):
        return [put_together(item, where, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    if len(form) == 1:
        ((mark, held),) = form.items()
        if mark == _TENSOR and isinstance(held, str) and held in tensors:
            return tensors[held]
        if mark == _FLOAT and isinstance(held, str) and held in _FLOATS:
            return _FLOATS[held]
        if mark == _TUPLE and isinstance(held, list):
            return tuple(put_together(item, where, tensors) for item in held)
        if mark == _PAIRS and isinstance(held, list) and all(isinstance(p, list) and len(p) == 2 for p in held):
            return {put_together(key, where, tensors): put_together(item, where, tensors) for key, item in held}
    if any(key.startswith("$") for key in form):
        raise CheckpointCorrupt(
            f"{where} has a part {sorted(form)} that this version does not write, or a tensor is missing. It was "
            "edited, or written by another version; restore another checkpoint."
        )
    return {key: put_together(item, where, tensors) for key, item in form.items()}


def _items(values: list[Any] | tuple[Any, ...], where: str, tensors: dict[str, torch.Tensor], path: str) -> list[Any]:
    return [take_apart(item, where, tensors, _below(path, index)) for index, item in enumerate(values)]


def _mapping(value: dict[Any, Any], where: str, tensors: dict[str, torch.Tensor], path: str) -> dict[str, Any]:
    for key in value:
        if type(key) not in (str, int):
            raise UsageError(
                f"{where}{path and f' at {path!r}'} has the key {key!r} of type {type(key).__name__}; only text and "
                "whole numbers can be saved. Convert it in state_dict()."
            )
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: take_apart(item, where, tensors, _below(path, key)) for key, item in value.items()}
    return {_PAIRS: [[key, take_apart(item, where, tensors, _below(path, key))] for key, item in value.items()]}


def _below(path: str, key: str | int) -> str:
    """A path one level down. Slashes in keys are escaped as in JSON pointers, so that no two paths fall together."""
    part = str(key).replace("~", "~0").replace("/", "~1")
    # The number 0 and the text "0" may be keys of one dictionary.
    part = f"~2{part}" if isinstance(key, str) and key.isdecimal() else part
    return f"{path}/{part}" if path else part
