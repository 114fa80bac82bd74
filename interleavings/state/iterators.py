"""How C objects that hide their content are read: by how they would be rebuilt, and by what that leaves out.

An iterator over a dictionary or a set says how to rebuild it from a list of what is left, and forgets whose it is. Who
changes that container later decides what the iterator does next, so the container is read beside it.
"""

from __future__ import annotations

import ctypes
import gc
import warnings
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from ..errors import Unwalkable

if TYPE_CHECKING:
    from interleavings.state.walkers import Walk

_POINTER = ctypes.sizeof(ctypes.c_void_p)
# `size_t state` of an iterator over a deque and of the deque itself: the iterator raises when they are not alike.
_STATE_OF_ITERATOR = object.__basicsize__ + 3 * _POINTER
_STATE_OF_DEQUE = object.__basicsize__ + 5 * _POINTER


def read_reduced(walk: Walk, value: Any) -> None:
    """C objects that say themselves how to rebuild them: iterators, dates, random states."""
    try:
        if type(value).__module__ == "itertools":  # deprecated there since 3.12
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                parts = value.__reduce__()
        else:
            parts = value.__reduce_ex__(2)
    except Exception as error:
        raise Unwalkable(value, f"{type(value).__qualname__} does not show its content ({error})") from None
    walk.out.append(("reduced", type(value).__module__, type(value).__qualname__))
    if isinstance(parts, str):
        walk.out.append(parts)
        return
    expanded = [list(part) if index >= 3 and part is not None else part for index, part in enumerate(parts)]
    walk.stack.append(tuple(walk.made(expanded)[1:]))


def _over_a_container(walk: Walk, value: Any) -> None:
    """An iterator over a dictionary or a set: what is left, and whose it is. One that has ended holds on to nothing."""
    held = gc.get_referents(value)
    walk.stack.append(next((one for one in held if isinstance(one, (dict, set, frozenset))), None))
    read_reduced(walk, value)


def _over_a_deque(walk: Walk, value: Any) -> None:
    """An iterator over a deque raises at its next step once the deque has changed, whatever it holds by then."""
    (container,) = (one for one in gc.get_referents(value) if isinstance(one, deque))
    walk.out.append(_number_at(value, _STATE_OF_ITERATOR) == _number_at(container, _STATE_OF_DEQUE))
    read_reduced(walk, value)


def _range_iterator(walk: Walk, value: Any) -> None:
    """Where a loop over numbers stands: as `read_reduced`, but one atom, for most programs have such loops."""
    _, (numbers,), place = value.__reduce__()
    walk.out.append(("range iterator", numbers.start, numbers.stop, numbers.step, place))


def _number_at(value: Any, offset: int) -> int:
    return ctypes.c_size_t.from_address(id(value) + offset).value


def refuse_proxy(walk: Walk, value: Any) -> None:
    """A weak proxy passes every question on, so it cannot be told from what it stands for."""
    raise Unwalkable(value, "a weak proxy cannot be told from what it stands for; use weakref.ref")


_OVER_CONTAINERS: tuple[Any, ...] = (
    *(iter({}), iter({}.values()), iter({}.items()), reversed({}), reversed({}.values()), reversed({}.items())),
    *(iter(set()), iter(OrderedDict()), reversed(OrderedDict())),
)  # fmt: skip
_OVER_DEQUES: tuple[Any, ...] = (iter(deque()), reversed(deque()))
READERS = {
    **{type(iterator): _over_a_container for iterator in _OVER_CONTAINERS},
    **{type(iterator): _over_a_deque for iterator in _OVER_DEQUES},
    type(iter(range(0))): _range_iterator,
}
