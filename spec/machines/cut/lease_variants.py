"""Variants of the leases, by which writers in other processes hold their slots: of the barrier, and of the cut."""

from __future__ import annotations

from ...language.expression import Value, each, put, where
from ...language.machine import Machine
from ..barrier import FENCED, LAPSED, OUTSIDE, SILENT, SOUND, barrier
from ..barrier import written_late as written_to_parts
from . import cut
from .leases import written_late
from .saving import crash_and_restore
from .state import NO_LEASE, held_in_silence
from .variants import Effects


@barrier.variant(breaks="cut_excludes_writers", scope="leases", length=8)
def no_fence(machine: Machine) -> None:
    """Ledger, buffer and data plane look at no token: a writer that wakes after its lease writes into the cut."""

    def write_late(s: Value, w: Value) -> Effects:
        """Taken, however late."""
        return s.lease[w] >= LAPSED, written_to_parts(s, w, True)

    machine.replace("write_late", write_late)


@barrier.variant(breaks="cut_excludes_writers", scope="leases", length=9)
def lease_outlives_cut(machine: Machine) -> None:
    """A heartbeat makes a lease good again that was over: what it was given for before a cut it writes after it."""

    def beat_late(s: Value, w: Value) -> Effects:
        """Writer `w` wakes, its heartbeat comes first, and the parts take its token again."""
        return s.lease[w] == FENCED, {"lease": put(s.lease, w, LAPSED)}

    machine.environment(each="all_writers")(beat_late)


@barrier.variant(breaks="cut_excludes_writers", scope="leases", length=7)
def expiry_without_notice(machine: Machine) -> None:
    """The slot is given back as the lease lapses, before those who check tokens are told: the cut opens meanwhile."""

    def expire_lease(s: Value, w: Value) -> Effects:
        """The lease lapses and its slot is free, in one instant."""
        return s.lease[w] == SILENT, {
            "lease": put(s.lease, w, LAPSED),
            "at": put(s.at, w, OUTSIDE),
            "late": put(s.late, w, 0),
        }

    machine.replace("expire_lease", expire_lease)


@barrier.variant(breaks="no_deadlock", scope="leases", length=4)
def slot_for_ever(machine: Machine) -> None:
    """A slot is no lease: one whose holder died is held for ever, and the cut never opens."""

    def expire_lease(s: Value, w: Value) -> Effects:
        """Never: nobody counts the time."""
        return s.lease[w] < SOUND, {"lease": put(s.lease, w, LAPSED)}

    machine.replace("expire_lease", expire_lease)


@cut.variant(breaks="one_owner_on_disk", scope="leases", length=18)
def token_unchecked(machine: Machine) -> None:
    """A writer whose lease is over commits its group all the same: between two reads of a save it is in neither."""

    def write_late(s: Value, p: Value) -> Effects:
        """Taken, however late."""
        return s.lease[p] != NO_LEASE, written_late(s, p, True)

    machine.replace("write_late", write_late)


@cut.variant(breaks="one_owner_on_disk", scope="leases_restart", length=28)
def lease_outlives_restart(machine: Machine) -> None:
    """A new process takes tokens of the old one, of whose leases it knows nothing: a writer that lived on commits."""
    machine.variable("of_old", 0, 1, "1: the silent writer's lease is from before the restart", over="prompts")

    def restore(s: Value) -> Effects:
        """As ever; what is out there is out there."""
        guard, effects = crash_and_restore(s)
        return guard, {**effects, "of_old": each(s.prompts, lambda p: where(s.lease[p] == NO_LEASE, 0, 1))}

    def write_late(s: Value, p: Value) -> Effects:
        """Taken with a token of the old process too."""
        taken = held_in_silence(s, p) | (s.of_old[p] == 1)
        return s.lease[p] != NO_LEASE, {**written_late(s, p, taken), "of_old": put(s.of_old, p, 0)}

    machine.replace("crash_and_restore", restore)
    machine.replace("write_late", write_late)
