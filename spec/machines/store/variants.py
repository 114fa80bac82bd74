"""Variants of the store: each leaves out or misplaces one step of the order of publication."""

from __future__ import annotations

from ...language.expression import Value, each, put, where
from ...language.machine import Machine
from .actions import (
    ABSENT,
    DATA_SYNCED,
    DATA_WRITTEN,
    DIRECTORY_SYNCED,
    FENCE_CHECKED,
    MANIFEST_SYNCED,
    MANIFEST_WRITTEN,
    PUBLISHED,
    REMOVED,
    RENAMED,
    STAGING,
    at_own,
    begin,
    store,
    sync_parent,
)

Effects = tuple[Value, dict[str, Value]]
FINER = "staging, fence and write-back are steps of their own here"


@store.variant(breaks="published_is_whole", scope="one_save", length=5, table_length=4, why_length_differs=FINER)
def publish_before_data(machine: Machine) -> None:
    """The directory is renamed as soon as it is written, and synced afterwards: a crash finds a name and no content."""

    def rename(s: Value, w: Value) -> Effects:
        """At once after the data was written."""
        return s.stage[w] == DATA_WRITTEN, {
            "stage": put(s.stage, w, RENAMED),
            "place": at_own(s, w, s.place, PUBLISHED),
        }

    machine.replace("rename", rename)


def _skip(machine: Machine, action: str, before: int, after: int) -> None:
    """An action that goes on to the next stage and does nothing."""

    def skipped(s: Value, w: Value) -> Effects:
        return s.stage[w] == before, {"stage": put(s.stage, w, after)}

    skipped.__doc__ = f"`{action}` is left out."
    machine.replace(action, skipped)


@store.variant(breaks="published_is_whole", scope="one_save", length=10)
def no_data_fsync(machine: Machine) -> None:
    """The payload files are not synced: the name may reach the disk before they do."""
    _skip(machine, "sync_data", DATA_WRITTEN, DATA_SYNCED)


@store.variant(breaks="published_is_whole", scope="one_save", length=10)
def no_manifest_fsync(machine: Machine) -> None:
    """The manifest is not synced."""
    _skip(machine, "sync_manifest", MANIFEST_WRITTEN, MANIFEST_SYNCED)


@store.variant(breaks="published_is_whole", scope="one_save", length=10)
def no_directory_fsync(machine: Machine) -> None:
    """The staging directory is not synced: its files are durable, and nobody knows their names."""
    _skip(machine, "sync_directory", MANIFEST_SYNCED, DIRECTORY_SYNCED)


@store.variant(breaks="acknowledged_is_durable", scope="one_save", length=10)
def no_parent_fsync(machine: Machine) -> None:
    """Success is reported before the parent directory is synced: the new name may be lost with it."""

    def acknowledge(s: Value, w: Value) -> Effects:
        """As ever, but nothing is synced."""
        guard, effects = sync_parent(s, w)
        return guard, {name: value for name, value in effects.items() if name != "place_on_disk"}

    machine.replace("sync_parent", acknowledge)


@store.variant(
    breaks="a_valid_checkpoint_exists", scope="two_saves", length=14, table_length=6, why_length_differs=FINER
)
def delete_before_publish(machine: Machine) -> None:
    """Retention runs when a save begins: until the new checkpoint is durable there is none."""

    def begin_after_retention(s: Value, w: Value) -> Effects:
        """The old checkpoints are removed to make room."""
        guard, effects = begin(s, w)
        place = effects["place"]
        return guard, {
            **effects,
            "place": each(s.attempts_made, lambda k: where(s.place[k] == PUBLISHED, REMOVED, place[k])),
        }

    machine.replace("begin", begin_after_retention)


@store.variant(breaks="acknowledged_is_durable", scope="two_writers", length=20)
def name_is_the_step(machine: Machine) -> None:
    """A checkpoint is named by its step alone: saving a step again removes the one that was abandoned, too early."""
    renamed = machine.actions["rename"].function

    def rename(s: Value, w: Value) -> Effects:
        """Whatever has the name is removed first."""
        guard, effects = renamed(s, w)
        own = s.attempt[w]
        place = effects["place"]

        def makes_room(k: Value) -> Value:
            return (s.place[k] == PUBLISHED) & (s.step_of[k] == own_step(s, w)) & (k != own)

        return guard, {**effects, "place": each(s.attempts_made, lambda k: where(makes_room(k), REMOVED, place[k]))}

    machine.replace("rename", rename)


