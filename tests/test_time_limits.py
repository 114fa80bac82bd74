"""Every limit in seconds in the tests is long enough for a busy machine, or stands here with the reason why not.

A limit below `HANG_SECONDS` whose passing fails a test decides that test on a slow machine. What is listed is no such
limit: it is on a clock that jumps, or it is the subject of the test and is to pass, or nobody waits under it.
"""

from __future__ import annotations

import ast
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loop_turns import HANG_SECONDS
from progress import output_while_it_moves

TESTS = Path(__file__).parent
#: What takes a limit as its last positional argument. `join` and `result` also take other things, which are no numbers.
WAITS = frozenset({
    "wait_for", "fail_after", "move_on_after", "timeout", "timeout_at", "wait", "join", "result", "communicate",
})  # fmt: skip
KEYWORDS = frozenset({"timeout", "seconds", "at_most", "patience", "max_seconds"})
CLOCKS = frozenset({"monotonic", "perf_counter", "time", "process_time"})

EXPLORED = "on the clock of the explorer, which moves only when nothing else can run"
VIRTUAL = "on a clock that jumps, or of the simulation of a host"
TO_PASS = "it is to pass, and a slower machine passes it too"
NO_WAIT = "nothing is waited for under it: it is a value that is looked at or refused"
MANY_TIMES = "a thousand times what those attempts take that are to end under it, and one that does not is tried again"
OTHER = "no seconds: steps, milliseconds of the solver that are to pass, or a parameter of somebody else"

#: Calls with a shorter limit, by file and name of the argument, with the reason.
KNOWN = {
    ("explorer_more_programs.py", "wait_for"): EXPLORED,
    ("explorer_more_programs.py", "timeout"): EXPLORED,
    ("explorer_programs.py", "timeout"): EXPLORED,
    ("explorer_wild_scripts.py", "wait_for"): EXPLORED,
    ("explorer_wild_scripts.py", "timeout"): EXPLORED,
    ("test_explorer_asyncio_faults.py", "wait_for"): EXPLORED,
    ("test_explorer_kept_things.py", "timeout"): EXPLORED,
    ("test_explorer_replay.py", "timeout"): EXPLORED,
    ("test_explorer_time.py", "wait_for"): EXPLORED,
    ("test_explorer_time.py", "timeout"): EXPLORED,
    ("explorer_scripts.py", "timeout"): EXPLORED,
    ("test_explorer_time.py", "deadline"): EXPLORED,
    ("lease_hosts.py", "guard_timeout"): VIRTUAL,
    ("test_leases_host.py", "drain_timeout"): VIRTUAL,
    ("test_ray_sections.py", "patience"): VIRTUAL,
    ("test_barrier_drain.py", "drain_timeout"): VIRTUAL,
    ("test_barrier_drain.py", "timeout"): VIRTUAL,
    ("test_barrier_trio.py", "drain_timeout"): VIRTUAL,
    ("test_barrier_trio.py", "move_on_after"): VIRTUAL,
    ("test_controller_failed_saves.py", "drain_timeout"): VIRTUAL,
    ("test_controller_failures.py", "attempt_timeout"): VIRTUAL,
    ("test_controller_samplers.py", "stall_timeout"): VIRTUAL,
    ("test_controller_saves.py", "stall_timeout"): VIRTUAL,
    ("test_controller_stall.py", "stall_timeout"): VIRTUAL,
    ("test_samplers_hang.py", "attempt_timeout"): VIRTUAL,
    ("test_array_cuda.py", "seconds"): TO_PASS,
    ("test_barrier_events.py", "timeout"): TO_PASS,
    ("test_barrier_loops.py", "drain_timeout"): TO_PASS,
    ("test_barrier_reentry.py", "drain_timeout"): TO_PASS,
    ("test_checkpointer_failures.py", "drain_timeout"): TO_PASS,
    ("test_controller_stall.py", "drain_timeout"): TO_PASS,
    ("test_controller_threads.py", "stall_timeout"): TO_PASS,
    ("test_explorer_preemptions.py", "max_seconds"): TO_PASS,
    ("test_explorer_verdicts.py", "max_seconds"): TO_PASS,
    ("test_explorer_workers.py", "max_seconds"): TO_PASS,
    ("test_nemo_barrier.py", "drain_timeout"): TO_PASS,
    ("test_prometheus.py", "patience"): TO_PASS,
    ("test_ray_barrier.py", "patience"): TO_PASS,
    ("test_ray_barrier.py", "timeout"): TO_PASS,
    ("test_search_on_ray.py", "max_seconds"): TO_PASS,
    ("test_controller_threads.py", "attempt_timeout"): MANY_TIMES,
    ("typed_user.py", "drain_timeout"): NO_WAIT,
    ("test_explorer_forbidden.py", "compared"): NO_WAIT,
    ("test_ray_barrier.py", "deadline"): NO_WAIT,
    ("test_explorer_deadlock.py", "patience"): OTHER,
    ("test_checkpointer_trainer.py", "patience"): OTHER,
    ("test_proofs_bounded.py", "timeout"): OTHER,
    ("test_proofs_inductions.py", "timeout"): OTHER,
}


