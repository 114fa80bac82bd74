"""The digest of a dataset covers what is in its rows, or says that it does not; a wanted change has a way in."""

from __future__ import annotations

import array
import dataclasses
import datetime
import enum
import fractions
import logging
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from impl import PromptLoader, UsageError
from impl.loaders import dataset_content as content_module
from impl.loaders import dataset_digest, same_dataset


@dataclasses.dataclass
class Nested:
    name: str
    values: Any


class Struct(msgspec.Struct):
    values: Any


class Colour(enum.Enum):
    RED = np.arange(3)


class Shows:
    """Its repr is stable, and does not show everything."""

    def __init__(self, hidden: object) -> None:
        self.hidden = hidden

    def __repr__(self) -> str:
        return "Shows(...)"


def large(changed: bool) -> Any:
    found = np.arange(20_000, dtype=np.float64).reshape(100, 200)
    found[50, 100] += changed
    return found


def tensor(changed: bool, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    found = torch.zeros(100, 200, dtype=dtype)
    found[50, 100] = int(changed)
    return found


def records(changed: bool) -> Any:
    found = np.zeros(2_000, dtype=[("id", "i1"), ("score", "f8")])
    found["score"][1_000] = changed
    return found


def objects(changed: bool) -> Any:
    found = np.empty(2_000, dtype=object)
    found[:] = "word"
    found[1_000] = {"deep": [large(changed)]}
    return found


#: Each makes a row, and with True the same row with one value in the middle changed.
ROWS: dict[str, Callable[[bool], Any]] = {
    "numpy array": large,
    "transposed array": lambda changed: large(changed).T,
    "strided array": lambda changed: large(changed)[::2, ::2],
    "big-endian array": lambda changed: large(changed).astype(">f4"),
    "array that prints rounded": lambda changed: np.array([0.1 + 1e-12 * changed]),
    "array of objects": objects,
    "array of records": records,
    "array of texts": lambda changed: np.array(["a"] * 5_000 + ["b" if changed else "c"] + ["a"] * 5_000),
    "array of long doubles": lambda changed: large(changed).astype(np.longdouble),
    "masked array": lambda changed: np.ma.array(np.zeros(5_000), mask=[place == 9 + changed for place in range(5_000)]),
    "numpy scalar": lambda changed: np.float32(1.0 + changed * 2**-20),
    "tensor": tensor,
    "bfloat16 tensor": lambda changed: tensor(changed, torch.bfloat16),
    "float8 tensor": lambda changed: tensor(changed).to(torch.float8_e4m3fn),
    "bool tensor": lambda changed: tensor(changed, torch.bool),
    "complex tensor": lambda changed: tensor(changed, torch.complex64).conj(),
    "transposed tensor": lambda changed: tensor(changed).T,
    "expanded tensor": lambda changed: tensor(changed)[50:51].expand(40, 200),
    "tensor with a gradient": lambda changed: tensor(changed).requires_grad_(),
    "parameter": lambda changed: torch.nn.Parameter(tensor(changed)),
    "sparse tensor": lambda changed: (tensor(changed) + torch.eye(100, 200)).to_sparse(),
    "sparse tensor by rows": lambda changed: (tensor(changed) + torch.eye(100, 200)).to_sparse_csr(),
    "nested tensor": lambda changed: torch.nested.nested_tensor([tensor(False), tensor(changed)], layout=torch.jagged),
    "quantized tensor": lambda changed: torch.quantize_per_tensor(tensor(changed), 0.5, 0, torch.qint8),
    "negative zero": lambda changed: np.array([-0.0 if changed else 0.0] * 5_000),
    "not a number": lambda changed: np.array([0.0 if changed else float("nan")] * 5_000),
    "a float in a list": lambda changed: [0.1, float("nan"), float("inf") if changed else -float("inf")],
    "list in a dictionary": lambda changed: {"a": {"b": [1, (2, large(changed))]}},
    "dataclass": lambda changed: Nested("one", [tensor(changed)]),
    "struct": lambda changed: Struct({"x": large(changed)}),
    "set": lambda changed: {frozenset({("x", 1 + changed)}), frozenset({("y", 2)})},
    "bytes": lambda changed: bytes(5_000) + bytes([changed]) + bytes(5_000),
    "bytearray": lambda changed: bytearray(bytes(5_000) + bytes([changed])),
    "memoryview": lambda changed: memoryview(bytes(5_000) + bytes([changed]) + bytes(5_000)),
    "array of the library": lambda changed: array.array("d", [0.0] * 5_000 + [float(changed)] + [0.0] * 5_000),
    "deque": lambda changed: deque([0, large(changed)], maxlen=5),
    "user dictionary": lambda changed: UserDict(x=large(changed), y=1),
    "mapping": lambda changed: MappingProxyType({1: large(changed), 2: 0}),
    "ordered dictionary": lambda changed: OrderedDict(x=large(changed)),
    "text": lambda changed: "a" * 5_000 + "bc"[changed] + "a" * 5_000,
    "fraction": lambda changed: fractions.Fraction(1 + changed, 3),
    "time": lambda changed: datetime.datetime(2026, 1, 1, microsecond=int(changed)),
}


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*quantize", "ignore:torch.q", "ignore:.*deprecated")
@pytest.mark.parametrize("kind", ROWS)
def test_case_G21_one_value_changed_in_the_middle_of_a_row_is_another_dataset(kind: str) -> None:
    """The repr of something large leaves out its middle, and prints rounded: a digest of it let other data pass."""
    make = ROWS[kind]
    rows = [["before"], make(False), ["after"]]
    digest = dataset_digest(rows, None)
    assert same_dataset(digest, dataset_digest([["before"], make(False), ["after"]], None))
    assert not same_dataset(digest, dataset_digest([["before"], make(True), ["after"]], None))
    assert "unchecked" not in digest


def test_type_and_shape_are_content() -> None:
    """The same bytes as another type or shape are other rows."""
    zeros = np.zeros((2, 6), dtype=np.int32)
    others = [
        zeros.reshape(3, 4),
        zeros.view(np.float32),
        zeros.astype(">i4"),
        torch.from_numpy(zeros),
        zeros.tolist(),
        Nested("x", zeros),
    ]
    digests = [dataset_digest([row], None) for row in (zeros, *others)]
    assert not any(same_dataset(digests[0], digest) for digest in digests[1:])


def test_where_and_how_a_tensor_lies_is_no_content() -> None:
    """Rows may be moved, or laid out anew, between a save and a restore."""
    plain = tensor(True)
    for other in (plain.T.contiguous().T, plain.clone().requires_grad_(), torch.stack([plain, plain], dim=2)[..., 0]):
        assert same_dataset(dataset_digest([plain], None), dataset_digest([other], None))
    arrays = (large(True), np.asfortranarray(large(True)), large(True).repeat(2, axis=0)[::2])
    assert len({dataset_digest([found], None) for found in arrays}) == 1


@pytest.mark.needs("cuda")
def test_case_G21_a_tensor_on_a_device_is_digested_as_the_same_one_on_the_host() -> None:
    """Where rows lie is no content, and what is in them is."""
    host = dataset_digest([tensor(True)], None)
    assert same_dataset(host, dataset_digest([tensor(True).cuda()], None))
    assert not same_dataset(host, dataset_digest([tensor(False).cuda()], None))


@pytest.mark.parametrize("row", [Shows(1), {"deep": [Shows(1)]}, torch.ones(3, device="meta")], ids=str)
def test_case_G21_what_only_its_repr_is_known_of_is_said_to_be_unchecked(
    row: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log, with the way out, and in the identity of every checkpoint."""
    with caplog.at_level(logging.WARNING, "cleancut.loader"):
        digest = PromptLoader([row, row, "text"], batch_size=1, seed=0).state().dataset_digest
    assert digest.endswith(":unchecked")
    (said,) = caplog.messages
    assert "fingerprint=" in said
    assert type(row).__name__ in said or "Shows" in said


def test_what_has_only_an_address_is_refused_as_ever() -> None:
    """Deep in a row or an array too: nothing of it would be the same in another process."""
    for row in (object(), [Nested("x", object())], np.array([object()], dtype=object), UserDict(x=object())):
        with pytest.raises(UsageError, match=r"row 0 of the dataset .*fingerprint="):
            dataset_digest([row], None)


def test_case_G21_the_digest_by_shortened_text_lets_the_change_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was wrong, as a mutant: with the repr in the place of the content two datasets are one."""
    monkeypatch.setattr(content_module.Content, "_stand_in", lambda self, value: [type(value).__name__, repr(value)])
    for kind in ("numpy array", "tensor", "array that prints rounded", "dataclass"):
        make = ROWS[kind]
        assert same_dataset(dataset_digest([make(False)], None), dataset_digest([make(True)], None))


#: What version 0.1.0 took of these, and wrote into its checkpoints.
DIGESTS_OF_FORMAT_1 = {
    "text": "4fbd90105cdbe5e9af60d2a27bcdb2fe6e97442d97a2d14a8c697b3a3874f842",
    "exact": "fdacf289ce2c17721db41807d68ad9a6454f688d04b9c4d1c5e91673eda0bf2a",
    "array": "85bbd4187cda27d94b428dd780556af438eb7413c3c0b46b9eb3f5d3e2853803",
}
ROWS_OF_FORMAT_1: dict[str, list[Any]] = {
    "text": [{"text": "a", "id": 1}, ["b", 2.5, None, True], "c"],
    "exact": [b"raw", {"x", "y"}, 1 + 2j, datetime.date(2026, 1, 2), range(3)],
    "array": [np.arange(3), {"deep": [np.zeros(5_000)]}],
}


@pytest.mark.parametrize("kind", DIGESTS_OF_FORMAT_1)
def test_a_digest_of_an_earlier_version_goes_on_being_the_same_dataset(kind: str) -> None:
    """Text and numbers have the very digest of before; arrays are compared by what that version saw of them."""
    earlier, now = DIGESTS_OF_FORMAT_1[kind], dataset_digest(ROWS_OF_FORMAT_1[kind], None)
    assert (earlier == now) == (kind != "array")
    assert same_dataset(earlier, now)
    assert same_dataset(now, earlier)
    other = dataset_digest([*ROWS_OF_FORMAT_1[kind][1:], ROWS_OF_FORMAT_1[kind][0]], None)
    assert not same_dataset(earlier, other)
    assert not same_dataset(now, other)


def test_digests_without_a_text_are_never_the_same_for_that() -> None:
    """Two datasets of which earlier versions took no digest have no digest in common."""

    @dataclasses.dataclass
    class Unshown:
        value: int
        __repr__ = object.__repr__

    one, other = (dataset_digest([Unshown(value)], None) for value in (1, 2))
    assert ":" in one
    assert not same_dataset(one, other)
    assert not same_dataset("", one)
