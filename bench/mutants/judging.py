"""Records once what each scenario and test runs; then asks about a mutant those that run its line, cheapest first."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .asking import run_tests, scenario_names, search
from .children import Message, child
from .copies import Copy
from .groups import group_of
from .hits import Marks, Place, mark
from .operators import Mutant
from .results import Judged, Store, test_files

HANG = 20
"""What takes so many times as long as without the edit is taken for a hang."""
LEAST = 60.0
"""Seconds below which nothing is taken for one: this machine is shared."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Judge:
    """A scenario or a test: what it takes, and whether `make check` asks it."""

    name: str
    seconds: float
    quick: bool = False
    states: int = 0


class Judges:
    """Who runs which statement."""

    def __init__(self) -> None:
        self.scenarios: dict[Place, list[Judge]] = defaultdict(list)
        self.tests: dict[Place, list[Judge]] = defaultdict(list)
        self.seconds: dict[str, float] = {}
        self.recorded = 0
        self.missing: list[str] = []

    def limit(self, message: Message) -> float:
        """How long what begins may take."""
        seconds = self.seconds.get(message["what"])
        return 300.0 if seconds is None else max(LEAST, HANG * seconds)


class Recorder:
    """Runs every scenario and every file of tests once in a marked copy, and keeps what each ran."""

    def __init__(self, store: Store, place: Path, say: Say) -> None:
        self._store = store
        self._place = place
        self._say = say
        self._copy: Copy | None = None
        self._marks: Marks | None = None

    def record(self, until: float, only: Callable[[str], bool] = lambda name: True) -> None:
        """Record what is not known yet, up to a moment of `time.monotonic`."""
        for scenario in self.scenarios():
            name = scenario["name"]
            if self._store.ran(name, self._store.library) is None and only(name) and time.monotonic() < until:
                self._scenario(scenario)
        for file in test_files(self._store.root):
            unknown = self._store.ran(file, self._store.of_test_file(file)) is None
            if unknown and only(file) and time.monotonic() < until:
                self._tests(file)

    def scenarios(self) -> list[dict[str, Any]]:
        """Every scenario there is."""
        kept = self._store.ran("scenarios", self._store.library)
        if kept is None:
            found: list[Any] = []
            for message in self._child(lambda tell: tell({"kind": "names", "names": scenario_names()})):
                found += message.get("names", [])
            self._store.keep_ran("scenarios", self._store.library, names=found)
            return found
        return list(kept["names"])

    def _child(self, work: Any, seconds: float = 1800.0) -> Any:
        if self._copy is None or self._marks is None:
            self._copy = Copy(self._store.root, self._place / "marked")
            self._marks = mark(self._copy, self._place / "marks")
        log = self._store.directory / "recording.log"
        return child(self._copy.place, log, work, lambda message: seconds)

    def _taken(self) -> dict[str, list[int]]:
        assert self._marks is not None
        taken = self._marks.taken()
        self._marks.clear()
        return taken

    def _scenario(self, scenario: dict[str, Any]) -> None:
        name = scenario["name"]
        messages = list(self._child(lambda tell: self._cleared(search, [name], tell, False, self._taken)))
        for message in messages:
            if message["kind"] == "scenario":
                kept = {key: message[key] for key in ("verdict", "seconds", "ran")}
                self._store.keep_ran(name, self._store.library, **kept, **scenario)
                self._say(f"recorded {name}: {message['verdict']}, {message['seconds']} s")

    def _tests(self, file: str) -> None:
        found: dict[str, Any] = {}
        for message in self._child(
            lambda tell: self._cleared(run_tests, [f"tests/{file}"], tell, False, self._taken), 300
        ):
            if message["kind"] == "test":
                found[message["what"]] = {key: message[key] for key in ("verdict", "seconds", "ran") if key in message}
            elif message["kind"] == "timeout":
                found[message["what"]] = {"verdict": "timeout", "seconds": 300.0, "ran": {}}
        self._store.keep_ran(file, self._store.of_test_file(file), tests=found)
        bad = sum(test["verdict"] not in ("passed", "skipped") for test in found.values())
        seconds = sum(test["seconds"] for test in found.values())
        self._say(f"recorded {file}: {len(found)} tests, {seconds:.1f} s" + (f", {bad} not usable here" if bad else ""))

    def _cleared(self, work: Any, *arguments: Any) -> None:
        assert self._marks is not None
        self._marks.clear()
        work(*arguments)

    def judges(self, states: int) -> Judges:
        """Who runs what, of all that is recorded; scenarios with more states than `states` are left out."""
        known = Judges()
        for scenario in self.scenarios():
            kept = self._store.ran(scenario["name"], self._store.library)
            if kept is None or kept["verdict"] not in ("holds", "counts"):
                known.missing.append(scenario["name"])
                continue
            known.recorded += 1
            known.seconds[scenario["name"]] = kept["seconds"]
            if scenario["states"] > states:
                continue
            judge = Judge(scenario["name"], kept["seconds"], scenario["quick"], scenario["states"])
            for place in _places(kept):
                known.scenarios[place].append(judge)
        for file in test_files(self._store.root):
            kept = self._store.ran(file, self._store.of_test_file(file))
            if kept is None:
                known.missing.append(file)
                continue
            known.recorded += 1
            for name, test in kept["tests"].items():
                if test["verdict"] == "passed":
                    known.seconds[name] = test["seconds"]
                    judge = Judge(name, test["seconds"])
                    for place in _places(test):
                        known.tests[place].append(judge)
        return known


