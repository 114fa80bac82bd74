"""The one list of checks that decides whether a checkpoint is whole.

A restore, `fsck`, `inspect`, `watch` and the end of every save ask here, so none of them takes what another refuses.
The bytes and the manifest come first and are decided where they are read, by the list in `store/manifest.py`. Each
check here is a function over values that yields problems; each problem names a file and a key in it. A later check may
rely on what an earlier one found right: after the first check with a problem no other is asked.

What not every checkpoint has (an index of rows, an anchor, a trainer alone) is in `file_checks.py`, in the same form.

What only a run knows (which run it is, how many epochs it has, whether its buffer is large enough) is no part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cleancut_leaf.words import counted

from ..errors import CheckpointCorrupt, CheckpointIncompatible, CleancutError
from ..keys import Key
from ..loaders.prompt_loader import LoaderState
from ..loaders.prompt_loader import check_place as check_place_of_a_prompt_loader
from ..loaders.torchdata_state import TorchdataLoaderState
from ..loaders.torchdata_state import check_place_anywhere as check_place_of_torchdata
from ..run.accounts import AccountsSnapshot
from ..run.ledger import LedgerSnapshot
from ..run.pending_groups import Phase
from ..run.samplers import InOrderSampler, ReadyFirstSampler, SamplerState, WeightFifoSampler, WindowedSampler
from ..run.samplers.step_sampler import check_counts as check_counts_of_a_sampler
from ..store import strict_json
from ..store.manifest import Manifest
from . import documents as doc
from .artifacts import OF_THE_DATA
from .ledger_documents import accounts_snapshot, ledger_snapshot
from .ownership import HandedOut, Ownership, Span, balance
from .validation import Documents, cursor_of, prompt_loader_place, rebuilt_state, without_buffered

NEVER = "was never handed out, so a resume would draw it again"
#: No run counts as far, and every program that reads JSON holds it exactly.
HIGHEST_COUNT = 2**53
#: What each sampler of this library does with stamps.
STAMPED: Mapping[str, bool] = {
    sampler.name: sampler.stamped for sampler in (InOrderSampler, ReadyFirstSampler, WeightFifoSampler, WindowedSampler)
}
#: The states of the loaders of this library, and what can be told of them without their data.
LOADERS: tuple[tuple[Any, Callable[[Any], None]], ...] = (
    (LoaderState(0, 0, False, 0, 1, 1, ""), check_place_of_a_prompt_loader),
    (TorchdataLoaderState(0, 0, (), False, None, 0, 1, 1, "", None, 0), check_place_of_torchdata),
)
#: The files of every checkpoint but those of the trainer alone.
FILES = (doc.SAMPLER, doc.LOADER, doc.SPARES, doc.BUFFER, doc.LEDGER, doc.TRAINER)
_UNITS = {"buffered": "groups", "pending": "groups", "spares": "prompts", "trained": "prompts", "dropped": "prompts"}
MANIFEST = "manifest.json"


class Problem(NamedTuple):
    """What is wrong, where. `other_version`: sound, and written by something that knows more than this version."""

    file: str
    key: str
    what: str
    other_version: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.what}"


Problems = Iterator[Problem]


@dataclass(frozen=True)
class Checked:
    """The documents of one checkpoint, with what several checks make of them.

    `stamped` is what the live sampler says, if there is one; those of this library are known by their names. `known`
    are accounts of which every prompt was found to be handed out: a save has those of the save before it, and looks
    at what is new. Without them every prompt is looked at, within the bounds of `ownership`. `captured` are the
    accounts themselves, where a save has them and need not read them from their document.
    """

    documents: Documents
    stamped: bool | None = None
    known: AccountsSnapshot | None = None
    captured: AccountsSnapshot | None = None

    @cached_property
    def accounts(self) -> AccountsSnapshot:
        """The accounts; asked for once `accounts_agree` has found that they are some."""
        return self.captured or accounts_snapshot(self.documents.trainer.accounts)

    @cached_property
    def entries(self) -> list[doc.EntryDocument]:
        """The pending prompts that no buffered group has."""
        return without_buffered(self.documents)[0]

    @cached_property
    def ledger(self) -> LedgerSnapshot:
        """What is put into the ledger."""
        return ledger_snapshot(self.entries, self.documents.trainer, self.documents.trainer.next_admission)

    @cached_property
    def ownership(self) -> Ownership:
        """Who owns each prompt; asked for once the keys are of the dataset."""
        return balance(_spans(self), handed_out_by(self.documents.loader.state))

    @property
    def gives_stamps(self) -> bool | None:
        """Whether the sampler stamps; None where nobody knows."""
        return STAMPED.get(self.documents.sampler.name, self.stamped)


# -- numbers and names -------------------------------------------------------------------------------------------------


def steps_agree(checked: Checked) -> Problems:
    """The trainer's step is the one that the directory is named after."""
    saved, named = checked.documents.trainer.step, checked.documents.manifest.step
    if saved != named:
        yield Problem(doc.TRAINER, "step", f"the trainer is at step {saved}, and the checkpoint is of step {named}")


