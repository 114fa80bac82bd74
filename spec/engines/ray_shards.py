"""Owners of states as actors of a Ray cluster, on this machine or on many (extra `ray`).

What an owner sends to another lies in the object store of the machine where it was made until the other has it; the
search itself sees only what is reported. So do the levels that are kept for the case that an owner dies.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..language.machine import Machine
from ..machines.catalogue import UnknownName
from .compiled import ownership
from .compiled.owner import Batch, Expanded, Inserted, Kept, Owner, Plan, Settled
from .compiled.ownership import LevelsLost, OwnersLost
from .outcome import Progress
from .reference import Search

LOCAL = "local"
PATIENCE_AT_THE_START = 60.0


def imported_ray() -> Any:
    """The package, or one clear error where it is not installed."""
    try:
        import ray
    except ImportError:
        raise UnknownName("--ray: Ray is not installed; install it with: pip install 'cleancut[ray]'") from None
    return ray


def lost_actor(ray: Any) -> tuple[type[Exception], ...]:
    """What Ray raises for an actor that does not answer any more: not all of it is a RayActorError."""
    errors = ray.exceptions
    return (
        errors.RayActorError,
        errors.OutOfMemoryError,  # killed by Ray itself, because memory ran low
        errors.ActorUnschedulableError,
        errors.RuntimeEnvSetupError,
    )


@contextmanager
def cluster(address: str, workers: int | None) -> Iterator[int]:
    """Be connected to a cluster, and say how many owners to start there: `workers`, or one a processor.

    "local" starts a Ray on this machine and ends it afterwards. A process that is connected already stays so, to what
    it is connected to.
    """
    ray = imported_ray()
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, address, workers)
    try:
        there = int(ray.cluster_resources().get("CPU", 0))
        if there < (workers or 1):
            raise UnknownName(f"--workers {workers}: the Ray cluster has {there} processors, one a worker")
        yield workers or there
    finally:
        if not connected:
            ray.shutdown()


def _connect(ray: Any, address: str, workers: int | None) -> None:
    quiet: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {"address": address}
    if address == LOCAL and workers is not None:
        quiet["num_cpus"] = workers  # Ray counts processors that there are not, if it is told so
    try:
        _see_that_it_answers(address)
        ray.init(**quiet, log_to_driver=False, configure_logging=False)
    except (OSError, ValueError, RuntimeError) as fault:
        raise UnknownName(f"--ray {address}: there is no cluster to connect to: {fault}") from None


def _see_that_it_answers(address: str) -> None:
    """Raise OSError where nobody listens; Ray itself would try for minutes. Other forms of an address are Ray's."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def search(
    machine: Machine,
    scope: Any,
    variants: tuple[str, ...],
    address: str,
    workers: int | None,
    *,
    properties: Iterable[str] | None = None,
    max_states: int | None = None,
    memory_limit: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    together: Sequence[tuple[str, ...]] = (),
    symmetry: bool = False,
) -> Search:
    """Enumerate a machine within a scope on a Ray cluster; the rest is as of `ownership.search`."""
    hired: list[RayOwners] = []

    def hire(plan: Plan) -> RayOwners:
        hired.append(RayOwners(plan))
        return hired[0]

    with cluster(address, workers) as number:
        try:
            return ownership.search(
                machine,
                scope,
                variants,
                hire,
                number,
                properties=properties,
                max_states=max_states,
                memory_limit=memory_limit,
                on_progress=on_progress,
                together=together,
                symmetry=symmetry,
            )
        finally:
            for owners in hired:
                owners.stop()


class RayOwner:
    """An owner in a process of the cluster. It returns its parts apart, so that each goes where it is wanted."""

    _owner: Owner

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan, self._number = plan, number

    def here(self) -> None:
        """Nothing: whoever answers has started."""

    def prepare(self) -> None:
        """Compile what there is to compile."""
        self._owner = Owner(self._plan, self._number)

    def begin(self) -> tuple[bool, Inserted]:
        """Put the initial state in."""
        return self._owner.begin(self._plan.initial)

    def expand(self) -> list[Expanded | Batch]:
        """The first step of a round: a report, and a batch for each owner."""
        report, batches = self._owner.expand()
        return [report, *batches]

    def insert(self, *batches: Batch) -> Inserted:
        """The second step of a round."""
        return self._owner.insert(batches)

    def settle(self) -> list[Settled | Kept]:
        """End a level: a report, and what is kept of it."""
        return list(self._owner.settle())

    def roll_back(self, settled: Settled) -> None:
        """Be as at the end of that level."""
        self._owner.roll_back(settled)

    def take_over(self, settled: Settled, *levels: Kept) -> None:
        """Be as an owner was who has died."""
        self._owner.take_over(levels, settled)

    def look(self, row: int) -> tuple[list[int], int, int]:
        """A state and its parent."""
        return self._owner.look(row)


