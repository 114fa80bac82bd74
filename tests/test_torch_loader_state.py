"""The state of a data loader as text: what is accepted comes back equal and of the same types, the rest is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl import CheckpointCorrupt, UsageError
from impl.loaders import decode_state, encode_state

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NESTED = st.recursive(
    PLAIN | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down: 1, 1.0 and True are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    return bool(one == other)


@given(NESTED)
def test_a_state_comes_back_as_it_was(state: object) -> None:
    """Also under keys that are no text, and under the mark that the text uses itself."""
    for each in (state, {"!": state}, {"state": state}):
        assert same(decode_state(encode_state(each, "state"), "state"), each)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16, torch.bool])
def test_a_tensor_comes_back_bit_for_bit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The state of a generator is one."""
    tensor = torch.randint(0, 2, shape, generator=torch.Generator()).to(dtype)
    found = decode_state(encode_state({"generator": tensor}, "state"), "state")["generator"]
    assert (found.dtype, found.shape) == (dtype, torch.Size(shape))
    assert torch.equal(found, tensor)


def test_generators_go_on_as_if_nothing_had_been() -> None:
    """Of torch and of `random`, whose state is tuples in tuples."""
    generator = torch.Generator().manual_seed(3)
    torch.rand(5, generator=generator)
    other = torch.Generator()
    other.set_state(decode_state(encode_state(generator.get_state(), "state"), "state"))
    assert torch.equal(torch.rand(9, generator=generator), torch.rand(9, generator=other))
    plain, again = random.Random(1), random.Random(2)
    again.setstate(decode_state(encode_state(plain.getstate(), "state"), "state"))
    assert plain.random() == again.random()


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, float("nan"), torch.zeros(2, device="meta"), torch.zeros(2).to_sparse(), range(3)]
)
def test_what_would_need_pickle_is_refused_with_its_place(value: object) -> None:
    """When it is drawn, before anything is handed out behind it."""
    with pytest.raises(UsageError, match=r"state\.worker\[1\] is a .* cannot be saved without pickle"):
        encode_state({"worker": [0, value]}, "state")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"!":"tuple"}',
        '{"!":"no"}',
        '{"!":"bytes","data":"*"}',
        '{"!":"dict","items":[1]}',
        '{"!":"tensor","dtype":"no","shape":[1],"data":"AA=="}',
        '{"!":"tensor","dtype":"int64","shape":[1],"data":"AA=="}',
    ],
)
def test_text_of_another_making_is_corrupt(text: str) -> None:
    """One kind of error, whatever is wrong with it."""
    with pytest.raises(CheckpointCorrupt, match="state cannot be read back"):
        decode_state(text, "state")