def numbers_are_counts(checked: Checked) -> Problems:
    """Nothing that counts is below 0, or beyond what any run counts."""
    documents = checked.documents
    trainer = documents.trainer
    numbers: list[tuple[str, str, int | None]] = [(doc.BUFFER, "capacity", documents.buffer.capacity)]
    for place, slot in enumerate(documents.buffer.slots):
        for name in ("group", "step", "weight"):
            numbers.append((doc.BUFFER, f"slots[{place}].{name}", getattr(slot, name)))
    for place, entry in enumerate(documents.ledger.entries):
        for name in ("group", "admission", "step", "attempt"):
            numbers.append((doc.LEDGER, f"entries[{place}].{name}", getattr(entry, name)))
    for name in ("version", "step", "next_group", "next_admission"):
        numbers.append((doc.TRAINER, name, getattr(trainer, name)))
    numbers += [(doc.TRAINER, f"budgets.{name}", count) for name, count in trainer.budgets.items()]
    for file, key, number in numbers:
        if number is not None and not 0 <= number <= HIGHEST_COUNT:
            bound = "below 0" if number < 0 else "more than any run counts"
            yield Problem(file, key, f"it is {number}, which is {bound}")


def keys_are_of_the_dataset(checked: Checked) -> Problems:
    """Every prompt that is named is a row of the dataset, in some epoch."""
    documents = checked.documents
    length = documents.manifest.identity.dataset_length
    accounts = documents.trainer.accounts
    lists: tuple[tuple[str, str, Iterable[Any]], ...] = (
        (doc.BUFFER, "slots", documents.buffer.slots),
        (doc.LEDGER, "entries", documents.ledger.entries),
        (doc.SPARES, "spares", documents.spares.spares),
        (doc.TRAINER, "accounts.dropped", accounts.dropped),
    )
    for file, listed, owners in lists:
        for place, owner in enumerate(owners):
            if not 0 <= owner.epoch <= HIGHEST_COUNT or not 0 <= owner.index < length:
                key = f"{listed}[{place}].{'index' if 0 <= owner.epoch <= HIGHEST_COUNT else 'epoch'}"
                prompt = (owner.epoch, owner.index)
                yield Problem(file, key, f"the prompt {prompt} is one which no epoch has: there are {length} rows")
    for place, interval in enumerate(accounts.trained):
        if not 0 <= interval.epoch <= HIGHEST_COUNT or not 0 <= interval.first <= interval.last < length:
            rows = f"the rows {interval.first} to {interval.last} of epoch {interval.epoch} were trained"
            yield Problem(
                doc.TRAINER, f"accounts.trained[{place}]", f"{rows}, and there are no such rows among {length}"
            )


