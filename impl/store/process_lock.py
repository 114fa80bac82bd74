"""An exclusive lock on an open file that ends with this process, whoever it has forked.

`flock` belongs to the open file, and a forked process has a share in that. The workers of a data loader outlive a
killed run by seconds, and its lock would live with them: the run that is started again would be refused by a dead one.
So a forked process gives its share up at once. It points the descriptor at the null device instead of closing the
number: objects that came with the fork may still unlock and close it, which must not meet another file, nor this lock.
"""

from __future__ import annotations

import fcntl
import os

_held: set[int] = set()


def lock_exclusively(descriptor: int) -> None:
    """Take the lock of an open file; BlockingIOError at once if somebody holds it.

    flock, not lockf: it belongs to this open file, so two owners in one process exclude each other too, and closing
    some other descriptor of the same file does not give it away.
    """
    # Before the lock is taken: another thread may fork at any moment.
    _held.add(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        _held.discard(descriptor)
        raise


def unlock_and_close(descriptor: int) -> None:
    """Give the lock back, if it was taken, and close the file."""
    try:
        # Closing alone would leave the lock with a process that is being forked in this moment.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _give_up_share() -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in _held:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    _held.clear()


os.register_at_fork(after_in_child=_give_up_share)
