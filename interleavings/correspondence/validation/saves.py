"""The window, what is read in it, and publication: the machine's save, followed through a run.

Nothing says what a cut is for when it is asked for: a save, a restore, or a reader of the user's. So the machine asks
for its own with the first artifact that is read, in the same window; slots are shut in between in any case.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from impl.store.names import parse_checkpoint_name
from impl.tracing import Event
from spec.machines.cut.saving import no_image
from spec.machines.cut.state import CAPTURED, CLAIMED, FULL, OUTSIDE_WINDOW, SNAPSHOT, WRITING

from .live_prompts import Key
from .open_state import OpenState
from .protocol import Protocol
from .refused import Refused

READS = ("read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger", "read_trainer")
#: Images that are kept to compare a restore with; a run that goes back further starts from what its event says.
MOST_IMAGES = 16
KINDS = {"full": FULL, "rollout": SNAPSHOT}


@dataclass(frozen=True)
class Image:
    """What a window read: the machine's state at its end, and who is at which place of it."""

    state: OpenState
    keys: tuple[Key, ...]
    groups: tuple[int | None, ...]
    sequence: int
    """The lowest that its checkpoint can have, if `certain` the one it has; once it is published, its own."""
    life: int
    """Which process of the run read it, from 1."""
    certain: bool = False
    fence: int | None = None
    """The number of the process that read it, as its checkpoints tell it; None until one does."""


@dataclass
class Images:
    """The checkpoints of a run that a later process may go on from; they outlive the process that wrote them."""

    published: OrderedDict[str, Image] = field(default_factory=OrderedDict)
    unsaid: Image | None = None
    """Read, and the process ended before it said whether this became durable."""
    doubtful: set[str] = field(default_factory=set)
    """Names that another checkpoint may have by now: numbers are taken anew once the newest have been deleted."""
    life: int = 0
    """Which process of the run is followed."""
    _restored: bool = False

    def begin_life(self) -> None:
        """A process begins. One that said no restore before it was killed may have gone on from any checkpoint."""
        if self.life and not self._restored:
            self.doubtful |= {name for name, image in self.published.items() if image.life < self.life}
        self.life += 1
        self._restored = False

    def went_on_from(self, sequence: int) -> None:
        """This process restored that checkpoint; whatever came after it may be gone from the disk."""
        self._restored = True
        self.doubtful |= {name for name, image in self.published.items() if image.sequence > sequence}

    def of_sequence(self, sequence: int, fence: int | None) -> Image | None:
        """The window that nobody said was published, if it can only be that of the checkpoint with this sequence.

        Not if it is of another process, or one came in between: that may have taken the same number, and its events may
        be lost.
        """
        image = self.unsaid
        if image is None or not image.certain or image.life < self.life - 1 or written_by_others(image, fence):
            return None
        return image if image.sequence == sequence else None

    def publish(self, name: str, image: Image) -> None:
        """Keep an image under its name, and only so many."""
        self.doubtful.discard(name)
        self.published[name] = image
        while len(self.published) > MOST_IMAGES:
            self.doubtful.discard(self.published.popitem(last=False)[0])


def written_by_others(image: Image, fence: int | None) -> bool:
    """Whether the checkpoint that a restore tells of is certainly not this image, whatever its name."""
    return None not in (fence, image.fence) and fence != image.fence


def require_name(event: Event) -> None:
    """The name of a checkpoint tells its step and its sequence."""
    name, step, sequence = (event.fields[field] for field in ("name", "step", "sequence"))
    if parse_checkpoint_name(name) != (step, sequence):
        raise Refused(f"{name} is no name of a checkpoint of step {step} with the number {sequence}", [event.action])


