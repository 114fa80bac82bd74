"""The page of a trace: what it shows of both kinds, that names are only text in it, and that it needs nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from impl import Ledger
from interleavings.command_line import main
from interleavings.conformance import explain
from interleavings.correspondence import Coverage
from interleavings.correspondence.refinement import DURABLE_LATER
from interleavings.errors import TraceUnreadable
from interleavings.exploring import explore
from interleavings.report import Page, PageStep, Standing, html_of
from interleavings.runtime import KINDS, Failure, Step, Trace
from interleavings.scenarios import CONTROLS, SCENARIOS
from spec.command import check_variant
from spec.machines import all_variants

HOSTILE = """</title></style><script>alert("1")</script><img src=x onerror='alert(2)'>&amp;"' \u202e"""


class Shape(HTMLParser):
    """The tags of a page with their attributes, and the text of each list of chips."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "wbr", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.open)

    def count(self, tag: str, class_: str = "") -> int:
        """Elements of a kind."""
        classes = [(attributes.get("class") or "").split(" ") for name, attributes in self.tags if name == tag]
        return sum(not class_ or class_ in named for named in classes)


def document_of(name: str, tmp_path: Path) -> dict[str, Any]:
    """The trace of a variant, as `python -m spec variants` writes it."""
    machine, variant = next((m, v) for m, v in all_variants() if v.name == name)
    path = check_variant(machine, variant, tmp_path).counterexample
    assert path is not None
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


async def lost_update() -> None:
    """A program of a user, with a task of a hostile name."""
    import asyncio

    value = 0

    async def add() -> None:
        nonlocal value
        seen = value
        await asyncio.sleep(0)
        value = seen + 1

    tasks = [asyncio.get_running_loop().create_task(add(), name=f"{HOSTILE}{i}") for i in range(2)]
    for task in tasks:
        await task
    assert value == 2, HOSTILE


# -- counterexamples of a machine


def test_a_counterexample_shows_lanes_owners_the_cut_and_what_is_broken(tmp_path: Path) -> None:
    """`cursor_ahead`: the loader's cursor is saved without the ledger, so the image leaves a prompt to nobody."""
    document = document_of("cursor_ahead", tmp_path)
    text = explain(document, "trace")
    shape = Shape(text)
    assert shape.count("li", "step") == len(document["steps"]) + 1, "every step, and the beginning"
    assert shape.count("li", "broken") == 1
    assert "prompt 0</b> no owner" in text, "in the image that is published"
    assert shape.count("li", "concerned") >= len(document["steps"]), "the prompt is marked at every step"
    assert shape.count("li", "band-open") >= 7, "open_cut, six reads"
    assert document["sentence"] in text
    for step in document["steps"]:
        assert step["action"] in text.replace("<wbr>", "")
    assert "what it does" not in text


def test_an_actor_has_one_lane_whatever_it_acts_for(tmp_path: Path) -> None:
    """The rollout pump dispatches prompt after prompt; each generation is a task of its own."""
    text = explain(document_of("skewed_cut", tmp_path), "trace")
    lanes = re.findall(r'class="head" title="([^"]+)"', text)
    assert lanes.count("rollout pump") == 1
    assert not any(re.match(r"rollout pump \d", lane) for lane in lanes)


def test_prompts_of_which_nothing_is_to_be_told_are_told_in_one(tmp_path: Path) -> None:
    """Eight prompts would bury the one that moves; those at which the property fails are never among them."""
    text = explain(document_of("fifo_bare_minimum", tmp_path), "trace")
    assert "<b>prompts 2 to 7</b> unread" in text
    assert "<b>prompt 0</b> ledger, RESERVED" in text


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("fifo_bare_minimum", "at the end nothing is possible any more"),
        ("gate_ignores_drops", "possible at the end: request_cut, and none of it brings the run nearer to its end"),
    ],
)
def test_a_run_that_is_stuck_says_what_is_left(tmp_path: Path, variant: str, said: str) -> None:
    """The sentence alone would leave a reader to look for what is missing."""
    assert said in explain(document_of(variant, tmp_path), "trace")


@pytest.mark.slow
def test_the_counterexample_of_every_variant_has_a_whole_page(tmp_path: Path) -> None:
    """Four machines, well-formed each, with owners, and no note that something does not fit."""
    for machine, variant in all_variants():
        text = explain(document_of(variant.name, tmp_path), "trace")
        shape = Shape(text)
        assert shape.open == [], variant.name
        assert shape.count("li", "step") >= variant.length, variant.name
        assert 'class="note"' not in text, variant.name
        assert shape.count("div", "standing") >= 1, (machine.name, variant.name)