def parts_name_one_run(checked: Checked) -> Problems:
    """Sampler and loader are those that the manifest names."""
    documents = checked.documents
    identity, sampler = documents.manifest.identity, documents.sampler
    if sampler.name != identity.sampler.name:
        yield Problem(
            doc.SAMPLER, "name", f"the sampler is {sampler.name!r}, and the manifest's {identity.sampler.name!r}"
        )
    elif not _same(sampler.parameters, identity.sampler.parameters):
        yield Problem(
            doc.SAMPLER,
            "parameters",
            f"they are {sampler.parameters}, and the manifest's {identity.sampler.parameters}",
        )
    for name in OF_THE_DATA:
        theirs = getattr(identity, name)
        mine = documents.loader.state.get(name, theirs)
        if not _same(mine, theirs):
            yield Problem(
                doc.LOADER, f"state.{name}", f"the loader has the {name} {mine!r}, and the manifest {theirs!r}"
            )


def _same(one: object, other: object) -> bool:
    """Equal in type as well: 1, 1.0 and true are three values in a file."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and one == other


def parts_are_of_one_save(checked: Checked) -> Problems:
    """The rows, the index and the ledger were captured together, and each group holds a permit."""
    documents = checked.documents
    stamp, permits = documents.buffer.rows, documents.trainer.permits
    groups, entries = len(documents.buffer.slots), len(documents.ledger.entries)
    captured = f"the rows were captured with {counted(stamp.groups, 'group')} and "
    captured += counted(stamp.ledger_entries, "ledger entry", "ledger entries")
    found = f"the index has {groups}, the ledger {entries}, or the ledger is another one. The parts are of two saves"
    for name, said, really in (
        ("groups", stamp.groups, groups),
        ("ledger_entries", stamp.ledger_entries, entries),
        ("ledger_sha256", stamp.ledger_sha256, documents.manifest.files[doc.LEDGER].sha256),
    ):
        if said != really:
            yield Problem(doc.BUFFER, f"rows.{name}", f"{captured}; {found}")
    if permits.held != groups:
        held = counted(permits.held, "permit is", "permits are")
        yield Problem(doc.TRAINER, "permits.held", f"{held} held for {counted(groups, 'group')}")
    capacity = documents.buffer.capacity
    if capacity != permits.capacity or capacity < max(groups, 1):
        yield Problem(
            doc.BUFFER,
            "capacity",
            f"it has a capacity of {capacity} with {groups} groups, and there were {permits.capacity} permits",
        )


def words_are_known(checked: Checked) -> Problems:
    """Phases and kinds of payload are ones that this version knows, and a payload is plain."""
    documents = checked.documents
    known = {phase.value for phase in Phase}
    for place, entry in enumerate(documents.ledger.entries):
        if entry.phase not in known:
            what = f"group {entry.group} is in the phase {entry.phase!r}, which this version does not know (it knows "
            yield Problem(doc.LEDGER, f"entries[{place}].phase", f"{what}{', '.join(sorted(known))})", True)
        yield from _payload(doc.LEDGER, f"entries[{place}]", f"group {entry.group}", entry.payload)
    for place, spare in enumerate(documents.spares.spares):
        yield from _payload(doc.SPARES, f"spares[{place}]", f"the spare {spare.epoch, spare.index}", spare.payload)


def _payload(file: str, key: str, owner: str, payload: doc.PayloadDocument) -> Problems:
    if payload.kind not in ("dataset", "value"):
        what = f"the payload of {owner} is of the kind {payload.kind!r}, which this version does not know"
        yield Problem(file, f"{key}.payload.kind", what, True)
    elif (payload.kind == "dataset") != (payload.value is None):
        what = f"the payload of {owner} is of the kind {payload.kind!r} and has the value {payload.value!r:.80}"
        yield Problem(file, f"{key}.payload.value", what)


def free_values_are_plain(checked: Checked) -> Problems:
    """What has no form of its own could be written again: a run that takes it up must be able to save."""
    documents = checked.documents
    values: list[tuple[str, str, object]] = [
        (doc.SAMPLER, "state", documents.sampler.state),
        (doc.LOADER, "state", documents.loader.state),
    ]
    values += [
        (doc.LEDGER, f"entries[{p}].payload.value", e.payload.value) for p, e in enumerate(documents.ledger.entries)
    ]
    values += [
        (doc.SPARES, f"spares[{p}].payload.value", s.payload.value) for p, s in enumerate(documents.spares.spares)
    ]
    for file, key, value in values:
        try:
            strict_json.checked(value, key)
        except CleancutError as error:
            yield Problem(file, key, _first_sentence(error))


# -- owners ------------------------------------------------------------------------------------------------------------


def owners_are_distinct(checked: Checked) -> Problems:
    """One owner for each group and each key. A group in ledger and buffer is no fault: the buffer's copy wins."""
    documents = checked.documents
    yield from _distinct(doc.LEDGER, "entries", "the ledger", documents.ledger.entries)
    yield from _distinct(doc.BUFFER, "slots", "the buffer", documents.buffer.slots)
    keys = {(entry.epoch, entry.index): entry.group for entry in documents.ledger.entries}
    for place, slot in enumerate(documents.buffer.slots):
        other = keys.setdefault((slot.epoch, slot.index), slot.group)
        if other != slot.group:
            what = f"the prompt {slot.epoch, slot.index} belongs to groups {other} and {slot.group}"
            yield Problem(doc.BUFFER, f"slots[{place}]", what)
    spares: set[tuple[int, int]] = set()
    for place, spare in enumerate(documents.spares.spares):
        key = (spare.epoch, spare.index)
        if key in spares:
            yield Problem(doc.SPARES, f"spares[{place}]", f"the spare pool holds the prompt {key} twice")
        elif key in keys:
            yield Problem(
                doc.SPARES, f"spares[{place}]", f"the prompt {key} is a spare and belongs to group {keys[key]}"
            )
        spares.add(key)
    pending = {entry.group: (entry.epoch, entry.index) for entry in documents.ledger.entries}
    for place, slot in enumerate(documents.buffer.slots):
        if pending.get(slot.group, (slot.epoch, slot.index)) != (slot.epoch, slot.index):
            what = f"group {slot.group} is the prompt {slot.epoch, slot.index}, and {pending[slot.group]} in the ledger"
            yield Problem(doc.BUFFER, f"slots[{place}]", what)


