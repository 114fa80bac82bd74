"""What must hold of the store: what is published is whole, and what was acknowledged survives a crash at any moment."""

from __future__ import annotations

from ...language.expression import Value, all_of, any_of, count, implies, not_, total
from ...language.machine import Progress
from .actions import (
    CONTENT_SAYS,
    FENCE_CHECKED,
    IDLE,
    PLACE_SAYS,
    PUBLISHED,
    REMOVED,
    RENAMED,
    STAGE_SAYS,
    has_staging,
    store,
    survives_published,
    whole_on_disk,
)


@store.always(
    each="attempts_made",
    witness=lambda s: any_of(s.attempts_made, lambda k: (s.place_on_disk[k] == PUBLISHED) & (s.acknowledged[k] == 0)),
)
def published_is_whole(s: Value, k: Value) -> Value:
    """What a crash finds under a final name is whole: payload, manifest, and the names in the directory."""
    return implies(s.place_on_disk[k] == PUBLISHED, whole_on_disk(s, k))


@store.always(witness=lambda s: any_of(s.attempts_made, lambda k: s.acknowledged[k] == 1))
def a_valid_checkpoint_exists(s: Value) -> Value:
    """Once a save has succeeded, a crash at any moment finds a valid checkpoint."""
    any_success = any_of(s.attempts_made, lambda k: s.acknowledged[k] == 1)
    return implies(any_success, any_of(s.attempts_made, lambda k: survives_published(s, k)))


@store.always(
    each="attempts_made",
    witness=lambda s: count(s.attempts_made, lambda k: s.acknowledged[k] == 1) > 1,
)
def acknowledged_is_durable(s: Value, k: Value) -> Value:
    """A crash never brings back an older state than the newest save that succeeded."""
    newer = any_of(s.attempts_made, lambda j: (j > k) & survives_published(s, j))
    return implies(s.acknowledged[k] == 1, survives_published(s, k) | newer)


@store.always(
    each="all_writers",
    at="rename",
    witness=lambda s: any_of(s.all_writers, lambda w: (s.fence[w] > 0) & (s.fence[w] < s.highest_fence)),
)
def one_writer_publishes(s: Value, w: Value) -> Value:
    """No save is published that was begun after another writer had taken over.

    One that was begun before may still be, if the takeover falls between the look at the number and the rename. It does
    no harm: it is whole, has a sequence lower than any of the new writer's, and replaces nothing of them.
    """
    own = all_of(s.attempts_made, lambda k: (k != s.attempt[w]) | (s.begun_under[k] == s.fence[w]))
    return implies(s.stage[w] == FENCE_CHECKED, own)


@store.always(
    each="attempts_made",
    witness=lambda s: (count(s.attempts_made, lambda k: s.acknowledged[k] == 1) > 1) & (s.takeover == 1),
)
def one_number_one_save(s: Value, k: Value) -> Value:
    """No two saves that succeeded carry one number, whoever made them."""

    def rival(j: Value) -> Value:
        return (j != k) & (s.acknowledged[j] == 1) & (s.number[j] == s.number[k])

    return implies((s.acknowledged[k] == 1) & (s.takeover == 1), not_(any_of(s.attempts_made, rival)))


def unpublished(s: Value, w: Value) -> Value:
    """Writer `w` builds a checkpoint that has no final name yet."""
    return (s.stage[w] != IDLE) & (s.stage[w] < RENAMED)


@store.always(
    each="all_writers",
    witness=lambda s: (
        any_of(s.all_writers, lambda w: (s.fence[w] > 0) & (s.fence[w] < s.highest_fence))
        & any_of(s.all_writers, lambda w: (s.fence[w] == s.highest_fence) & unpublished(s, w))
    ),
)
def live_attempt_is_kept(s: Value, w: Value) -> Value:
    """Nobody removes what the last writer that claimed is writing."""
    return implies((s.fence[w] > 0) & (s.fence[w] == s.highest_fence) & unpublished(s, w), has_staging(s, w))


@store.always(witness=lambda s: s.stranger > 0)
def nothing_foreign_goes(s: Value) -> Value:
    """What no writer has made is removed by none."""
    return s.stranger_gone == 0


@store.always(
    each="attempts_made",
    witness=lambda s: any_of(s.attempts_made, lambda k: (s.acknowledged[k] == 1) & (s.life_of[k] < s.life)),
)
def other_runs_stay(s: Value, k: Value) -> Value:
    """A run that restored nothing removes nothing of the run before: the newest save of that is there."""

    def newer_of_its_run(j: Value) -> Value:
        return (j > k) & (s.life_of[j] == s.life_of[k]) & (s.place[j] == PUBLISHED)

    of_before = (s.acknowledged[k] == 1) & (s.life_of[k] < s.life)
    return implies(of_before, (s.place[k] == PUBLISHED) | any_of(s.attempts_made, newer_of_its_run))


def finished(s: Value) -> Value:
    """Every attempt was made and no writer works."""
    return (s.next_attempt == s.attempts) & all_of(s.all_writers, lambda w: s.stage[w] == IDLE)


def rank(s: Value) -> Value:
    """Rises with every action of ours: attempts come further, end, and are cleaned away."""
    under_way = count(s.all_writers, lambda w: s.stage[w] != IDLE)
    removed = count(s.attempts_made, lambda k: s.place[k] == REMOVED)
    stages = total(s.all_writers, lambda w: s.stage[w])
    return (
        30 * (s.next_attempt - under_way)
        + 2 * stages
        + 2 * removed
        + s.highest_fence
        + count(s.all_writers, lambda w: s.read[w] == 1)
    )


store.progress = Progress(
    "no_stall",
    finished,
    rank,
    "Every state that is not finished lets a writer go on, and every step of ours brings the run nearer to its end.",
)


def describe(s: Value, domain: str | None, index: int) -> str:
    """One line about an attempt or a writer, for a counterexample."""
    if domain == "all_writers":
        return f"writer {index}: {STAGE_SAYS[s.stage[index]]}, fencing number {s.fence[index]} of {s.highest_fence}"
    contents = ", ".join(
        f"{name} {CONTENT_SAYS[vector[index]]}"
        for name, vector in (("data", s.data), ("manifest", s.manifest), ("names", s.names))
    )
    disk = PLACE_SAYS[s.place_on_disk[index]]
    return f"attempt {index} of step {s.step_of[index]}: {contents}; a crash finds it {disk}"


store.describe = describe
