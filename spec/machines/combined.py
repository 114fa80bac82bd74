"""Slots step by step: the cut machine once more, with each mutation slot entered and left as actions of their own.

The cut machine takes a slot as one atomic action. Here three actors, the rollout pump, the train pump and a
generation, enter a slot, act in it or not, and leave; a checkpoint shuts the entrance when it is asked for and opens
its cut when all are outside. That the properties of the cut hold here too is what its atomic slots rest on, beside the
barrier machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..language.expression import Value, all_of, each, put
from ..language.machine import Action, Claim, Effects, Machine, Property, changed
from ..language.pictures import picture
from .cut import cut
from .cut.state import OPEN, slots_enter

ACTORS = ("rollout pump", "train pump", "generation")
OUTSIDE, INSIDE, HAS_ACTED = 0, 1, 2
SAYS = ("outside", "inside", "has acted")


def in_own_slot(action: Action) -> Action:
    """The action, possible only for an actor that is inside its slot and has not acted in it yet."""
    actor = ACTORS.index(action.who) if action.who in ACTORS else ACTORS.index("generation")

    def inside(s: Value, *index: Value) -> tuple[Value, dict[str, Value]]:
        guard, effects = action.function(s, *index)
        return (s.at[actor] == INSIDE) & guard, {**effects, "at": put(s.at, actor, HAS_ACTED)}

    inside.__doc__ = action.function.__doc__
    return replace(action, function=inside, slot=False)


# The properties whose premises occur in the tiny scopes of this machine; the others are about features it leaves off.
CHECKED = (
    "one_owner_on_disk",
    "none_lost",
    "one_owner_in_memory",
    "image_equals_cut",
    "cursor_covers_stamps",
    "stamps_complete",
    "step_free_at_admission",
    "gate_open_at_commit",
    "trained_once",
    "trained_matches_trainer",
    "step_has_its_size",
    "permits_balance",
    "saves_follow_the_picture",
    "a_full_save_is_between_steps",
    "full_saves_are_counted",
    "a_restart_brings_back_the_image",
)
ELSEWHERE = ("close_window", "lose_window", "fail_save", "crash_and_restore_replay_free")
"""Actions of features that the scopes of this machine leave off: no claim is looked at there."""


def build() -> Machine:
    """The machine. It has no claim about progress: an actor may enter and leave for ever without acting."""
    machine = cut.varied(())
    machine.name = "combined"
    machine.variants = {}
    machine.progress = None
    machine.properties = {
        name: replace(known, claims=tuple(c for c in known.claims if c.at not in ELSEWHERE))
        for name, known in machine.properties.items()
        if name in CHECKED
    }
    machine.domain("actors", lambda scope: len(ACTORS))
    machine.variable("at", OUTSIDE, HAS_ACTED, "where each actor stands", over="actors", names=SAYS)
    for name, action in machine.actions.items():
        if action.slot:
            machine.actions[name] = in_own_slot(action)

    @machine.system(who="actor", each="actors")
    def enter_slot(s: Value, a: Value) -> tuple[Value, dict[str, Value]]:
        """Actor `a` enters a slot. Shut from the request of a checkpoint on."""
        return slots_enter(s) & (s.at[a] == OUTSIDE), {"at": put(s.at, a, INSIDE)}

    @machine.system(who="actor", each="actors")
    def leave_slot(s: Value, a: Value) -> tuple[Value, dict[str, Value]]:
        """Actor `a` leaves its slot, always possible."""
        return s.at[a] != OUTSIDE, {"at": put(s.at, a, OUTSIDE)}

    drained, requested = machine.actions["open_cut"].function, machine.actions["request_cut"].function

    def open_cut(s: Value) -> tuple[Value, dict[str, Value]]:
        """The slots that were open have ended."""
        guard, effects = drained(s)
        return guard & all_of(s.actors, lambda a: s.at[a] == OUTSIDE), effects

    def request_cut(s: Value) -> tuple[Value, dict[str, Value]]:
        """The trainer asks for a full save, outside its slot."""
        guard, effects = requested(s)
        return guard & (s.at[ACTORS.index("train pump")] == OUTSIDE), effects

    machine.replace("open_cut", open_cut)
    machine.replace("request_cut", request_cut)
    for name in ("crash_and_restore", "crash_and_restore_replay_free"):
        machine.replace(name, without_actors(machine.actions[name]))
    state_rules(machine)
    return machine


# The actions inside a slot that the scopes of this machine take.
IN_SLOTS = ("reserve_batch", "commit_admission", "dispatch", "commit_group", "claim", "finish_step")


def state_rules(machine: Machine) -> None:
    """Say what must hold of every step of an actor."""
    picture(
        machine,
        "actors_follow_the_picture",
        "at",
        "An actor enters a slot from outside, and leaves the one that it is in.",
        {"enter_slot": (OUTSIDE, INSIDE), "leave_slot": ((INSIDE, HAS_ACTED), OUTSIDE)},
    )
    machine.properties["one_act_a_slot"] = Property(
        "one_act_a_slot", None, tuple(acts_in_its_slot(machine, name) for name in IN_SLOTS)
    )

    @machine.step("request_cut", witness=lambda s: s.at[ACTORS.index("generation")] == INSIDE)
    def a_full_save_is_asked_for_outside(s: Value, after: Value) -> Value:
        """Whoever asks for a full save, the train pump, is in no slot: it would wait for itself."""
        return s.at[ACTORS.index("train pump")] == OUTSIDE


def acts_in_its_slot(machine: Machine, name: str) -> Claim:
    """The claim that this action is one of its actor, inside a slot."""
    who = machine.actions[name].who
    actor = ACTORS.index(who if who in ACTORS else "generation")

    def acts(s: Value, after: Value) -> Value:
        """An actor acts inside its slot, and once in each."""
        return (s.at[actor] == INSIDE) & (after.at[actor] == HAS_ACTED)

    return Claim(name, acts, lambda s: s.at[actor] == INSIDE, of_step=True)


def without_actors(crash: Action) -> Callable[..., tuple[Value, dict[str, Value]]]:
    """A crash, after which nobody is inside."""

    def restored(s: Value) -> tuple[Value, dict[str, Value]]:
        guard, effects = crash.function(s)
        return guard, {**effects, "at": each(s.actors, lambda a: OUTSIDE)}

    restored.__doc__ = crash.function.__doc__
    return restored


combined = build()


@combined.variant(breaks="trained_matches_trainer", scope="snapshot", length=37)
def snapshot_checked_early(machine: Machine) -> None:
    """Whether a snapshot belongs to a save is looked at when it is asked for: a step that is in its slot then ends."""
    asked, read = machine.actions["request_snapshot"].function, machine.actions["read_sampler"].function

    def request_snapshot(s: Value) -> tuple[Value, dict[str, Value]]:
        """Only while the trainer is at the version of the newest durable full save, as seen now."""
        guard, effects = asked(s)
        return guard & (s.version == s.anchor), effects

    def read_sampler(s: Value) -> tuple[Value, dict[str, Value]]:
        """Whatever the trainer has done since."""
        _, effects = read(s)
        return s.window == OPEN, effects

    machine.replace("request_snapshot", request_snapshot)
    machine.replace("read_sampler", read_sampler)
    machine.remove("skip_snapshot")


@combined.variant(breaks="image_equals_cut", scope="one_batch", length=11)
def cut_does_not_drain(machine: Machine) -> None:
    """The cut opens while an actor is still inside its slot: what it does there falls between two reads."""

    def open_cut(s: Value) -> tuple[Value, dict[str, Value]]:
        """Whoever is inside."""
        guard, _ = cut.actions["open_cut"].function(s)
        return guard, {"window": OPEN}

    machine.replace("open_cut", open_cut)


def acts_again(name: str, scope: str, length: int) -> None:
    """Register the variant in which this action leaves its actor as if it had not acted: it may act once more."""

    def apply(machine: Machine) -> None:
        changed(machine, name, lambda s, *index: {"at": s.at})

    apply.__name__ = f"{name}_and_more"
    apply.__doc__ = f"After `{name}` an actor may act again before it leaves its slot."
    combined.variant(breaks="one_act_a_slot", scope=scope, length=length)(apply)


for _name, _length in zip(IN_SLOTS, (2, 6, 9, 11, 13, 16), strict=True):
    acts_again(_name, "one_batch", _length)


@combined.variant(breaks="actors_follow_the_picture", scope="one_batch", length=2)
def enters_inside(machine: Machine) -> None:
    """An actor that is inside enters once more, as a nested slot would."""

    def enter_slot(s: Value, a: Value) -> Effects:
        """From wherever it is."""
        return slots_enter(s), {"at": put(s.at, a, INSIDE)}

    machine.replace("enter_slot", enter_slot)


@combined.variant(breaks="a_full_save_is_asked_for_outside", scope="one_batch", length=2)
def asks_inside(machine: Machine) -> None:
    """The train pump asks for a full save inside its own slot."""
    machine.replace("request_cut", cut.actions["request_cut"].function)


@combined.variant(breaks="actors_follow_the_picture", scope="one_batch", length=1)
def leaves_from_outside(machine: Machine) -> None:
    """An actor that is outside gives back a slot that it does not hold."""

    def leave_slot(s: Value, a: Value) -> Effects:
        """Whether it holds one or not."""
        return s.at[a] >= OUTSIDE, {"at": put(s.at, a, OUTSIDE)}

    machine.replace("leave_slot", leave_slot)


@combined.variant(breaks="actors_follow_the_picture", scope="one_batch", length=2)
def stays_inside(machine: Machine) -> None:
    """An actor that leaves is still counted as inside."""
    changed(machine, "leave_slot", lambda s, a: {"at": s.at})


@combined.variant(breaks="actors_follow_the_picture", scope="one_batch", length=1)
def enters_outside(machine: Machine) -> None:
    """An actor that enters is not counted as inside: a checkpoint does not wait for it."""
    changed(machine, "enter_slot", lambda s, a: {"at": s.at})
