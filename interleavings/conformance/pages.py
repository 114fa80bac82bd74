"""Pages of traces that a machine of `spec` has a say in: its counterexamples, and schedules of the scenarios.

The steps are walked again on the machine, so the page shows how every prompt stands after each. A trace that the
machine does not allow any more still gets its page, from what the file says, with a note.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from spec.command.counterexample import TraceStale, changes
from spec.language.machine import Machine
from spec.language.model import Model
from spec.machines.catalogue import UnknownName, machine_named

from ..correspondence.follower import Coverage
from ..correspondence.refinement import Prompts
from ..errors import TraceUnreadable, Violation
from ..replaying import replay
from ..report.explaining import page_of, step_of
from ..report.page import Page, PageStep, html_of
from ..runtime.subject import Subject
from ..runtime.trace import Trace
from .source_lines import source_lines
from .spec_trace import SpecTrace
from .standings import band_in, image_in, standing_in

#: What a state says of things that nobody looks at once a save is over.
_IMAGE = "image_"
_KEY = re.compile(r"key \(([0-9]{1,9}), ([0-9]{1,9})\)")


# -- counterexamples of a machine


def explain_machine(document: Any, origin: str) -> str:
    """The page of a counterexample of `python -m spec`. Raises `TraceUnreadable`."""
    trace = SpecTrace.from_document(document, origin)
    try:
        machine = machine_named(trace.machine)
    except UnknownName as fault:
        raise TraceUnreadable(f"{origin}: {fault}") from None
    notes: list[str] = []
    walked: list[Any] = []
    model: Model | None = None
    try:
        model, walked = trace.walked()
    except TraceStale as fault:
        notes = [f"This trace does not fit the machine any more, so owners are not shown: {fault}"]
    steps = _steps_of_file(document, trace) if not walked or model is None else _steps_walked(model, trace, walked)
    concerned = [str(line) for line in document.get("concerned", ())]
    return html_of(
        Page(
            title=f"{' + '.join(trace.variants) or trace.machine}: {trace.property}",
            subtitle=f"A shortest counterexample of the state machine {trace.machine}, scope {trace.scope}",
            broken=trace.property,
            sentence=trace.sentence,
            concerned=concerned,
            facts=[*_facts(machine, trace), ("steps", str(len(trace.steps)))],
            steps=steps,
            start=standing_in(trace.machine, walked[0], _concerned(machine, document)) if walked else (),
            notes=notes,
        )
    )


def _facts(machine: Machine, trace: SpecTrace) -> list[tuple[str, str]]:
    facts = [("machine", trace.machine), ("scope", trace.scope)]
    for name in trace.variants:
        variant = machine.variants.get(name)
        facts.append(("variant", f"{name}: {variant.sentence}" if variant else name))
    bounds = ", ".join(f"{name} {value}" for name, value in trace.bounds.items() if value)
    return [*facts, ("bounds", bounds)]


def _concerned(machine: Machine, document: Any) -> frozenset[int]:
    """The indexes at which the property fails, if it is about the things that the page shows."""
    known = machine.properties.get(str(document.get("property")))
    shown = {"cut": "prompts", "combined": "prompts", "barrier": "all_writers", "store": "attempts_made"}
    if known is None or known.each != shown.get(machine.name):
        return frozenset()
    return frozenset(index for index in document.get("indexes", ()) if isinstance(index, int))


def _steps_walked(model: Model, trace: SpecTrace, states: Sequence[Any]) -> list[PageStep]:
    concerned = _concerned(model.machine, {"property": trace.property, "indexes": trace.indexes})
    claims = model.machine.properties.get(trace.property)
    about_to = {claim.at for claim in claims.claims} if claims else set()
    steps = []
    for number, (action, index, who) in enumerate(trace.steps):
        before, after = states[number], states[number + 1]
        # What is published stands in the state before: the step that breaks a claim about it is the last one.
        last = number == len(trace.steps) - 1 and action in about_to
        known = model.machine.actions[action]
        steps.append(
            PageStep(
                lane=_lane(model, action, who),
                title=action if index is None else f"{action} {index}",
                meaning=known.meaning,
                changed=tuple(_changed(model, before, after)),
                standing=standing_in(trace.machine, after, concerned),
                image=image_in(trace.machine, before if last else after, concerned),
                band=band_in(trace.machine, after),
            )
        )
    return steps


def _lane(model: Model, action: str, who: str) -> str:
    """The actor: one that also acts for nothing in particular is the same whatever it acts for."""
    taker = model.machine.actions[action].who
    one = any(other.who == taker and other.each is None for other in model.machine.actions.values())
    return taker if one else who


def _changed(model: Model, before: Any, after: Any) -> list[str]:
    """What a step moved; an image that is let go with its save is not news."""
    phrases = changes(model, before, after)
    let_go = getattr(before, "window", 0) > getattr(after, "window", 0) == 0
    return [phrase for phrase in phrases if not (let_go and phrase.startswith(_IMAGE))]


def _steps_of_file(document: Any, trace: SpecTrace) -> list[PageStep]:
    recorded = [step.get("changed") for step in document["steps"]]
    return [
        PageStep(
            lane=who,
            title=action if index is None else f"{action} {index}",
            changed=tuple(str(phrase) for phrase in changed) if isinstance(changed, list) else (),
        )
        for (action, index, who), changed in zip(trace.steps, recorded, strict=True)
    ]


# -- schedules of the scenarios


def explain_schedule(trace: Trace) -> str:
    """The page of a schedule; of a scenario's, with what the machine that follows it says after every step."""
    source = source_lines(str(trace.program.get("reference", "")))
    steps = [step_of(step, source) for step in trace.steps]
    name = trace.program.get("scenario")
    more: dict[str, Any] = {}
    if isinstance(name, str):
        followed, more["notes"] = _follow(name, trace)
        if followed is not None:
            machine, seen = followed.model.machine.name, followed.states
            more["start"] = standing_in(machine, seen[0], followed.concerned)
            more["start_band"] = band_in(machine, seen[0])
            for number, after in enumerate(seen[1 : len(steps) + 1]):
                steps[number] = dataclasses.replace(
                    steps[number],
                    changed=tuple(_changed(followed.model, seen[number], after)),
                    standing=standing_in(machine, after, followed.concerned),
                    image=image_in(machine, after, followed.concerned),
                    band=band_in(machine, after),
                    actions=followed.actions[number + 1],
                    holds_cut="open_cut" in followed.actions[number + 1] and not band_in(machine, after),
                )
    return html_of(page_of(trace, steps, **more))