class Saves:
    """The rules of a save. `recovery`: whether this run saves more than its trainer."""

    def __init__(self, protocol: Protocol, images: Images, recovery: bool) -> None:
        self._protocol = protocol
        self._images = images
        self._recovery = recovery
        self._written: Image | None = None
        # Each window that was read takes the next sequence, whatever becomes of it. At the beginning of a process more
        # may be gone: what a killed writer left counts too.
        self._next_sequence = 1
        # Not after a restore, until something is published: of what came after the restored one nothing is known.
        self._numbers_known = True
        # The sequence of the newest checkpoint that this process knows of, and whether it is one of its own.
        self._newest, self._has_published = 0, False
        # The number that the window was read for, where the trace tells it.
        self._announced: int | None = None
        # The number of this process, once a checkpoint of its own has told it.
        self._fence: int | None = None
        self._fence_before = 0
        # Why the window before ended without an image, for a publication that has none.
        self._left_open = ""

    def follow(self, event: Event) -> None:
        """Take the step that the event stands for. Raises `Refused`."""
        if self._recovery:
            getattr(self, f"_{'read' if event.action in READS else event.action}")(event)

    def went_on_from(self, sequence: int, fence: int | None) -> None:
        """This process restored the checkpoint of that sequence, which the process of that number had written."""
        self._images.went_on_from(sequence)
        # One that restores in the middle of its life goes back to what it may have written itself.
        if fence is not None and fence != self._fence:
            self._fence_before = fence
        self._next_sequence, self._numbers_known = sequence + 1, False
        self._newest, self._has_published = sequence, False

    def _ask(self) -> None:
        """Ask for the cut that is open: a full save between two train steps, a rollout snapshot while one is open."""
        protocol, s = self._protocol, self._protocol.state
        if s.window == OUTSIDE_WINDOW:
            open_step = any(slot == CLAIMED for slot in s.slot)
            protocol.take("request_snapshot" if open_step else "request_cut")
            protocol.take("open_cut")

    def _read(self, event: Event) -> None:
        self._ask()
        self._protocol.take(event.action)
        if event.action == "read_trainer" and event.fields.get("sequence") is not None:
            sequence = event.fields["sequence"]
            self._require_next(sequence, self._next_sequence)
            self._note_fence(event.fields.get("fence"))
            self._next_sequence, self._numbers_known = sequence, True
            self._announced = sequence

    def _skip_snapshot(self, event: Event) -> None:
        self._protocol.take("request_snapshot")
        self._protocol.take("open_cut")
        s = self._protocol.state
        if not s.take("skip_snapshot"):
            # A checkpointer that has not saved yet in this process has no anchor, whatever is on its disk.
            s.apply(self._ended())

    def _open_cut(self, event: Event) -> None:
        """The barrier's business, until something is read."""

    def _close_cut(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        if s.window == CAPTURED:
            protocol.take("close_window")
            prompts = protocol.prompts
            self._written = self._images.unsaid = Image(
                s.copy(), tuple(prompts.keys), tuple(prompts.groups), self._next_sequence, self._images.life,
                self._numbers_known, self._fence,
            )  # fmt: skip
            self._next_sequence += 1
        elif s.window not in (OUTSIDE_WINDOW, WRITING):
            # A save that fails inside its window publishes nothing and changes nothing.
            self._left_open = f"the last window ended with {protocol.counters().rpartition(', ')[2]}"
            s.apply(self._ended())

    def _publish(self, event: Event) -> None:
        protocol, s = self._protocol, self._protocol.state
        kind = KINDS.get(event.fields["kind"])
        if s.window != WRITING or self._written is None:
            what = f"; {self._left_open}" if self._left_open else ""
            raise protocol.refused(f"nothing was read that could be published{what}")
        require_name(event)
        self._require_next(event.fields["sequence"], self._written.sequence)
        if kind is None:
            raise protocol.refused(f"a checkpoint of kind {event.fields['kind']!r} in a run with recovery")
        if kind == FULL and s.kind == SNAPSHOT:
            raise protocol.refused("a full save was read while a train step was open")
        s.__dict__["kind"] = kind
        self._written.state.__dict__["kind"] = kind
        if kind == SNAPSHOT and s.image_version != s.anchor >= 0:
            raise protocol.refused(
                f"the snapshot is of version {s.image_version}, and the newest durable full save of version {s.anchor}"
            )
        if event.fields["step"] != s.image_version:
            raise protocol.refused(
                f"{event.fields['name']} is of version {s.image_version}, not {event.fields['step']}"
            )
        protocol.take("publish")
        sequence = event.fields["sequence"]
        if self._announced not in (None, sequence):
            raise protocol.refused(f"its number is {sequence}, and its window was read for {self._announced}")
        self._note_fence(event.fields.get("fence"))
        self._announced = None
        self._images.publish(event.fields["name"], replace(self._written, sequence=sequence, fence=self._fence))
        self._next_sequence, self._numbers_known = sequence + 1, True
        self._newest, self._has_published = sequence, True
        self._written = self._images.unsaid = None
        self._left_open = ""

    def _note_fence(self, fence: int | None) -> None:
        """The number of a process is one, and more than that of any before it."""
        if fence is not None and (fence <= self._fence_before or self._fence not in (None, fence)):
            right = f"more than {self._fence_before}" if self._fence is None else f"{self._fence}"
            raise self._protocol.refused(f"the number of this process is {fence}, and must be {right}")
        self._fence = fence

    def _require_next(self, sequence: int, most: int) -> None:
        """Numbers rise, by one for each window at most; only the first of a process may leave more of them out."""
        if sequence <= self._newest or (self._has_published and sequence > most):
            right = f"from {self._newest + 1} to {most}" if self._has_published else f"more than {self._newest}"
            raise self._protocol.refused(f"its number is {sequence}, and must be {right}")

    def _fail_save(self, event: Event) -> None:
        self._protocol.take("fail_save")
        # A writer that failed may have published all the same: an error after the rename.
        self._written = None

    def _ended(self) -> dict[str, object]:
        """The effects of a save that ends without an image, by the machine's own word."""
        return no_image(self._protocol.state)
