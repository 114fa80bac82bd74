"""A checkpoint, as the cut machine has it and as it stands in the files; and the machine after a restore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec.cut.state import DROPPED, NO_ENTRY, TRAINED

from ..errors import Violation
from ..follower import Remembered, View
from .prompts import Prompts
from .views import LEDGER_SAYS, SELECT_BY_WEIGHT, batches_handed_out, selects_by_weight


def image_of_machine(state: Any) -> View:
    """The whole image that the machine is about to publish."""
    return {
        "cursor": state.image_cursor,
        "epoch": state.image_epoch,
        "exhausted": bool(state.image_epoch == state.epochs - 1 and state.image_epoch_over),
        "dispatch cursor": state.image_dispatch_cursor,
        "shortfalls": tuple((step, missing) for step, missing in enumerate(state.image_shortfall) if missing),
        "drop count": state.image_dropped,
        "version": state.image_version,
        "ledger": frozenset((p, LEDGER_SAYS[e]) for p, e in enumerate(state.image_ledger) if e != NO_ENTRY),
        "ready": frozenset(p for p, e in enumerate(state.image_ready) if e),
        "spares": frozenset(p for p, e in enumerate(state.image_spare) if e),
        "trained": frozenset(p for p, e in enumerate(state.image_account) if e == TRAINED),
        "dropped": frozenset(p for p, e in enumerate(state.image_account) if e == DROPPED),
        "stamps": frozenset((p, e) for p, e in enumerate(state.image_stamp) if e >= 0),
        "weights": frozenset((p, e) for p, e in enumerate(state.image_weight) if e >= 0 and selects_by_weight(state)),
    }


def image_of_files(documents: Mapping[str, Any], prompts: Prompts) -> View:
    """The same of a published checkpoint, from its JSON files; `prompts` as they were when it was read."""
    entries = {_number(e, prompts): e for e in documents["ledger.json"]["entries"]}
    slots = {_number(s, prompts): s for s in documents["buffer.json"]["slots"]}
    trainer, loader = documents["trainer.json"], documents["loader.json"]["state"]
    sampler = documents["sampler.json"]["state"]
    by_weight = documents["sampler.json"]["name"] in SELECT_BY_WEIGHT
    stamps = {p: e["step"] for p, e in entries.items()} | {p: s["step"] for p, s in slots.items()}
    return {
        "cursor": batches_handed_out(
            loader["epoch"], loader["position"], loader["batch_size"], loader["dataset_length"]
        ),
        "epoch": loader["epoch"],
        "exhausted": loader["exhausted"],
        "dispatch cursor": sampler["cursor"],
        "shortfalls": tuple((step, missing) for step, missing in sampler["shortfalls"]),
        "drop count": sampler["dropped"],
        "version": trainer["version"],
        "ledger": frozenset((p, e["phase"].upper()) for p, e in entries.items()),
        "ready": frozenset(slots),
        "spares": frozenset(_number(s, prompts) for s in documents["spares.json"]["spares"]),
        "trained": frozenset(
            prompts.of_key((span["epoch"], index))
            for span in trainer["accounts"]["trained"]
            for index in range(span["first"], span["last"] + 1)
        ),
        "dropped": frozenset(_number(d, prompts) for d in trainer["accounts"]["dropped"]),
        "stamps": frozenset((p, step) for p, step in stamps.items() if step is not None),
        "weights": frozenset((p, s["weight"]) for p, s in slots.items() if by_weight),
    }


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


def _number(record: Mapping[str, Any], prompts: Prompts) -> int:
    return prompts.of_key((record["epoch"], record["index"]))
