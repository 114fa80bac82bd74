"""What reading costs: operations and memory in proportion to the bytes of a document, whatever the document claims.

Operations are counted, not seconds: the lines of Python that run, and where the work is in C the comparisons of the
texts themselves. A checkpoint here is forged with right digests, so that every check behind the digests is reached.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from inspection_damage import every_kind, replaced, seal
from run_situations import Run

from impl import AccountsSnapshot, CheckpointCorrupt, CleancutError
from impl.checkpoint import HandedOut, Span, balance, ownership
from impl.inspection import bytes_below, fingerprint
from impl.inspection.survey import survey
from impl.loaders import EpochOrder
from impl.run import CHUNK
from impl.store import PosixFiles, TensorRecord, stored_form, strict_json
from interleavings.correspondence.validation import HandedOut as HandedOutInTrace
from interleavings.correspondence.validation import validate
from interleavings.errors import TraceUnreadable as ScheduleUnreadable
from interleavings.runtime import read_document

#: Lines of Python for each byte of a document, and bytes of memory.
LINES_A_BYTE = 16
MEMORY_A_BYTE = 60
#: What a checkpoint costs however small: so many rows of the epoch under way may be looked at, with 60 lines each.
LOOKS = 1024
LINES_IN_ANY_CASE = 200 * LOOKS
MEMORY_IN_ANY_CASE = 8 << 20


class Cost:
    """What ran meanwhile. `limit` ends a run that goes on: a hang is a failure that says where it was."""

    def __init__(self, limit: float = float("inf")) -> None:
        self.lines = 0
        self.limit = limit

    def local(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line":
            self.lines += 1
            if self.lines > self.limit:
                raise AssertionError(
                    f"more than {self.limit:.0f} lines, at {frame.f_code.co_filename}:{frame.f_lineno}"
                )
        return self.local


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows are looked at in any case than for a run, since each line is counted here."""
    monkeypatch.setattr(ownership, "_LOOKS", LOOKS)


@contextmanager
def counted_lines(limit: float = float("inf")) -> Iterator[Cost]:
    """Count the lines of Python of this thread."""
    cost, before = Cost(limit), sys.gettrace()
    sys.settrace(cost.local)
    try:
        yield cost
    finally:
        sys.settrace(before)


@contextmanager
def peak_below(limit: float) -> Iterator[None]:
    """The memory of Python's own objects stays below."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak:,} bytes of memory where {limit:,.0f} were to be enough"


class Text(str):
    """A text that counts how often it is compared or hashed."""

    looks = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Text.looks += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Text.looks += 1
        return str.__hash__(self)


def looks_at(duplicates: Callable[[list[tuple[str, object]]], object], names: int) -> int:
    """How often names are looked at until the last one, which is doubled, is found."""
    pairs: list[tuple[str, object]] = [(Text(number), None) for number in (*range(names), names - 1)]
    Text.looks = 0
    with pytest.raises(ValueError, match=f"'{names - 1}' stands twice"):
        duplicates(pairs)
    return Text.looks


def quadratic(pairs: list[tuple[str, object]]) -> None:
    """As it once was."""
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f"the key {twice!r} stands twice in one object")


def test_case_G03_a_doubled_key_is_found_by_looking_at_each_name_a_few_times() -> None:
    """The search for its name compared each with each: minutes for a manifest of some hundred kilobytes."""
    assert looks_at(strict_json._without_duplicates, 2000) < 5 * 2000
    assert looks_at(quadratic, 500) > 5 * 500, "the count notices what it is for"


@pytest.mark.parametrize("text", [
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 90 + b"]" * 90, b'[{"a":' * 60 + b"1" + b"}]" * 60,
    b"[" + b"1" * 5_000 + b"]", b"1" * 1_000_000, b"-" + b"9" * 500, b"1e999", b"[-1E+0400]", b"1" * 400 + b".5",
])  # fmt: skip
def test_case_G03_what_costs_more_than_its_bytes_or_comes_back_as_something_else_is_no_json_of_ours(
    text: bytes,
) -> None:
    """Deep nesting ends the stack of whoever walks it, digits cost their square, and 1e999 would be an infinity."""
    with counted_lines(20 * len(text) + 1000), pytest.raises(CheckpointCorrupt, match=r"nested|strict JSON") as refusal:
        strict_json.decode_plain(text, "x.json")
    assert len(str(refusal.value)) < 600


def test_case_G03_digits_are_refused_also_where_the_interpreter_sets_no_limit() -> None:
    """PYTHONINTMAXSTRDIGITS=0 is what programs with large numbers set."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(CheckpointCorrupt, match="an integer has 1000000 digits"):
            strict_json.decode_plain(b"1" * 1_000_000, "x.json")
    finally:
        sys.set_int_max_str_digits(before)