class RayOwners:
    """The actors, and the levels they have sent out."""

    def __init__(self, plan: Plan) -> None:
        self._ray = imported_ray()
        self._plan = plan
        self.number = plan.owners
        self._kind = self._ray.remote(RayOwner).options(num_cpus=1)
        self._levels: list[list[Any]] = [[] for _ in range(self.number)]
        self.actors = [self._kind.remote(plan, owner) for owner in range(self.number)]
        self._wait_for([actor.here.remote() for actor in self.actors], PATIENCE_AT_THE_START)
        # The first compiles what there is to compile; the others find it on disk, on the same machine at least.
        self._wait_for([self.actors[0].prepare.remote()])
        for actor in self.actors[1:]:
            actor.prepare.remote()

    def _wait_for(self, starting: list[Any], seconds: float | None = None) -> None:
        errors = self._ray.exceptions
        try:
            self._ray.get(starting, timeout=seconds)
        except errors.GetTimeoutError:
            raise UnknownName(
                f"--ray: not all of {self.number} owners have started within {PATIENCE_AT_THE_START:g} s; likely "
                "cause: other work has the cluster's processors. Name fewer with --workers"
            ) from None
        except lost_actor(self._ray) as fault:
            reason = str(fault).strip().splitlines()[-1]
            raise UnknownName(f"--ray: an owner cannot start in the cluster: {reason}") from None

    def stop(self) -> None:
        """Kill them all."""
        for actor in self.actors:
            self._ray.kill(actor)

    def _answers(self, references: Sequence[Any]) -> list[Any]:
        errors = self._ray.exceptions
        try:
            answers: list[Any] = self._ray.get(list(references))
        except lost_actor(self._ray) as gone:
            raise OwnersLost(str(gone)) from None
        except errors.ObjectLostError as lost:
            raise LevelsLost(str(lost)) from None
        return answers

    def begin(self) -> list[tuple[bool, Inserted]]:
        """Put the initial state in."""
        return self._answers([actor.begin.remote() for actor in self.actors])

    def round(self) -> list[tuple[Expanded, Inserted]]:
        """Take both steps: the second of each owner waits, where he is, for the first of all."""
        sent = [actor.expand.options(num_returns=1 + self.number).remote() for actor in self.actors]
        inserted = [
            actor.insert.remote(*(batches[1 + owner] for batches in sent)) for owner, actor in enumerate(self.actors)
        ]
        answers = self._answers([*(batches[0] for batches in sent), *inserted])
        return list(zip(answers[: self.number], answers[self.number :], strict=True))

    def settle(self) -> list[Settled]:
        """End a level and keep what comes of it, once everybody has sent it."""
        sent = [actor.settle.options(num_returns=2).remote() for actor in self.actors]
        settled = self._answers([report for report, _ in sent])
        for levels, (_, kept) in zip(self._levels, sent, strict=True):
            levels.append(kept)
        return settled

    def look(self, owner: int, row: int) -> tuple[list[int], int, int]:
        """A state of an owner, and its parent."""
        found: tuple[list[int], int, int] = self._answers([self.actors[owner].look.remote(row)])[0]
        return found

    def replace_the_lost(self, settled: Sequence[Settled]) -> None:
        """Roll everybody back; whoever does not answer is replaced."""
        levels = list(settled) or [self._plan.before_anything] * self.number
        asked = [actor.roll_back.remote(level) for actor, level in zip(self.actors, levels, strict=True)]
        for owner, answer in enumerate(asked):
            try:
                self._answers([answer])
            except OwnersLost:
                self._ray.kill(self.actors[owner])
                actor = self.actors[owner] = self._kind.remote(self._plan, owner)
                self._answers([actor.prepare.remote(), actor.take_over.remote(levels[owner], *self._levels[owner])])