def _distinct(file: str, listed: str, where: str, owners: Iterable[Any]) -> Problems:
    groups: set[int] = set()
    keys: set[tuple[int, int]] = set()
    for place, owner in enumerate(owners):
        key = (owner.epoch, owner.index)
        if owner.group in groups or key in keys:
            yield Problem(file, f"{listed}[{place}]", f"{where} holds group {owner.group} or the prompt {key} twice")
        groups.add(owner.group)
        keys.add(key)


def ids_are_fresh(checked: Checked) -> Problems:
    """No id that is given next was given before."""
    documents = checked.documents
    next_group, next_admission = documents.trainer.next_group, documents.trainer.next_admission
    groups = [(doc.BUFFER, f"slots[{place}].group", slot.group) for place, slot in enumerate(documents.buffer.slots)]
    groups += [(doc.LEDGER, f"entries[{place}].group", e.group) for place, e in enumerate(documents.ledger.entries)]
    for file, key, group in groups:
        if group >= next_group:
            yield Problem(file, key, f"group {group} exists, and the next group would get the id {next_group}")
    for place, entry in enumerate(documents.ledger.entries):
        if entry.admission >= next_admission:
            what = f"admission {entry.admission} exists, and the next admission would get the id {next_admission}"
            yield Problem(doc.LEDGER, f"entries[{place}].admission", what)


def admissions_are_whole(checked: Checked) -> Problems:
    """Groups that were admitted together are in one phase, for one step; a reserved one has no stamp yet."""
    first_of: dict[int, doc.EntryDocument] = {}
    for place, entry in enumerate(checked.documents.ledger.entries):
        if entry.phase == Phase.RESERVED.value and entry.step is not None:
            what = f"group {entry.group} is only reserved, but stamped with step {entry.step}"
            yield Problem(doc.LEDGER, f"entries[{place}].step", what)
        first = first_of.setdefault(entry.admission, entry)
        if (first.phase, first.step) != (entry.phase, entry.step):
            what = f"the groups {first.group} and {entry.group} of admission {entry.admission} disagree"
            yield Problem(doc.LEDGER, f"entries[{place}]", what)


