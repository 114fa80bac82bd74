"""A new process goes on from a checkpoint: by the machine's own restore, where the checkpoint was seen being saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cleancut_leaf.words import counted
from impl.tracing import Event
from spec.language.expression import Vector
from spec.machines.cut import cut
from spec.machines.cut.scope import IN_ORDER, WEIGHT_FIFO, WINDOWED
from spec.machines.cut.state import ADMITTED, NO_ENTRY, NO_SLOT, READY, RESERVED

from .open_state import ANY_NUMBER, OpenState, Sparse
from .protocol import Protocol
from .refused import Refused
from .saves import Image, Images, written_by_others

PHASES = {"reserved": RESERVED, "admitted": ADMITTED}
_PHASE_OF = {number: name for name, number in PHASES.items()}
_FROM_IMAGE = ("crash_and_restore", "crash_and_restore_replay_free")

View = Mapping[str, Any]

#: So far the dispatch cursor may be ahead of the trainer, beside a step for each prompt: steps may have lost theirs.
MOST_STEPS = 4096


def restore(protocol: Protocol, images: Images, event: Event) -> bool:
    """Let the run go on from what the event says; whether that could be compared with the checkpoint as it was saved.

    Raises `Refused` if the checkpoint held something else, or if no run can be in such a state.
    """
    fields = event.fields
    said = _view_of_event(fields, protocol.state, protocol.dataset_length)
    name, sequence = fields["name"], fields["sequence"]
    fence = fields.get("fence")
    _require_bounded(fields, protocol.dataset_length)
    image = images.published.get(name)
    if image is not None and written_by_others(image, fence):
        # A process of which not one event is left has taken the number anew.
        image = None
    if image is not None and name in images.doubtful and said not in _views_of_image(image, said):
        image = None
    if image is None:
        # The process ended between the rename and the event that says it.
        image = images.of_sequence(sequence, fence)
    saved = None if image is None else image.state
    if image is None and images.unsaid is not None and said in _views_of_image(images.unsaid, said):
        # A kill takes what the tracer had not written yet, and that may be the events of whole saves. So this may be
        # another window than the last that was seen, which was the same.
        image = images.unsaid
    if image is None:
        images.published.pop(name, None)
    else:
        _compare(said, image, name)
        images.publish(name, replace(image, sequence=sequence, fence=fence))
    images.unsaid = None
    _adopt(protocol, fields, saved)
    _require_possible(protocol, name)
    return image is not None


def by_weight(state: OpenState) -> bool:
    """Whether a rule of the sampler looks at weights."""
    return state.sampler in (WEIGHT_FIFO, WINDOWED)


def _require_bounded(fields: Mapping[str, Any], dataset_length: int) -> None:
    """Refuse rows that no dataset has, and more steps than the groups can be for: each is looked at by itself."""
    keys = [entry[1:3] for kind in ("pending", "ready") for entry in fields[kind]] + list(fields["spares"])
    for epoch, row in keys:
        if epoch < 0 or not 0 <= row < dataset_length:
            raise Refused(f"{fields['name']}: the prompt {[epoch, row]} is in no epoch of {dataset_length} rows")
    ahead = _number(fields["cursor"], -1) - fields["version"]
    if ahead > MOST_STEPS + len(keys) + len(fields["shortfalls"] or ()):
        raise Refused(
            f"{fields['name']}: the dispatch cursor is {ahead} steps ahead of the trainer, with "
            f"{counted(len(keys), 'prompt')} in the run"
        )


# -- comparison with the image


def _compare(said: View, image: Image, name: str) -> None:
    saved = _views_of_image(image, said)
    if said in saved:
        return
    nearest = min(saved, key=lambda view: sum(view[aspect] != said[aspect] for aspect in view))
    different = [aspect for aspect in nearest if nearest[aspect] != said[aspect]]
    what = "; ".join(f"{a}: saved {_short(nearest[a])}, restored {_short(said[a])}" for a in different)
    raise Refused(f"{name} held something else than the run goes on with: {what}", ["restore, of what was saved"])


def _views_of_image(image: Image, said: View) -> list[View]:
    """What a restore of it may say. Where one of the two does not know the loader's place, that is not compared."""
    views = [_view_of_image(image, action) for action in _FROM_IMAGE]
    return [
        view if None not in (view["loader"], said["loader"]) else {**view, "loader": said["loader"]} for view in views
    ]


