"""Two writers in one directory whose lock does not hold: nothing told durable is lost, and the live one saves.

    python bench/two_writers.py [--json FILE] [--quick] [--seed N]

Two processes save into one directory, each until it is overtaken, and then takes the directory over again. In one run
the lock file is removed at random moments, as a clean-up job may; in the other flock does nothing, as on some file
servers. A third process reads meanwhile what a resume would take.

A save is *lost* when its writer was told that it is durable, and neither it nor a newer one is whole. It is *refused
for another reason* when it fails and its writer was not overtaken: for want of what the other one cleared away, say.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parts.figures import Row, at_least, at_most, only_shown, options_of, reported

from impl import CleancutError, StoreBusy
from impl.store import (
    CheckpointStore,
    Count,
    Draft,
    Handle,
    Identity,
    PosixFiles,
    SamplerIdentity,
    StagedDirectory,
    WriterIdentity,
)

IDENTITY = Identity(8, "d" * 64, 1, 2, None, SamplerIdentity("in_order", {"lookahead": 1}))
KEEP = 3


class NoLock(PosixFiles):
    """flock reports success and does nothing."""

    def lock(self, path: str) -> Handle:
        return Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))

    def unlock(self, handle: Handle) -> None:
        os.close(handle)


def fill(staged: StagedDirectory) -> Mapping[str, Count]:
    """A few small files: what is raced for are names."""
    staged.writer().write_json("words.json", {"process": os.getpid()})
    staged.writer("trainer").write_bytes("weights.bin", b"w" * 5000)
    return {}


def live(root: str, locked: bool, saves: int, told: Any, seed: int) -> None:
    """Save until `saves` were told durable; say each: its sequence, or why it failed."""
    logging.disable()
    chance = random.Random(seed)
    files = PosixFiles() if locked else NoLock()
    # Both have one holder: two containers of one image have one host and one process id.
    tokens = WriterIdentity.of_this_process().token
    done = 0
    while done < saves:
        store = CheckpointStore(root, files, KEEP, WriterIdentity("process 1 on host", tokens))
        try:
            store.open()
            for _ in range(chance.randrange(1, 6)):
                draft = Draft(0, store.take_sequence(), "full", None, None, IDENTITY)
                told.put(("told", store.publish(draft, fill).manifest.sequence))
                done += 1
        except StoreBusy:
            told.put(("overtaken", 0))
            time.sleep(chance.uniform(0, 0.002))
        except CleancutError as error:
            told.put(("refused", str(error)))
        finally:
            store.close()


def newest_whole(root: str) -> int | None:
    """The sequence of the newest checkpoint that is whole; None where a resume would be refused."""
    store = CheckpointStore(root, PosixFiles(), KEEP, WriterIdentity("reader", lambda: "reader"))
    for _ in range(20):
        try:
            for candidate in store.catalogue().candidates:
                store.reader(candidate.name).verify()
                return candidate.sequence
        except CleancutError as error:
            # Removed by retention while it was read: a newer one is there.
            if "both carry the sequence" in str(error):
                return None
    return None


def measure(locked: bool, saves: int, seed: int) -> list[Row]:
    """The figures of one run."""
    chance = random.Random(seed)
    how = "lock removed at random" if locked else "flock does nothing"
    with tempfile.TemporaryDirectory(prefix="cleancut-bench-") as place:
        root = f"{place}/run"
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        writers = [
            context.Process(target=live, args=(root, locked, saves // 2, queue, seed + number)) for number in (1, 2)
        ]
        for writer in writers:
            writer.start()
        told: list[int] = []
        overtaken, refused, no_resume, looks = 0, [], 0, 0
        while any(writer.is_alive() for writer in writers) or not queue.empty():
            if locked and chance.random() < 0.3:
                Path(root, ".LOCK").unlink(missing_ok=True)
            time.sleep(chance.uniform(0, 0.01))
            while not queue.empty():
                kind, what = queue.get()
                if kind == "told":
                    told.append(what)
                elif kind == "overtaken":
                    overtaken += 1
                else:
                    refused.append(what)
            if told:
                looks += 1
                newest = newest_whole(root)
                no_resume += newest is None or newest < max(told)
        for writer in writers:
            writer.join()
        end = newest_whole(root)
        lost = sum(end is None or sequence > end for sequence in told)
    for text in refused[:5]:
        print(f"refused: {text}", file=sys.stderr)
    return [
        at_least(f"{how}: saves told durable", len(told), saves),
        at_least(f"{how}: times a writer was refused or overtaken", overtaken, 1),
        at_most(f"{how}: saves told durable and lost", lost, 0),
        at_most(f"{how}: sequences given to two saves", len(told) - len(set(told)), 0),
        at_most(f"{how}: saves refused for another reason", len(refused), 0),
        only_shown(f"{how}: looks at what a resume takes", looks),
        at_most(f"{how}: looks that found none, or an older one than was told", no_resume, 0),
    ]


def main(arguments: list[str]) -> int:
    parser = options_of("Two writers in one directory whose lock does not hold.")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which the lock goes")
    options = parser.parse_args(arguments)
    saves = 40 if options.quick else 1000
    rows = [row for locked in (True, False) for row in measure(locked, saves, options.seed)]
    return reported(f"two writers, CPython {sys.version.split()[0]}, {saves} saves each run", rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
