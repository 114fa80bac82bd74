"""The digest of a dataset: the same in every process, different for different content, honest about its limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from impl import PromptLoader, UsageError
from impl.loaders import dataset_digest


def digest(rows: list[Any], fingerprint: str | None = None) -> str:
    return dataset_digest(rows, fingerprint)


def test_equal_content_has_one_digest_and_other_content_another() -> None:
    """By length, value, type and order of rows; not by the order of a row's fields."""
    base = [{"text": "a", "id": 1}, {"text": "b", "id": 2}]
    assert digest(base) == digest([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}])
    others: list[list[Any]] = [
        [base[0]],
        base[::-1],
        [*base, base[0]],
        [{"text": "a", "id": "1"}, base[1]],
        [{"text": "a", "id": 1.5}, base[1]],
        [{"text": "a\n", "id": 1}, base[1]],
        [b"a", b"b"],
        [{"a"}, {"b"}],
    ]
    digests = [digest(rows) for rows in [base, *others]]
    assert len(set(digests)) == len(digests)


def test_rows_cannot_run_into_each_other() -> None:
    """A line break inside a text is no boundary between two rows."""
    assert digest(["a\nb", "c"]) != digest(["a", "b\nc"])


SETS = """
from impl.loaders.dataset_identity import dataset_digest
print(dataset_digest([{"tags": {"x", "y", "z", "w"}}, frozenset("abcdef"), b"raw", (1, 2), 1 + 2j], None))
"""


def test_the_digest_does_not_depend_on_the_process() -> None:
    """Sets come in another order with each hash seed; the digest must not."""
    root = Path(__file__).parent.parent
    found = {
        subprocess.run(
            [sys.executable, "-c", SETS],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(found) == 1


def test_a_row_known_only_by_its_address_is_refused_with_the_way_out() -> None:
    """Its digest would differ in the next process, and every resume would be refused."""
    for row in (object(), {"nested": [object()]}, {(1, 2): "a key that is no text"}):
        with pytest.raises(UsageError, match=r"row 1 of the dataset .*fingerprint="):
            PromptLoader(["good", row], batch_size=1, seed=0)


class Unread(list[Any]):
    """A dataset whose rows are dear."""

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("a row was read")


def test_a_fingerprint_replaces_the_reading() -> None:
    """No row is touched, and the fingerprint with the length is the identity."""
    loaders = [
        PromptLoader(Unread(range(length)), batch_size=1, seed=0, fingerprint=fingerprint)
        for length, fingerprint in ((3, "r1"), (3, "r2"), (4, "r1"))
    ]
    digests = [loader.state().dataset_digest for loader in loaders]
    assert len(set(digests)) == 3
    assert digests[0] == digest(["a", "b", "c"], "r1")
    assert digests[0] != digest(["a", "b", "c"])
