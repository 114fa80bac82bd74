"""What bounds a compiled search: memory, an interruption, faults of the text; and going on where it stopped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compiled_agreement import reported
from generated_text import interpreted

from spec.command import main
from spec.engines import EnginesDisagree, Progress
from spec.engines import reference as reference_engine
from spec.engines.compiled import FIRST_SLOTS, FULLEST, Storage, engine, kernels, level_files, storage
from spec.language import Machine, ModelFault, put
from spec.machines import MACHINES, SMALL

CUT, (FAILURES, PINNED) = MACHINES["cut"], SMALL["cut"]["failures"]


@pytest.fixture(autouse=True)
def own_searches(monkeypatch, tmp_path):
    """Searches put aside go into a directory of the test; compiled code stays where it is cached."""
    monkeypatch.setattr(level_files, "place_of", lambda key: tmp_path / "searches" / key)
    return tmp_path / "searches"


@dataclass(frozen=True)
class Size:
    """How far the counters count."""

    top: int


def counters(step: int = 1) -> Machine:
    """Three counters that each count to the top."""
    machine = Machine("counters")
    machine.domain("counters", lambda scope: 3)
    machine.variable("value", 0, lambda scope: scope.top, "the counters", over="counters")

    @machine.system(who="counter", each="counters")
    def increment(s, c):
        """Counter `c` counts on."""
        return s.value[c] < s.top, {"value": put(s.value, c, s.value[c] + step)}

    return machine


def interpreted_search(machine: Machine, scope: Any, **options: Any) -> Any:
    """A search with the generated text interpreted; the table is compiled all the same."""
    return engine.search(machine, scope, functions=interpreted(engine.prepared(machine, scope)), **options)


def test_the_table_grows_without_losing_a_state():
    """Far more states than the first table holds: each growth fills a new one from the states."""
    found = interpreted_search(counters(), Size(19))
    assert found.states == 20**3 > 2 * FIRST_SLOTS * FULLEST
    assert (found.transitions, found.depth) == (3 * 19 * 20**2, 57)


def test_a_table_never_gets_fuller_than_its_load():
    """Beyond it every look-up walks over its neighbours."""
    kept = Storage(1, 1 << 20)
    for _ in range(20):
        kept.make_room(1000)
        kept.count += 1000
        assert kept.count <= FULLEST * kept.table.shape[0]


def test_equal_tags_do_not_make_equal_states():
    """Every state with the same hash, and so with the same place and tag: only the words tell them apart."""
    rows = 50
    states, parents = np.zeros((64, 2), np.int64), np.zeros(64, np.int32)
    table = np.zeros(128, np.uint32)
    out = np.arange(2 * rows, dtype=np.int64).reshape(rows, 2)
    places, tags, born, origin = (np.zeros(rows, np.int64) for _ in range(4))
    insert = with_one_hash(kernels.insert)
    assert insert(table, 7, 127, states, parents, 0, out, origin, rows, places, tags, born) == rows
    assert insert(table, 7, 127, states, parents, rows, out, origin, rows, places, tags, born) == rows
    assert (states[:rows] == out).all()


def with_one_hash(kernel: Any) -> Any:
    """The kernel interpreted, with a hash that is the same for every state."""
    function = kernel.py_func
    names = {**function.__globals__, "hashed": lambda rows, row: 12345 << 32, "marked": kernels.marked.py_func}
    return type(function)(function.__code__, names, "insert")


def test_the_memory_limit_is_kept_and_said():
    """Bounded is not holds: the message says what was covered and how to go on."""
    found = engine.search(CUT, FAILURES, memory_limit=100_000)
    assert (found.verdict, found.complete) == ("bounded", False)
    assert 1000 < found.states < PINNED.states
    assert "memory limit of 0 MiB" in found.why
    assert f"all of depth {found.depth} seen" in found.why
    assert set(found.properties.values()) == {"bounded"}


def test_resuming_gives_what_an_uninterrupted_search_gives(own_searches):
    """Counts, premises and actions taken, as if it had never stopped; then nothing is left to resume."""
    stopped = engine.search(CUT, FAILURES, memory_limit=100_000)
    assert list(own_searches.iterdir())
    resumed = engine.search(CUT, FAILURES, resume=True)
    assert reported(resumed) == reported(reference_engine.search(CUT.model(FAILURES)))
    assert resumed.seconds > stopped.seconds
    assert not list(own_searches.iterdir())


def test_an_interruption_is_put_aside_and_resumed(own_searches):
    """Ctrl-C ends with what was covered; a violation found after resuming is the same one."""

    def interrupt(progress: Progress) -> None:
        if progress.depth == 3:
            raise KeyboardInterrupt

    machine = counters()

    @machine.always(witness=lambda s: s.value[0] > 0)
    def not_all_at_three(s):
        """The counters are not all at three."""
        return (s.value[0] != 3) | (s.value[1] != 3) | (s.value[2] != 3)

    functions = interpreted(engine.prepared(machine, Size(5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "REPORT_EVERY", -1.0)
        stopped = engine.search(machine, Size(5), functions=functions, on_progress=interrupt)
    assert (stopped.verdict, stopped.why) == ("bounded", "interrupted, all of depth 3 seen")
    resumed = engine.search(machine, Size(5), functions=functions, resume=True)
    assert reported(resumed) == reported(reference_engine.search(machine.model(Size(5))))
    assert resumed.violation is not None
    assert resumed.violation.length == 9


def test_a_search_of_another_text_is_not_resumed(own_searches):
    """A changed machine, scope, variant or choice of properties starts anew."""
    engine.search(CUT, FAILURES, memory_limit=100_000)
    other = engine.search(CUT, FAILURES, properties=["none_lost"], resume=True)
    assert other.states == PINNED.states
    assert len(list(own_searches.iterdir())) == 1


def test_a_damaged_search_is_refused(own_searches):
    """Half of the states would make the count silently wrong."""
    engine.search(CUT, FAILURES, memory_limit=100_000)
    (directory,) = own_searches.iterdir()
    description = json.loads((directory / "search.json").read_text("utf-8"))
    (directory / "search.json").write_text(json.dumps({**description, "count": description["count"] + 1}), "utf-8")
    with pytest.raises(ValueError, match="damaged"):
        engine.search(CUT, FAILURES, resume=True)


def test_a_value_outside_its_range_is_the_fault_that_the_reference_reports():
    """Packed into its bits it would silently become another value, or change its neighbour."""
    with pytest.raises(ModelFault, match=r"increment sets value to .*\(6, 0, 0\), outside \[0, 5\]"):
        interpreted_search(counters(step=2), Size(5))


def test_a_computed_index_outside_its_vector_is_a_fault():
    """The reference engine raises where it reads; so does this one."""
    machine = counters()
    machine.variable("place", 0, 5, "a place")

    @machine.system(who="walker")
    def walk(s):
        """On, and beyond the last."""
        return s.place < 5, {"place": s.place + 1, "value": put(s.value, 0, s.value.at(s.place))}

    with pytest.raises(IndexError, match="index 3 outside"):
        interpreted_search(machine, Size(1))


def test_code_that_says_something_else_than_the_text_is_caught():
    """A violation is reported only if the reference model, taken along the same path, confirms it."""
    functions = interpreted(engine.prepared(counters(), Size(3)))
    functions.broken = lambda states, first, last, wanted: first if last > first else -1
    with pytest.raises(EnginesDisagree, match="finds nothing broken"):
        engine.search(counters(), Size(3), functions=functions)


def test_states_above_the_limit_end_the_search():
    """As in the reference engine, though it looks at the number after each block only."""
    found = interpreted_search(counters(), Size(19), max_states=500)
    assert (found.verdict, found.complete) == ("bounded", False)
    assert 500 < found.states < 20**3


def test_the_default_limit_is_a_share_of_the_machine():
    """A search never takes the memory of everything else."""
    assert 2**28 < storage.default_limit() < 2**50


def test_the_command_line_says_how_far_it_came(tmp_path, capsys):
    """Exit status 3, the reason, and going on with --resume to the end."""
    command = ["check", "--machine", "cut", "--scope", "failures", "--engine", "compiled", "--output", str(tmp_path)]
    assert main([*command, "--memory", "100K"]) == 3
    assert "stopped at the memory limit" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--resume"]) == 3  # the premises of other scopes never occur in this one
    assert "6,612" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "much"], "'much' is no amount of memory"),
        (["--engine", "reference", "--resume"], "--resume, --memory and --workers are for the other engines"),
        (["--workers", "0"], "'0' is no number of threads"),
        (["--workers", "many"], "'many' is no number of threads"),
    ],
)
def test_wrong_use_is_one_clear_line(arguments, message, capsys):
    """No traceback, exit status 2."""
    assert main(["check", "--machine", "barrier", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_numba_the_compiled_engine_says_what_to_install(monkeypatch, capsys):
    """The reference engine needs nothing and is there in any case."""
    monkeypatch.setattr("spec.engines.choice.numba_is_there", lambda: False)
    assert main(["check", "--machine", "barrier", "--scope", "one_round", "--engine", "compiled"]) == 2
    assert "pip install 'cleancut[compiled]'" in capsys.readouterr().err
