"""Checks of what callers hand to the parts of a run: each raises UsageError naming the argument, and changes nothing.

A wrong type is refused here, before it can be a key of a table or half of a change. A right type with a wrong value (a
group that nobody owns) is the matter of the part that knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from cleancut_leaf.words import counted

from .barrier.cut import Cut
from .errors import UsageError
from .keys import Key

T = TypeVar("T")


def require_cut(cut: Cut, barrier: object = None, exclusive: bool = False) -> None:
    """`cut` is a live token, of `barrier` where one is given; raises what `Cut.require` does when it is not."""
    if not isinstance(cut, Cut):
        raise UsageError(
            f"cut is {_shown(cut)}; it must be the token of an open section: `async with barrier.mutation() as cut`."
        )
    cut.require(cut.barrier if barrier is None else barrier, exclusive)


def require_group(name: str, value: object) -> None:
    """`value` is the id of a group: a whole number of 0 or more."""
    if type(value) is not int or value < 0:
        raise UsageError(f"{name} is {value!r}; it must be the id of a group, a whole number of 0 or more.")


def require_groups(name: str, values: Iterable[int]) -> tuple[int, ...]:
    """`values` as a tuple of ids of groups."""
    groups = require_items(name, values, "ids of groups")
    for group in groups:
        require_group(f"a group of {name}", group)
    return groups


def require_key(name: str, value: object) -> Key:
    """`value` as a key: a tuple of epoch and row, two whole numbers of 0 or more."""
    if is_key(value):
        return Key(*value)  # type: ignore[misc]
    raise UsageError(f"{name} is {value!r}; it must be a Key(epoch, index), two whole numbers of 0 or more.")


def require_keys(name: str, values: Iterable[Key]) -> tuple[Key, ...]:
    """`values` as a tuple of keys."""
    return tuple(require_key(f"a key of {name}", value) for value in require_items(name, values, "keys"))


def require_items(name: str, values: Iterable[T], what: str) -> tuple[T, ...]:
    """`values` as a tuple."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"{name} is {values!r}; it must be a collection of {what}.")
    return tuple(values)


def require_payloads(payloads: Sequence[object] | None, keys: Sequence[Key]) -> None:
    """`payloads` is None, or has one value for each key."""
    if payloads is None:
        return
    if isinstance(payloads, str | bytes | Mapping) or not isinstance(payloads, Sequence):
        raise UsageError(f"payloads is {payloads!r}; it must be a list of one value for each key, or None.")
    if len(payloads) != len(keys):
        raise UsageError(
            f"payloads has {counted(len(payloads), 'value')} for {counted(len(keys), 'key')}; give one each, or None."
        )


def require_count(name: str, value: int, *, least: int) -> int:
    """`value`, if it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} is {value!r}; it must be a whole number of at least {least}.")
    return value


def require_integer(name: str, value: int) -> int:
    """`value`, if it is a whole number of any sign."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; it must be a whole number.")
    return value


def require_step(value: int | None, name: str = "step") -> None:
    """`value` is a stamp, the number of a train step, or None for no stamp."""
    if value is not None and (type(value) is not int or value < 0):
        raise UsageError(f"{name} is {value!r}; it must be the number of a train step, 0 or more, or None.")


def require_text(name: str, value: object, example: str) -> None:
    """`value` is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is {value!r}; it must be a short text, like {example!r}.")


def require_flag(name: str, value: object) -> None:
    """`value` is True or False, and not something that counts as one of them."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; it must be True or False.")


def require_kind(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """`value` is an instance of `kind`; `what` says in words what is wanted."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} is {_shown(value)}; it must be {what}.")


def require_abilities(name: str, value: object, abilities: Iterable[str], what: str) -> None:
    """`value` has these attributes; `what` says in words what is wanted."""
    lacking = [ability for ability in abilities if not hasattr(value, ability)]
    if lacking:
        raise UsageError(f"{name} is {_shown(value)} without {', '.join(lacking)}; it must be {what}.")


def is_key(value: object) -> bool:
    """Whether `value` is (epoch, row)."""
    return isinstance(value, tuple) and len(value) == 2 and all(type(n) is int and n >= 0 for n in value)


def _shown(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"