def test_what_is_written_is_read_however_deep_and_long() -> None:
    """The limits on reading leave everything that writing lets through, in the deepest document."""
    value: object = [2**63 - 1, -(2**63), 1.7976931348623157e308, "[" * 500, "1" * 5000, "1e999"]
    for _ in range(63):
        value = [value]
    document = {"entries": [{"payload": {"value": strict_json.checked(value, "payload")}}]}
    data = strict_json.encode(document, "ledger.json")
    assert strict_json.decode_plain(data, "ledger.json") == document


def test_case_G03_a_shape_of_many_lengths_is_not_multiplied_out() -> None:
    """The product of a million lengths has as many digits, and to work it out costs their square."""
    with counted_lines(10_000):
        form = stored_form(TensorRecord("float32", (2**40,) * 1_000_000))
        empty = stored_form(TensorRecord("float32", (2**62,) * 1_000_000 + (0,)))
    assert form is not None
    assert form.nbytes.bit_length() < 200
    assert empty is not None
    assert empty.nbytes == 0


# -- claims of a file: intervals, datasets, places


@pytest.mark.parametrize("epochs", [1, 3000])
def test_case_G04_accounts_take_room_by_intervals_and_not_by_the_keys_they_claim(epochs: int) -> None:
    """Whole epochs of a dataset of 2**32 rows; as bits each takes half a gigabyte."""
    intervals = [(epoch, 5, 2**32 - 7) for epoch in range(epochs)]
    with peak_below(4_000_000 + 4000 * epochs), counted_lines(1000 + 100 * epochs):
        accounts = AccountsSnapshot.from_intervals(intervals, {})
        assert accounts.trained_count == epochs * (2**32 - 11)
        assert [tuple(interval) for interval in accounts.trained] == intervals