def _view_of_image(image: Image, action: str) -> View:
    state = image.state.copy()
    state.__dict__.update(replay_free=1, crashes_left=ANY_NUMBER)
    enabled, effects = state.guard(action)
    assert enabled, "an image that is kept is whole"
    state.apply(effects)
    keys, groups = image.keys, image.groups
    living = range(len(keys))
    return {
        "version": state.version,
        "dispatch cursor": state.dispatch_cursor,
        "loader": _handed_out_by_batches(state, (state.batches - 1) * state.batch_size + state.last_batch),
        "pending": {
            (groups[p], keys[p]): (_PHASE_OF[state.ledger[p]], state.stamp[p])
            for p in living
            if state.ledger[p] != NO_ENTRY
        },
        "ready": {
            (groups[p], keys[p]): (state.stamp[p], state.weight[p] if by_weight(state) else -1)
            for p in living
            if state.slot[p] == READY
        },
        "spares": [keys[p] for p in living if state.spare[p]],
        "shortfalls": state.shortfall.values,
        "drop count": state.dropped,
    }


def _view_of_event(fields: Mapping[str, Any], state: OpenState, dataset_length: int) -> View:
    weights = by_weight(state)
    return {
        "version": fields["version"],
        "dispatch cursor": _number(fields["cursor"], -1),
        "loader": _handed_out(fields["loader"], dataset_length),
        "pending": {
            (group, (epoch, index)): (phase, _number(step, -1))
            for group, epoch, index, phase, _, step in fields["pending"]
        },
        "ready": {
            (group, (epoch, index)): (_number(step, -1), weight if weights else -1)
            for group, epoch, index, step, weight in fields["ready"]
        },
        "spares": [(epoch, index) for epoch, index in fields["spares"]],
        "shortfalls": {step: missing for step, missing in fields["shortfalls"] or () if missing},
        "drop count": _number(fields["dropped"], 0),
    }


def _handed_out(loader: Sequence[int] | None, dataset_length: int) -> int | None:
    """How many prompts the loader has handed out; an epoch that is over is the next one at its beginning."""
    return None if loader is None else loader[0] * dataset_length + loader[1]


def _handed_out_by_batches(state: OpenState, dataset_length: int) -> int | None:
    if state.batches == ANY_NUMBER:
        return None
    epochs, batches = divmod(state.cursor, state.batches)
    return int(epochs * dataset_length + batches * state.batch_size)


def _number(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:150]} … ({counted(len(text), 'character')})"


# -- what the run goes on with


