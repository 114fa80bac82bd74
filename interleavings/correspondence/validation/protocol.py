"""The cut machine, followed through a run: what each event means there, and that it moved what the machine moves.

An event carries no state, but fields: the groups that were claimed, the stamp that was given. The machine's action says
what these must be, so they are compared before it is taken. What follows here is only how the two name the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from impl.tracing import Event
from spec.machines.cut import cut
from spec.machines.cut.scope import IN_ORDER, READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope
from spec.machines.cut.state import (
    ACCOUNT_SAYS,
    BACKING_OFF,
    CLAIMED,
    GIVEN_UP,
    LEDGER_SAYS,
    NO_ACCOUNT,
    READY,
    RESERVED,
    SLOT_SAYS,
    WINDOW_SAYS,
    slots_enter,
)
from spec.machines.cut.training import claiming, eligible

from .live_prompts import HandedOut, LivePrompts
from .open_state import ANY_NUMBER, OpenState
from .refused import Refused

#: The machine's sampler of each of the library's, and which parameter is its lookahead.
SAMPLERS = {
    "in_order": (IN_ORDER, "lookahead"),
    "weight_fifo": (WEIGHT_FIFO, "staleness"),
    "ready_first": (READY_FIRST, "staleness"),
    "windowed": (WINDOWED, "staleness"),
}
#: Budgets and limits that a trace does not tell, so that anything is allowed.
_NOT_IN_A_TRACE = (*("saves", "crashes", "in_flight", "epochs", "failures", "retries", "snapshots", "failed_saves"),)
_SAMPLER_BY_NUMBER = {number: name for name, (number, _) in SAMPLERS.items()}


def scope_of(run: Mapping[str, Any]) -> Mapping[str, int]:
    """The size and features of the machine for a run, from the identity in the header of its segment.

    Raises LookupError, with what is missing, for a run that the machine has no words for.
    """
    sampler = run.get("sampler")
    name = sampler.get("name") if isinstance(sampler, Mapping) else None
    if not isinstance(name, str) or name not in SAMPLERS:
        raise LookupError(f"its sampler is {name!r}, which the machine does not know")
    assert isinstance(sampler, Mapping)
    number, parameter = SAMPLERS[name]
    needed: dict[str, Any] = {key: run.get(key) for key in ("dataset_length", "batch_size", "capacity")}
    parameters = sampler.get("parameters")
    needed[parameter] = parameters.get(parameter) if isinstance(parameters, Mapping) else None
    wrong = [key for key, value in needed.items() if type(value) is not int or value < 0]
    if wrong or not needed["batch_size"] or not needed["dataset_length"]:
        raise LookupError(f"its header tells no whole number for {', '.join(wrong) or 'its size'}")
    length, size = needed["dataset_length"], needed["batch_size"]
    return {
        # What this page does not name is off, as in any scope.
        **asdict(CutScope(batches=1, batch_size=1, lookahead=0, saves=0, crashes=0)),
        **dict.fromkeys(_NOT_IN_A_TRACE, ANY_NUMBER),
        "batches": -(-length // size),
        "batch_size": size,
        "last_batch": length % size or size,
        "lookahead": needed[parameter],
        "sampler": number,
        "capacity": needed["capacity"],
        "drop_short": int(run.get("remainder") == "drop"),
        "spares": 1,
        "borrow": 1,
        "background": 1,
        "replay_free": 0,
        # Off: columns are written or not, as the user's train step likes; see `_write_back`.
        "write_back": 0,
    }


def live_steps(state: OpenState) -> range:
    """The train steps that an action may change something of: from the one to come to the newest admission's."""
    return range(state.version, max(state.version, state.dispatch_cursor + 1) + 1)


