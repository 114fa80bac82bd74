"""The store: how a checkpoint becomes durable, and what a crash at any moment leaves of it.

    begin --write_data--> --sync_data--> --write_manifest--> --sync_manifest--> --sync_directory--> --check_fence-->
          --rename--> --sync_parent--> acknowledged --point_latest--> --retire the old--> finish

An effect that is not synced is in the cache only. The operating system may write any of them back at any time, in any
order (`write_back_...`); a crash loses the rest. So every legal subset of un-synced effects survives in some path. An
attempt that ended without being published leaves a staging directory, which a later one cleans.

A writer takes a lock and a fencing number. A lock may be lost while its holder is paused; then another takes over with
a higher number, and the first one finds that out when it reads the number again, before it renames.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...language.expression import Value, all_of, any_of, each, not_, put, total, where
from ...language.machine import Machine

ABSENT, CACHED, DURABLE = 0, 1, 2
NOWHERE, STAGING, PUBLISHED, REMOVED = 0, 1, 2, 3
IDLE, BEGUN, DATA_WRITTEN, DATA_SYNCED, MANIFEST_WRITTEN, MANIFEST_SYNCED = 0, 1, 2, 3, 4, 5
DIRECTORY_SYNCED, FENCE_CHECKED, RENAMED, ACKNOWLEDGED, POINTED = 6, 7, 8, 9, 10
NOBODY = -1
CONTENT_SAYS = ("absent", "in the cache", "durable")
PLACE_SAYS = ("nowhere", "staging", "published", "removed")
STAGE_SAYS = (
    "idle",
    "begun",
    "data written",
    "data synced",
    "manifest written",
    "manifest synced",
    "directory synced",
    "fence checked",
    "renamed",
    "acknowledged",
    "pointed",
)


@dataclass(frozen=True)
class StoreScope:
    """The size of one enumeration."""

    attempts: int
    """Saves that may be begun in all; each takes a fresh sequence number."""
    crashes: int
    """Crashes of the whole machine."""
    writers: int = 1
    """Processes that want to write into the directory."""
    lost_locks: int = 0
    """How often a lock may vanish under its holder."""
    errors: int = 0
    """How often an fsync may fail."""
    rewinds: int = 0
    """How often the run may be restored from an older checkpoint than the newest, and save the same step again."""
    takeover: int = 0
    """1: a writer reads from the directory which number comes next, after it has put earlier attempts away."""
    copies: int = 0
    """1: somebody may copy a directory in under the number of a save that is to come."""
    lives: int = 0
    """How often a run may be begun anew, restoring nothing, beside the checkpoints that are there."""


def highest_number(scope: StoreScope) -> int:
    """The greatest fencing number there can be."""
    return scope.writers + scope.lost_locks + scope.crashes + 1


store = Machine("store")
store.domain("attempts_made", lambda scope: int(scope.attempts))
store.domain("all_writers", lambda scope: int(scope.writers))
store.variable("next_attempt", 0, lambda scope: scope.attempts, "sequence number of the next attempt")
store.variable("data", ABSENT, DURABLE, "the payload files", over="attempts_made", names=CONTENT_SAYS)
store.variable("manifest", ABSENT, DURABLE, "the manifest", over="attempts_made", names=CONTENT_SAYS)
store.variable("names", ABSENT, DURABLE, "the names inside the directory", over="attempts_made", names=CONTENT_SAYS)
store.variable("place", NOWHERE, REMOVED, "where the directory is seen", over="attempts_made", names=PLACE_SAYS)
store.variable("place_on_disk", NOWHERE, REMOVED, "where a crash finds it", over="attempts_made", names=PLACE_SAYS)
store.variable("acknowledged", 0, 1, "1: the save returned success", over="attempts_made")
store.variable("step_of", 0, lambda scope: scope.attempts, "the train step of each attempt", over="attempts_made")
store.variable("latest", NOBODY, lambda scope: scope.attempts - 1, "what LATEST names, a hint", initial=NOBODY)
store.variable(
    "begun_under",
    0,
    highest_number,
    "the highest fencing number when each attempt began",
    over="attempts_made",
)
store.variable("attempt", NOBODY, lambda scope: scope.attempts - 1, "attempt", initial=NOBODY, over="all_writers")
store.variable("stage", IDLE, POINTED, "how far each writer's attempt is", over="all_writers", names=STAGE_SAYS)
store.variable("run_step", 0, lambda scope: scope.attempts, "the train step of each writer's run", over="all_writers")
store.variable("fence", 0, highest_number, "own", over="all_writers")
store.variable("stood_down", 0, 1, "1: it found a higher fencing number and writes no more", over="all_writers")
store.variable(
    "number", 0, lambda scope: scope.takeover * scope.attempts, "the number in the name", over="attempts_made"
)
store.variable("read", 0, lambda scope: scope.takeover, "1: it has read the catalogue", over="all_writers")
store.variable(
    "seen", 0, lambda scope: scope.takeover * scope.attempts, "the highest number it knows", over="all_writers"
)
store.variable("life_of", 0, lambda scope: scope.lives, "the run that made each attempt", over="attempts_made")
store.variable("life", 0, lambda scope: scope.lives, "the run that goes on; it has restored nothing of an earlier one")
store.variable(
    "stranger", 0, lambda scope: scope.copies * scope.attempts, "the attempt whose name is somebody's, and 1; 0: none"
)
store.variable("stranger_gone", 0, lambda scope: scope.copies, "1: what somebody has put there was removed")
store.variable("highest_fence", 0, highest_number, "on disk")
store.variable("holder", NOBODY, lambda scope: scope.writers - 1, "who holds the lock", initial=NOBODY)
store.variable("crashes_left", 0, lambda scope: scope.crashes, "crashes", initial=lambda scope: scope.crashes)
store.variable("lost_locks_left", 0, lambda scope: scope.lost_locks, "losses", initial=lambda scope: scope.lost_locks)
store.variable("errors_left", 0, lambda scope: scope.errors, "errors", initial=lambda scope: scope.errors)
store.variable("rewinds_left", 0, lambda scope: scope.rewinds, "rewinds", initial=lambda scope: scope.rewinds)


def whole(s: Value, k: Value) -> Value:
    """Everything in the directory of attempt `k` can be read, now."""
    return (s.data[k] >= CACHED) & (s.manifest[k] >= CACHED) & (s.names[k] >= CACHED)


def whole_on_disk(s: Value, k: Value) -> Value:
    """Everything in the directory of attempt `k` survives a crash."""
    return (s.data[k] == DURABLE) & (s.manifest[k] == DURABLE) & (s.names[k] == DURABLE)


def valid(s: Value, k: Value) -> Value:
    """Attempt `k` is a checkpoint that a reader accepts: under its final name, and its digests are right."""
    return (s.place[k] == PUBLISHED) & whole(s, k)


def at_own(s: Value, w: Value, vector: Value, value: Value) -> Value:
    """The vector with the element of writer `w`'s attempt replaced."""
    return each(s.attempts_made, lambda k: where(k == s.attempt[w], value, vector[k]))


