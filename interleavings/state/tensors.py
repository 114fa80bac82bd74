"""How arrays of numpy and tensors of torch are read: by type, shape and bytes, and by the memory that they share.

Two views of one memory, and a view and its copy, hold equal numbers and behave differently later. So a memory is read
once, under a number of its own, and each view says which one it is of and where it begins.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Unwalkable
from .iterators import read_rebuilt
from .statics import module_of, qualname_of

if TYPE_CHECKING:
    from interleavings.state.walkers import Walk

Handler = Callable[["Walk", Any], None]


def reader_for(base: type) -> Handler | None:
    """Return how to read objects of a C type of numpy or torch; None for one that nobody knows."""
    package, name = module_of(base).partition(".")[0], qualname_of(base)
    if package == "numpy":
        return _array if name == "ndarray" else read_rebuilt
    return _OF_TORCH.get(name) if package == "torch" else None


def _array(walk: Walk, value: Any) -> None:
    array: Any = sys.modules["numpy"].ndarray  # loaded already: this is one of them
    about, base = array.__dict__["__array_interface__"].__get__(value), array.__dict__["base"].__get__(value)
    kind = array.__dict__["dtype"].__get__(value)
    where, read_only = about["data"]
    if kind.hasobject:
        if base is not None:
            raise Unwalkable(value, "a view of an array of objects")
        walk.out.append(("array of objects", about["shape"]))
        walk.stack.append(walk.made(array.tolist(value)))
        return
    begin = None
    if type(base) is array:
        begin = where - array.__dict__["__array_interface__"].__get__(base)["data"][0]
    strides = array.__dict__["strides"].__get__(value)
    walk.out.append(("array", repr(kind.descr), about["shape"], strides, read_only, begin, base is None))
    if begin is None:  # it owns its memory, or somebody that is no array does
        walk.out.append(array.tobytes(value))
    if base is not None:
        walk.stack.append(base)


def _tensor(walk: Walk, value: Any) -> None:
    torch: Any = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        if value.layout is not torch.strided or value.is_quantized or value.is_nested or value.device.type == "meta":
            raise Unwalkable(value, "a tensor without a memory of its own that can be read")
        if value.grad_fn is not None:
            raise Unwalkable(value, "a tensor within a graph of autograd; detach() it before an await")
        flags = (value.requires_grad, value.is_conj(), value.is_neg(), value.is_inference())
        version = None if value.is_inference() else value._version
        shape, begin = (tuple(value.shape), tuple(value.stride())), value.storage_offset()
        walk.out.append(("tensor", str(value.dtype), str(value.device), *shape, begin, *flags, version))
        walk.stack.append(value.grad if value.is_leaf else None)
        _storage(walk, value.untyped_storage())


def _storage(walk: Walk, value: Any) -> None:
    """A memory by its bytes, the first time; later by the number that it got then."""
    known = walk.memo.get(value._cdata)
    if known is not None:
        walk.out.append((known,))
        return
    walk.memo[value._cdata] = len(walk.memo)
    if value.device.type != "cpu":
        value = value.cpu()
    size = value.nbytes()
    walk.out.append(ctypes.string_at(value.data_ptr(), size) if size else b"")


def _text(walk: Walk, value: Any) -> None:
    walk.out.append(("torch", repr(value)))


def _size(walk: Walk, value: Any) -> None:
    walk.out.append(("size", tuple(value)))


def _generator(walk: Walk, value: Any) -> None:
    walk.out.append(("generator", str(value.device), value.get_state().numpy().tobytes()))


_OF_TORCH: dict[str, Handler] = {
    "TensorBase": _tensor,
    "_TensorBase": _tensor,
    "StorageBase": _storage,
    "Generator": _generator,
    "Size": _size,
    **dict.fromkeys(("device", "dtype", "layout", "memory_format", "qscheme", "finfo", "iinfo"), _text),
}