@pytest.mark.parametrize("seed", range(30))
def test_accounts_of_intervals_agree_with_a_set_of_keys(seed: int) -> None:
    """Edges and whole chunks, adjacent and apart, in any order, and trained on from there."""
    chance = random.Random(seed)
    places = {*range(CHUNK - 3, CHUNK + 3), *range(0, 9 * CHUNK, CHUNK // 2), 2 * CHUNK - 1}
    edges = sorted(chance.sample(sorted(places), 8))
    intervals = [(0, first, last) for first, last in zip(edges[::2], edges[1::2], strict=True)]
    chance.shuffle(intervals)
    keys = {row for _, first, last in intervals for row in range(first, last + 1)}
    accounts = AccountsSnapshot.from_intervals(intervals, {})
    assert accounts.trained_count == len(keys)
    assert {row for _, first, last in accounts.trained for row in range(first, last + 1)} == keys
    assert AccountsSnapshot.from_intervals(accounts.trained, {}) == accounts
    doubled = chance.choice(sorted(keys))
    with pytest.raises(CheckpointCorrupt, match="trained twice"):
        AccountsSnapshot.from_intervals([*intervals, (0, doubled, doubled)], {})


def test_the_place_of_a_row_is_the_way_back() -> None:
    """At every length near a square, where the walk leaves the range most and least often."""
    for length in (1, 2, 3, 4, 5, 8, 9, 10, 99, 100, 101, 1000):
        order = EpochOrder(length, 7, 3)
        assert [order.place_of(order[place]) for place in range(length)] == list(range(length))
    with pytest.raises(IndexError):
        EpochOrder(5, 0, 0).place_of(5)


@pytest.mark.parametrize("spans", [
    [Span(3, 0, 2**32 - 1, "trained")],
    [Span(3, 0, 2**31, "trained")],
    [Span(3, row * 10**6, row * 10**6 + 5 * 10**5, "trained") for row in range(300)],
    [Span(3, 0, 2**32 - 1 - row, "trained") for row in range(300)],
    [Span(9, 0, 2**32 - 1, "trained")],
    [],
])  # fmt: skip
@pytest.mark.usefixtures("few_looks")
@pytest.mark.parametrize("position", [0, 5, 2**31, 2**32 - 5, 2**32])
def test_case_G04_owners_in_an_epoch_that_never_ends_are_compared_within_bounds(
    spans: list[Span], position: int
) -> None:
    """The rows of the epoch under way were a byte each, and each place was worked out: never done, and no memory."""
    with peak_below(MEMORY_IN_ANY_CASE), counted_lines(LINES_IN_ANY_CASE + 2000 * len(spans)):
        found = balance(spans, HandedOut(2**32, 3, 3, position))
    assert found.handed_out == 3 * 2**32 + position
    right = found.balanced or (len(spans) == 1 and spans[0].epoch == 3 and spans[0].last == 2**32 - 1)
    assert not found.balanced or right
    rows = {row for span in spans[:1] if span.epoch == 3 and len(spans) == 1 for row in (span.last + 1,)}
    owned = rows.pop() if rows else None
    if owned is not None:
        order = EpochOrder(2**32, 3, 3)
        lost = [key.index for key, _ in found.lost.examples if key.epoch == 3]
        assert all(order.place_of(row) < position and row >= owned for row in lost)
        known = [key.index for key, _ in found.ahead.examples]
        assert all(order.place_of(row) >= position and row < owned for row in known)
        assert found.lost.count - 3 * 2**32 >= position - owned, "at least what the numbers alone tell"
        assert found.ahead.count >= owned - position


def test_an_honest_epoch_under_way_is_counted_to_the_last_row() -> None:
    """The bound on what is looked at leaves every run that is right, and finds the one row that is not."""
    length = 1 << 18
    for position in (1, 90_000, 1 << 17, 200_000, length):
        order = EpochOrder(length, 1, 0)
        rows = sorted(order[place] for place in range(position))
        spans = [Span(0, first, last, "trained") for _, first, last in AccountsSnapshot.from_intervals(
            [(0, row, row) for row in rows], {}).trained]  # fmt: skip
        assert balance(spans, HandedOut(length, 1, 0, position)).balanced
        found = balance(spans[1:], HandedOut(length, 1, 0, position))
        missing = spans[0].last - spans[0].first + 1
        assert (found.lost.count, found.lost.at_least, found.ahead.count) == (missing, False, 0)


def test_a_folder_nested_as_deep_as_paths_go_ends_no_stack(tmp_path: Path) -> None:
    """A thousand folders in each other are a path that the system takes, and more than a stack holds."""
    deep = f"{tmp_path}/step_1-1"
    for _ in range(1201):
        os.mkdir(deep)
        deep += "/a"
    try:
        found = fingerprint(str(tmp_path), "step_1-1")
        assert found is not None
        assert len(found) == 1201
        assert bytes_below(f"{tmp_path}/step_1-1") == 0
    finally:
        for _ in range(1201):
            deep = os.path.dirname(deep)
            os.rmdir(deep)


# -- whole checkpoints, forged at random


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(every_kind(tmp_path_factory.mktemp("sound") / "run"))


def interval(epoch: int, first: int, last: int) -> dict[str, int]:
    return {"epoch": epoch, "first": first, "last": last}


def claims_of_accounts(chance: random.Random, size: int, documents: dict[str, Any]) -> None:
    """Intervals over a dataset that is said to be very long, apart, overlapping or whole epochs."""
    length, epoch = chance.choice([2**32, 2**31, 10**6]), chance.choice([0, 1, 7, 2**40])
    way = chance.randrange(3)
    documents["trainer.json"]["accounts"]["trained"] = [
        (interval(epoch, i * 1000, i * 1000 + 500), interval(0, 0, length - 1 - i), interval(i, 0, length - 1))[way]
        for i in range(min(size // 40, length // 1000))
    ]
    position = chance.choice([0, length // 2, length])
    documents["loader.json"]["state"].update(dataset_length=length, epoch=epoch, position=position, exhausted=False)
    documents["manifest.json"]["identity"]["dataset_length"] = length


def many_entries(chance: random.Random, size: int, documents: dict[str, Any]) -> None:
    """Pending prompts, spares and slots without end, distinct but for the last."""
    ledger, spares, buffer = (documents[name] for name in ("ledger.json", "spares.json", "buffer.json"))
    for entries in (ledger["entries"], spares["spares"], buffer["slots"]):
        if entries:
            group = "group" in entries[0]
            entries[:] = [{**entries[0], "index": i} | ({"group": i} if group else {}) for i in range(size // 400)]
    documents["loader.json"]["state"].update(dataset_length=2**32, position=chance.randrange(2**32), exhausted=False)
    documents["manifest.json"]["identity"]["dataset_length"] = 2**32
    documents["trainer.json"]["next_group"] = 2**40


def many_dropped(chance: random.Random, size: int, documents: dict[str, Any]) -> None:
    """Dropped prompts, one reason each."""
    documents["trainer.json"]["accounts"]["dropped"] = [
        {"epoch": chance.randrange(3), "index": i, "reason": f"r{i}"} for i in range(size // 60)
    ]


def many_members(chance: random.Random, size: int, documents: dict[str, Any]) -> None:
    """Files that are not there, in folders of their own; tensors of many lengths."""
    files = documents["manifest.json"]["files"]
    for i in range(size // 300):
        files[f"trainer/d{i}/f{chance.randrange(9)}"] = {"length": 0, "sha256": "0" * 64, "tensors": None}
    rows = next(name for name in files if name.startswith("rows-"))
    for i in range(size // 300):
        files[rows]["tensors"][f"{i}/x"] = {"dtype": "float32", "shape": [chance.choice([1, 2**40])] * 8}


def deep_states(chance: random.Random, size: int, documents: dict[str, Any]) -> None:
    """States of participants that are nested, or long."""
    state: Any = [0] * (size // 10)
    for _ in range(chance.choice([1, 60, 200, 900])):
        state = [state] if chance.random() < 0.5 else {"a": state}
    documents[chance.choice(["sampler.json", "loader.json"])]["state"]["x"] = state


def long_numbers(chance: random.Random, size: int, documents: dict[str, Any]) -> None:
    """Numbers of thousands of digits, wherever a number is."""
    documents["trainer.json"]["budgets"] = {str(i): 10 ** chance.choice([20, 300, 4000]) for i in range(size // 5000)}
    documents["trainer.json"][chance.choice(["version", "step", "next_group"])] = 10**4000


FORGERIES = [claims_of_accounts, many_entries, many_dropped, many_members, deep_states, long_numbers]


def forged(checkpoint: Path, seed: int, size: int) -> int:
    """Forge a checkpoint with right digests; the bytes that it then has."""
    chance = random.Random(seed)
    names = (
        "manifest.json",
        "trainer.json",
        "loader.json",
        "sampler.json",
        "ledger.json",
        "spares.json",
        "buffer.json",
    )
    documents = {name: json.loads((checkpoint / name).read_bytes()) for name in names}
    for forgery in chance.sample(FORGERIES, chance.choice([1, 1, 2, 3])):
        forgery(chance, size, documents)
    seal(checkpoint, json.dumps(documents.pop("manifest.json")).encode())
    for name, document in documents.items():
        replaced(checkpoint, name, json.dumps(document).encode())
    return sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())


@pytest.mark.usefixtures("few_looks")
@pytest.mark.parametrize("seed", range(24))
def test_case_G04_any_checkpoint_is_examined_and_refused_at_the_price_of_its_bytes(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    """By fsck and by a restore; forged at random with right digests, one hundred and four hundred kilobytes large."""
    for size in (100_000, 400_000):
        root = Path(shutil.copytree(sound, tmp_path / str(size), symlinks=True))
        for other in root.glob("step_*"):
            if other.name != "step_1-2":
                shutil.rmtree(other)
        length = forged(root / "step_1-2", seed, size)
        limit = LINES_IN_ANY_CASE + LINES_A_BYTE * length
        with counted_lines(limit):
            survey(PosixFiles(), str(root), digests=True)
        with peak_below(MEMORY_IN_ANY_CASE + MEMORY_A_BYTE * length):
            survey(PosixFiles(), str(root), digests=True)

            async def restore(root: Path = root) -> None:
                run = Run(root, epochs=2)
                try:
                    await run.checkpointer.restore()
                except CleancutError:
                    pass
                finally:
                    await run.checkpointer.close()

            asyncio.run(restore())


# -- traces


def restored_trace(path: Path, **changed: Any) -> Path:
    """A trace whose only event is a restore that claims something."""
    run = {"dataset_length": 2**40, "dataset_digest": "d", "seed": 1, "batch_size": 2, "generations": 1,
           "capacity": 2**40, "sampler": {"name": "in_order", "parameters": {"lookahead": 2**40}},
           "remainder": "train", "recovery": True}  # fmt: skip
    header = {"record": "header", "schema": "cleancut.trace", "version": 1, "segment": "a", "run": run, "process": 1,
              "host": "h", "monotonic": 1.0, "wall": 1.0}  # fmt: skip
    fields = {"name": "step_0-1", "sequence": 1, "step": 0, "version": 0, "cursor": -1, "shortfalls": [], "dropped": 0,
              "loader": [0, 0, False], "pending": [], "ready": [], "spares": [], "fence": 1, **changed}  # fmt: skip
    section = {"section": 0, "task": None, "kind": "checkpoint"}
    events = [("request_cut", section), ("open_cut", section), ("restore", fields), ("close_cut", section)]
    lines = [header]
    for number, (action, said) in enumerate(events):
        lines.append({"record": "event", "number": number, "monotonic": 1.0, "wall": 1.0, "action": action,
                      "task": None, "fields": said})  # fmt: skip
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def test_case_G04_a_restore_in_a_trace_is_followed_at_the_price_of_what_it_names(tmp_path: Path) -> None:
    """Steps without end were looked at one by one, and a row far out took room for all before it."""
    claims: list[tuple[dict[str, Any], str]] = [
        ({"cursor": 2**50}, "steps ahead of the trainer"),
        ({"spares": [[0, 2**60]]}, "is in no epoch of"),
        ({"spares": [[0, -1]]}, "is in no epoch of"),
        ({"spares": [[-1, 5]]}, "is in no epoch of"),
        ({"spares": [[0, 2**39]], "loader": [0, 2, False]}, ""),
    ]
    for changed, why in claims:
        with peak_below(MEMORY_IN_ANY_CASE), counted_lines(400_000):
            result = validate([restored_trace(tmp_path / "trace.jsonl", **changed)])
        assert why in (result.refusal.why if result.refusal else ""), (changed, result.refusal)
    assert HandedOutInTrace(2**28).again((0, 2**28 - 1)) is False


@pytest.mark.parametrize("number", ["1" * 5000, "[" * 100_000])
def test_case_G03_a_trace_of_a_schedule_is_refused_in_one_line_whatever_its_json_costs(
    tmp_path: Path, number: str
) -> None:
    """A number of thousands of digits is a ValueError that is no JSONDecodeError, and was a traceback."""
    path = tmp_path / "trace.json"
    path.write_text('{"format": ' + number + "}")
    with pytest.raises(ScheduleUnreadable, match="is not a trace: it is no JSON"):
        read_document(path)