def ends(s: Value, w: Value) -> dict[str, Value]:
    """Writer `w` is done with its attempt, one way or the other."""
    return {"stage": put(s.stage, w, IDLE), "attempt": put(s.attempt, w, NOBODY)}


# --------------------------------------------------------------------------------------------------- System


@store.system(who="writer", each="all_writers")
def acquire(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` takes the lock, which is free, and with it a fencing number higher than any before."""
    return (s.holder == NOBODY) & (s.fence[w] == 0) & (s.next_attempt < s.attempts), {
        "holder": w,
        "fence": put(s.fence, w, s.highest_fence + 1),
        "highest_fence": s.highest_fence + 1,
    }


def may_write(s: Value, w: Value) -> Value:
    """Writer `w` believes that it holds the lock."""
    return (s.fence[w] > 0) & (s.stood_down[w] == 0)


@store.system(who="writer", each="all_writers")
def begin(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` makes a staging directory for the next attempt, under a name that no attempt had before."""
    k = s.next_attempt
    knows = (s.read[w] == 1) | (s.takeover == 0)
    return may_write(s, w) & (s.stage[w] == IDLE) & (k < s.attempts) & knows, {
        "stage": put(s.stage, w, BEGUN),
        "attempt": put(s.attempt, w, k),
        "next_attempt": k + 1,
        "place": each(s.attempts_made, lambda j: where(j == k, STAGING, s.place[j])),
        "step_of": each(s.attempts_made, lambda j: where(j == k, s.run_step[w] + 1, s.step_of[j])),
        "begun_under": each(s.attempts_made, lambda j: where(j == k, s.highest_fence, s.begun_under[j])),
        "life_of": each(s.attempts_made, lambda j: where(j == k, s.life, s.life_of[j])),
        "number": each(s.attempts_made, lambda j: where((j == k) & (s.takeover == 1), s.seen[w] + 1, s.number[j])),
        "seen": put(s.seen, w, where(s.takeover == 1, s.seen[w] + 1, 0)),
    }


def earlier_attempt(s: Value, k: Value) -> Value:
    """Attempt `k` was begun before the last claim, and is not published."""
    return (s.place[k] == STAGING) & (s.begun_under[k] < s.highest_fence)


@store.system(who="writer", each="attempts_made", when=lambda scope: scope.takeover)
def put_away(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """The last to claim renames an earlier attempt, whose writer may still work on it and can publish it no more."""
    opening = any_of(s.all_writers, lambda w: (s.fence[w] == s.highest_fence) & may_write(s, w) & (s.read[w] == 0))
    return opening & earlier_attempt(s, k), {"place": put(s.place, k, REMOVED)}


@store.system(who="writer", each="all_writers", when=lambda scope: scope.takeover)
def read_catalogue(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """After its claim, and after earlier attempts are out of the way, writer `w` reads which numbers are taken."""
    ready = not_(any_of(s.attempts_made, lambda k: earlier_attempt(s, k)))
    return may_write(s, w) & (s.read[w] == 0) & ready, {
        "read": put(s.read, w, 1),
        "seen": put(s.seen, w, highest_number_there(s)),
    }


def highest_number_there(s: Value) -> Value:
    """The highest number under a final name; 0 where there is none."""

    def highest(k: Value) -> Value:
        above = any_of(
            s.attempts_made,
            lambda j: (
                (s.place[j] == PUBLISHED) & ((s.number[j] > s.number[k]) | ((s.number[j] == s.number[k]) & (j > k)))
            ),
        )
        return (s.place[k] == PUBLISHED) & not_(above)

    return total(s.attempts_made, lambda k: where(highest(k), s.number[k], 0))


def has_staging(s: Value, w: Value) -> Value:
    """The directory of writer `w`'s attempt is where it made it."""
    return any_of(s.attempts_made, lambda k: (k == s.attempt[w]) & (s.place[k] == STAGING))


@store.system(who="writer", each="all_writers", when=lambda scope: scope.takeover)
def find_it_gone(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The staging directory was put away by a writer that has taken over: writer `w` writes no more."""
    return (s.stage[w] == FENCE_CHECKED) & not_(has_staging(s, w)), {
        **ends(s, w),
        "stood_down": put(s.stood_down, w, 1),
    }


@store.system(who="writer", each="all_writers", when=lambda scope: scope.copies)
def refuse_taken(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The name is somebody's: the save fails, and leaves it alone."""
    return (s.stage[w] == FENCE_CHECKED) & name_is_taken(s, w), ends(s, w)


def name_is_taken(s: Value, w: Value) -> Value:
    """Somebody has put a directory under the name of writer `w`'s attempt."""
    return (s.stranger > 0) & (s.stranger == s.attempt[w] + 1)


@store.system(who="writer", each="all_writers")
def write_data(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The payload files are written; their names are in the directory, both in the cache."""
    return s.stage[w] == BEGUN, {
        "stage": put(s.stage, w, DATA_WRITTEN),
        "data": at_own(s, w, s.data, CACHED),
        "names": at_own(s, w, s.names, CACHED),
    }


@store.system(who="writer", each="all_writers")
def sync_data(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Every payload file is synced."""
    return s.stage[w] == DATA_WRITTEN, {
        "stage": put(s.stage, w, DATA_SYNCED),
        "data": at_own(s, w, s.data, DURABLE),
    }


@store.system(who="writer", each="all_writers")
def write_manifest(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The manifest, with the digest of every file, is written."""
    return s.stage[w] == DATA_SYNCED, {
        "stage": put(s.stage, w, MANIFEST_WRITTEN),
        "manifest": at_own(s, w, s.manifest, CACHED),
        # A new name: the directory as a whole is in the cache again.
        "names": at_own(s, w, s.names, CACHED),
    }


@store.system(who="writer", each="all_writers")
def sync_manifest(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The manifest is synced; what it says of the other files is durable."""
    return s.stage[w] == MANIFEST_WRITTEN, {
        "stage": put(s.stage, w, MANIFEST_SYNCED),
        "manifest": at_own(s, w, s.manifest, DURABLE),
    }


@store.system(who="writer", each="all_writers")
def sync_directory(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The staging directory is synced: the names in it are durable."""
    return s.stage[w] == MANIFEST_SYNCED, {
        "stage": put(s.stage, w, DIRECTORY_SYNCED),
        "names": at_own(s, w, s.names, DURABLE),
    }


@store.system(who="writer", each="all_writers")
def check_fence(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The fencing number is read again and is still writer `w`'s."""
    return (s.stage[w] == DIRECTORY_SYNCED) & (s.fence[w] == s.highest_fence), {"stage": put(s.stage, w, FENCE_CHECKED)}


@store.system(who="writer", each="all_writers")
def stand_down(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The fencing number is another's by now: writer `w` gives its attempt up and writes no more."""
    return (s.stage[w] == DIRECTORY_SYNCED) & (s.fence[w] < s.highest_fence), {
        **ends(s, w),
        "stood_down": put(s.stood_down, w, 1),
    }


@store.system(who="writer", each="all_writers")
def rename(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """One rename gives the directory its final name. Here the checkpoint becomes visible, whole or not at all."""
    return (s.stage[w] == FENCE_CHECKED) & has_staging(s, w) & not_(name_is_taken(s, w)), {
        "stage": put(s.stage, w, RENAMED),
        "place": at_own(s, w, s.place, PUBLISHED),
    }


@store.system(who="writer", each="all_writers")
def sync_parent(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The parent directory is synced, so the name is durable; now the save may say that it succeeded."""
    return s.stage[w] == RENAMED, {
        "stage": put(s.stage, w, ACKNOWLEDGED),
        "place_on_disk": each(s.attempts_made, lambda k: s.place[k]),
        "acknowledged": at_own(s, w, s.acknowledged, 1),
        "run_step": put(s.run_step, w, s.run_step[w] + 1),
    }


@store.system(who="writer", each="all_writers")
def point_latest(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """LATEST is replaced. It is a hint: a reader takes the highest valid sequence, whatever it says."""
    return s.stage[w] == ACKNOWLEDGED, {"stage": put(s.stage, w, POINTED), "latest": s.attempt[w]}


def superseded(s: Value, w: Value, k: Value) -> Value:
    """Attempt `k` is an older checkpoint of the same run that writer `w`'s, durable by now, replaces."""
    return (s.place[k] == PUBLISHED) & (k < s.attempt[w]) & (s.life_of[k] == s.life)


@store.system(who="writer", each="all_writers")
def retire(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Retention, last of all: the checkpoints that the new one replaces are removed, and the attempt is over."""
    return s.stage[w] == POINTED, {
        **ends(s, w),
        "place": each(s.attempts_made, lambda k: where(superseded(s, w, k), REMOVED, s.place[k])),
    }


@store.system(who="writer", each="attempts_made")
def clean_leftover(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """The holder of the lock removes a staging directory that nobody works on any more."""
    in_work = any_of(s.all_writers, lambda w: s.attempt[w] == k)
    return (s.holder != NOBODY) & (s.place[k] == STAGING) & not_(in_work), {"place": put(s.place, k, REMOVED)}


# ---------------------------------------------------------------------------------------------- Environment


def may_matter(scope: StoreScope) -> Value:
    """Where nothing can be lost, writing back early shows to nobody; the scope of a takeover is the smaller for it."""
    return (scope.crashes > 0) | (scope.takeover == 0)


def in_cache(vector: Value, k: Value) -> Value:
    """A content that is not durable yet."""
    return vector[k] == CACHED


@store.environment(each="attempts_made", when=may_matter)
def write_back_data(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """The operating system writes the payload back by itself."""
    return in_cache(s.data, k), {"data": put(s.data, k, DURABLE)}


@store.environment(each="attempts_made", when=may_matter)
def write_back_manifest(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """The operating system writes the manifest back by itself."""
    return in_cache(s.manifest, k), {"manifest": put(s.manifest, k, DURABLE)}


@store.environment(each="attempts_made", when=may_matter)
def write_back_names(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """The operating system writes the directory back by itself."""
    return in_cache(s.names, k), {"names": put(s.names, k, DURABLE)}


@store.environment(each="attempts_made", when=may_matter)
def write_back_place(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """The operating system writes the parent's entry for this directory back by itself."""
    return s.place_on_disk[k] != s.place[k], {"place_on_disk": put(s.place_on_disk, k, s.place[k])}


@store.environment(when=lambda scope: scope.crashes)
def crash(s: Value) -> tuple[Value, dict[str, Value]]:
    """The machine goes down: what is not durable is lost, every process and its lock with it.

    A directory whose entry did not survive is nowhere. The runs start again from the newest valid checkpoint.
    """

    def survives(vector: Value) -> Value:
        return each(s.attempts_made, lambda k: where(vector[k] == DURABLE, DURABLE, ABSENT))

    return s.crashes_left > 0, {
        "data": survives(s.data),
        "manifest": survives(s.manifest),
        "names": survives(s.names),
        "place": each(s.attempts_made, lambda k: s.place_on_disk[k]),
        "attempt": each(s.all_writers, lambda w: NOBODY),
        "stage": each(s.all_writers, lambda w: IDLE),
        "fence": each(s.all_writers, lambda w: 0),
        "stood_down": each(s.all_writers, lambda w: 0),
        "run_step": each(s.all_writers, lambda w: step_after_crash(s)),
        "read": each(s.all_writers, lambda w: 0),
        "seen": each(s.all_writers, lambda w: 0),
        "holder": NOBODY,
        "latest": NOBODY,
        "crashes_left": s.crashes_left - 1,
    }


def survives_published(s: Value, k: Value) -> Value:
    """Attempt `k` is a valid checkpoint after a crash now."""
    return (s.place_on_disk[k] == PUBLISHED) & whole_on_disk(s, k)


def step_after_crash(s: Value) -> Value:
    """The step of the newest checkpoint that survives a crash now; 0 when none does."""

    def newest(k: Value) -> Value:
        return survives_published(s, k) & all_of(s.attempts_made, lambda j: (j <= k) | not_(survives_published(s, j)))

    return total(s.attempts_made, lambda k: where(newest(k), s.step_of[k], 0))


@store.environment(each="all_writers", when=lambda scope: scope.lost_locks)
def lose_lock(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The lock vanishes under its holder, which does not notice."""
    return (s.holder == w) & (s.lost_locks_left > 0), {"holder": NOBODY, "lost_locks_left": s.lost_locks_left - 1}


@store.environment(each="all_writers", when=lambda scope: scope.errors)
def fail_fsync(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """An fsync fails. What was written may be on the disk or not; the attempt is abandoned, and never retried."""
    syncing = (s.stage[w] == DATA_WRITTEN) | (s.stage[w] == MANIFEST_WRITTEN) | (s.stage[w] == MANIFEST_SYNCED)
    return syncing & (s.errors_left > 0), {**ends(s, w), "errors_left": s.errors_left - 1}


@store.environment(each="attempts_made", when=lambda scope: scope.rewinds)
def rewind(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """The user restores checkpoint `k`, not the newest one: the run will reach, and save, the same steps again."""
    newer = any_of(s.attempts_made, lambda j: (j > k) & valid(s, j))
    idle = all_of(s.all_writers, lambda w: s.stage[w] == IDLE)
    return valid(s, k) & newer & idle & (s.rewinds_left > 0), {
        "run_step": each(s.all_writers, lambda w: s.step_of[k]),
        "rewinds_left": s.rewinds_left - 1,
    }


@store.environment(each="attempts_made", when=lambda scope: scope.copies)
def copy_in(s: Value, k: Value) -> tuple[Value, dict[str, Value]]:
    """Somebody copies a directory in under the number of a save that is to come, or is being written."""
    coming = (k >= s.next_attempt) | (s.place[k] == STAGING)
    return (s.stranger == 0) & coming, {"stranger": k + 1}


@store.environment(when=lambda scope: scope.lives)
def begin_anew(s: Value) -> tuple[Value, dict[str, Value]]:
    """The next life restores nothing: it begins at the first step, beside the checkpoints of the run before."""
    there = any_of(s.attempts_made, lambda k: s.acknowledged[k] == 1)
    idle = all_of(s.all_writers, lambda w: s.stage[w] == IDLE)
    return there & idle & (s.life < s.lives), {"life": s.life + 1, "run_step": each(s.all_writers, lambda w: 0)}
