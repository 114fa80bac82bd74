"""`RayBarrier`: the barrier as seen from any process of a Ray cluster. The barrier itself is hosted by an actor."""

from __future__ import annotations

import asyncio
import os
import socket
from asyncio.events import _get_running_loop
from collections.abc import Sequence
from dataclasses import dataclass
from sys import _getframe
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import ray
from ray.exceptions import RayError

from ..barrier import UNSET, BarrierStatistics, Unset
from ..barrier.admission import NEW
from ..barrier.arguments import label, positive, seconds
from ..barrier.cut import HELD, Cut, outer_sections
from ..barrier.detached import DetachedContext
from ..errors import HostUnreachable, UsageError, WrongLoop
from ..leases import FenceOrder, LeaseCounts, LeaseTable
from .actor import CALLS_AT_ONCE, LOST, BarrierActor, MakeOperations, Settings
from .sections import RayCheckpoint, RayCut, RayMutation

Section = TypeVar("Section", bound=RayCut)


@dataclass(frozen=True)
class RayBarrierStatistics:
    """One instant of the hosted barrier, of its leases, and the process that hosts it."""

    barrier: BarrierStatistics
    leases: LeaseCounts
    host_process: int


class RayBarrier:
    """Shared mutation slots and one exclusive checkpoint for holders in any process. Picklable: hand it on.

    Made by `start` or `connect`. In one process there is one for each actor, whichever way it came.
    """

    def __init__(self, actor: Any, name: str, lease: float, patience: float | None) -> None:
        self._actor = actor
        self.name = name
        self.lease = lease
        """How long a holder may be silent, in seconds."""
        self.patience = patience
        """How long to go on asking for a section while the host is being started anew, in seconds; None for ever."""

    @classmethod
    def start(
        cls,
        make_operations: MakeOperations,
        *,
        name: str = "checkpoint",
        lease: float = 10.0,
        longest_hold: float | None = None,
        drain_timeout: float | None = None,
        hold_warning: float | None = None,
        guards: Sequence[Any] = (),
        guard_timeout: float = 30.0,
        max_restarts: int = 0,
        patience: float | None = 60.0,
        **options: Any,
    ) -> RayBarrier:
        """Start the actor that hosts a barrier.

        `make_operations(barrier)`, async or not, makes in the actor's process what `call` and `ask` run: an object with
        a method for each operation, over a ledger, a buffer, a plane that join `barrier`. It runs again whenever the
        actor is started anew (`max_restarts`, -1 for always), and restores them then from the newest checkpoint.

        `lease`: seconds that a holder may be silent. `longest_hold`: seconds that a section may last, whatever its
        holder says. `guards`: handles of actors that check tokens; each has `obey(order)`, which returns
        `fence.obey(order)`, and `guard_timeout` seconds for that.
        `options` go to Ray, as in `num_cpus=1`, `lifetime="detached"`, `namespace=...`; `name` is the actor's, too, if
        `lifetime` is given. Others are as of CheckpointBarrier.
        """
        if not callable(make_operations):
            raise UsageError(f"make_operations is {make_operations!r}, but must be a function of the barrier.")
        LeaseTable(0, lease, longest_hold)  # refuses what no lease can be, here and not in the actor
        settings = Settings(
            label("name", name),
            float(lease),
            longest_hold,
            seconds("drain_timeout", drain_timeout),
            seconds("hold_warning", hold_warning),
            positive("guard_timeout", guard_timeout),
        )
        patience = seconds("patience", patience)
        _require_guards(guards)
        if "lifetime" in options:
            options.setdefault("name", name)
        options.setdefault("num_cpus", 0)
        hosting = ray.remote(BarrierActor).options(max_restarts=max_restarts, max_concurrency=CALLS_AT_ONCE, **options)
        actor = hosting.remote(make_operations, settings, tuple(guards))
        return _of(actor, name, settings.lease, patience)

    @classmethod
    async def connect(cls, name: str, namespace: str | None = None, patience: float | None = 60.0) -> RayBarrier:
        """The barrier that was started under this name with `lifetime="detached"`, from anywhere in the cluster."""
        patience = seconds("patience", patience)
        try:
            actor = ray.get_actor(name, namespace)
            settings: Settings = await actor.settings.remote()
        except (ValueError, AttributeError, RayError) as nowhere:
            raise HostUnreachable(f"there is no barrier {name!r} to connect to: {nowhere}") from nowhere
        return _of(actor, settings.name, settings.lease, patience)

    # -- sections

    def mutation(self, kind: str = "mutation") -> RayMutation:
        """A shared section, as an async context manager. `kind` is a free label for statistics and messages."""
        return self._asked_for(RayMutation(), label("kind", kind), UNSET, _getframe(1))

    def checkpoint(self, timeout: float | Unset | None = UNSET) -> RayCheckpoint:
        """The exclusive section, as an async context manager; `timeout` as of CheckpointBarrier.

        A holder that died in its slot is waited for until its lease is over, and no longer.
        """
        limit = timeout if isinstance(timeout, Unset) else seconds("timeout", timeout)
        return self._asked_for(RayCheckpoint(), "checkpoint", limit, _getframe(1))

    async def ask(self, operation: str, *arguments: Any) -> Any:
        """Run an operation in the host's process outside of any lease: a save, or a look."""
        return await self._answered("ask", operation, arguments)

    async def announce(self) -> FenceOrder:
        """Tell every guard which tokens are good: for one that was started anew and takes none until it is told."""
        order: FenceOrder = await self._answered("announce")
        return order

    async def statistics(self) -> RayBarrierStatistics:
        """A snapshot. Holders are named by process, host and task."""
        return RayBarrierStatistics(*await self._answered("statistics"))

    async def close(self, reason: str) -> None:
        """Refuse all later requests with BarrierClosed and wake the waiting ones with it; open sections finish."""
        await self._answered("close", reason)

    def detached(self) -> DetachedContext:
        """A plain context manager: tasks started inside may outlive the sections that their starter holds."""
        return DetachedContext(self, asyncio.current_task)

    def require_outside(self) -> None:
        """Raise BarrierReentered when the caller's context holds a section of this barrier; changes nothing."""
        outer_sections(HELD.get(), self)

    def emit(self, action: str, **fields: object) -> None:
        """Nothing: events are emitted where the barrier is, in the host's process."""

    def lets_heirs_in(self, section: Cut) -> bool:
        """Never: a section is a lease here, and a wait in a circle over processes has nobody who sees all of it."""
        return False

    # -- the host

    async def _answered(self, method: str, *arguments: Any) -> Any:
        self._require_loop()
        try:
            return (await getattr(self._actor, method).remote(*arguments)).taken()
        except LOST as gone:
            raise self._unreachable(gone) from gone

    def _unreachable(self, gone: RayError) -> HostUnreachable:
        return HostUnreachable(
            f"the process that hosts barrier {self.name!r} does not answer: {gone}. If it is gone for good, start the "
            "run again from the newest checkpoint; with max_restarts Ray starts it anew by itself."
        )

    def _require_loop(self) -> None:
        if _get_running_loop() is None:
            raise WrongLoop(
                f"barrier {self.name!r}, in another process, was used where no event loop of asyncio runs; the likely "
                "cause is a worker thread, or trio. Its sections may be opened in any loop and any thread: "
                "`asyncio.run(...)` there will do."
            )

    def _holder(self) -> str:
        """This task, as it is named in messages of the host."""
        task = asyncio.current_task()
        name = "a callback" if task is None else task.get_name()
        return f"{name} in process {os.getpid()} on {socket.gethostname()}"

    def _asked_for(self, section: Section, kind: str, timeout: float | Unset | None, asked_in: FrameType) -> Section:
        section.barrier = self
        section.kind = kind
        section.standing = NEW
        section.code = asked_in.f_code
        section.instruction = asked_in.f_lasti
        section.timeout = timeout
        return section

    def __reduce__(self) -> tuple[Any, ...]:
        return _of, (self._actor, self.name, self.lease, self.patience)

    def __repr__(self) -> str:
        return f"<barrier {self.name!r} in another process, lease {self.lease:g} s>"


def _require_guards(guards: Sequence[Any]) -> None:
    """Raise UsageError unless each is the handle of an actor with a method `obey`."""
    if not isinstance(guards, Sequence):
        raise UsageError(f"guards is {guards!r}, but must be a list of handles of actors.")
    for guard in guards:
        if not hasattr(getattr(guard, "obey", None), "remote"):
            raise UsageError(
                f"guards is {guards!r}, but {guard!r} is no handle of an actor with a method `obey(order)`, "
                "which returns what its fence answers."
            )


_KNOWN: WeakValueDictionary[str, RayBarrier] = WeakValueDictionary()


def _of(actor: Any, name: str, lease: float, patience: float | None) -> RayBarrier:
    """The one barrier of this actor here: sections are told apart by the object that gave them."""
    identity = actor._actor_id.hex()
    known = _KNOWN.get(identity)
    if known is None:
        known = _KNOWN[identity] = RayBarrier(actor, name, lease, patience)
    return known