# -- the sampler -------------------------------------------------------------------------------------------------------


def states_have_their_form(checked: Checked) -> Problems:
    """The states of sampler and loader are of their form, at a place that they can be at, if they are ours."""
    documents = checked.documents
    sampler, loader = documents.sampler, documents.loader.state
    if sampler.name in STAMPED:
        yield from _state_problems(
            doc.SAMPLER, sampler.state, SamplerState(sampler.name, -1), check_counts_of_a_sampler
        )
        if sampler.state.get("name") != sampler.name:
            what = f"the state is of the sampler {sampler.state.get('name')!r}, which is {sampler.name!r} elsewhere"
            yield Problem(doc.SAMPLER, "state.name", what)
    for example, check in LOADERS:
        record, fields = type(example).__name__, {each.name for each in dataclasses.fields(example)}
        said = documents.loader.record
        if said == record or (said is None and loader.keys() == fields):
            yield from _state_problems(doc.LOADER, loader, example, check)
        elif loader.keys() == fields:
            yield Problem(doc.LOADER, "record", f"it is {said!r:.80}, and the state is a {record}")


def _first_sentence(error: Exception) -> str:
    """What happened; what to do is said of the whole checkpoint."""
    return str(error).partition(". ")[0].rstrip(".")


def _state_problems(file: str, saved: dict[str, Any], example: Any, check: Callable[[Any], None]) -> Problems:
    try:
        check(rebuilt_state(saved, example, file))
    except CheckpointIncompatible as error:
        yield Problem(file, "state", _first_sentence(error), True)
    except CheckpointCorrupt as error:
        yield Problem(file, "state", _first_sentence(error))


def stamps_fit_the_sampler(checked: Checked) -> Problems:
    """An admitted group has a stamp under a sampler that gives them, and none under one that does not.

    Without its stamp a group would be generated and never trained. Of a sampler that nobody knows here all groups are
    alike: one with a stamp beside one without is none of its making.
    """
    documents = checked.documents
    admitted = [
        (doc.LEDGER, f"entries[{place}].step", entry.group, entry.step)
        for place, entry in enumerate(documents.ledger.entries)
        if entry.phase == Phase.ADMITTED.value
    ]
    admitted += [
        (doc.BUFFER, f"slots[{place}].step", slot.group, slot.step) for place, slot in enumerate(documents.buffer.slots)
    ]
    stamped = checked.gives_stamps
    if stamped is None and admitted:
        stamped = admitted[0][3] is not None
    for file, key, group, step in admitted:
        if (step is not None) != stamped:
            has = "no stamp" if step is None else f"the stamp of step {step}"
            gives = "stamps every group that it admits" if stamped else "gives no stamps"
            yield Problem(file, key, f"group {group} has {has}, and the sampler {documents.sampler.name!r} {gives}")


def cursor_covers_stamps(checked: Checked) -> Problems:
    """No stamp is above the dispatch cursor: the cursor would hand that step out again."""
    documents = checked.documents
    cursor = cursor_of(documents.sampler.state)
    stamps = [entry.step for entry in documents.ledger.entries if entry.step is not None]
    stamps += [slot.step for slot in documents.buffer.slots if slot.step is not None]
    if cursor is None or not stamps or cursor >= max(stamps):
        return
    highest = max(stamps)
    yield Problem(
        doc.SAMPLER,
        "state.cursor",
        f"the dispatch cursor is {cursor}, but {counted(stamps.count(highest), 'group is', 'groups are')} stamped with "
        f"step {highest}. The parts were read at different instants, and the cursor would hand that step out again",
    )


