"""How everything of a machine stands in one state, in the words of a page: prompts, writers, checkpoints, attempts."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import groupby
from typing import Any

from spec.machines.barrier import CHECKPOINT_STANDS, INSIDE, QUEUED, WAITING, WRITER_STANDS
from spec.machines.barrier import OPEN as CUT_IS_OPEN
from spec.machines.cut.state import (
    ACCOUNT_SAYS,
    ADMITTED,
    BACKING_OFF,
    CAPTURED,
    CLAIMED,
    DRAINING,
    GIVEN_UP,
    LEDGER_SAYS,
    NO_ACCOUNT,
    NO_ENTRY,
    OPEN,
    POOL_READ,
    READY,
    TRAINED,
    UNREADY,
    WRITING,
)
from spec.machines.store.actions import CACHED, CONTENT_SAYS, DURABLE, NOWHERE, PLACE_SAYS, PUBLISHED

from ..report.page import Band, Kind, Standing

Standings = tuple[Standing, ...]
#: Fewer neighbours than this are shown one by one.
FEW_PROMPTS = 3


def standing_in(machine: str, state: Any, concerned: Container[int]) -> Standings:
    """What the machine is about, thing by thing; nothing for a machine without words for it."""
    return _STANDINGS[machine](state, concerned) if machine in _STANDINGS else ()


def image_in(machine: str, state: Any, concerned: Container[int]) -> Standings:
    """The owners in the checkpoint that is being read, as far as it is."""
    if machine not in ("cut", "combined") or state.window < POOL_READ:
        return ()
    whole = state.window in (CAPTURED, WRITING)
    return _together([_in_image(state, p, whole, p in concerned) for p in state.prompts])


def band_in(machine: str, state: Any) -> Band:
    """Whether a cut is open or asked for."""
    if machine in ("cut", "combined"):
        return "open" if state.window >= OPEN else "asked" if state.window == DRAINING else ""
    if machine == "barrier":
        return "open" if CUT_IS_OPEN in state.cut else "asked" if QUEUED in state.cut else ""
    return ""


# -- prompts

Owner = tuple[str, Kind]


def _owners_in_memory(s: Any, p: int) -> list[Owner]:
    owners: list[Owner] = []
    if s.ledger[p] != NO_ENTRY:
        owners.append(_in_ledger(s, p))
    if s.slot[p] == READY:
        owners.append(("buffer, ready", "ready"))
    if s.slot[p] == CLAIMED:
        owners.append(("buffer, claimed", "claimed"))
    if s.spare[p]:
        owners.append(("spare pool", "spare"))
    if s.account[p] != NO_ACCOUNT:
        owners.append((ACCOUNT_SAYS[s.account[p]], "done" if s.account[p] == TRAINED else "dropped"))
    return owners


def _in_ledger(s: Any, p: int) -> Owner:
    words = f"ledger, {LEDGER_SAYS[s.ledger[p]]}"
    if s.ledger[p] != ADMITTED:
        return words, "waiting"
    doing = {BACKING_OFF: "backs off", GIVEN_UP: "given up"}.get(s.trouble[p], "generates")
    return (f"{words}, {doing}" if s.slot[p] == UNREADY else words), "working"


def _owners_in_image(s: Any, p: int) -> list[Owner]:
    owners: list[Owner] = []
    if s.image_ledger[p] != NO_ENTRY:
        owners.append((f"ledger, {LEDGER_SAYS[s.image_ledger[p]]}", "working"))
    if s.image_ready[p]:
        owners.append(("buffer, ready", "ready"))
    if s.image_spare[p]:
        owners.append(("spare pool", "spare"))
    if s.image_account[p] != NO_ACCOUNT:
        owners.append((ACCOUNT_SAYS[s.image_account[p]], "done"))
    return owners


def _in_image(s: Any, p: int, whole: bool, concerned: bool) -> Standing:
    owners = _owners_in_image(s, p)
    if not owners and not whole and s.batch_of[p] < s.image_cursor:
        # The artifact that owns it may still come.
        return Standing(f"prompt {p}", "not read yet", "idle", concerned)
    return _prompt(s, p, owners, s.image_cursor, concerned)


def _prompt(s: Any, p: int, owners: list[Owner], cursor: int, concerned: bool) -> Standing:
    name = f"prompt {p}"
    if len(owners) == 1:
        stamp = f", step {s.stamp[p]}" if s.stamp[p] >= 0 and owners[0][1] not in ("done", "dropped", "spare") else ""
        return Standing(name, owners[0][0] + stamp, owners[0][1], concerned)
    if owners:
        words = " and ".join(word for word, _ in owners)
        # Between its commit and the removal of its ledger entry a group rightly has two.
        lingers = bool(s.lingering[p]) and len(owners) == 2
        return Standing(name, words, "ready" if lingers else "several", concerned)
    unread = s.batch_of[p] >= cursor
    return Standing(name, "unread" if unread else "no owner", "unread" if unread else "none", concerned)


def _prompts(s: Any, concerned: Container[int]) -> Standings:
    return _together([_prompt(s, p, _owners_in_memory(s, p), s.cursor, p in concerned) for p in s.prompts])


def _together(prompts: Sequence[Standing]) -> Standings:
    """Neighbours of whom nothing is to be told any more, or not yet, are told in one: `prompts 2 to 7 unread`."""
    shown: list[Standing] = []
    for (words, kind, concerned), run in groupby(enumerate(prompts), lambda entry: _look(entry[1])):
        numbered = list(run)
        if concerned or kind not in ("unread", "done", "dropped") or len(numbered) < FEW_PROMPTS:
            shown += [prompt for _, prompt in numbered]
        else:
            shown.append(Standing(f"prompts {numbered[0][0]} to {numbered[-1][0]}", words, kind))
    return tuple(shown)


def _look(prompt: Standing) -> tuple[str, Kind, bool]:
    return prompt.words, prompt.kind, prompt.concerned


# -- the other machines


def _barrier(s: Any, concerned: Container[int]) -> Standings:
    kinds: dict[int, Kind] = {WAITING: "waiting", INSIDE: "working"}
    writers = [
        Standing(f"writer {w}", WRITER_STANDS[s.at[w]], kinds.get(s.at[w], "idle"), w in concerned)
        for w in s.all_writers
    ]
    cuts: dict[int, Kind] = {QUEUED: "waiting", CUT_IS_OPEN: "claimed"}
    checkpoints = [
        Standing(f"checkpoint {c}", CHECKPOINT_STANDS[s.cut[c]], cuts.get(s.cut[c], "idle"))
        for c in s.all_checkpointers
    ]
    return (*writers, *checkpoints)


def _store(s: Any, concerned: Container[int]) -> Standings:
    begun = [k for k in s.attempts_made if s.place[k] != NOWHERE or s.place_on_disk[k] != NOWHERE]
    return tuple(_attempt(s, k, k in concerned) for k in begun)


def _attempt(s: Any, k: int, concerned: bool) -> Standing:
    parts = (s.data[k], s.manifest[k], s.names[k])
    contents = (
        "all durable"
        if set(parts) == {DURABLE}
        else ", ".join(
            f"{name} {CONTENT_SAYS[part]}" for name, part in zip(("data", "manifest", "names"), parts, strict=True)
        )
    )
    kind: Kind = "ready" if set(parts) == {DURABLE} else "waiting" if min(parts) >= CACHED else "idle"
    if s.place_on_disk[k] == PUBLISHED and set(parts) != {DURABLE}:
        kind = "none"
    where = PLACE_SAYS[s.place[k]]
    disk = "" if s.place[k] == s.place_on_disk[k] else f" (after a crash {PLACE_SAYS[s.place_on_disk[k]]})"
    return Standing(f"save {k}", f"{where}{disk}: {contents}", kind, concerned)


_STANDINGS: dict[str, Callable[[Any, Container[int]], Standings]] = {
    "cut": _prompts,
    "combined": _prompts,
    "barrier": _barrier,
    "store": _store,
}
