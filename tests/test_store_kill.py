"""Case E01: a saver that is killed at random points, again and again, on a real file system."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from store_situations import new_store, open_store, publish, text_of

ROUNDS = 20

SAVER = """
import sys
from pathlib import Path
from store_situations import new_store, publish

root = Path(sys.argv[1])
store = new_store(root, keep=2, name=sys.argv[2])
store.open()
step = int(sys.argv[3])
while True:
    publish(store, step)
    print(step, flush=True)
    step += 1
"""


def test_case_E01_whatever_a_killed_saver_was_doing_its_last_acknowledged_checkpoint_is_there_in_full(
    tmp_path: Path,
) -> None:
    """Case E01: each life begins on what the one before left, and dies after a random number of saves and bytes."""
    chooser = random.Random(1)
    acknowledged = 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for life in range(ROUNDS):
        arguments = [sys.executable, "-c", SAVER, str(tmp_path), f"life {life} ", str(acknowledged + 1)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for _ in range(chooser.randrange(1, 4)):
                acknowledged = int(process.stdout.readline())
            # Something of a random length for this process to do, so that the kill falls anywhere in the next saves.
            sum(range(chooser.randrange(400_000)))
            os.kill(process.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        found = new_store(tmp_path).catalogue().candidates
        texts = [text_of(tmp_path, candidate.name) for candidate in found]
        assert texts[0] in (f"step {acknowledged}", f"step {acknowledged + 1}")
        assert [text_of(tmp_path, candidate.name) == f"step {candidate.step}" for candidate in found]
        acknowledged = found[0].step
    with open_store(tmp_path, keep=2) as store:
        publish(store, acknowledged + 1)
    assert len(list(tmp_path.glob("step_*"))) == 2
    assert not [path.name for path in tmp_path.glob(".*") if path.name != ".LOCK"], "nothing piles up"
