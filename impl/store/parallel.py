"""Several files at a time: a few threads for jobs that wait for the disk or compute digests, neither of which blocks.

Small files are not worth a thread, and without one their order is the same in every run; whoever makes the jobs decides
which are large.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

#: From this size on a file is worth a thread of its own.
LARGE_BYTES = 2 << 20
#: Streams under way at once. Also with few cores: while some wait for the disk others compute their digests.
WORKERS = max(6, min(8, os.cpu_count() or 1))
#: Held while a stream computes a digest, not while it waits for the disk: no more of them than there are cores.
COMPUTING = threading.Semaphore(max(1, min(WORKERS, os.cpu_count() or 1)))


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """Something to do, and about how many bytes it will move."""

    work: Callable[[], T]
    bytes: int


def in_parallel(jobs: Iterable[Job[T]], workers: int = WORKERS) -> Iterator[T]:
    """The results in the order of the jobs. Jobs are taken from `jobs` as there is room, on the caller's thread.

    At most `workers` large jobs are under way, and as many results wait. After an error nothing new is begun; what is
    under way is seen to its end before the error is raised, so nothing is written afterwards.
    """
    results: deque[Future[T]] = deque()
    pool: ThreadPoolExecutor | None = None
    try:
        for job in jobs:
            if job.bytes < LARGE_BYTES or workers < 2:
                done: Future[T] = Future()
                done.set_result(job.work())
                results.append(done)
            else:
                pool = pool or ThreadPoolExecutor(workers, thread_name_prefix="cleancut-files")
                results.append(pool.submit(job.work))
            while results and (results[0].done() or len(results) > workers):
                yield results.popleft().result()
        while results:
            yield results.popleft().result()
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