def _adopt(protocol: Protocol, fields: Mapping[str, Any], saved: OpenState | None) -> None:
    """Put the state of the event into the protocol; a process may restore several times before it goes on."""
    protocol.begin()
    s, prompts = protocol.state, protocol.prompts
    stamped = s.sampler == IN_ORDER
    s.__dict__.update(
        version=fields["version"],
        dispatch_cursor=_number(fields["cursor"], -1),
        dropped=_number(fields["dropped"], 0),
        shortfall=Sparse({step: missing for step, missing in fields["shortfalls"] or () if missing}),
        # Of a rollout snapshot nobody says which full save it belongs to; its version is the same.
        anchor=fields["version"],
        permits=s.capacity - len(fields["ready"]),
    )
    _place_loader(protocol, fields, saved)
    cursor = s.cursor
    _require_whole_admissions(fields["name"], fields["pending"])
    for _, *key in (*(entry[:3] for entry in fields["pending"]), *(entry[:3] for entry in fields["ready"])):
        protocol.handed_out.again(key)
    for key in fields["spares"]:
        protocol.handed_out.again(key)
    # The order of arrival, which the buffer keeps; then by admission, which is how prompts are dispatched again.
    pending = sorted(fields["pending"], key=lambda entry: int(entry[4]))
    rows = [
        (group, (epoch, index), NO_ENTRY, READY, step, weight) for group, epoch, index, step, weight in fields["ready"]
    ]
    rows += [
        (group, (epoch, index), PHASES[phase], NO_SLOT, step, -1) for group, epoch, index, phase, _, step in pending
    ]
    places = prompts.add([row[1] for row in rows], [row[0] for row in rows], cursor - 1)
    # The first of this process, so they are all that the vectors hold.
    assert places.start == 0
    s.__dict__.update(
        ledger=Vector([row[2] for row in rows]),
        slot=Vector([row[3] for row in rows]),
        stamp=Vector([_number(row[4], -1) for row in rows]),
        weight=Vector([-1 if stamped or row[3] == NO_SLOT else row[5] for row in rows]),
    )
    spares = prompts.add(fields["spares"], [None] * len(fields["spares"]), cursor - 1)
    s.__dict__["spare"] = Vector([0] * spares.start + [1] * len(spares))
    reserved = [admission for *_, phase, admission, _ in fields["pending"] if phase == "reserved"]
    protocol.admission = reserved[0] if reserved else None


def _require_whole_admissions(name: str, pending: Sequence[Sequence[Any]]) -> None:
    """Entries of one admission agree on phase and step, and one admission waits at the gate."""
    of_one: dict[int, tuple[str, int | None]] = {}
    for group, _, _, phase, admission, step in pending:
        if of_one.setdefault(admission, (phase, step)) != (phase, step):
            raise Refused(f"{name}: group {group} is {phase} for step {step}, unlike others of admission {admission}")
    waiting = [admission for admission, (phase, _) in of_one.items() if phase == "reserved"]
    if len(waiting) > 1:
        raise Refused(
            f"{name}: {counted(len(waiting), 'admission')} wait at the gate, and a run reserves one at a time"
        )


def _place_loader(protocol: Protocol, fields: Mapping[str, Any], saved: OpenState | None) -> None:
    s = protocol.state
    if fields["loader"] is not None:
        epoch, position, exhausted = fields["loader"]
        batches = -(-position // s.batch_size)
        s.__dict__.update(epoch=epoch, cursor=epoch * s.batches + batches, epoch_over=int(batches == s.batches))
        if exhausted:
            s.__dict__.update(epochs=epoch + 1, epoch_over=1, cursor=(epoch + 1) * s.batches)
            protocol.epoch_ended = True
        elif s.epoch_over:
            protocol.epoch_ended = True
    elif saved is not None:
        s.__dict__.update(
            epoch=saved.image_epoch, cursor=saved.image_cursor, epoch_over=saved.image_epoch_over, batches=saved.batches
        )
        protocol.epoch_ended = bool(saved.image_epoch_over)
    else:
        protocol.loader_known = False


def _require_possible(protocol: Protocol, name: str) -> None:
    """Refuse a state in which no run can be: one that breaks a property of the machine about memory."""
    s = protocol.state
    domains: dict[str | None, Sequence[int | None]] = {
        None: (None,),
        "prompts": range(s.size("prompts")),
        "steps": range(s.version, max(s.version, s.dispatch_cursor + 1)),
    }
    for known in cut.properties.values():
        for claim in known.claims:
            if claim.at is not None or known.name in _NOT_OF_A_TRACE:
                continue
            for index in domains[known.each]:
                if not (claim.function(s) if index is None else claim.function(s, index)):
                    of = (
                        ""
                        if index is None
                        else f" for {protocol.prompts.said(index)}"
                        if known.each == "prompts"
                        else f" for step {index}"
                    )
                    raise Refused(f"no run can go on from {name}: {known.name} does not hold{of}. {known.sentence}")


#: The sentence about the loader, of which a trace may know nothing; the one about generations in flight, whose limit no
#: trace tells.
_NOT_OF_A_TRACE = ("loader_agrees", "permits_balance")
