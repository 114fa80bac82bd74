"""Tensors to safetensors bytes and back: bit for bit, whatever their layout and type, or refused by name."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from impl import CheckpointCorrupt, UsageError
from impl.store import KEY_LIMIT, TensorAssembly, TensorRecord, to_pieces

FLOATS = ["float16", "bfloat16", "float32", "float64"]
EIGHT_BITS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
OTHERS = ["complex64", "complex128", "float4_e2m1fn_x2"]


def to_bytes(tensors: Mapping[str, torch.Tensor], where: str) -> tuple[bytes, dict[str, TensorRecord]]:
    pieces, records = to_pieces(tensors, where)
    return b"".join(pieces), records


def assembled(data: bytes, most: int, records: Mapping[str, TensorRecord], where: str) -> dict[str, torch.Tensor]:
    """What becomes of a file that is read in pieces of at most `most` bytes."""
    assembly = TensorAssembly(len(data), records, where)
    while data:
        room = assembly.room()[:most]
        filled = min(len(room), len(data))
        room[:filled] = data[:filled]
        assembly.take(room[:filled])
        data = data[filled:]
    return assembly.tensors()


def from_bytes(data: bytes, records: Mapping[str, TensorRecord], where: str) -> dict[str, torch.Tensor]:
    """The whole file at once, and then again byte by byte: where chunks end must not matter."""
    found = assembled(data, len(data), records, where)
    again = assembled(data, 1, records, where)
    for key, tensor in found.items():
        assert_same(again[key], tensor)
    return found


def round_trip(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    data, records = to_bytes(tensors, "file")
    # What the manifest says has been through JSON as well.
    records = {key: TensorRecord(record.dtype, record.shape) for key, record in records.items()}
    return from_bytes(data, records, "file")


def bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(plain.reshape(-1).view(torch.uint8).tolist()) if plain.numel() else b""


def assert_same(back: torch.Tensor, tensor: torch.Tensor) -> None:
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert bits(back) == bits(tensor)


@pytest.mark.parametrize("name", FLOATS + EIGHT_BITS + INTEGERS + OTHERS)
def test_case_D11_every_type_comes_back_bit_for_bit(name: str) -> None:
    """Case D11: going through numpy fails for some types and re-labels others; NaN payloads count as bits too."""
    dtype: torch.dtype = getattr(torch, name)
    generator = torch.Generator().manual_seed(7)
    high = 2 if name == "bool" else 256
    raw = torch.randint(0, high, (24 * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    tensor = raw.view(dtype).reshape(2, 3, 4)
    assert_same(round_trip({"t": tensor})["t"], tensor)


@pytest.mark.parametrize("name", FLOATS)
def test_case_D11_special_numbers_keep_their_bits(name: str) -> None:
    """Case D11: NaN, both zeros, the infinities and the smallest subnormal."""
    dtype: torch.dtype = getattr(torch, name)
    special = [float("nan"), -0.0, 0.0, float("inf"), -float("inf"), torch.finfo(dtype).smallest_normal]
    tensor = torch.tensor(special, dtype=dtype)
    tensor = torch.cat([tensor, tensor[-1:] / 2])
    assert_same(round_trip({"t": tensor})["t"], tensor)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 3, 0)], ids=str)
@pytest.mark.parametrize("name", ["float32", "int64", "bfloat16", "complex64", "float8_e8m0fnu", "bool"])
def test_case_D10_empty_and_zero_dimensional_tensors_keep_shape_and_type(name: str, shape: tuple[int, ...]) -> None:
    """Case D10: a group with no generated token is a group."""
    tensor = torch.zeros((), dtype=torch.uint8).view(torch.uint8).new_zeros(shape).to(getattr(torch, name))
    assert_same(round_trip({"t": tensor})["t"], tensor)
    assert round_trip({}) == {}


def test_case_D09_any_strided_layout_keeps_its_values() -> None:
    """Case D09: some layouts were refused, or written in the wrong order and loaded as garbage."""
    base = torch.arange(24.0).reshape(2, 3, 4)
    layouts = {
        "transposed": base.transpose(0, 2),
        "stepped": base[:, ::2, 1::2],
        "expanded": torch.tensor([1.0, 2.0]).unsqueeze(1).expand(2, 5),
        "channels_last": torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
        "negated": torch.randn(3, dtype=torch.complex64).conj().imag,
        "row": base[1],
    }
    for key, back in round_trip(layouts).items():
        assert_same(back, layouts[key])
        assert back.is_contiguous()


def test_restored_tensors_own_their_memory() -> None:
    """Rows that shared one buffer would keep each other alive, and change together."""
    tensor = torch.arange(6.0)
    back = round_trip({"a": tensor, "b": tensor[:3], "same": tensor})
    back["a"].add_(1)
    assert back["same"].tolist() == tensor.tolist() == [0, 1, 2, 3, 4, 5]
    assert back["b"].untyped_storage().nbytes() == 12


def test_a_file_of_tensors_is_read_by_the_ordinary_reader_of_the_format() -> None:
    """Nobody needs this library to look into a checkpoint."""
    from safetensors.torch import load

    data, _ = to_bytes({"layer.weight": torch.arange(4.0), "z": torch.tensor([1 + 2j])}, "file")
    found = load(data)
    assert found["layer.weight"].tolist() == [0, 1, 2, 3]
    assert found["z"].tolist() == [[1, 2]], "complex numbers are pairs"


@pytest.mark.parametrize("name", FLOATS + EIGHT_BITS + INTEGERS + OTHERS)
def test_the_ordinary_readers_find_the_same_bits_of_every_type(name: str, tmp_path: Path) -> None:
    """The header is ours: offsets, order and alignment must be what the format's own library accepts."""
    from safetensors import safe_open
    from safetensors.torch import load

    dtype: torch.dtype = getattr(torch, name)
    high = 2 if name == "bool" else 256
    raw = torch.randint(0, high, (6 * dtype.itemsize,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    tensors = {"narrow": torch.tensor([7], dtype=torch.uint8), "t": raw.view(dtype).reshape(2, 3), "e": torch.empty(0)}
    data, _ = to_bytes(tensors, "file")
    (tmp_path / "t.safetensors").write_bytes(data)
    with safe_open(tmp_path / "t.safetensors", framework="pt") as mapped:
        for found in (load(data), {key: mapped.get_tensor(key) for key in mapped.keys()}):  # noqa: SIM118
            assert found.keys() == tensors.keys()
            assert bits(found["t"]) == bits(tensors["t"])
            assert found["narrow"].tolist() == [7]
            assert found["e"].shape == (0,)


def test_no_copy_is_made_of_what_lies_in_order_already() -> None:
    """A copy of a whole file keeps the interpreter, and with it the event loop, for as long as it takes."""
    tensor = torch.zeros(4, dtype=torch.uint8)
    pieces, _ = to_pieces({"t": tensor}, "file")
    _header, piece = pieces
    tensor[1] = 5
    assert bytes(piece) == bytes([0, 5, 0, 0])


def test_a_header_that_readers_would_refuse_is_refused_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published first and refused at the restore would be the worst of all."""
    monkeypatch.setattr("impl.store.tensor_format.HEADER_LIMIT", 100)
    with pytest.raises(UsageError, match="2 tensors need a header of 120 bytes"):
        to_pieces({"a": torch.ones(1), "b": torch.ones(1)}, "file")


def test_gradients_are_no_part_of_what_is_stored() -> None:
    """Case D17 in part: a parameter or a result comes back as a plain tensor without a graph."""
    parameter = torch.nn.Parameter(torch.ones(2))
    back = round_trip({"p": parameter, "r": parameter * 2})
    assert not any(tensor.requires_grad for tensor in back.values())
    assert back["r"].tolist() == [2, 2]


class Subclass(torch.Tensor):
    pass


def odd_tensors() -> dict[str, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "sparse": torch.eye(2).to_sparse(),
            "meta": torch.empty(2, device="meta"),
            "nested": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
            "quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            "subclass": torch.ones(2).as_subclass(Subclass),
            "list": [1.0],
        }


@pytest.mark.parametrize("kind", list(odd_tensors()))
def test_case_D12_what_would_not_come_back_is_refused_naming_key_and_kind(kind: str) -> None:
    """Case D12: accepted at save and failing at load is the worst of all."""
    with pytest.raises(UsageError, match=rf"file: tensor 'the {kind}' cannot be saved"):
        to_bytes({"good": torch.ones(1), f"the {kind}": odd_tensors()[kind]}, "file")  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "key", ["a/b", "../x", "/abs", ".", "", "a\nb", "a\\b", "CON", "\N{SNOWMAN}", "\u202eab", "x" * 300]
)
def test_case_E16_odd_keys_are_data_and_come_back(key: str) -> None:
    """Case E16: no key reaches a path."""
    assert round_trip({key: torch.ones(1)}).keys() == {key}


@pytest.mark.parametrize("key", ["x" * (KEY_LIMIT + 1), "a\0b", "__metadata__", "\ud800", 3], ids=ascii)
def test_case_E16_a_key_that_cannot_be_held_is_refused(key: str) -> None:
    """Case E16: too long, a NUL, the format's own word, half a surrogate pair, no text."""
    with pytest.raises(UsageError, match="cannot be saved"):
        to_bytes({key: torch.ones(1)}, "file")


def forged(header: object, body: bytes = b"\0" * 8) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        (2**63).to_bytes(8, "little") + b"{}",
        forged({"t": {**F32, "data_offsets": [0, 80]}}),
        forged({"t": {**F32, "data_offsets": [8, 0]}}),
        forged({"t": {**F32, "shape": [3]}}),
        forged({"t": {**F32, "shape": [2**62, 4]}}),
        forged({"t": F32, "u": F32}),
        forged({"t": {**F32, "data_offsets": [4, 12]}}, b"\0" * 12),
        forged({"t": F32}, b"\0" * 9),
        forged([1]),
        b" " * 4096,
    ],
)
def test_case_E21_a_broken_header_is_refused_and_names_the_file(data: bytes) -> None:
    """Case E21: reversed, overlapping, gapped or outside offsets; a length that would size an allocation."""
    records = {"t": TensorRecord("float32", (2,))}
    with pytest.raises(CheckpointCorrupt, match="rows-000"):
        from_bytes(data, records, "rows-000")


@pytest.mark.parametrize(
    "record",
    [
        TensorRecord("float32", (1, 2)),
        TensorRecord("int32", (2,)),
        TensorRecord("float64", (1,)),
        TensorRecord("complex64", (2,)),
        TensorRecord("float8_e8m0fnu", (2,)),
        TensorRecord("Tensor", (2,)),
        TensorRecord("no_such_type", (2,)),
        TensorRecord("float32", (-1,)),
    ],
    ids=str,
)
def test_case_E21_a_manifest_that_says_something_else_of_a_tensor_is_refused(record: TensorRecord) -> None:
    """A file can be whole and belong to another save."""
    with pytest.raises(CheckpointCorrupt, match="'t'"):
        from_bytes(forged({"t": F32}), {"t": record}, "file")
    with pytest.raises(CheckpointCorrupt, match="'u'"):
        from_bytes(forged({"t": F32}), {"t": TensorRecord("float32", (2,)), "u": record}, "file")
