"""Case E20: what is written as JSON is what is read, or it is refused and the value is named."""

import json
import math
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from impl import CheckpointCorrupt, UsageError
from impl.store import strict_json


class Colour(IntEnum):
    RED = 1


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({1: "a", "1": "b"}, "doc"),
        ({True: "c"}, "doc"),
        ({"a": {"b": math.nan}}, "doc.a.b"),
        ([0, math.inf], r"doc\[1\]"),
        ({"a": (1, 2)}, "doc.a"),
        ({"a": b"bytes"}, "doc.a"),
        ({"a": {1, 2}}, "doc.a"),
        ({"a": 2**70}, "doc.a"),
        ({"a": -(2**63) - 1}, "doc.a"),
        ({"a": "\ud800"}, "doc.a"),
        ({"\udfff": 1}, "doc"),
        ({"a": Colour.RED}, "doc.a"),
        (OrderedDict(a=1), "doc"),
        ({"a": object()}, "doc.a"),
        (nested(1000), "doc"),
    ],
)
def test_case_E20_a_value_that_would_not_come_back_is_refused_with_its_path(value: object, place: str) -> None:
    """Keys that become text, words that are no numbers, tuples that become lists: each is silent in ordinary JSON."""
    with pytest.raises(UsageError, match=rf"{place}(\[0\])* cannot be saved exactly"):
        strict_json.checked(value, "doc")


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@hypothesis.given(PLAIN)
def test_case_E20_every_accepted_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    """True is not 1, and 1.0 is not 1: equality alone would not tell."""
    back = strict_json.decode_plain(strict_json.encode(strict_json.checked(value, "doc"), "doc"), "doc")
    assert repr(back) == repr(value)


@hypothesis.given(PLAIN)
def test_what_is_written_is_json_for_any_other_reader(value: Any) -> None:
    """A reader that refuses NaN and duplicate keys reads the file, and reads the same."""

    def refuse(word: str) -> object:
        raise AssertionError(word)

    assert json.loads(strict_json.encode(value, "doc"), parse_constant=refuse) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'[{"b": {"c": 1, "c": 1}}]', "'c' stands twice"),
        (b'{"a": NaN}', "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b'{"a": 1', "not strict JSON"),
        (b"", "not strict JSON"),
        (b"\xff\xfe", "not strict JSON"),
        (b'{"a": 1} {"b": 2}', "not strict JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "not strict JSON"),
    ],
)
def test_case_E20_text_that_is_not_strict_is_refused_on_reading(text: bytes, complaint: str) -> None:
    """Another writer, or a damaged file: the last of two equal keys must not silently win."""
    with pytest.raises(CheckpointCorrupt, match=complaint):
        strict_json.decode_plain(text, "file.json")


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    x: int
    label: str | None


@pytest.mark.parametrize(
    "text",
    [
        b'{"x": "1", "label": null}',
        b'{"x": 1.0, "label": null}',
        b'{"x": true, "label": null}',
        b'{"x": 1}',
        b'{"x": 1, "label": null, "extra": 0}',
        b"[1, null]",
    ],
)
def test_a_document_has_every_field_none_unknown_and_each_of_its_exact_type(text: bytes) -> None:
    """Absence never means anything, and a number as text is somebody's edit."""
    with pytest.raises(CheckpointCorrupt, match=r"point\.json does not have the form"):
        strict_json.decode(text, Point, "point.json")


@pytest.mark.parametrize("point", [Point(1.5, None), Point(True, None), Point(1, 2), Point(math.nan, None)])  # type: ignore[arg-type]
def test_a_document_that_could_not_be_read_again_is_not_written(point: Point) -> None:
    """Case E28: accepted at save and failing at load is the worst of all; NaN would become null."""
    with pytest.raises(UsageError, match="could be written and not read again"):
        strict_json.encode_readable(point, "point.json")


def test_a_document_comes_back_as_it_was() -> None:
    """The accepted counterpart of the refusals above."""
    point = Point(3, "a/b \u202e \N{SNOWMAN}")
    assert strict_json.decode(strict_json.encode(point, "p"), Point, "p") == point
