"""A checkpoint, as the cut machine has it and as it stands in the files; and the machine after a restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spec.machines.cut.state import ADMITTED, DROPPED, NO_ENTRY, SNAPSHOT, TRAINED

from ...errors import Violation
from ..follower import Remembered, View
from .prompts import Prompts
from .views import LEDGER_SAYS, SELECT_BY_WEIGHT, batches_handed_out, selects_by_weight


@dataclass(frozen=True)
class OutsideOfTheMachine:
    """What an image holds that the machine has no variable for, as the events of the run have told it.

    The machine keeps the version of the anchor where the files have a name, and drops without their reasons.
    """

    anchor: str | None = None
    """The newest durable full save of this run."""
    parent: str | None = None
    """The newest durable checkpoint of this run."""
    next_group: int = 0
    """The number of groups that were ever named when the window closed."""
    reasons: frozenset[tuple[int, str]] = frozenset()
    """Each dropped prompt with its reason."""


def image_of_machine(state: Any, outside: OutsideOfTheMachine) -> View:
    """The whole image that the machine is about to publish, and what of it the machine leaves to others."""
    ready = frozenset(p for p, e in enumerate(state.image_ready) if e)
    pending = [p for p, e in enumerate(state.image_ledger) if e != NO_ENTRY]
    return {
        "kind": "rollout" if state.kind == SNAPSHOT else "full",
        "anchor": outside.anchor if state.kind == SNAPSHOT else None,
        "parent": outside.parent,
        "next group": outside.next_group,
        "reasons": outside.reasons,
        "cursor": state.image_cursor,
        "epoch": state.image_epoch,
        "exhausted": bool(state.image_epoch == state.epochs - 1 and state.image_epoch_over),
        "dispatch cursor": state.image_dispatch_cursor,
        "shortfalls": tuple((step, missing) for step, missing in enumerate(state.image_shortfall) if missing),
        "drop count": state.image_dropped,
        "version": state.image_version,
        "step": state.image_version,
        "permits": (state.capacity, len(ready)),
        "admissions": frozenset(_partition({p: _admission(state, p) for p in pending})),
        # The library forgets them with the commit, the machine never: they matter while the group is pending.
        "failures": frozenset((p, state.image_tries[p]) for p in pending if state.image_tries[p]),
        "ledger": frozenset((p, LEDGER_SAYS[e]) for p, e in enumerate(state.image_ledger) if e != NO_ENTRY),
        "ready": ready,
        "spares": frozenset(p for p, e in enumerate(state.image_spare) if e),
        "trained": frozenset(p for p, e in enumerate(state.image_account) if e == TRAINED),
        "dropped": frozenset(p for p, e in enumerate(state.image_account) if e == DROPPED),
        "stamps": frozenset((p, e) for p, e in enumerate(state.image_stamp) if e >= 0),
        "weights": frozenset((p, e) for p, e in enumerate(state.image_weight) if e >= 0 and selects_by_weight(state)),
    }


def image_of_files(documents: Mapping[str, Any], prompts: Prompts, retries: int) -> View:
    """The same of a published checkpoint, from its JSON files; `prompts` as they were when it was read.

    The machine counts the failures of a prompt up to its `retries`; the one that ends it gives it up.
    """
    entries = {_number(e, prompts): e for e in documents["ledger.json"]["entries"]}
    slots = {_number(s, prompts): s for s in documents["buffer.json"]["slots"]}
    trainer, loader = documents["trainer.json"], documents["loader.json"]["state"]
    manifest = documents["manifest.json"]
    sampler = documents["sampler.json"]["state"]
    by_weight = documents["sampler.json"]["name"] in SELECT_BY_WEIGHT
    stamps = {p: e["step"] for p, e in entries.items()} | {p: s["step"] for p, s in slots.items()}
    dropped = trainer["accounts"]["dropped"]
    return {
        "kind": manifest["kind"],
        "anchor": manifest["anchor"],
        "parent": manifest["parent"],
        "next group": trainer["next_group"],
        "reasons": frozenset((_number(d, prompts), d["reason"]) for d in dropped),
        "cursor": batches_handed_out(
            loader["epoch"], loader["position"], loader["batch_size"], loader["dataset_length"]
        ),
        "epoch": loader["epoch"],
        "exhausted": loader["exhausted"],
        "dispatch cursor": sampler["cursor"],
        "shortfalls": tuple((step, missing) for step, missing in sampler["shortfalls"]),
        "drop count": sampler["dropped"],
        "version": trainer["version"],
        "step": _agreed(trainer["step"], manifest["step"]),
        "permits": (trainer["permits"]["capacity"], trainer["permits"]["held"]),
        "admissions": frozenset(_partition({p: e["admission"] for p, e in entries.items()})),
        "failures": _failures(entries, trainer["budgets"], prompts, retries),
        "ledger": frozenset((p, e["phase"].upper()) for p, e in entries.items()),
        "ready": frozenset(slots),
        "spares": frozenset(_number(s, prompts) for s in documents["spares.json"]["spares"]),
        "trained": frozenset(
            prompts.of_key((span["epoch"], index))
            for span in trainer["accounts"]["trained"]
            for index in range(span["first"], span["last"] + 1)
        ),
        "dropped": frozenset(_number(d, prompts) for d in dropped),
        "stamps": frozenset((p, step) for p, step in stamps.items() if step is not None),
        "weights": frozenset((p, s["weight"]) for p, s in slots.items() if by_weight),
    }


def reasons_told(action: str, fields: Mapping[str, Any]) -> dict[int | tuple[int, int], str]:
    """The prompts that an event says are dropped, by group, or without one by key, with the reason."""
    if action in ("substitute", "borrow"):
        return {fields["group"]: "replaced"}
    if action == "abort_stale":
        return {fields["group"]: "stale_inflight"}
    if action in ("drop", "evict"):
        return {fields["group"]: fields["reason"]}
    if fields.get("reason") is not None and "keys" in fields:
        return dict.fromkeys(fields["keys"], fields["reason"])
    return {}


def handed_out_count(documents: Mapping[str, Any]) -> int:
    """How many prompts are behind the loader's cursor, over all epochs."""
    loader = documents["loader.json"]["state"]
    return int(loader["epoch"] * loader["dataset_length"] + loader["position"])


