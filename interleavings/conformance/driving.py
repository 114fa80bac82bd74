"""Takes a controller through the actions of a counterexample, checks what that broke, and lets the run go on.

A step the controller does not allow at that place is left waiting and happens as soon as it does: a slot that a save
keeps shut opens later, and what was refused is refused. A step it does not have at all, because a variant made it up,
is passed over: where the variant does in two what the controller does in one, there is nothing to do the second time.
One that is the machine's own and that the controller says it lacks ends the drive: nothing is concluded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from cleancut_leaf.words import counted
from impl.errors import UsageError

# Turns of the loop that a step gets before it counts as left waiting. Nothing here waits for time to pass.
TURNS = 60


class NotConformant(AssertionError):
    """The controller breaks the property at the end of the counterexample."""


class StepRefused(Exception):
    """Raised by a controller for a step that is not possible where it stands, such as admitting what is not there."""


#: The properties that a published image shows, and how many owners a prompt has by them: at least, and at most.
OWNERS_IN_AN_IMAGE: dict[str, tuple[int, int | None]] = {"one_owner_on_disk": (1, 1), "none_lost": (1, None)}


class FeatureMissing(Exception):
    """The controller has no such feature, or shows nothing of the property: nothing is concluded from a drive of it."""


class Controller(Protocol):
    """What is driven. Beside these, one async method an action, taking the index of the prompt where it has one.

    `refusals`, if it has them, are the errors by which the controller itself refuses a step and stays as it was.
    `run_on`, if it has it, takes the run from there to its end, and says what stands in the way. `lacks`, if it has it,
    says whether nothing in it ever does an action, neither by a method nor by itself.
    """

    def handed_out(self) -> Sequence[Any]:
        """The keys behind the loader's cursor in the newest published image."""
        ...

    def owners_on_disk(self) -> Mapping[Any, Sequence[str]]:
        """Who owns each key in the newest published image."""
        ...


def controller_named(reference: str, bounds: Mapping[str, int]) -> Any:
    """Make a controller from `package.module:Class`, called with the bounds of the scope as keywords."""
    module_name, separator, name = reference.partition(":")
    if not separator:
        raise ValueError(f"{reference!r} is no controller; it has the form package.module:Class")
    try:
        controller = getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"the controller {reference!r} cannot be imported: {error}; its folder has to be on the path, as in "
            "PYTHONPATH=folder"
        ) from error
    try:
        return controller(**bounds)
    except UsageError as fault:
        raise ValueError(f"{reference} cannot be made with the bounds {dict(bounds)}: {fault}") from None


def drive(controller: Any, steps: Iterable[tuple[str, int | None]], *, property: str) -> None:
    """Take the controller through the steps, in its own loop, and raise NotConformant if the property is broken."""
    asyncio.run(_drive(controller, list(steps), property))


async def _drive(controller: Any, steps: list[tuple[str, int | None]], property: str) -> None:
    waiting: list[asyncio.Task[Any]] = []
    names = list(dict.fromkeys(action for action, _ in steps))
    if names and not any(callable(getattr(controller, name, None)) for name in names):
        raise FeatureMissing(
            f"{type(controller).__qualname__} has none of the methods {', '.join(names)}, so nothing was driven; it "
            "needs an async method for each action, as interleavings.conformance.driving.Controller says"
        )
    if property in OWNERS_IN_AN_IMAGE and "publish" in names and not callable(getattr(controller, "publish", None)):
        raise FeatureMissing(
            f"{type(controller).__qualname__} has no method publish, and {property!r} is looked for in what it has "
            "published; give it one that waits until the checkpoint is durable"
        )
    refusals = (StepRefused, *getattr(controller, "refusals", ()))
    lacks = getattr(controller, "lacks", lambda action: False)
    try:
        for action, index in steps:
            method = getattr(controller, action, None)
            if method is None:
                if lacks(action):
                    raise FeatureMissing(
                        f"{type(controller).__qualname__} has nothing that does {action}, an action of the machine, so "
                        "the counterexample was not driven to its end"
                    )
                continue
            step = asyncio.ensure_future(method() if index is None else method(index))
            await settled(step)
            if not step.done():
                waiting.append(step)
            elif not isinstance(step.exception(), refusals):
                step.result()
            _look(controller)
        complaints = _complaints(controller, property)
        run_on = getattr(controller, "run_on", None)
        if run_on is not None and not complaints and (stalled := await run_on()) is not None:
            complaints = [stalled]
        if complaints:
            raise NotConformant(_report(property, steps, complaints))
    finally:
        for step in waiting:
            step.cancel()
        if waiting:
            await asyncio.wait(waiting, timeout=1)
        close = getattr(controller, "close", None)
        if close is not None:
            await close()


async def settled(step: asyncio.Task[Any]) -> None:
    """Give the step, and whatever it woke, some turns of the loop."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
        if step.done():
            break
    await asyncio.sleep(0)


def _look(controller: Any) -> None:
    """Let a controller that is followed by a machine say whether it left it."""
    check = getattr(controller, "check", None)
    if check is not None:
        check()


def _complaints(controller: Any, property: str) -> list[str]:
    """What the newest image shows of the property, for the properties that an image shows."""
    if property not in OWNERS_IN_AN_IMAGE:
        if not getattr(controller, "followed", False):
            raise FeatureMissing(
                f"{property!r} is not seen in an image; the controller must be followed by the machine, which was not "
                "so, or not to the end"
            )
        return []
    least, most = OWNERS_IN_AN_IMAGE[property]
    owners, handed_out = controller.owners_on_disk(), list(controller.handed_out())
    found: list[str] = []
    for key in handed_out:
        who = list(owners.get(key, ()))
        if len(who) < least:
            found.append(f"key {key} was handed out and has no owner on disk: it is lost")
        elif most is not None and len(who) > most:
            found.append(f"key {key} has {counted(len(who), 'owner')} on disk: {', '.join(who)}")
    if most is not None:
        strangers = {key: who for key, who in owners.items() if key not in handed_out}
        found += [f"key {key} was not handed out and is owned by {who}" for key, who in strangers.items()]
    return found


def _report(property: str, steps: list[tuple[str, int | None]], complaints: list[str]) -> str:
    path = ", ".join(action if index is None else f"{action}({index})" for action, index in steps)
    return f"{property} is broken:\n  " + "\n  ".join(complaints) + f"\nafter: {path}"