def steps_can_be_trained(checked: Checked) -> Problems:
    """Under this library's stamps every living group is of a step to come, and every such step is complete.

    The step of a group that is passed is never trained again, and a step that can never be complete is waited for for
    ever. Complete means: living groups and shortfall make a whole step together, where its size is known.
    """
    documents = checked.documents
    if documents.sampler.name not in STAMPED:
        return
    state, version = documents.sampler.state, documents.trainer.version
    whole, cursor = documents.manifest.identity.groups_per_step, cursor_of(state)
    assert cursor is not None, "states_have_their_form"
    missing: dict[int, int] = {}
    for place, (step, count) in enumerate(state["shortfalls"]):
        if step in missing:
            yield Problem(doc.SAMPLER, f"state.shortfalls[{place}]", f"step {step} stands there twice")
        elif whole is not None and count > whole:
            what = f"step {step} falls short by {count}, and a whole step has {counted(whole, 'group')}"
            yield Problem(doc.SAMPLER, f"state.shortfalls[{place}]", what)
        missing[step] = count
    if not STAMPED[documents.sampler.name]:
        return
    living: dict[int, set[int]] = {}
    owners: list[tuple[str, str, doc.EntryDocument | doc.SlotDocument]] = [
        (doc.LEDGER, f"entries[{place}].step", entry) for place, entry in enumerate(documents.ledger.entries)
    ]
    owners += [(doc.BUFFER, f"slots[{place}].step", slot) for place, slot in enumerate(documents.buffer.slots)]
    for file, key, owner in owners:
        if owner.step is not None:
            living.setdefault(owner.step, set()).add(owner.group)
            if owner.step < version:
                what = (
                    f"group {owner.group} is stamped with step {owner.step}, and the trainer is past it, at {version}"
                )
                yield Problem(file, key, what)
    if whole is None:
        return
    # Every step after the trainer's has groups or a shortfall: so no more are looked at than the files name.
    admitted = max(0, cursor + 1 - version)
    named = [step for step in {*living, *missing} if version <= step <= cursor]
    for step in sorted(named):
        groups = len(living.get(step, ()))
        if groups + missing.get(step, 0) != whole:
            what = f"step {step} has {counted(groups, 'group')} and falls short by {missing.get(step, 0)}, and a whole"
            yield Problem(doc.SAMPLER, "state.shortfalls", f"{what} step has {whole}: it could never be trained")
    if len(named) != admitted:
        what = f"the dispatch cursor is {cursor} with the trainer at {version}, and {counted(len(named), 'step')} of"
        yield Problem(doc.SAMPLER, "state.cursor", f"{what} {admitted} have groups: the others could never be trained")


def weights_are_of_the_past(checked: Checked) -> Problems:
    """A finished group was made with weights that the trainer has had."""
    version = checked.documents.trainer.version
    for place, slot in enumerate(checked.documents.buffer.slots):
        if slot.weight > version:
            what = f"group {slot.group} has the weights of version {slot.weight}, and the trainer is at {version}"
            yield Problem(doc.BUFFER, f"slots[{place}].weight", what)


def budgets_name_groups(checked: Checked) -> Problems:
    """Budgets that a controller of this library counts are of groups and causes, each of a failed attempt of a group.

    Their names are their owner's. Where the owner is not told, any name of the form is taken for a controller's.
    """
    budgets = checked.documents.trainer.budgets
    parsed = {name: parsed_budget(name) for name in budgets}
    if checked.documents.trainer.budgets_of != "controller" and not any(parsed.values()):
        return
    failures: dict[int, int] = {}
    for name, found in parsed.items():
        if found is None:
            yield Problem(doc.TRAINER, f"budgets.{name!r:.80}", "it names no group and cause of a failure")
        else:
            failures[found[0]] = failures.get(found[0], 0) + budgets[name]
    attempts = {entry.group: entry.attempt for entry in checked.documents.ledger.entries}
    for group, count in failures.items():
        if attempts.get(group) != count:
            at = f"is at its attempt {attempts[group]}" if group in attempts else "is not pending"
            yield Problem(
                doc.TRAINER, "budgets", f"{counted(count, 'failure')} of group {group} are counted, which {at}"
            )


def parsed_budget(name: str) -> tuple[int, str] | None:
    """The group and the cause in the name of a budget of the controller; None for another name."""
    group, _, cause = name.partition("/")
    whole = group.isascii() and group.isdecimal() and len(group) < 20 and str(int(group)) == group
    return (int(group), cause) if whole and cause in ("transient", "data") else None