class _Noted(Coverage):
    """Counts as ever, and keeps the order in which the machine's actions were taken."""

    def __init__(self) -> None:
        super().__init__(actions=_InOrder())

    def take(self) -> tuple[str, ...]:
        """The actions since the last call."""
        assert isinstance(self.actions, _InOrder)
        taken, self.actions.order = tuple(self.actions.order), []
        return taken


class _InOrder(Counter[str]):
    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def __setitem__(self, action: str, count: int) -> None:
        super().__setitem__(action, count)
        self.order.append(action)


@dataclasses.dataclass(frozen=True)
class _Followed:
    """The machine's states along a schedule, and the prompts that the failure names."""

    model: Model
    states: list[Any]
    actions: list[tuple[str, ...]]
    concerned: frozenset[int]


def _follow(name: str, trace: Trace) -> tuple[_Followed | None, list[str]]:
    """The machine along the schedule, from a replay of it, or why there is none."""
    from ..scenarios import UnknownScenario, scenario_named

    try:
        scenario = scenario_named(name)
    except UnknownScenario as fault:
        return None, [f"{fault.args[0]}; so what the steps changed is not shown"]
    if scenario.machine is None:
        return None, ["No machine follows this scenario, so owners are not shown."]
    if not scenario.told:
        return None, ["This run tells no events, so the machine may be in several states, and owners are not shown."]
    seen: list[Any] = []
    runs: list[Any] = []
    coverage = _Noted()
    actions: list[tuple[str, ...]] = []

    def program() -> Subject:
        subject = scenario.program_of(coverage)
        observe = subject.observe
        assert observe is not None
        runs.append(getattr(observe, "__self__", None))

        def noted() -> Hashable:
            try:
                state = observe()
            except Violation:
                # The machine followed this step; what is wrong is what the step left on the disk, or in memory.
                follower = getattr(runs[-1], "follower", runs[-1])
                seen.append(getattr(follower, "state", seen[-1]))
                raise
            else:
                seen.append(state)
            finally:
                actions.append(coverage.take())
            return state

        return dataclasses.replace(subject, observe=noted)

    result = replay(program, trace)
    notes = []
    if result.stale:
        notes = [f"The schedule is stale, so owners are shown only up to step {len(seen) - 1}: {result.describe()}"]
    elif result.outcome == "completed":
        notes = ["The program does not fail on this schedule any more: the steps are there, the failure is not."]
    model = scenario.machine.model(scenario.scope, scenario.variants)
    return _Followed(model, seen, actions, _named_prompts(trace, runs[-1])), notes


def _named_prompts(trace: Trace, run: Any) -> frozenset[int]:
    """The numbers of the keys that the failure's details name, as `key (0, 3)`."""
    prompts = getattr(run, "prompts", None)
    if not isinstance(prompts, Prompts):
        return frozenset()
    keys = [match for name in trace.failure.details if (match := _KEY.search(str(name)))]
    known = prompts.known()
    return frozenset(known[key] for m in keys if (key := (int(m[1]), int(m[2]))) in known)


def explain(document: Any, origin: str) -> str:
    """The page of a trace file of either kind. Raises `TraceUnreadable`."""
    if isinstance(document, dict) and document.get("format") == "cleancut-spec-trace":
        return explain_machine(document, origin)
    return explain_schedule(Trace.from_json(document, origin))