def limits(tree: ast.Module) -> Iterator[tuple[str, float, int]]:
    """Each number below HANG_SECONDS that limits a wait: the name of the argument or the call, the number, the line.

    A number may be written, or be the constant of a module.
    """
    named = {
        target.id: node.value
        for node in tree.body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip

    def number(node: ast.expr) -> float | None:
        if isinstance(node, ast.Name) and node.id in named:
            node = named[node.id]
        if isinstance(node, ast.BinOp):
            parts = [number(node.left), number(node.right)]
            return max((part for part in parts if part is not None), default=None)
        plain = isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value is not True
        return float(node.value) if plain else None  # type: ignore[attr-defined]

    for node in ast.walk(tree):
        if not isinstance(node, ast.expr):
            continue
        given: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given += [(each.arg, each.value) for each in node.keywords if each.arg and limits_by(each.arg)]
            given += [(called, argument) for argument in node.args[-1:] if called in WAITS]
        elif isinstance(node, ast.Compare) and asks_a_clock(node):
            given += [("compared", each) for each in node.comparators]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and asks_a_clock(node.left):
            given.append(("deadline", node.right))
        for name, argument in given:
            value = number(argument)
            if value is not None and value < HANG_SECONDS:
                yield name, value, node.lineno


def limits_by(keyword: str) -> bool:
    return keyword in KEYWORDS or keyword.endswith("_timeout")


def asks_a_clock(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in CLOCKS for each in ast.walk(node))


def short_limits() -> dict[tuple[str, str], list[str]]:
    """Those of all files of the tests, by file and argument."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(TESTS.glob("*.py")):
        for name, value, line in limits(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault((path.name, name), []).append(f"{path.name}:{line}: {name} {value:g}")
    return found


def test_case_G35_every_limit_below_that_of_a_hang_stands_here_with_its_reason() -> None:
    """A search by lines missed what stands in `asyncio.timeout`, in a keyword on its own line, or in a constant."""
    found = short_limits()
    assert [said for key, lines in found.items() if key not in KNOWN for said in lines] == []
    assert [key for key in KNOWN if key not in found] == [], "listed, and there is none any more"


@pytest.mark.parametrize(
    ("source", "noticed"),
    [
        ("process.communicate(timeout=60)", True),
        ("subprocess.run(command,\n    timeout=\n        260)", True),
        ("async def f():\n    async with asyncio.timeout(5): pass", True),
        ("await_ = asyncio.wait_for(task, 30.0)", True),
        ("LIMIT = 20\nready.wait(LIMIT)", True),
        ("LEASE, SLACK = 2, 2\nassert time.monotonic() - killed <= 4", True),
        ("limit = time.monotonic() + 20", True),
        ("CheckpointBarrier(drain_timeout=5)", True),
        ("trio.fail_after(1)", True),
        ("process.communicate(timeout=3000)", False),
        ("asyncio.wait_for(task, HANG_SECONDS)", False),
        ("limit = time.monotonic() + HANG_SECONDS", False),
        ("', '.join(['1'])", False),
        ("assert began < time.monotonic()", False),
    ],
)
def test_case_G35_a_short_limit_is_noticed_however_it_is_written(source: str, noticed: bool) -> None:
    """Who checks the check."""
    assert bool(list(limits(ast.parse(source)))) == noticed


def child(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_case_G35_a_process_that_goes_on_saying_something_may_take_as_long_as_it_likes() -> None:
    """Each line has the whole time: one limit for all of them kills a suite for its length on a slow machine."""
    limits_asked: list[float] = []

    def get(lines: queue.Queue[str | None], silent: float) -> str | None:
        limits_asked.append(silent)
        return lines.get(timeout=silent)

    counting = child("for i in range(5): print(i, flush=True)")
    assert output_while_it_moves(counting, HANG_SECONDS, get).split() == ["0", "1", "2", "3", "4"]
    assert limits_asked == [HANG_SECONDS] * 6


def test_case_G35_a_process_that_says_nothing_more_is_killed_and_its_last_lines_are_told() -> None:
    """It waits for ever; what it said before shows where. The silence is to pass, however slow the machine."""
    hanging = child("import threading; print('test_x', flush=True); threading.Event().wait()")
    first_comes = True

    def get(lines: queue.Queue[str | None], silent: float) -> str | None:
        nonlocal first_comes
        limit, first_comes = (HANG_SECONDS if first_comes else silent), False
        return lines.get(timeout=limit)

    with pytest.raises(AssertionError, match=r"nothing for 0\.1 seconds after 1 lines(.|\n)*test_x"):
        output_while_it_moves(hanging, 0.1, get)
    assert hanging.wait(HANG_SECONDS) < 0