# -- accounts ----------------------------------------------------------------------------------------------------------


def accounts_agree(checked: Checked) -> Problems:
    """A prompt is trained once, or dropped once for a reason, and nobody owns it any more."""
    documents = checked.documents
    try:
        accounts = checked.accounts
    except CheckpointCorrupt as error:
        yield Problem(doc.TRAINER, "accounts", _first_sentence(error))
        return
    owners = [
        (doc.LEDGER, f"entries[{place}]", f"group {entry.group} is pending", Key(entry.epoch, entry.index))
        for place, entry in enumerate(documents.ledger.entries)
    ]
    owners += [
        (doc.BUFFER, f"slots[{place}]", f"group {slot.group} is buffered", Key(slot.epoch, slot.index))
        for place, slot in enumerate(documents.buffer.slots)
    ]
    owners += [
        (doc.SPARES, f"spares[{place}]", "a prompt is in the spare pool", Key(spare.epoch, spare.index))
        for place, spare in enumerate(documents.spares.spares)
    ]
    for file, place_, owner, prompt in owners:
        if accounts.is_trained(prompt) or prompt in accounts.dropped:
            fate = "trained" if accounts.is_trained(prompt) else f"dropped ({accounts.dropped[prompt]!r})"
            yield Problem(file, place_, f"{owner}, and its prompt {tuple(prompt)} was {fate}")


def owners_are_counted(checked: Checked) -> Problems:
    """As many prompts have an owner as were handed out.

    A loader whose state is no `PromptLoader`'s counts in its own way, and is not checked.
    """
    documents = checked.documents
    place = prompt_loader_place(documents.loader.state)
    if place is None:
        return
    length, _, epoch, position = place
    handed_out = epoch * length + position
    owned = _owned(checked)
    if handed_out != owned:
        yield Problem(
            doc.LOADER,
            "state.position",
            f"the loader has handed out {counted(handed_out, 'prompt')}, and {counted(owned, 'has', 'have')} an owner. "
            f"A resume would {'never draw the others again' if owned < handed_out else 'train some twice'}. The parts "
            "were read at different instants, or one was edited; `python -m impl fsck` names the prompts",
        )


def _owned(checked: Checked) -> int:
    live = len(checked.entries) + len(checked.documents.buffer.slots) + len(checked.documents.spares.spares)
    return live + checked.accounts.trained_count + len(checked.accounts.dropped)


def owners_were_handed_out(checked: Checked) -> Problems:
    """Every prompt with an owner was handed out: with the count before it, none is lost, doubled or drawn again."""
    documents = checked.documents
    handed_out = handed_out_by(documents.loader.state)
    if handed_out is None:
        return
    if checked.known is None:
        found = checked.ownership
        for keys, what in ((found.lost, "has no owner"), (found.doubled, "has two owners"), (found.ahead, NEVER)):
            if keys.count:
                yield Problem(doc.LOADER, "state", f"of {keys.number} each {what}: {keys}")
        return
    lists: tuple[tuple[str, str, Iterable[Any]], ...] = (
        (doc.LEDGER, "entries", checked.entries),
        (doc.BUFFER, "slots", documents.buffer.slots),
        (doc.SPARES, "spares", documents.spares.spares),
        (doc.TRAINER, "accounts.dropped", documents.trainer.accounts.dropped[len(checked.known.dropped) :]),
    )
    for file, listed, owners in lists:
        for owner in owners:
            if not handed_out.includes(owner.epoch, owner.index):
                yield Problem(file, listed, f"the prompt {owner.epoch, owner.index} has an owner and {NEVER}")
    for epoch, row in checked.accounts.trained_since(checked.known):
        if not handed_out.includes(epoch, row):
            yield Problem(doc.TRAINER, "accounts.trained", f"the prompt {epoch, row} was trained and {NEVER}")


def counts_of_the_manifest_agree(checked: Checked) -> Problems:
    """The manifest counts what the files hold."""
    documents = checked.documents
    found = {
        "buffered": len(documents.buffer.slots),
        "pending": len(documents.ledger.entries),
        "spares": len(documents.spares.spares),
        "trained": checked.accounts.trained_count,
        "dropped": len(documents.trainer.accounts.dropped),
    }
    yield from counts_agree(documents.manifest, found, _UNITS)


