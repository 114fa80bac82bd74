"""Lives of a run: a process each, told by its events on standard output, and ended with SIGKILL at a planned moment.

What a life says is one JSON object a line, with `event`, the name of an action of the protocol, and `version`, the
trainer's at that moment. Shared with `examples/grpo`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

Event = Mapping[str, Any]

#: Moments of the protocol at which a life is killed: in every phase of a save, and between any two owners.
MOMENTS = (
    "commit_admission", "dispatch", "commit_group", "claim", "finish_step", "fail_attempt", "request_cut", "open_cut",
    "read_ledger", "close_cut", "close_cut", "publish",
)  # fmt: skip
#: The kill comes up to this long after its moment, so that it also falls between events: into a write, for one.
LONGEST_DELAY = 0.03


class LifeFailed(Exception):
    """A life ended by itself, and not well; the message is what it said."""


@dataclass(frozen=True)
class Kill:
    """Kill a life at the first `moment` once its version is at least `version`, after `delay` seconds."""

    version: int
    moment: str
    delay: float


@dataclass(frozen=True)
class Death:
    """How a life ended: by a kill, or (None) by itself; and where it had got."""

    kill: Kill | None
    version: int

    def __str__(self) -> str:
        if self.kill is None:
            return f"ran to the end of the data, at step {self.version}"
        return f"killed {self.kill.delay * 1000:.0f} ms after {self.kill.moment}, at step {self.version}"


def plan_kills(kills: int, seed: int, steps: int) -> list[Kill]:
    """Spread the kills over a run of so many steps, each at a moment and delay of its own. Same seed, same plan."""
    chance = random.Random(seed)
    moments = [MOMENTS[place % len(MOMENTS)] for place in range(kills)] if kills > len(MOMENTS) else list(MOMENTS)
    chance.shuffle(moments)
    # The last quarter is left alone, so that a kill does not come too late to meet a living process.
    last = steps * 3 // 4
    plan = []
    for number in range(kills):
        share = range(1 + number * last // kills, 1 + (number + 1) * last // kills)
        version = chance.choice(share) if share else share.start
        plan.append(Kill(version, moments[number], chance.uniform(0, LONGEST_DELAY)))
    return plan


def live(command: Sequence[str], kill: Kill | None, watch: Callable[[Event], None] = lambda event: None) -> Death:
    """Start one life, `python` with these arguments, and see it end; `watch` is shown every event.

    Raises LifeFailed if it ends by itself with an error.
    """
    root = Path(__file__).resolve().parents[2]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), environment.get("PYTHONPATH"))))
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as complaints,
        subprocess.Popen(
            [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=complaints, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            version, killed = _follow(process, process.stdout, kill, watch)
        finally:
            process.kill()
        if not killed and process.wait() != 0:
            complaints.seek(0)
            raise LifeFailed(f"a life of the run failed by itself:\n{complaints.read().strip()}")
    return Death(kill if killed else None, version)


def _follow(
    process: subprocess.Popen[str], events: IO[str], kill: Kill | None, watch: Callable[[Event], None]
) -> tuple[int, bool]:
    """Read a life's events until it ends, and kill it when its moment has come."""
    version = 0
    for line in events:
        if not line.endswith("\n"):
            break
        event = json.loads(line)
        version = event.get("version", version)
        watch(event)
        if kill is not None and version >= kill.version and event["event"] == kill.moment:
            time.sleep(kill.delay)
            process.send_signal(signal.SIGKILL)
            return version, process.wait() == -signal.SIGKILL
    return version, False
