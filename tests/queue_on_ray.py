"""TransferQueue on a Ray of this process: six logical CPUs, since with two its start waits for ever."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import transfer_queue


@contextmanager
def running_queue() -> Iterator[None]:
    """Ray and the queue, for the tests of one file."""
    ray.init(
        num_cpus=6, include_dashboard=False, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR
    )
    try:
        transfer_queue.init()
        try:
            yield
        finally:
            transfer_queue.close()
    finally:
        ray.shutdown()


def names_in(partition: str) -> set[str]:
    """What the queue holds under a partition."""
    found: dict[str, dict[str, object]] = transfer_queue.kv_list(partition)
    return set(found.get(partition, {}))
