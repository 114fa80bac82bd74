"""Three figures of a run, as PNG: the reward, the occupancy of the buffer, and the durations of every save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .outcome import Occupancy, Outcome, Step

# No display is needed, nor asked for.
matplotlib.use("Agg")

REWARD, BUFFER, DURATIONS = "reward.png", "buffer.png", "durations.png"
_BLUE, _ORANGE, _GREEN, _GREY, _RED = "#2a6fbb", "#d9822b", "#3f9c6b", "#9aa4ae", "#b8322a"
_KILL: dict[str, Any] = {"color": _RED, "linewidth": 1.0, "linestyle": (0, (4, 3)), "zorder": 1}
#: Steps of the moving mean, and seconds of a column of the occupancy.
_WINDOW, _COLUMN = 15, 0.5
#: Where a median's label stands, so that those of window and drain do not meet.
_ABOVE_OR_BELOW = {"window": "top", "drain": "bottom", "persist": "center"}


def draw_figures(outcome: Outcome, directory: Path, title: str) -> list[Path]:
    """Write the three figures; their paths."""
    drawn = []
    for name, draw in ((REWARD, _reward), (BUFFER, _buffer), (DURATIONS, _durations)):
        figure = Figure(figsize=(9.0, 4.2), dpi=120, layout="constrained")
        axes: Axes = figure.add_subplot()
        heading = draw(outcome, axes)
        axes.set_title(f"{heading}\n", loc="left", fontsize=12, fontweight="bold")
        axes.text(0.0, 1.03, title, transform=axes.transAxes, fontsize=9, color="#5a646e")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e3e7ea", linewidth=0.8)
        axes.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=9)
        figure.savefig(directory / name)
        drawn.append(directory / name)
    return drawn


def _reward(outcome: Outcome, axes: Axes) -> str:
    steps = outcome.steps
    axes.plot([step.step for step in steps], [step.reward for step in steps], color=_BLUE, alpha=0.3, linewidth=0.8)
    places, means = _moving_mean(steps)
    axes.plot(places, means, color=_BLUE, linewidth=2.0, label=f"mean of {_WINDOW} steps")
    evaluations = dict(pair for life in outcome.lives for pair in life.evaluations)
    axes.plot(
        sorted(evaluations), [evaluations[step] for step in sorted(evaluations)], color=_GREEN, marker="o",
        markersize=3.5, linewidth=1.0, label="sums right, without sampling",
    )  # fmt: skip
    for number, (life, later) in enumerate(zip(outcome.lives, outcome.lives[1:], strict=False)):
        died_at = life.steps[-1].step + 1 if life.steps else life.resumed_at
        axes.axvline(died_at, label="killed" if number == 0 else None, **_KILL)
        axes.axvspan(
            later.resumed_at, died_at, color=_RED, alpha=0.12, linewidth=0,
            label="done again by the next life" if number == 0 else None,
        )  # fmt: skip
    axes.set(xlabel="train step", ylabel="reward; share of sums", ylim=(0, 1.02), xlim=(0, len(steps)))
    return "Mean reward of a train step"


def _moving_mean(steps: Sequence[Step]) -> tuple[list[float], list[float]]:
    places, means = [], []
    for first in range(len(steps) - _WINDOW + 1):
        part = steps[first : first + _WINDOW]
        places.append(sum(step.step for step in part) / _WINDOW)
        means.append(sum(step.reward for step in part) / _WINDOW)
    return places, means


def _buffer(outcome: Outcome, axes: Axes) -> str:
    bands = (("being trained", _ORANGE), ("ready", _GREEN), ("generating", _BLUE))
    for number, samples in enumerate(outcome.occupancy):
        places, columns = occupancy_columns(samples, _COLUMN)
        axes.stackplot(
            places, *columns, colors=[color for _, color in bands], alpha=0.75, linewidth=0,
            labels=[name if number == 0 else "" for name, _ in bands],
        )  # fmt: skip
        if number + 1 < len(outcome.occupancy):
            # From the last that was heard of a life to the first of the next: a process starts meanwhile.
            began = outcome.occupancy[number + 1][0].at
            axes.axvspan(
                samples[-1].at, began, color=_GREY, alpha=0.25, linewidth=0,
                label="the next process starts" if number == 0 else None,
            )  # fmt: skip
            axes.axvline(samples[-1].at, label="killed" if number == 0 else None, **_KILL)
    axes.axhline(outcome.capacity, color="#3c444c", linewidth=1.2, label="capacity")
    axes.set(xlabel="seconds since the beginning", ylabel=f"slots, mean of {_COLUMN} s")
    axes.set(xlim=(0, outcome.occupancy[-1][-1].at), ylim=(0, outcome.capacity * 1.1))
    return "Slots of the replay buffer"


def occupancy_columns(samples: Sequence[Occupancy], width: float) -> tuple[list[float], list[list[float]]]:
    """The mean number of claimed, ready and generating slots in each column of `width` seconds, weighted by time."""
    end = samples[-1].at
    places: list[float] = []
    columns: list[list[float]] = [[], [], []]
    here = 0
    start = samples[0].at
    while start < end:
        stop = min(start + width, end)
        sums = [0.0, 0.0, 0.0]
        at = start
        while at < stop:
            until = min(stop, samples[here + 1].at) if here + 1 < len(samples) else stop
            for band, count in enumerate((samples[here].claimed, samples[here].ready, samples[here].generating)):
                sums[band] += count * (until - at)
            at = until
            if here + 1 < len(samples) and samples[here + 1].at <= at:
                here += 1
        places.append((start + stop) / 2)
        for band, total in enumerate(sums):
            columns[band].append(total / (stop - start))
        start = stop
    return places, columns


def _durations(outcome: Outcome, axes: Axes) -> str:
    parts = (
        ("window", _BLUE, "all stand still"),
        ("drain", _ORANGE, "open sections end"),
        ("persist", _GREY, "written behind"),
    )
    for part, color, meaning in parts:
        values = [(save.at, 1000 * getattr(save, part), save.kind) for save in outcome.saves]
        for kind, marker in (("full", "o"), ("rollout", "^")):
            chosen = [(at, value) for at, value, of in values if of == kind]
            axes.scatter(
                [at for at, _ in chosen], [value for _, value in chosen], color=color, marker=marker, s=22,
                linewidth=0, alpha=0.85, label=f"{part}: {meaning}" if kind == "full" else None,
            )  # fmt: skip
        if values:
            middle = median(value for _, value, _ in values)
            axes.axhline(middle, color=color, linewidth=0.9, alpha=0.6)
            axes.annotate(
                f"{part} {middle:.2g} ms" if middle < 10 else f"{part} {middle:.0f} ms", (1.01, middle),
                xycoords=("axes fraction", "data"), va=_ABOVE_OR_BELOW[part], fontsize=8.5, color=color,
            )  # fmt: skip
    axes.scatter([], [], color="#3c444c", marker="^", s=22, linewidth=0, label="a rollout snapshot")
    axes.set(xlabel="seconds since the beginning", ylabel="milliseconds; lines: medians", yscale="log")
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_xlim(0, 1.02 * outcome.occupancy[-1][-1].at)
    return "How long each save took"
