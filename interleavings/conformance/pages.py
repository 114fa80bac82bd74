"""Pages of traces that a machine of `spec` has a say in: its counterexamples, and schedules of the scenarios.

The steps are walked again on the machine, so the page shows how every prompt stands after each. A trace that the
machine does not allow any more still gets its page, from what the file says, with a note.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

from spec.catalogue import UnknownName, machine_named
from spec.counterexample import TraceStale, changes
from spec.counterexample import replay as walk
from spec.machine import Machine, ModelFault
from spec.model import Model

from ..errors import TraceUnreadable
from ..explaining import page_of, step_of
from ..page import Page, PageStep, html_of
from ..replaying import replay
from ..subject import Subject
from ..trace import Trace
from .source_lines import source_line
from .spec_trace import SpecTrace
from .standings import band_in, image_in, standing_in

#: What a state says of things that nobody looks at once a save is over.
_IMAGE = "image_"


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
        model = machine.model(_scope_of(machine, trace), trace.variants)
        walked = walk(model, [(action, index) for action, index, _ in trace.steps])
    except (TraceStale, ModelFault, TypeError, ValueError) as fault:
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


def _scope_of(machine: Machine, trace: SpecTrace) -> Any:
    from spec.scopes import FAMILIES

    kind = type(next(iter(FAMILIES["small"][machine.name].values()))[0])
    return kind(**trace.bounds)


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
    steps = [step_of(step, source_line) for step in trace.steps]
    name = trace.program.get("scenario")
    more: dict[str, Any] = {}
    if isinstance(name, str):
        states, more["notes"] = _followed(name, trace)
        if states:
            machine, model, seen = states
            more["start"] = standing_in(machine, seen[0], ())
            more["start_band"] = band_in(machine, seen[0])
            for number, after in enumerate(seen[1 : len(steps) + 1]):
                steps[number] = dataclasses.replace(
                    steps[number],
                    changed=tuple(_changed(model, seen[number], after)),
                    standing=standing_in(machine, after, ()),
                    image=image_in(machine, after, ()),
                    band=band_in(machine, after),
                )
    return html_of(page_of(trace, steps, **more))


def _followed(name: str, trace: Trace) -> tuple[tuple[str, Model, list[Any]] | None, list[str]]:
    """The machine's states along the schedule, from a replay of it; or why there are none."""
    from ..follower import Coverage
    from ..scenarios import UnknownScenario, scenario_named

    try:
        scenario = scenario_named(name)
    except UnknownScenario as fault:
        return None, [f"{fault.args[0]}; so what the steps changed is not shown"]
    if scenario.machine is None:
        return None, ["No machine follows this scenario, so owners are not shown."]
    seen: list[Any] = []

    def program() -> Subject:
        subject = scenario.program_of(Coverage())
        observe = subject.observe
        assert observe is not None

        def noted() -> Hashable:
            state = observe()
            seen.append(state)
            return state

        return dataclasses.replace(subject, observe=noted)

    result = replay(program, trace)
    notes = []
    if result.stale:
        notes = [f"The schedule is stale, so owners are shown only up to step {len(seen) - 1}: {result.describe()}"]
    elif result.outcome == "completed":
        notes = ["The program does not fail on this schedule any more: the steps are there, the failure is not."]
    model = scenario.machine.model(scenario.scope)
    return (scenario.machine.name, model, seen), notes


def explain(document: Any, origin: str) -> str:
    """The page of a trace file of either kind. Raises `TraceUnreadable`."""
    if isinstance(document, dict) and document.get("format") == "cleancut-spec-trace":
        return explain_machine(document, origin)
    return explain_schedule(Trace.from_json(document, origin))
