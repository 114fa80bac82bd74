"""Which fencing tokens are good: what a part in another process knows of the leases, and all that it needs to know.

A token is the number of a lease in one epoch of its barrier. Numbers rise and are never given twice. Before a cut opens
every part is told the first number that is still good, and when a lease is over before that, its number. Both come as
an order, and an order only ever makes fewer tokens good.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import LeaseExpired


@dataclass(frozen=True, slots=True)
class Token:
    """What a write carries: the epoch of the barrier that gave the lease, and the number of the lease in it."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"lease {self.number} of epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class FenceOrder:
    """Which tokens are good from here on: those of `epoch` from the number `floor` on, but for those in `void`."""

    epoch: int
    floor: int
    void: frozenset[int] = frozenset()

    def takes(self, token: Token) -> bool:
        """Whether the token is good."""
        return token.epoch == self.epoch and token.number >= self.floor and token.number not in self.void

    def merged(self, other: FenceOrder) -> FenceOrder:
        """What is known once both have been told, in whatever order they came."""
        if self.epoch != other.epoch:
            return max(self, other, key=lambda order: order.epoch)
        floor = max(self.floor, other.floor)
        return FenceOrder(self.epoch, floor, frozenset(n for n in self.void | other.void if n >= floor))


class Fence:
    """Kept by a part: `require(token)` before every write, `obey(order)` whenever the barrier tells one.

    It takes no token before its first order: a part that was started anew does not know what is void.
    """

    def __init__(self) -> None:
        self._order: FenceOrder | None = None

    @property
    def order(self) -> FenceOrder | None:
        """What it was told, all taken together; None before the first order."""
        return self._order

    def obey(self, order: FenceOrder) -> FenceOrder:
        """Take an order, and answer with all that is known: an order of an older epoch is answered with the newer."""
        self._order = order if self._order is None else self._order.merged(order)
        return self._order

    def require(self, token: Token) -> None:
        """Raise LeaseExpired unless the token is good. Call it in the same stretch of code as the write."""
        if self._order is None:
            raise LeaseExpired(
                f"a write with the token of {token} was refused: this part has not been told yet which are good. The "
                "likely cause is that it was started a moment ago; have the barrier `announce()`, and write again."
            )
        if not self._order.takes(token):
            raise LeaseExpired(
                f"a write with the token of {token} was refused: the section is over "
                f"(epoch {self._order.epoch}, good from {self._order.floor} on). The writer was silent for longer than "
                "its lease, or the barrier was started anew. Nothing was changed; open another section and look again."
            )