class Protocol:
    """Call `follow` with each event of the cut machine. Raises `Refused`, and then knows no more."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._scope = scope_of(run)
        self.dataset_length: int = run["dataset_length"]
        self.begin()
        self._rules: dict[str, Callable[[Event], None]] = {
            **dict.fromkeys(("finish_step",), self._finish_step),
            **dict.fromkeys(("dispatch", "commit_group", "remove_committed", "fail_attempt", "retry"), self._of_group),
            **dict.fromkeys(("evict", "abort_stale"), self._given_up_for_age),
            "pass_gate": self._pass_gate,
            "commit_admission": self._commit_admission,
            "claim": self._claim,
            "write_back": self._write_back,
            "empty_step": self._empty_step,
        }

    def begin(self) -> None:
        """Nothing has happened yet: at the beginning of a process, and before what a restore puts into place."""
        self.state = OpenState(cut, self._scope, {"steps": live_steps})
        self.prompts = LivePrompts(self.state)
        # The id of the admission that is RESERVED.
        self.admission: int | None = None
        # The loader has said that its epoch is over; the machine's goes on to the next one when that is drawn from.
        self.epoch_ended = False
        # Where the trace does not say the place of the loader, it is taken from what it hands out.
        self.loader_known = True
        self.handed_out = HandedOut(self.dataset_length)

    def follow(self, event: Event) -> None:
        """Take the step that an event of the protocol stands for."""
        self._rules[event.action](event)

    # -- what the rules say it with

    def place(self, group: int) -> int:
        """The place of a group that must be alive."""
        place = self.prompts.of_group(group)
        if place is None:
            raise self.refused(f"group {group} was never handed out, or has ended")
        return place

    def places(self, groups: Iterable[int]) -> set[int]:
        """The places of groups that must be alive, each named once."""
        named = list(groups)
        self.must_be_distinct(named)
        return {self.place(group) for group in named}

    def must_be_distinct(self, groups: Sequence[int | None]) -> None:
        """Groups of one event; None, for a prompt that has none yet, may come more than once."""
        ids = [group for group in groups if group is not None]
        if len(set(ids)) != len(ids):
            raise self.refused(f"a group is named twice among {_listed(map(str, ids))}")

    def take(self, action: str, place: int | None = None) -> None:
        """Take an action of the machine that must be enabled."""
        if not self.state.take(action, place):
            raise self.not_enabled(action, place)

    def must_be(self, event: Event, field: str, value: object) -> None:
        """A field that the machine's step gives a value to."""
        if event.fields[field] != value:
            raise self.refused(
                f"{event.action} says {field} {event.fields[field]!r}, and by the machine it is {value!r}"
            )

    def not_enabled(self, action: str, place: int | None = None) -> Refused:
        """The refusal of an action, with where its prompt stands."""
        named = action if place is None else f"{action} of {self.prompts.said(place)}"
        where = "" if place is None else f" {self.standing(place)};"
        return self.refused(f"the machine 'cut' does not enable {named} there:{where} {self.counters()}")

    def refused(self, why: str) -> Refused:
        """A refusal, with what the machine would allow."""
        return Refused(why, self.enabled())

    def standing(self, place: int) -> str:
        """Who owns a prompt, in words."""
        s = self.state
        parts = [f"its ledger entry is {LEDGER_SAYS[s.ledger[place]]}", f"its slot {SLOT_SAYS[s.slot[place]]}"]
        if s.account[place] != NO_ACCOUNT:
            parts.append(f"it is {ACCOUNT_SAYS[s.account[place]]}")
        if s.stamp[place] >= 0:
            parts.append(f"its stamp {s.stamp[place]}")
        if s.weight[place] >= 0:
            parts.append(f"it was dispatched at version {s.weight[place]}")
        return ", ".join(parts)

    def counters(self) -> str:
        """The counters that most guards look at, in words."""
        s = self.state
        waits = sum(entry == RESERVED for entry in s.ledger)
        return (
            f"version {s.version}, dispatch cursor {s.dispatch_cursor}, sampler {_SAMPLER_BY_NUMBER[s.sampler]} "
            f"(lookahead {s.lookahead}), {waits} prompts wait at the gate, {s.permits} of {s.capacity} permits free, "
            f"save {WINDOW_SAYS[s.window]}"
        )

    def enabled(self) -> list[str]:
        """What the machine would allow here, each action with the groups it is possible for."""
        found: dict[str, list[str]] = {}
        for action, place in self.state.enabled({"prompts": range(self.state.size("prompts")), "steps": range(0)}):
            if action.name.startswith("crash"):
                continue
            of = found.setdefault(action.name, [])
            if place is not None:
                of.append(self.prompts.said(place))
            elif action.name == "claim":
                of += [self.prompts.said(p) for p in sorted(self._machine_claims() or ())]
        return [name if not of else f"{name} ({_listed(of)})" for name, of in found.items()]

    # -- admission

    def _pass_gate(self, event: Event) -> None:
        self.must_be(event, "admission", self.admission)
        self.take("pass_gate")

    def _commit_admission(self, event: Event) -> None:
        self.must_be(event, "admission", self.admission)
        s = self.state
        reserved = [p for p, entry in enumerate(s.ledger) if entry == RESERVED]
        if self.places(event.fields["groups"]) != set(reserved):
            raise self.refused(f"the admission has {_listed(map(self.prompts.said, reserved))}, not these groups")
        self.must_be(event, "step", s.dispatch_cursor + 1 if s.sampler == IN_ORDER else None)
        self.take("commit_admission")
        self.admission = None

    # -- one group

    def _of_group(self, event: Event) -> None:
        group = event.fields["group"]
        self.take(event.action, self.place(group))
        if event.action == "fail_attempt" and group in self.prompts.attempts:
            self.must_be(event, "attempt", self.prompts.attempts[group])
        if event.action == "fail_attempt":
            self.prompts.attempts[group] = event.fields["attempt"] + 1

    def _given_up_for_age(self, event: Event) -> None:
        place = self.place(event.fields["group"])
        self.take(event.action, place)
        self.prompts.end([place])

    # -- the train pump

    def _claim(self, event: Event) -> None:
        self.must_be(event, "step", self.state.version)
        theirs = self.places(event.fields["groups"])
        mine = self._claimable(theirs)
        if mine is None:
            raise self.not_enabled("claim")
        if mine != theirs:
            self._let_change_places(event, mine, theirs)
        self.state.apply(self._claim_effects()[1])

    def _claimable(self, theirs: set[int]) -> set[int] | None:
        """What the machine would take. The end of the data, which no trace tells, is assumed where it alone fits."""
        taken = self._machine_claims()
        s = self.state
        if (
            self.epoch_ended
            and s.epoch_over == 1
            and s.epochs == ANY_NUMBER
            and (taken is None or len(taken) != len(theirs))
        ):
            s.__dict__["epochs"] = s.epoch + 1
            at_the_end = self._machine_claims()
            if at_the_end is not None and len(at_the_end) == len(theirs):
                return at_the_end
            s.__dict__["epochs"] = ANY_NUMBER
        return taken

    def _machine_claims(self) -> set[int] | None:
        enabled, effects = self._claim_effects()
        if not enabled:
            return None
        return {p for p, slot in enumerate(self.state.worked_out("slot", effects["slot"])) if slot == CLAIMED}

    def _claim_effects(self) -> tuple[bool, Mapping[str, Any]]:
        """The machine's own claim, in which each prompt is asked once whether it may be taken.

        As it is written it asks for every pair of prompts, and each answer looks at all of them.
        """
        known: dict[int, bool] = {}

        def may_be_taken(s: OpenState, place: int) -> bool:
            if place not in known:
                known[place] = bool(eligible(s, place))
            return known[place]

        guard, effects = claiming(self.state, may_be_taken)
        return bool(slots_enter(self.state) & guard), effects

    def _let_change_places(self, event: Event, mine: set[int], theirs: set[int]) -> None:
        """The machine takes groups of one age in the order of their places, the library in that of their arrival."""
        others = sorted(mine - theirs)
        pairs = []
        for place in sorted(theirs - mine):
            like = next((other for other in others if self._alike(place, other)), None)
            if like is None:
                break
            others.remove(like)
            pairs.append((place, like))
        if others or len(pairs) != len(theirs - mine):
            raise self.refused(
                f"the machine would claim {_listed(self.prompts.said(p) for p in sorted(mine))} at version "
                f"{self.state.version}, the trace says {_listed(self.prompts.said(p) for p in sorted(theirs))}: "
                + "; ".join(f"{self.prompts.said(p)}: {self.standing(p)}" for p in sorted(theirs - mine)[:3])
            )
        self.prompts.swap(pairs)

    def _alike(self, one: int, other: int) -> bool:
        s = self.state
        same_age = s.sampler in (IN_ORDER, READY_FIRST) or s.weight[one] == s.weight[other]
        return s.slot[one] == s.slot[other] == READY and s.stamp[one] == s.stamp[other] and same_age

    def change_lender(self, machine: int, library: int) -> bool:
        """Let the group that lends be the library's; False where the two differ in more than their places."""
        if machine != library:
            if not self._alike(machine, library):
                return False
            self.prompts.swap([(machine, library)])
        return True

    def _write_back(self, event: Event) -> None:
        place = self.place(event.fields["group"])
        # The machine writes the columns of a step at once; here they come group by group.
        if self.state.slot[place] != CLAIMED or not (self.state.columns or self.state.take("write_back")):
            raise self.not_enabled("write_back", place)

    def _finish_step(self, event: Event) -> None:
        s = self.state
        self.must_be(event, "step", s.version)
        claimed = [p for p, slot in enumerate(s.slot) if slot == CLAIMED]
        if self.places(event.fields["groups"]) != set(claimed):
            raise self.refused(f"the open train step has {_listed(map(self.prompts.said, claimed))}, not these groups")
        self.take("finish_step")
        self.prompts.end(claimed)

    def _empty_step(self, event: Event) -> None:
        self.must_be(event, "step", self.state.version)
        self.take("empty_step")

    def give_up(self, place: int) -> None:
        """The budget of attempts is not in a trace: what fills the place of a group shows that it was used up."""
        if self.state.trouble[place] == BACKING_OFF:
            self.state.set_at("trouble", place, GIVEN_UP)


def _listed(items: Iterable[str]) -> str:
    every: Sequence[str] = list(items)
    shown = ", ".join(every[:6]) or "nothing"
    return shown if len(every) <= 6 else f"{shown} and {len(every) - 6} more"
