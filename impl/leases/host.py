"""The host of a barrier: it holds sections for holders in other processes, and ends those of the silent ones.

For every lease a task of the host is inside a section of the real barrier. What a holder wants done there it names as
an operation, which runs here, synchronously, with the cut of that section: it happens as a whole or not at all, and the
parts check the cut as they always do. When a holder is silent for longer than its lease

    lapse           its token is void: operations with it are refused, here at once
    tell            every part in another process is told, and has answered
    leave           its section is left, so that a drain ends

in this order; a holder that wakes meanwhile, or ever, finds its token refused. Nothing here knows how messages travel.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextvars import Context
from time import monotonic
from typing import Any, Protocol

from ..errors import CleancutError, GuardUnreachable, HostUnreachable, LeaseExpired, UsageError
from .fence import FenceOrder, Token
from .hosted import HostedBarrier
from .table import LAPSED, Asking, Lease, LeaseCounts, LeaseTable

logger = logging.getLogger("cleancut.barrier")

ENDS_REMEMBERED = 1024
"""For how many requests the host knows that their end was told, should the request itself come after it."""

TELL_AGAIN_SECONDS = 0.25
"""How long to wait before a part that did not answer is told again that a lease is over."""


class Guard(Protocol):
    """A part in another process that checks tokens with a `Fence`."""

    async def obey(self, order: FenceOrder) -> FenceOrder:
        """Have its fence obey the order, and return what the fence answers. An OSError when it does not answer."""
        ...


class _Holding:
    """A lease and the task that is inside its section."""

    def __init__(self) -> None:
        self.granted: asyncio.Future[Token] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.cut: Any = None
        self.task: asyncio.Task[None]
        # A task that is cancelled before its first step takes none, and would clear nothing away.
        self.began = False


class LeaseHost:
    """Sections of `barrier` for holders in other processes, and the operations that they may ask for.

    `operations` is any object: its methods that take a cut first are for `call`, the others for `ask`. `guards` are
    told which tokens are void; one that does not answer within `guard_timeout` seconds keeps a cut from opening.
    """

    def __init__(
        self,
        barrier: HostedBarrier,
        table: LeaseTable,
        operations: object,
        guards: Sequence[Guard] = (),
        *,
        guard_timeout: float = 30.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.barrier = barrier
        self._table = table
        self._operations = operations
        self._guards = tuple(guards)
        self._guard_timeout = guard_timeout
        self._clock = clock
        self._holdings: dict[str, _Holding] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._superseded = False
        # Requests whose end was told, the newest of them: what comes of them later is late.
        self._given_up: OrderedDict[str, None] = OrderedDict()
        # How often the clock is looked at, at least. When it was not, the host itself was stalled.
        self._tick = table.shortest / 8
        self._looked = clock()
        barrier.before_a_cut = self._before_a_cut

    # -- what holders ask for

    async def acquire(self, asking: Asking) -> Token:
        """Wait until the section is entered. Asked twice with the same name, it is one request and one lease.

        Any refusal of the barrier, such as DrainTimeout, comes from here, and leaves nothing behind.
        """
        self._refuse_when_superseded()
        if asking.request in self._given_up:
            raise LeaseExpired(f"the request of {asking.holder} was withdrawn before it came.")
        self._table.ask(asking, self._time())
        holding = self._holdings.get(asking.request)
        if holding is None:
            holding = self._holdings[asking.request] = _Holding()
            # In a context of its own: whoever hosts holds no section for whoever asks.
            holding.task = asyncio.create_task(self._hold(asking, holding), name=asking.holder, context=Context())
        return await asyncio.shield(holding.granted)

    def renew(self, request: str) -> float:
        """A heartbeat, of a holder or of one that waits: the seconds that its lease has now, or LeaseExpired."""
        return self._table.renew(request, self._time())

    def release(self, request: str) -> None:
        """Give a section back, or withdraw the request for it. Awaits nothing; nothing to do is no error."""
        # Messages may overtake and come twice: the request that this ends may be still on its way.
        self._given_up[request] = None
        if len(self._given_up) > ENDS_REMEMBERED:
            self._given_up.popitem(last=False)
        self._end(request)

    def call(self, token: Token, operation: str, arguments: Sequence[Any]) -> object:
        """Run an operation with the cut of this lease, and return what it returns.

        Synchronous from the look at the token to the end: no lease ends in between, and no holder that dies leaves it
        half done. LeaseExpired when the token is void, and then nothing was done.
        """
        self._refuse_when_superseded()
        lease = self._table.require(token)
        result = self._operation(operation)(self._holdings[lease.asking.request].cut, *arguments)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise UsageError(
                f"the operation {operation!r} is async, but what happens in a section is synchronous here: its holder "
                "may die at any await. Await what is slow in an operation for `ask`, outside of any section."
            )
        return result

    async def ask(self, operation: str, arguments: Sequence[Any]) -> object:
        """Run an operation outside of any lease: one that opens its own section, such as a save, or that only looks."""
        self._refuse_when_superseded()
        result = self._operation(operation)(*arguments)
        return await result if inspect.isawaitable(result) else result

    async def announce(self) -> FenceOrder:
        """Tell every part in another process which tokens are good, and return it. Raises GuardUnreachable."""
        order = self._table.order
        await self._tell(order)
        return order

    @property
    def counts(self) -> LeaseCounts:
        """How many leases there are and were."""
        return self._table.counts

    # -- the sections

    async def _hold(self, asking: Asking, holding: _Holding) -> None:
        """Be inside the section of a lease, from its grant until it is given back or over."""
        request = asking.request
        try:
            holding.began = True
            if holding.over.is_set():
                return
            async with self.barrier.leased(asking) as cut:
                holding.cut = cut
                holding.granted.set_result(self._table.grant(request, self._time()))
                await holding.over.wait()
        except CleancutError as refusal:
            if not holding.granted.done():
                holding.granted.set_exception(refusal)
                # Whoever asked may be gone; then nobody looks.
                holding.granted.exception()
        finally:
            if not holding.granted.done():
                lease = self._table.get(request)
                lapsed = lease is not None and lease.standing is LAPSED
                withdrawn = LeaseExpired(f"the request of {asking.holder} was withdrawn by its holder.")
                holding.granted.set_exception(self._table.refusal(request) if lapsed else withdrawn)
                holding.granted.exception()
            self._table.end(request)
            self._holdings.pop(request, None)

    def _end(self, request: str) -> None:
        holding = self._holdings.get(request)
        if holding is None:
            self._table.end(request)
            return
        holding.over.set()
        lease = self._table.get(request)
        if holding.began and lease is not None and lease.number is None:
            holding.task.cancel()

    # -- silence

    async def watch(self) -> None:
        """End the leases whose holders are silent. Runs as long as the host does; cancel it to stop."""
        self._looked = self._clock()
        while True:
            # What is asked for or granted meanwhile lapses later than the next tick.
            deadline = self._table.next_deadline
            until = self._tick if deadline is None else min(self._tick, deadline - self._clock())
            await asyncio.sleep(max(0.0, until))
            self.end_silent_leases()

    def end_silent_leases(self) -> None:
        """Void the tokens of the leases whose time is up, and have their sections left once every part knows."""
        now = self._time()
        for lease in self._table.lapse(now):
            asking = lease.asking
            held = "" if lease.granted is None else f", held for {now - lease.granted:.3f} s"
            logger.warning(
                "the lease of %s (kind %r, opened at %s%s) is over: nothing was heard of it for %.3f s. Its section is "
                "ended; what it still writes is refused.",
                *(asking.holder, asking.kind, asking.place, held, now - lease.heard_of),
            )
            if lease.number is not None:
                self.barrier.emit("expire_lease", task=asking.holder, kind=asking.kind)
            task = asyncio.create_task(self._leave_for(lease), name=f"ends the lease of {asking.holder}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _time(self) -> float:
        """The time now. What the host slept through counts for nobody: heartbeats came meanwhile, unheard."""
        now = self._clock()
        slept = now - self._looked - self._tick
        self._looked = now
        if slept > self._tick:
            logger.warning("the host of barrier %r was stalled for %.3f s; leases end later", self.barrier.name, slept)
            self._table.forgive(slept)
        return now

    async def _leave_for(self, lease: Lease) -> None:
        """Tell the parts, for as long as it takes, and only then leave the section of a lease that lapsed."""
        while lease.number is not None:
            try:
                await self._tell(self._table.order)
                break
            except CleancutError as refusal:
                if self._superseded:
                    break
                logger.warning("a lease that is over still holds its section: %s", refusal)
                await asyncio.sleep(TELL_AGAIN_SECONDS)
        self._end(lease.asking.request)

    # -- parts in other processes

    async def _before_a_cut(self) -> None:
        await self._tell(self._table.raise_floor())

    async def _tell(self, order: FenceOrder) -> None:
        """Have every guard obey an order; returns when all have answered."""
        if not self._guards:
            return
        try:
            async with asyncio.timeout(self._guard_timeout):
                answers = await asyncio.gather(*(guard.obey(order) for guard in self._guards))
        except OSError as silence:  # TimeoutError is one
            raise GuardUnreachable(
                f"a part that checks the tokens of barrier {self.barrier.name!r} did not answer "
                f"({str(silence) or 'in time'}): it could still take a write of a section that is over, and no cut "
                f"opens. Look for its process; the limit is guard_timeout, {self._guard_timeout:g} s."
            ) from silence
        except Exception as fault:
            raise self._disobeyed(f"failed ({_in_one_line(fault)})") from fault
        for answer in answers:
            if not isinstance(answer, FenceOrder):
                raise self._disobeyed(f"answered {answer!r}, not what its fence knows")
        newest = max(answer.epoch for answer in answers)
        if newest > order.epoch:
            self._superseded = True
            self.barrier.close(f"a host of epoch {newest} has taken its place")
            self._refuse_when_superseded()

    def _disobeyed(self, how: str) -> GuardUnreachable:
        return GuardUnreachable(
            f"a part that checks the tokens of barrier {self.barrier.name!r} was told which are void, and {how}: it "
            "could still take a write of a section that is over, and no cut opens. Its method has to be "
            "`obey(order)`, with `return fence.obey(order)` in it."
        )

    def _refuse_when_superseded(self) -> None:
        if self._superseded:
            raise HostUnreachable(
                f"this host of barrier {self.barrier.name!r} (epoch {self._table.epoch}) has been replaced by another, "
                "and does nothing any more. Connect to the barrier again."
            )

    def _operation(self, name: str) -> Callable[..., Any]:
        found = None if name.startswith("_") else getattr(self._operations, name, None)
        if not callable(found):
            there = ", ".join(n for n in dir(self._operations) if not n.startswith("_"))
            raise UsageError(f"operation is {name!r}, but what the host has are: {there or 'none'}.")
        return found  # type: ignore[no-any-return]


def _in_one_line(fault: Exception) -> str:
    """What was raised, also where the text is a report of another process with its traceback."""
    lines = str(fault).strip().splitlines()
    return f"{type(fault).__name__}: {lines[-1]}" if lines else type(fault).__name__