def owners_of_files(documents: Mapping[str, Any]) -> dict[tuple[int, int], list[str]]:
    """Who owns each key of a published checkpoint: ledger, buffer, spare pool, accounts."""
    owners: dict[tuple[int, int], list[str]] = {}
    accounts = documents["trainer.json"]["accounts"]
    for owner, records in (
        ("ledger", documents["ledger.json"]["entries"]),
        ("buffer", documents["buffer.json"]["slots"]),
        ("spares", documents["spares.json"]["spares"]),
        ("dropped", accounts["dropped"]),
    ):
        for record in records:
            owners.setdefault((record["epoch"], record["index"]), []).append(owner)
    for span in accounts["trained"]:
        for index in range(span["first"], span["last"] + 1):
            owners.setdefault((span["epoch"], index), []).append("trained")
    return owners


def restored_state(model: Remembered, about_to_publish: Any, action: str) -> Any:
    """The machine's state after a crash in which the image about to be published was durable."""
    step = model.step_named(about_to_publish, action, None)
    if step is None:
        raise Violation("refinement", f"the machine does not enable {action} where the checkpoint was published")
    return step.state


def _admission(state: Any, p: int) -> tuple[str, int]:
    """Which admission a pending prompt belongs to: before its stamp the batch it came with, then the step."""
    if state.image_ledger[p] == ADMITTED and state.image_stamp[p] >= 0:
        return ("step", state.image_stamp[p])
    return ("batch", state.batch_of[p])


def _partition(names: Mapping[int, Hashable]) -> Iterable[frozenset[int]]:
    """Which prompts share a name, whatever the names are."""
    for name in set(names.values()):
        yield frozenset(p for p, other in names.items() if other == name)


def _failures(
    entries: Mapping[int, Any], budgets: Mapping[str, int], prompts: Prompts, retries: int
) -> frozenset[tuple[int, Hashable]]:
    """The failures of each prompt: the sum of its budgets, which the attempts of its entry have to agree with."""
    counted: Counter[int] = Counter()
    for cause, count in budgets.items():
        counted[prompts.of_group(int(cause.partition("/")[0]))] += count
    attempts = {p: entry["attempt"] for p, entry in entries.items()}
    found = {p: _agreed(counted[p], attempts.get(p, 0)) for p in attempts.keys() | counted.keys()}
    return frozenset((p, min(n, retries) if isinstance(n, int) else n) for p, n in found.items() if n and retries)


def _agreed(one: int, other: int) -> int | tuple[int, int]:
    """The value that two places of the files have to agree on, or both."""
    return one if one == other else (one, other)


def _number(record: Mapping[str, Any], prompts: Prompts) -> int:
    return prompts.of_key((record["epoch"], record["index"]))