def own_step(s: Value, w: Value) -> Value:
    """The step that writer `w` is saving."""
    return s.run_step[w] + 1


@store.variant(breaks="one_writer_publishes", scope="two_writers", length=11)
def no_fencing(machine: Machine) -> None:
    """The fencing number is not read again before the rename: a writer without its lock publishes all the same."""
    _skip(machine, "check_fence", DIRECTORY_SYNCED, FENCE_CHECKED)


@store.variant(breaks="no_stall", scope="two_writers", length=20)
def nobody_stands_down(machine: Machine) -> None:
    """A writer that finds a higher fencing number waits for its turn to come back: it never does."""
    machine.remove("stand_down")


@store.variant(breaks="one_number_one_save", scope="takeover", length=23)
def claim_after_catalogue(machine: Machine) -> None:
    """The catalogue is read before the lock is claimed: what another writer publishes in between is not seen."""

    def read_catalogue(s: Value, w: Value) -> Effects:
        """Before the claim."""
        _, effects = machine_read(s, w)
        return (s.fence[w] == 0) & (s.read[w] == 0), effects

    machine_read = machine.actions["read_catalogue"].function
    acquired = machine.actions["acquire"].function

    def acquire(s: Value, w: Value) -> Effects:
        """With the catalogue in hand."""
        guard, effects = acquired(s, w)
        return guard & (s.read[w] == 1), effects

    machine.replace("read_catalogue", read_catalogue)
    machine.replace("acquire", acquire)


@store.variant(breaks="published_is_whole", scope="takeover", length=14)
def removed_in_place(machine: Machine) -> None:
    """An earlier attempt is removed file by file under its own name: its writer publishes what is left of it."""
    renamed = machine.actions["put_away"].function

    def put_away(s: Value, k: Value) -> Effects:
        """The first file goes."""
        guard, _ = renamed(s, k)
        return guard & (s.data[k] != ABSENT), {"data": put(s.data, k, ABSENT)}

    machine.replace("put_away", put_away)


@store.variant(breaks="live_attempt_is_kept", scope="two_writers", length=11)
def overtaken_cleans_up(machine: Machine) -> None:
    """A writer that finds itself overtaken removes every attempt that it sees, the live one's too."""
    stood_down = machine.actions["stand_down"].function

    def stand_down(s: Value, w: Value) -> Effects:
        """Whatever is in staging goes."""
        guard, effects = stood_down(s, w)
        place = each(s.attempts_made, lambda k: where(s.place[k] == STAGING, REMOVED, s.place[k]))
        return guard, {**effects, "place": place}

    machine.replace("stand_down", stand_down)


@store.variant(breaks="nothing_foreign_goes", scope="copied_in", length=21)
def abandoned_by_name(machine: Machine) -> None:
    """A save that failed at a name that was taken remembers the name, and the next retention removes what has it."""
    retired = machine.actions["retire"].function

    def retire(s: Value, w: Value) -> Effects:
        """The stranger's as well."""
        guard, effects = retired(s, w)
        below = (s.stranger > 0) & (s.stranger <= s.attempt[w])
        return guard, {**effects, "stranger_gone": where(below, 1, s.stranger_gone)}

    machine.replace("retire", retire)


@store.variant(breaks="other_runs_stay", scope="second_life", length=24)
def prunes_every_run(machine: Machine) -> None:
    """Retention counts every checkpoint of the directory, whoever has made it."""
    retired = machine.actions["retire"].function

    def retire(s: Value, w: Value) -> Effects:
        """All that is older."""
        guard, effects = retired(s, w)

        def older(k: Value) -> Value:
            return (s.place[k] == PUBLISHED) & (k < s.attempt[w])

        return guard, {**effects, "place": each(s.attempts_made, lambda k: where(older(k), REMOVED, s.place[k]))}

    machine.replace("retire", retire)
