"""The named scopes of each machine, with the pinned size of every enumeration.

`small` is a family of toggled scopes, each of at most some ten thousand states: seconds in the reference engine. A
scope of the family is named `small/<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .barrier import BarrierScope
from .cut import CutScope


@dataclass(frozen=True)
class Pinned:
    """The counts of a complete enumeration: distinct states, transitions, and the greatest distance from the start."""

    states: int
    transitions: int
    depth: int


SMALL: dict[str, dict[str, tuple[BarrierScope | CutScope, Pinned]]] = {
    "barrier": {
        "one_round": (BarrierScope(writers=1, rounds=1, checkpointers=1), Pinned(18, 22, 5)),
        "one_cancellation": (BarrierScope(writers=1, rounds=1, checkpointers=1, cancellations=1), Pinned(25, 56, 5)),
        "two_checkpoints": (BarrierScope(writers=1, rounds=1, checkpointers=2), Pinned(76, 120, 8)),
        "two_rounds": (
            BarrierScope(writers=2, rounds=2, checkpointers=1, cancellations=1, expiries=1),
            Pinned(414, 1473, 14),
        ),
        "three_writers": (
            BarrierScope(writers=3, rounds=1, checkpointers=2, cancellations=1, expiries=1),
            Pinned(3833, 16907, 13),
        ),
    },
    "cut": {
        "one_batch": (CutScope(batches=1, batch_size=1, lookahead=0, saves=1, crashes=1), Pinned(83, 113, 15)),
        "one_pair": (CutScope(batches=1, batch_size=2, lookahead=0, saves=1, crashes=1), Pinned(174, 288, 17)),
        "two_batches": (CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1), Pinned(190, 279, 22)),
        "two_batches_ahead": (
            CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=2),
            Pinned(969, 1695, 30),
        ),
        "two_pairs": (CutScope(batches=2, batch_size=2, lookahead=0, saves=2, crashes=1), Pinned(1170, 2030, 34)),
        "two_pairs_ahead": (
            CutScope(batches=2, batch_size=2, lookahead=1, saves=2, crashes=2),
            Pinned(5001, 11969, 34),
        ),
        "three_batches": (CutScope(batches=3, batch_size=1, lookahead=1, saves=2, crashes=2), Pinned(2030, 3742, 37)),
        "unstamped": (
            CutScope(batches=2, batch_size=2, lookahead=1, saves=2, crashes=2, stamped=0),
            Pinned(6952, 16004, 34),
        ),
    },
}
