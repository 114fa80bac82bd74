"""A child process that goes on as long as it says something: a hang is told by lack of progress, not by its length."""

from __future__ import annotations

import faulthandler
import queue
import subprocess
import threading
from collections.abc import Callable

#: A child that reports each test by a line and says nothing for so long hangs; it has the same limit for each itself.
SILENT_SECONDS = 3000.0


def output_while_it_moves(
    process: subprocess.Popen[str],
    silent: float = SILENT_SECONDS,
    get: Callable[[queue.Queue[str | None], float], str | None] = lambda lines, silent: lines.get(timeout=silent),
) -> str:
    """Everything that a process prints until it ends. Each line begins the time anew in which the next must come.

    A process that says nothing for `silent` seconds is killed, and the failure names its last lines. The limit that
    pytest sets for the whole test is called off, since this one stands in its place.
    """
    lines: queue.Queue[str | None] = queue.Queue()
    stream = process.stdout
    assert stream is not None

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    faulthandler.cancel_dump_traceback_later()
    said: list[str] = []
    try:
        while (line := get(lines, silent)) is not None:
            said.append(line)
    except queue.Empty:
        raise AssertionError(
            f"a process said nothing for {silent:g} seconds after {len(said)} lines, so it hangs. Its last lines:\n"
            + "".join(said[-5:])
        ) from None
    finally:
        process.kill()
        process.wait()
        reader.join()
        stream.close()
    return "".join(said)