def test_a_trace_that_the_machine_no_longer_allows_is_shown_with_a_note(tmp_path: Path) -> None:
    """What the file says stands there, who and what changed; owners would be invented."""
    document = document_of("cursor_ahead", tmp_path)
    document["steps"][2]["action"] = "no_such_action"
    text = explain(document, "trace")
    assert "does not fit the machine any more" in text
    assert "no_<wbr>such_<wbr>action" in text
    assert 'class="standing' not in text
    assert document["steps"][0]["changed"][0].split()[0] in text


@pytest.mark.parametrize(
    "damage",
    [{"machine": "nothing"}, {"steps": [{"action": 3}]}, {"bounds": None}, {"version": 2}, {"format": "other"}],
)
def test_a_document_that_is_no_trace_is_refused_in_one_line(tmp_path: Path, damage: dict[str, Any]) -> None:
    """Each by name of the file."""
    with pytest.raises(TraceUnreadable, match=r"\Atrace: [^\n]+\Z"):
        explain({**document_of("cursor_ahead", tmp_path), **damage}, "trace")


# -- schedules


def test_a_schedule_of_a_users_program_has_a_lane_for_each_task() -> None:
    """Tasks, source lines and the failure; nothing is run again."""
    result = explore(lost_update)
    assert result.counterexample is not None
    text = explain(result.counterexample.to_json(), "trace")
    shape = Shape(text)
    assert shape.open == []
    assert shape.count("li", "step") == len(result.counterexample.steps)
    assert "test_explaining.py" in text
    assert "<pre>await asyncio.sleep(0)</pre>" in text, "the text of a line, of a file that is not ours"
    assert "<code>AssertionError</code> is raised" in text


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("exception", "KeyError", "is raised"),
        ("deadlock", "deadlock", "happens"),
        ("forbidden-call", "time.time", "happens"),
        ("violation", "one_owner_on_disk", "is violated"),
        ("invariant", "money_is_conserved", "is violated"),
    ],
)
def test_a_crash_is_a_step_and_the_head_says_what_kind_of_failure_it_is(kind: str, name: str, says: str) -> None:
    """Every kind of step and of failure has its words; a crash belongs to no task."""
    trace = Trace({}, tuple(Step(kind, "") for kind in KINDS), Failure(kind, name, "m"))
    text = explain(trace.to_json(), "trace")
    assert 'title="environment"' in text
    assert f"{name}</code> {says}" in text.replace("<wbr>", "")