def _places(recorded: dict[str, Any]) -> set[Place]:
    return {(path, line) for path, lines in recorded["ran"].items() for line in lines}


def _by_seconds(judge: Judge) -> float:
    return judge.seconds


class Court:
    """Judges mutants in a copy of their own."""

    def __init__(self, store: Store, place: Path, judges: Judges, each: float) -> None:
        self._store = store
        self._judges = judges
        self._each = each
        self._copy = Copy(store.root, place / "edited")
        self._texts: dict[str, str] = {}

    def judge(self, mutant: Mutant, known: Judged | None) -> Judged:
        """Ask until somebody notices: the quick scenarios, the others, the tests; the cheapest first.

        Whoever is known to have let the edit pass is not asked again.
        """
        judged = known or Judged(mutant.key, group_of(mutant.path) or "", mutant.operator, mutant.refusal)
        if judged.noticed:
            return judged
        place, passed = (mutant.path, mutant.line), set(judged.asked)
        scenarios = [judge for judge in self._judges.scenarios[place] if judge.name not in passed]
        tests = [judge for judge in self._judges.tests[place] if judge.name not in passed]
        if not scenarios and not tests:
            return judged
        judged.not_asked = []
        started = time.monotonic()
        text = (self._store.root / mutant.path).read_text(encoding="utf-8")
        with self._copy.edited(mutant.path, mutant.applied_to(text)):
            quick = [judge for judge in scenarios if judge.quick]
            rest = self._in_time(judged, [judge for judge in scenarios if not judge.quick])
            self._ask(judged, [*sorted(quick, key=_by_seconds), *rest], search)
            if not judged.noticed:
                self._ask(judged, self._in_time(judged, tests), run_tests)
        judged.seconds = round(judged.seconds + time.monotonic() - started, 1)
        return judged

    def _in_time(self, judged: Judged, judges: list[Judge]) -> list[Judge]:
        """The cheapest ones that there is time for, in that order."""
        chosen: list[Judge] = []
        spent = 0.0
        for judge in sorted(judges, key=_by_seconds):
            spent += judge.seconds
            if spent <= self._each:
                chosen.append(judge)
            else:
                judged.not_asked.append(judge.name)
        return chosen

    def _ask(self, judged: Judged, judges: list[Judge], work: Callable[..., None]) -> None:
        """Ask some one after the other, in one process as long as nobody notices."""
        waiting = {judge.name: judge for judge in judges}
        while waiting and not judged.noticed:
            names = list(waiting)
            for message in self._child(lambda tell, names=names: work(names, tell, True)):
                kind, what = message["kind"], message["what"]
                if kind in ("scenario", "test"):
                    self._heard(judged, message, waiting.pop(what, None))
                elif kind == "timeout":
                    judged.timeout, judged.why = what, "hangs"
                    waiting = {}
                elif kind == "not found":
                    judged.not_asked += waiting
                    waiting = {}
                elif kind == "end":
                    # Nothing is left unsaid by a process that lives to its end.
                    if waiting and not judged.noticed:
                        first = waiting.get(what) or next(iter(waiting.values()))
                        self._noticed(judged, first, "the process ended before it could say")
                    waiting = {}

    def _heard(self, judged: Judged, message: Message, judge: Judge | None) -> None:
        verdict = message["verdict"]
        judge = judge or Judge(message["what"], 0.0)
        if verdict in ("fails", "error", "failed"):
            self._noticed(judged, judge, message["why"])
            return
        judged.asked.append(judge.name)
        if verdict in ("counts", "inconclusive"):
            judged.counted = judged.counted or f"{judge.name}: {message['why'] or verdict}"
            judged.check = judged.check or (judge.name if judge.quick else "")

    @staticmethod
    def _noticed(judged: Judged, judge: Judge, why: str) -> None:
        judged.why = why
        if "::" in judge.name or judge.name.endswith(".py"):
            judged.test = judge.name
            return
        judged.scenario = judge.name
        judged.check = judged.check or (judge.name if judge.quick else "")

    def _child(self, work: Any) -> Any:
        log = self._store.directory / "judging.log"
        return child(self._copy.place, log, work, self._judges.limit)
