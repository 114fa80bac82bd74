"""Which rows can be kept: plain dense tensors, and jagged ones by their parts. Anything else is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from ..errors import UsageError
from ..store.tensor_format import QUANTISED
from .plane import Rows
from .torch_jagged import is_jagged, put_together, taken_apart
from .torch_readiness import cloned, is_small_view

_LONGEST_FIELD = 900


def _checked(field: str, tensor: object, argument: str) -> torch.Tensor:
    """Return the detached tensor, or refuse with the field and the reason."""
    if not isinstance(field, str) or not field or len(field) > _LONGEST_FIELD or "\0" in field:
        raise UsageError(
            f"{argument}: the field name {field!r} cannot be stored; it must be a text of 1 to {_LONGEST_FIELD} "
            "characters without NUL."
        )
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(
            f"{argument}['{field}'] is a {type(tensor).__name__}, not a torch.Tensor. A group's rows map field names "
            "to tensors; convert it with torch.as_tensor, or keep it out of the rows."
        )
    reason = ""
    if is_jagged(tensor):
        return tensor.detach()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        reason = f"is a subclass of tensor ({type(tensor).__name__}); its storage does not hold all of it"
    elif tensor.layout is not torch.strided:
        reason = f"is sparse ({tensor.layout})"
    elif tensor.is_quantized or str(tensor.dtype).removeprefix("torch.") in QUANTISED:
        reason = "is quantised"
    elif tensor.is_nested:
        reason = "is nested in the strided layout; make it with layout=torch.jagged"
    elif tensor.is_meta:
        reason = "is on the meta device and has no data"
    if reason:
        raise UsageError(
            f"{argument}['{field}'] {reason}. Only dense and jagged tensors can be kept; store dense parts (such as "
            "values and indices) in fields of their own."
        )
    return tensor.detach()


def checked_rows(rows: Rows, argument: str = "rows") -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """The rows as plain tensors, checked; jagged ones taken apart, with the ragged dimension of each."""
    tensors: dict[str, torch.Tensor] = {}
    jagged: dict[str, int] = {}
    for field, given in rows.items():
        tensor = _checked(field, given, argument)
        if not is_jagged(tensor):
            tensors[field] = tensor
            continue
        parts, jagged[field] = taken_apart(field, tensor)
        taken = [name for name in parts if name in rows]
        if taken:
            raise UsageError(
                f"{argument}['{field}'] is jagged and is kept as {', '.join(parts)}, but there is a field {taken[0]!r} "
                "already. Give one of them another name."
            )
        tensors.update(parts)
    return tensors, jagged


def require_rows(group: int, rows: object) -> None:
    """Refuse what is no mapping of at least one field."""
    if not isinstance(rows, Mapping) or not rows:
        raise UsageError(
            f"rows of group {group}: {type(rows).__name__} given; a group's rows are a mapping of at least one "
            "field name to a tensor."
        )


def derived(rows: Rows, columns: Rows) -> Rows:
    """`rows` with `columns` added or replaced, checked like staged rows."""
    if not isinstance(columns, Mapping) or not columns:
        raise UsageError(
            f"columns: {type(columns).__name__} given; they are a mapping of at least one field name to a tensor."
        )
    checked, jagged = checked_rows(columns, "columns")
    owned = {field: cloned(tensor) if is_small_view(tensor) else tensor for field, tensor in checked.items()}
    return MappingProxyType({**rows, **put_together(owned, jagged)})
