"""The protocol of the prompts and its machine: what each event means there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from impl.loaders.permutation import EpochOrder
from spec.machines.cut import CutScope
from spec.machines.cut import cut as cut_machine
from spec.machines.cut.state import CLAIMED, OUTSIDE_WINDOW, READY

from ..follower import Coverage, Event, EventlessFollower, Follower, Path, Remembered, Resumed, Rule, Stutter, View
from .choices import swap_to_fit
from .prompts import Prompts
from .views import cut_of_implementation, cut_of_machine
from .vocabulary import (
    BARRIER_EVENTS,
    DURABLE_LATER,
    EACH_GROUP_BY_ITSELF,
    FIGURE_EVENTS,
    LAST_EPOCH,
    PART_OF_AN_ACTION,
    SKIPPED_INSIDE,
    SLOTS_ARE_ATOMIC,
    STARTS_RESTORED,
)
from .words import MachineWords

if TYPE_CHECKING:
    from impl import Controller


SAME = (
    *("pass_gate", "commit_admission", "finish_step", "empty_step", "fail_save", "skip_snapshot"),
    *("read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger", "read_trainer"),
)
OF_ONE_GROUP = (
    *("dispatch", "commit_group", "remove_committed", "fail_attempt", "retry", "shrink", "evict", "abort_stale"),
)
HANDING_OUT = ("reserve_batch", "divert_batch", "drain_pool")


@dataclass
class Saves:
    """What no event of the library says of the section that asks for its cut next: what it is for."""

    snapshot: bool = False
    """A rollout snapshot, not a full save."""
    restore: bool = False
    """A restore, which the machine has in one step with the crash before it."""
    resumed: Resumed | None = None
    """Where the machine is once a restore has put everything in place; None for a run followed from there."""


class CutRules:
    """The meaning of each event, for one run."""

    def __init__(self, model: Remembered, scope: CutScope, prompts: Prompts, saves: Saves) -> None:
        self._model = model
        self._scope = scope
        self._prompts = prompts
        self._saves = saves

    def table(self) -> dict[str, Rule]:
        """Every event that is followed."""
        return {
            **dict.fromkeys(SAME, self.same),
            **dict.fromkeys(OF_ONE_GROUP, self.of_group),
            **dict.fromkeys(HANDING_OUT, self.handing_out),
            "claim": self.claim,
            "write_back": self.write_back,
            "substitute": self.substitute,
            "borrow": self.borrow,
            "end_epoch": self.end_epoch,
            "request_cut": lambda event, state: Stutter(SLOTS_ARE_ATOMIC),
            "open_cut": self.open_cut,
            "close_cut": self.close_cut,
            "publish": self.publish,
            "drop": lambda event, state: Stutter(PART_OF_AN_ACTION),
            "restore": lambda event, state: self._saves.resumed or Stutter(STARTS_RESTORED),
        }

    def same(self, event: Event, state: Any) -> Path:
        """The action of that name."""
        return [(event.action, None)]

    def of_group(self, event: Event, state: Any) -> Path:
        """The action of that name, of the group's prompt."""
        return [(event.action, self._prompts.of_group(event.fields["group"]))]

    def handing_out(self, event: Event, state: Any) -> Path:
        """Prompts come from the loader or out of the pool; those without a group are numbered all the same."""
        self._prompts.learn(event.fields.get("groups", ()), event.fields["keys"])
        return [(event.action, None)]

    def claim(self, event: Event, state: Any) -> Path:
        """The groups of the step; among like ones the library takes those that arrived first."""
        step = self._model.step_named(state, "claim", None)
        if step is not None:
            machine = [p for p, slot in enumerate(step.state.slot) if slot == CLAIMED]
            library = [self._prompts.of_group(group) for group in event.fields["groups"]]
            swap_to_fit(self._prompts, state, machine, library)
        return [("claim", None)]

    def write_back(self, event: Event, state: Any) -> Path | Stutter:
        """The first group of a step whose columns are written is the machine's write."""
        if not self._scope.write_back or state.columns:
            return Stutter(EACH_GROUP_BY_ITSELF)
        return [("write_back", None)]

    def substitute(self, event: Event, state: Any) -> Path:
        """The spare gets its group here; the machine takes its first one, which is the oldest."""
        self._prompts.learn([event.fields["spare"]], [event.fields["key"]])
        return [("substitute", self._prompts.of_group(event.fields["group"]))]

    def borrow(self, event: Event, state: Any) -> Path:
        """The same; among the ready groups of the furthest step the machine takes the first, the library any."""
        self._prompts.learn([event.fields["spare"]], [event.fields["key"]])
        hole, lender = (self._prompts.of_group(event.fields[name]) for name in ("group", "lender"))
        step = self._model.step_named(state, "borrow", hole)
        if step is not None:
            moved = [p for p, slot in enumerate(state.slot) if slot == READY and step.state.stamp[p] != state.stamp[p]]
            swap_to_fit(self._prompts, state, moved, [lender])
        return [("borrow", hole)]

    def end_epoch(self, event: Event, state: Any) -> Path | Stutter:
        """The library's loader goes on to the next epoch in the slot that hands out the last batch of one."""
        return [("end_epoch", None)] if state.epoch < state.epochs - 1 else Stutter(LAST_EPOCH)

    def open_cut(self, event: Event, state: Any) -> Path | Stutter:
        """The request and the opening.

        A slot that was open when the cut was asked for may still act until it drains; taken as one instant, its action
        lies before the request. So the machine asks in the instant in which the cut opens.
        """
        if self._saves.restore:
            return Stutter(STARTS_RESTORED)
        return [("request_snapshot" if self._saves.snapshot else "request_cut", None), ("open_cut", None)]

    def close_cut(self, event: Event, state: Any) -> Path | Stutter:
        """With the end of the window the image is fixed; from here the machine goes on as if it were durable.

        Where it has publication in the background, it publishes with the event of that.
        """
        if self._saves.restore:
            return Stutter(STARTS_RESTORED)
        if state.window == OUTSIDE_WINDOW:
            return Stutter(SKIPPED_INSIDE)
        return [("close_window" if self._scope.background else "publish", None)]

    def publish(self, event: Event, state: Any) -> Path | Stutter:
        """The checkpoint is durable."""
        return [("publish", None)] if self._scope.background else Stutter(DURABLE_LATER)


