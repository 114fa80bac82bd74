"""Workers as actors of a Ray cluster, on this machine or on many (extra `ray`).

An actor is another process, started anywhere: it cannot be given any callable, so the program, `state` and `invariant`
must have a name by which it can import them: that of their module, or what `program.reference` says. What an actor does
is what a forked worker does; where one dies, another is started and its work is given out again.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from ...errors import ExplorerUsageError
from ...runtime.fence import Fence
from ...runtime.run import Rules
from ..setting import Setting
from .team import Gone, Seat
from .workers import Answers, Farewell, Job, Known, Learnt, Raised, WorkerSearch, answer_to, begin_collecting

LOCAL = "local"
PATIENCE_AT_THE_START = 60.0


def imported_ray() -> Any:
    """The package, or one clear error where it is not installed."""
    try:
        import ray
    except ImportError:
        raise ExplorerUsageError("ray=: Ray is not installed; install it with: pip install 'cleancut[ray]'") from None
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
    """Be connected to a cluster, and say how many workers to start there: `workers`, or one a processor.

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
            raise ExplorerUsageError(f"workers={workers}: the Ray cluster has {there} processors, one a worker")
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
        raise ExplorerUsageError(f"ray={address!r}: there is no cluster to connect to: {fault}") from None


def _see_that_it_answers(address: str) -> None:
    """Raise OSError where nobody listens; Ray itself would try for minutes. Other forms of an address are Ray's."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


# ------------------------------------------------------------------------------------------------- what is sent to it


@dataclass(frozen=True)
class Order:
    """A setting by names and plain values, as another process can make it again."""

    program: str
    state: str | None
    invariant: str | None
    rules: Rules
    allow: tuple[str, ...]
    places: tuple[str, ...]
    """Where modules are looked for here; there, after its own places, so far as they exist."""

    def setting(self) -> Setting:
        """The setting, made in the process that asks."""
        sys.path.extend(place for place in self.places if place not in sys.path)
        state, invariant = (named(name) if name is not None else None for name in (self.state, self.invariant))
        made = Setting(named(self.program), self.rules, Fence(self.allow), state, invariant)
        made.observed = Answers()
        return made


def order_for(setting: Setting, allow: tuple[str, ...]) -> Order:
    """Name what a setting holds. Raises where something has no name."""
    return Order(
        name_of(setting.program, "the program"),
        None if setting.state is None else name_of(setting.state, "state="),
        None if setting.invariant is None else name_of(setting.invariant, "invariant="),
        replace(setting.rules),
        allow,
        tuple(sys.path),
    )


def name_of(function: Callable[..., Any], what: str) -> str:
    """Return `module:name` of a function, having seen that this is what an import finds.

    A callable that is built anew by its module, for each name, says itself under which: its attribute `reference`.
    """
    reference: str | None = getattr(function, "reference", None)
    name = reference or f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', None)}"
    try:
        found = named(name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if name.startswith("__main__:") or found is None or (reference is None and found is not function):
        raise ExplorerUsageError(
            f"ray=: {what} is {name}, which another process cannot import by that name. Move it to the top of a "
            "module, or say in its attribute `reference` how it is found, as 'module:name'; workers= takes any callable"
        )
    return name


def named(name: str) -> Any:
    """What a name `module:name` stands for."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


# ---------------------------------------------------------------------------------------------------------- the actor


class RayWorker:
    """One worker, in a process of the cluster. Nothing is fenced in between two batches: the process is Ray's own."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._collected: Any = None

    def begin(self, order: Order) -> Raised | None:
        """Import what is explored; what stands against it."""
        try:
            self._setting = order.setting()
        except Exception as error:
            return Raised("ExplorerUsageError", f"ray=: a worker cannot import the program: {error!r}")
        self._search = WorkerSearch(self._setting, backwards=self._number % 2 == 1)
        self._collected = begin_collecting(self._setting)
        gc.disable()  # as in every search, and not for each batch anew: it would go through all states between two
        return None

    def work(self, news: list[Known], jobs: list[Job]) -> Learnt | Raised:
        """Do one batch."""
        with self._setting.fence:
            return answer_to(self._search, news, jobs)

    def farewell(self) -> Farewell:
        """The last word."""
        return Farewell(self._collected)


class RayWorkers:
    """Starts actors and waits for their answers."""

    def __init__(self, setting: Setting, allow: tuple[str, ...]) -> None:
        self._ray = imported_ray()
        self._order = order_for(setting, allow)
        self._kind = self._ray.remote(RayWorker)

    def start(self, number: int) -> Seat:
        """Start an actor somewhere in the cluster. It is waited for only when its first answer is."""
        # Every actor salts its hashes alike, or the order of sets would tell them apart, as it does not forks.
        alike = {"env_vars": {"PYTHONHASHSEED": _salt()}}
        actor = self._kind.options(num_cpus=1, runtime_env=alike).remote(number)
        return RaySeat(self._ray, actor, actor.begin.remote(self._order))

    def ready(self, seats: Sequence[Any], seconds: float | None) -> list[int]:
        """Wait for the oldest answer of each."""
        places = {seat.asked[0]: place for place, seat in enumerate(seats) if seat.asked}
        waiting = list(places)
        limit = PATIENCE_AT_THE_START if seconds is None else min(seconds, PATIENCE_AT_THE_START)
        some, _ = self._ray.wait(waiting, num_returns=1, timeout=limit)
        if not some and limit == PATIENCE_AT_THE_START and not any(seat.begun for seat in seats):
            raise ExplorerUsageError(
                f"ray=: no worker has started within {limit:g} s; likely cause: other work has the cluster's processors"
            )
        more, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [places[reference] for reference in {*some, *more}]


def _salt() -> str:
    """The one of this process, where it was chosen; 0 where it was drawn and cannot be known."""
    chosen = os.environ.get("PYTHONHASHSEED", "")
    return chosen if chosen.isdigit() else "0"


class RaySeat:
    """One actor, and what it has been asked and has not answered."""

    def __init__(self, ray: Any, actor: Any, beginning: Any) -> None:
        self._ray = ray
        self._actor = actor
        self._beginning = beginning
        self.begun = False
        self.asked: deque[Any] = deque()

    def send(self, news: list[Known], jobs: list[Job]) -> None:
        """Call the actor; calls are done in their order."""
        self.asked.append(self._actor.work.remote(news, jobs))

    def receive(self) -> Learnt | Raised:
        """Take the oldest answer."""
        try:
            if not self.begun:
                against: Raised | None = self._ray.get(self._beginning)
                if against is not None:
                    return against
                self.begun = True
            answer: Learnt | Raised = self._ray.get(self.asked.popleft())
        except lost_actor(self._ray) as gone:
            self.asked.clear()
            how = (
                f"({type(gone).__name__})" if self.begun else f"before they began: {str(gone).strip().splitlines()[-1]}"
            )
            raise Gone(f"on Ray {how}") from None
        return answer

    def farewell(self, seconds: float) -> Farewell | None:
        """Ask for the last word."""
        try:
            last: Farewell = self._ray.get(self._actor.farewell.remote(), timeout=seconds)
        except self._ray.exceptions.RayError:
            return None  # it died with nothing left to do, or is still busy
        return last

    def stop(self) -> None:
        """Kill the actor."""
        self._ray.kill(self._actor)