def test_a_schedule_of_a_scenario_shows_the_machine_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of the real library without what was trained: the prompt is marked, and the step of the cut."""
    trace = fifo_trace_of("commit")
    text = explain(trace.to_json(), "trace")
    assert "does not fail on this schedule any more" in text, "the library saves its ledger"
    snapshot = Ledger.snapshot

    def forgetful(ledger: Ledger, cut: Any, owned: Any) -> Any:
        whole = snapshot(ledger, cut, owned)
        return dataclasses.replace(whole, accounts=dataclasses.replace(whole.accounts, bits={}))

    monkeypatch.setattr(Ledger, "snapshot", forgetful)
    broken = explain(trace.to_json(), "trace")
    assert "does not fail" not in broken
    assert "cut opened and closed in this step" in broken
    assert Shape(broken).count("li", "concerned") > 0
    assert "read_<wbr>ledger" in broken
    assert "generates, step 0" in broken


@pytest.mark.parametrize("name", [*SCENARIOS, *CONTROLS])
def test_every_scenario_is_explained_by_the_machine_that_follows_it(name: str) -> None:
    """A control is followed by a variant of its machine, whose state has more in it."""
    trace = fifo_trace_of(name, longest=25)
    text = explain(trace.to_json(), "trace")
    scenario = {**SCENARIOS, **CONTROLS}[name]
    start = scenario.machine is not None and scenario.told  # what a machine says of the time before the first step
    assert Shape(text).count("li", "step") == len(trace.steps) + start


def fifo_trace_of(name: str, longest: int | None = None) -> Trace:
    """The steps of a scenario in FIFO order, with the failure that a faulty save would be.

    To its first publication, or, where that is given, so many steps and not beyond its end.
    """
    from interleavings.report import describe_choice
    from interleavings.runtime import Fence, Rules
    from interleavings.search import Setting, look, paused_collection

    scenario = {**SCENARIOS, **CONTROLS}[name]
    coverage = Coverage()
    steps: list[Step] = []
    with Fence(()) as fence, paused_collection():
        rules = Rules(cancels=0, crashes=scenario.crashes, timers=scenario.timers)
        setting = Setting(scenario.program(coverage), rules, fence, None, None)
        with setting.start() as run:
            _, options = look(run)
            while (coverage.stutters[DURABLE_LATER] == 0) if longest is None else (options and len(steps) < longest):
                key, target = next(iter(options.items()))
                steps.append(describe_choice(run, key, target))
                run.step(target)
                _, options = look(run)
    failure = Failure("violation", "one_owner_on_disk", "a key has no owner", {"key (0, 1)": ["nobody"]})
    budgets = {"cancels": 0, "crashes": scenario.crashes, "timers": scenario.timers}
    return Trace({"scenario": name}, tuple(steps), failure, budgets)


def test_a_stale_schedule_says_where_and_shows_owners_up_to_there() -> None:
    """A step that is not enabled any more; the page still has every step of the file."""
    trace = fifo_trace_of("commit")
    steps = list(trace.steps)
    steps[4] = dataclasses.replace(steps[4], kind="task-step", task="nobody")
    text = explain(dataclasses.replace(trace, steps=tuple(steps)).to_json(), "trace")
    assert "stale at step 5" in text
    assert Shape(text).count("li", "step") == len(steps) + 1


def test_a_scenario_that_is_gone_is_said() -> None:
    """The schedule is shown without it."""
    trace = dataclasses.replace(fifo_trace_of("commit"), program={"scenario": HOSTILE})
    text = explain(trace.to_json(), "trace")
    assert "no scenario" in text
    assert_hostile_is_text(text)


# -- escaping, and needing nothing else


def assert_hostile_is_text(text: str) -> None:
    """No tag, attribute or handler of the hostile name exists as such."""
    shape = Shape(text)
    assert shape.open == []
    assert [tag for tag, _ in shape.tags].count("script") == 1
    assert not any(tag == "img" for tag, _ in shape.tags)
    assert not any(name.startswith("on") for _, attributes in shape.tags for name in attributes)
    assert "&lt;script&gt;" in text


def test_every_text_of_a_schedule_may_be_hostile() -> None:
    """Task, line, callback, message, details, program and Python version come out of a file that anybody may write."""
    result = explore(lost_update)
    assert result.counterexample is not None
    document = result.counterexample.to_json()
    assert_hostile_is_text(explain(document, "trace"))
    for step in document["steps"]:
        step.update(what=HOSTILE, where=f"{HOSTILE}.py:1 in {HOSTILE}")
    document["python"] = document["failure"]["property"] = HOSTILE
    document["failure"]["details"] = {HOSTILE: [{HOSTILE: HOSTILE}]}
    document["budgets"] = {HOSTILE: 1}
    assert_hostile_is_text(explain(document, "trace"))


def test_every_text_of_a_counterexample_may_be_hostile(tmp_path: Path) -> None:
    """Also where the machine still allows its steps."""
    document = document_of("cursor_ahead", tmp_path)
    document.update(scope=HOSTILE, sentence=HOSTILE, concerned=[HOSTILE])
    for step in document["steps"]:
        step["who"] = HOSTILE
    assert_hostile_is_text(explain(document, "trace"))
    document.update(property=HOSTILE, variants=[HOSTILE])
    document["steps"][0].update(action=HOSTILE, changed=[HOSTILE])
    assert_hostile_is_text(explain(document, "trace"))


def test_the_parts_of_a_page_are_escaped_by_the_page_itself() -> None:
    """Whoever builds one need not think of it."""
    chip = Standing(HOSTILE, HOSTILE, "ready", concerned=True)
    step = PageStep(
        HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), (chip,), (chip,), actions=(HOSTILE,), holds_cut=True
    )
    text = html_of(
        Page(
            HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), ((HOSTILE, HOSTILE),), (step, step), (chip,),
            notes=(HOSTILE,), details=((HOSTILE, (HOSTILE,)),),
        )
    )  # fmt: skip
    assert_hostile_is_text(text)


def test_a_page_asks_for_no_other_file(tmp_path: Path) -> None:
    """No link, import, font, image or address: it may be mailed, and read without a network."""
    text = explain(document_of("cursor_ahead", tmp_path), "trace")
    assert not re.search(r"(?:src|href)=\"(?!#)|url\(|@import|https?:|//[a-z]", text)


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of both kinds; a target that cannot be written is wrong use."""
    schedule, machine = tmp_path / "schedule.json", tmp_path / "machine.json"
    result = explore(lost_update)
    assert result.counterexample is not None
    result.counterexample.save(schedule)
    machine.write_text(json.dumps(document_of("cursor_ahead", tmp_path)), encoding="utf-8")
    for trace in (schedule, machine):
        page = tmp_path / f"{trace.stem}.html"
        assert main(["explain", str(trace), "-o", str(page)]) == 0
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["explain", str(machine), "-o", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot write" in capsys.readouterr().err