def cut_model(scope: CutScope, variants: tuple[str, ...] = ()) -> Remembered:
    """The cut machine in one scope, to be followed by any number of runs; of a control, one of its variants."""
    model = cut_machine.model(scope, variants)
    return Remembered(model, cut_of_machine, MachineWords(model))


#: Actions of the machine in one step of the library at most: what ends before a window, the window with its six reads,
#: and what goes on after it.
ACTIONS_OF_A_STEP = 12


def follow_silent_cut(model: Remembered, controller: Callable[[], Controller], prompts: Prompts) -> EventlessFollower:
    """A follower of the cut machine for a run without a tracer. Prompts are numbered in the order of the loader."""

    def shown() -> View:
        run = controller()
        where = run._parts.loader.state()
        for epoch in range(where.epoch + 1):
            order = EpochOrder(where.dataset_length, where.seed, epoch)
            last = where.position if epoch == where.epoch else where.dataset_length
            prompts.learn((), [(epoch, order[place]) for place in range(last)])
        for entry in run.ledger.entries.values():
            prompts.learn([entry.group], [entry.key])
        return cut_of_implementation(run, prompts)

    return EventlessFollower("cut", model, shown, ACTIONS_OF_A_STEP)


def follow_cut(
    model: Remembered,
    scope: CutScope,
    controller: Callable[[], Controller],
    prompts: Prompts,
    coverage: Coverage,
    *,
    saves: Saves | None = None,
    start: Any = None,
) -> Follower:
    """A follower of the cut machine. It is the tracer of the run's barrier, so it is made before the controller.

    `start` is the state of a run that resumed, as `restored_state` gives it.
    """
    follower = Follower(
        "cut",
        model,
        CutRules(model, scope, prompts, saves or Saves()).table(),
        ignored=(BARRIER_EVENTS - {"request_cut", "open_cut", "close_cut"}) | FIGURE_EVENTS,
        of_implementation=lambda: cut_of_implementation(controller(), prompts),
        coverage=coverage,
    )
    if start is not None:
        follower.state = start
    return follower
