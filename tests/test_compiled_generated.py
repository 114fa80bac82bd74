"""Generated code against the reference engine on random machines: interpreted, and compiled."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from compiled_agreement import reported
from generated_text import interpreted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_machines import random_machine

from spec.engines import reference as reference_engine
from spec.engines.compiled import engine, generated
from spec.language import ModelFault, Packing, signed

LIMIT = 400


def outcome(search: Any) -> Any:
    """All that a search reports, or that the text is at fault."""
    try:
        return reported(search())
    except ModelFault:
        return "fault"


def compare(seed: int, *, compiled: bool) -> str:
    """Search one machine with both engines; what came out."""
    machine, scope = random_machine(seed)
    expected = outcome(lambda: reference_engine.search(machine.model(scope), max_states=LIMIT))
    if expected != "fault" and expected["verdict"] == "bounded":
        return "too large"
    text = engine.prepared(machine, scope)
    functions = None if compiled else interpreted(text)
    assert outcome(lambda: engine.search(machine, scope, functions=functions)) == expected
    return "fault" if expected == "fault" else f"{expected['verdict']} in {min(text.packing.words, 3)} words"


def test_random_machines_interpreted():
    """At least 200 machines that end, each outcome and each width among them."""
    seen: Counter[str] = Counter()

    @settings(max_examples=350, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 10_000_000))
    def one(seed: int) -> None:
        seen[compare(seed, compiled=False)] += 1

    one()
    assert sum(seen.values()) - seen["too large"] >= 200
    assert all(seen[f"{verdict} in {words} words"] >= 5 for verdict in ("holds", "fails") for words in (1, 2, 3))


def test_random_machines_compiled():
    """At least twenty of them go through the compiler, a third of them with three words and more."""
    seen: Counter[str] = Counter()
    for seed in range(400):
        machine, scope = random_machine(seed)
        words = engine.prepared(machine, scope).packing.words
        if words >= 3 or seed % 4 == 0:
            seen[compare(seed, compiled=True)] += 1
        if sum(seen.values()) - seen["too large"] >= 21:
            break
    assert sum(seen.values()) - seen["too large"] >= 21
    assert seen["holds in 3 words"] + seen["fails in 3 words"] >= 7


@given(st.lists(st.tuples(st.integers(-100, 100), st.integers(0, 2**40)), min_size=1, max_size=12), st.randoms())
@settings(max_examples=200, deadline=None)
def test_packing_gives_back_what_it_was_given(ranges, random):
    """Whatever the ranges are: the words hold every element, none straddles, and equal states are equal words."""
    bounds = [(low, low + span) for low, span in ranges]
    packing = Packing(bounds)
    values = [random.choice([low, high, random.randint(low, high)]) for low, high in bounds]
    words = packing.packed(values)
    assert packing.unpacked(np.array(words, np.int64).tolist()) == tuple(values)
    assert all(f.shift + f.bits <= 64 for f in packing.fields)


def test_the_sign_bit_is_a_bit_like_any_other():
    """A field that ends at bit 63 makes its word negative."""
    packing = Packing([(0, 2**32 - 1), (0, 2**32 - 1)])
    assert packing.words == 1
    assert packing.packed([5, 2**32 - 1])[0] < 0
    assert packing.unpacked(packing.packed([5, 2**32 - 1])) == (5, 2**32 - 1)
    assert signed(1 << 63) == -(1 << 63)


def test_the_translator_refuses_what_it_does_not_know():
    """A word that is not translated would be a wrong count, not an error, if it were passed over."""

    def uses_a_list(states, first):
        return [first]

    with pytest.raises(Exception, match=r"\[first\]"):
        compile_and_call(uses_a_list)


def compile_and_call(function: Any) -> Any:
    """Compile a function as generated text is, and call it."""
    return generated(function)(np.zeros((1, 1), np.int64), 0)


# Two functions as generated text has them, without a docstring.
def reads_beyond(states, first):
    return states[first, 1]


def writes_before(states, first):
    states[first - 1, 0] = 7
    return 0


@pytest.mark.parametrize("function", [reads_beyond, writes_before])
def test_every_array_access_is_checked(function):
    """An index outside is an error, and never another state's memory."""
    with pytest.raises(IndexError, match="outside: states"):
        compile_and_call(function)
