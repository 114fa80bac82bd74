"""Files that are written piece by piece: in bounded chunks, with the digest of exactly the bytes that were written."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from store_situations import LayeredFiles

from impl.store import CHUNK_BYTES, StagedDirectory, durable_file, in_chunks


def test_a_large_tensor_goes_to_the_file_system_in_bounded_chunks(tmp_path: Path) -> None:
    """One call for all of it would need one copy of all of it."""
    written: list[int] = []

    def note(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if call == "write":
            written.append(len(arguments[1]))

    staged = StagedDirectory(LayeredFiles(before=note), f"{tmp_path}/staged")
    tensor = torch.arange(3 * CHUNK_BYTES // 8 + 5)
    staged.writer().write_tensors("rows.safetensors", {"large": tensor, "small": torch.ones(3), "none": torch.empty(0)})
    assert written[:3] == [CHUNK_BYTES] * 3
    assert len(written) == 4
    data = (tmp_path / "staged" / "rows.safetensors").read_bytes()
    record = staged.records["rows.safetensors"]
    assert (record.length, record.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert torch.equal(load_file(tmp_path / "staged" / "rows.safetensors")["large"], tensor)


def test_the_digest_is_that_of_the_bytes_written_even_if_a_tensor_changes_meanwhile(tmp_path: Path) -> None:
    """Else the checkpoint is published and found damaged by the restore that needs it."""
    tensor = torch.zeros(2 * CHUNK_BYTES, dtype=torch.uint8)

    def change(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if call == "write":
            tensor.add_(1)

    staged = StagedDirectory(LayeredFiles(before=change), f"{tmp_path}/staged")
    staged.writer().write_tensors("rows.safetensors", {"t": tensor})
    data = (tmp_path / "staged" / "rows.safetensors").read_bytes()
    assert staged.records["rows.safetensors"].sha256 == hashlib.sha256(data).hexdigest()


@given(
    st.lists(st.binary(max_size=20) | st.binary(max_size=20).map(bytearray), max_size=12),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_chunks_are_the_same_bytes_in_equal_portions(
    pieces: list[bytes | bytearray], size: int, long_copy: int
) -> None:
    """Nothing is lost, doubled or reordered where one piece ends and the next begins, whichever way it is copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable_file, "CHUNK_BYTES", size)
        patch.setattr(durable_file, "_LONG_COPY_BYTES", long_copy)
        chunks = [bytes(chunk) for chunk in in_chunks(pieces)]
    assert b"".join(chunks) == b"".join(pieces)
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert all(0 < len(chunk) <= size for chunk in chunks)