def counts_agree(manifest: Manifest, found: Mapping[str, int], units: Mapping[str, str]) -> Problems:
    for name, count in found.items():
        said = manifest.counts.get(name)
        if said is None or said.value != count:
            what = f"it counts {'no' if said is None else said.value} {name}, and the files hold {count}"
            yield Problem(MANIFEST, f"counts.{name}", what)
        elif said.unit != units[name]:
            yield Problem(MANIFEST, f"counts.{name}.unit", f"{name} are {units[name]}, and not {said.unit!r:.80}")
    for name in manifest.counts.keys() - found.keys():
        yield Problem(MANIFEST, f"counts.{name!r:.80}", "nothing in a checkpoint is counted under this name")


CHECKS: tuple[Callable[[Checked], Problems], ...] = (
    steps_agree,
    numbers_are_counts,
    keys_are_of_the_dataset,
    parts_name_one_run,
    parts_are_of_one_save,
    words_are_known,
    free_values_are_plain,
    owners_are_distinct,
    ids_are_fresh,
    admissions_are_whole,
    states_have_their_form,
    stamps_fit_the_sampler,
    cursor_covers_stamps,
    steps_can_be_trained,
    weights_are_of_the_past,
    budgets_name_groups,
    accounts_agree,
    owners_are_counted,
    owners_were_handed_out,
    counts_of_the_manifest_agree,
)


def first_problem(checked: Checked) -> Problem | None:
    """What is wrong with a checkpoint, as the first check says that finds anything; None for one that is whole."""
    return next((problem for check in CHECKS for problem in check(checked)), None)


def keys_can_be_counted(checked: Checked) -> bool:
    """Whether `ownership` means anything: every number is one, and every key is of the dataset."""
    early = CHECKS[: CHECKS.index(keys_are_of_the_dataset) + 1]
    length = checked.documents.manifest.identity.dataset_length
    # A loader of another dataset has handed out nothing of this one.
    of_this = _same(checked.documents.loader.state.get("dataset_length", length), length)
    return of_this and not any(True for check in early for _ in check(checked))


def require_whole(checked: Checked) -> None:
    """Refuse a checkpoint with the first of its problems: what a restore asks, `fsck`, and the end of every save."""
    refuse_first(checked.documents.name, (problem for check in CHECKS for problem in check(checked)))


def refuse_first(name: str, problems: Problems) -> None:
    """Refuse the checkpoint `name` with the first of its problems, if it has any."""
    if (problem := next(problems, None)) is not None:
        if problem.other_version:
            raise CheckpointIncompatible(f"{name}: {problem}. Use the version that wrote it.")
        raise CheckpointCorrupt(
            f"{name} contradicts itself: {problem}. It was put together from two checkpoints, edited, or written by a "
            "faulty version. Nothing was changed; restore an earlier checkpoint."
        )


def handed_out_by(loader_state: object) -> HandedOut | None:
    """What the cursor of a `PromptLoader` has handed out; another loader's state means what only that loader knows."""
    place = prompt_loader_place(loader_state)
    return None if place is None else HandedOut(*place)


def _spans(checked: Checked) -> Iterator[Span]:
    """Every owner of every key. A group that ledger and buffer both hold is the buffer's alone, as in a restore."""
    documents = checked.documents
    for entry in checked.entries:
        yield Span(entry.epoch, entry.index, entry.index, "pending")
    for slot in documents.buffer.slots:
        yield Span(slot.epoch, slot.index, slot.index, "buffered")
    for spare in documents.spares.spares:
        yield Span(spare.epoch, spare.index, spare.index, "spare")
    for interval in documents.trainer.accounts.trained:
        yield Span(interval.epoch, interval.first, interval.last, "trained")
    for dropped in documents.trainer.accounts.dropped:
        yield Span(dropped.epoch, dropped.index, dropped.index, "dropped")
