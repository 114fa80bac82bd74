"""The balance of owners: every prompt handed out once, against a count of single keys, and at sizes nobody counts."""

from collections import Counter

import hypothesis
import hypothesis.strategies as st

from impl.checkpoint import EXAMPLES, HandedOut, Span, balance
from impl.loaders import EpochOrder

OWNERS = ("trained", "dropped", "buffered", "pending", "spare")


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Span], HandedOut]:
    """Any spans, right or wrong, over a small dataset."""
    length = draw(st.integers(1, 12))
    handed_out = HandedOut(length, draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.integers(0, length)))
    spans = []
    for _ in range(draw(st.integers(0, 8))):
        first = draw(st.integers(0, length + 1))
        last = first + draw(st.integers(0, 4))
        spans.append(Span(draw(st.integers(0, 3)), first, last, draw(st.sampled_from(OWNERS))))
    return spans, handed_out


@hypothesis.given(situations())
def test_the_balance_agrees_with_a_count_of_every_single_key(situation: tuple[list[Span], HandedOut]) -> None:
    """The clever sweep over spans against the dumb way."""
    spans, handed_out = situation
    owners = Counter((span.epoch, row) for span in spans for row in range(span.first, span.last + 1))
    order = EpochOrder(handed_out.dataset_length, handed_out.seed, handed_out.epoch)
    given = {(epoch, row) for epoch in range(handed_out.epoch) for row in range(handed_out.dataset_length)}
    given |= {(handed_out.epoch, order[place]) for place in range(handed_out.position)}
    found = balance(spans, handed_out)
    assert found.handed_out == len(given)
    assert found.lost.count == len(given - owners.keys())
    assert found.doubled.count == sum(times > 1 for times in owners.values())
    ahead = Counter(
        (span.epoch, row)
        for span in spans
        for row in range(span.first, span.last + 1)
        if (span.epoch, row) not in given
    )
    assert found.ahead.count == sum(ahead.values())
    assert {tuple(key) for key, _ in found.lost.examples} <= given - owners.keys()
    assert found.owned.total() == owners.total()


def test_millions_of_trained_prompts_are_one_interval_and_no_list() -> None:
    """Nine epochs of ten million prompts, one of them lost: found by its key, without counting the others."""
    length = 10_000_000
    spans = [Span(epoch, 0, length - 1, "trained") for epoch in range(8)]
    spans += [Span(8, 0, 41, "trained"), Span(8, 43, length - 1, "trained")]
    found = balance(spans, HandedOut(length, 0, 9, 0))
    assert found.lost.count == 1
    assert found.lost.examples == [((8, 42), "")]
    assert found.owned["trained"] == 9 * length - 1
    everything = balance([], HandedOut(length, 0, 3, 0))
    assert everything.lost.count == 3 * length
    assert len(everything.lost.examples) == EXAMPLES


def test_epochs_without_end_are_counted_at_once() -> None:
    """An edited number must neither fill the memory nor take for ever."""
    found = balance([Span(0, 0, 15, "trained"), Span(10**14, 0, 2, "pending")], HandedOut(16, 3, 10**15, 0))
    assert found.lost.count == 16 * (10**15 - 1) - 3
    assert [tuple(key) for key, _ in found.lost.examples[:2]] == [(1, 0), (1, 1)]
    assert len(found.lost.examples) == 20
    assert (found.doubled.count, found.ahead.count) == (0, 0)


def test_a_loader_that_does_not_say_what_it_gave_out_leaves_the_lost_unknown() -> None:
    """Zero would be a claim that nobody checked."""
    found = balance([Span(0, 1, 1, "pending"), Span(0, 1, 1, "trained")], None)
    assert found.handed_out is None
    assert (found.lost.count, found.doubled.count) == (0, 1)
    assert str(found.doubled) == "(0, 1) (pending and trained)"
