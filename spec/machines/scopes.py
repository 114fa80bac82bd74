"""The named scopes of each machine, with the pinned size of every enumeration.

`small` is a family of toggled scopes, each of at most some ten thousand states: seconds in the reference engine.
`medium` has about a million states a scope, `large` up to ten millions and more; both are for the compiled engine. A
scope of a family is named `small/<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .barrier import BarrierScope
from .cut import READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope
from .store.actions import StoreScope

Scope = BarrierScope | CutScope | StoreScope


@dataclass(frozen=True)
class Pinned:
    """The counts of a complete enumeration: distinct states, transitions, and the greatest distance from the start."""

    states: int
    transitions: int
    depth: int

    @property
    def written(self) -> str:
        """As it stands in this file."""
        return f"Pinned({self.states}, {self.transitions}, {self.depth})"


SMALL: dict[str, dict[str, tuple[Scope, Pinned]]] = {
    "barrier": {
        "one_round": (BarrierScope(writers=1, rounds=1, checkpointers=1), Pinned(18, 22, 5)),
        "one_cancellation": (BarrierScope(writers=1, rounds=1, checkpointers=1, cancellations=1), Pinned(25, 56, 5)),
        "leases": (BarrierScope(writers=1, rounds=1, checkpointers=1, leases=1), Pinned(38, 66, 8)),
        "two_checkpoints": (BarrierScope(writers=1, rounds=1, checkpointers=2), Pinned(76, 120, 8)),
        "children": (BarrierScope(writers=1, rounds=1, checkpointers=1, children=1), Pinned(41, 57, 8)),
        "two_rounds": (
            BarrierScope(writers=2, rounds=2, checkpointers=1, cancellations=1, expiries=1),
            Pinned(414, 1473, 14),
        ),
        "child_of_an_earlier_slot": (
            BarrierScope(writers=1, rounds=2, checkpointers=1, children=1),
            Pinned(114, 186, 10),
        ),
        "two_children": (
            BarrierScope(writers=2, rounds=1, checkpointers=1, cancellations=1, children=1),
            Pinned(671, 2407, 13),
        ),
        "three_writers": (
            BarrierScope(writers=3, rounds=1, checkpointers=2, cancellations=1, expiries=1),
            Pinned(3833, 16907, 13),
        ),
        "second_lease": (
            BarrierScope(writers=1, rounds=2, checkpointers=2, cancellations=1, leases=1, children=1),
            Pinned(2176, 8952, 15),
        ),
        "two_leases": (BarrierScope(writers=2, rounds=1, checkpointers=2, leases=2), Pinned(1717, 5190, 14)),
    },
    "cut": {
        "one_batch": (CutScope(batches=1, batch_size=1, lookahead=0, saves=1, crashes=1), Pinned(93, 123, 16)),
        "one_pair": (CutScope(batches=1, batch_size=2, lookahead=0, saves=1, crashes=1), Pinned(193, 313, 18)),
        "one_failure": (
            CutScope(batches=1, batch_size=1, lookahead=0, saves=1, crashes=1, failures=1),
            Pinned(134, 168, 18),
        ),
        "leases": (CutScope(batches=1, batch_size=1, lookahead=0, saves=1, crashes=1, leases=1), Pinned(210, 387, 19)),
        "leases_restart": (
            CutScope(batches=1, batch_size=1, lookahead=0, saves=2, crashes=1, leases=1),
            Pinned(655, 1222, 28),
        ),
        "two_batches": (CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1), Pinned(228, 320, 23)),
        "two_batches_ahead": (
            CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=2),
            Pinned(1265, 2102, 32),
        ),
        "two_pairs": (CutScope(batches=2, batch_size=2, lookahead=0, saves=2, crashes=1), Pinned(1667, 2804, 36)),
        "two_pairs_ahead": (CutScope(batches=2, batch_size=2, lookahead=1, saves=1, crashes=1), Pinned(1975, 4772, 27)),
        "three_batches": (CutScope(batches=3, batch_size=1, lookahead=1, saves=1, crashes=2), Pinned(906, 1648, 30)),
        # One feature each.
        "retries": (
            CutScope(batches=1, batch_size=2, lookahead=0, saves=1, crashes=1, failures=2, retries=1, in_flight=1),
            Pinned(817, 1336, 22),
        ),
        "failures": (
            CutScope(batches=2, batch_size=2, lookahead=1, saves=1, crashes=1, failures=1),
            Pinned(6612, 15587, 29),
        ),
        "spares": (
            CutScope(batches=3, batch_size=1, lookahead=0, saves=1, crashes=1, failures=1, spares=1),
            Pinned(2201, 3241, 32),
        ),
        "borrow": (
            CutScope(batches=4, batch_size=1, lookahead=1, saves=0, crashes=0, failures=1, spares=1, borrow=1),
            Pinned(1352, 3053, 28),
        ),
        "spare_pairs": (
            CutScope(batches=3, batch_size=2, lookahead=0, saves=0, crashes=0, failures=1, spares=1),
            Pinned(666, 1342, 29),
        ),
        "borrow_ahead": (
            CutScope(batches=4, batch_size=1, lookahead=2, saves=0, crashes=0, failures=1, spares=1, borrow=1),
            Pinned(2885, 7797, 28),
        ),
        "remainder": (
            CutScope(batches=3, batch_size=2, lookahead=0, saves=1, crashes=1, last_batch=1, spares=1),
            Pinned(1560, 2837, 35),
        ),
        "short_batch": (
            CutScope(batches=2, batch_size=2, lookahead=0, saves=1, crashes=1, last_batch=1),
            Pinned(398, 670, 25),
        ),
        "short_dropped": (
            CutScope(batches=2, batch_size=2, lookahead=0, saves=1, crashes=1, last_batch=1, drop_short=1),
            Pinned(313, 554, 19),
        ),
        "epochs": (
            CutScope(batches=2, batch_size=2, lookahead=0, saves=1, crashes=1, last_batch=1, epochs=2),
            Pinned(1175, 2061, 42),
        ),
        "snapshots": (
            CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=2, snapshots=1),
            Pinned(914, 1328, 32),
        ),
        "background": (
            CutScope(batches=2, batch_size=1, lookahead=1, saves=1, crashes=1, background=1, write_back=1),
            Pinned(799, 2041, 26),
        ),
        "failed_saves": (
            CutScope(batches=2, batch_size=1, lookahead=0, saves=2, crashes=1, failed_saves=1, background=1),
            Pinned(1518, 3332, 34),
        ),
        "replay_free": (
            CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=2, replay_free=1),
            Pinned(1265, 2222, 32),
        ),
        "windowed_tight": (
            CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1, sampler=WINDOWED),
            Pinned(301, 475, 23),
        ),
        "windowed": (
            CutScope(batches=3, batch_size=1, lookahead=0, saves=1, crashes=1, sampler=WINDOWED, capacity=2),
            Pinned(2229, 4310, 30),
        ),
        "windowed_pairs": (
            CutScope(batches=2, batch_size=2, lookahead=2, saves=1, crashes=1, sampler=WINDOWED, capacity=4),
            Pinned(3527, 7747, 29),
        ),
        "weight_fifo_failures": (
            CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1, sampler=WEIGHT_FIFO, failures=1),
            Pinned(394, 539, 25),
        ),
        "weight_fifo": (
            CutScope(batches=3, batch_size=1, lookahead=1, saves=1, crashes=1, sampler=WEIGHT_FIFO),
            Pinned(1722, 3204, 30),
        ),
        "weight_fifo_pairs": (
            CutScope(batches=4, batch_size=2, lookahead=1, saves=0, crashes=0, sampler=WEIGHT_FIFO),
            Pinned(4929, 15881, 36),
        ),
        "weight_fifo_epochs": (
            CutScope(
                batches=2, batch_size=2, lookahead=1, saves=0, crashes=0, sampler=WEIGHT_FIFO, last_batch=1, epochs=2
            ),
            Pinned(2968, 9223, 31),
        ),
        "weight_fifo_late": (
            CutScope(
                batches=2,
                batch_size=2,
                lookahead=0,
                saves=0,
                crashes=0,
                sampler=WEIGHT_FIFO,
                last_batch=1,
                epochs=3,
                capacity=3,
            ),
            Pinned(1100, 2595, 48),
        ),
        "ready_first": (
            CutScope(batches=3, batch_size=1, lookahead=1, saves=1, crashes=1, sampler=READY_FIRST),
            Pinned(1843, 3396, 30),
        ),
        "leases_background": (
            CutScope(batches=2, batch_size=1, lookahead=1, saves=1, crashes=1, background=1, leases=1),
            Pinned(2677, 8478, 27),
        ),
        "leases_windowed": (
            CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1, sampler=WINDOWED, capacity=2, leases=1),
            Pinned(1999, 4597, 26),
        ),
    },
    "combined": {
        "one_batch": (CutScope(batches=1, batch_size=1, lookahead=0, saves=1, crashes=1), Pinned(565, 1820, 31)),
        "two_batches": (CutScope(batches=2, batch_size=1, lookahead=1, saves=1, crashes=1), Pinned(3303, 12077, 50)),
        "snapshot": (
            CutScope(batches=1, batch_size=1, lookahead=0, saves=1, crashes=0, snapshots=1),
            Pinned(1195, 3652, 36),
        ),
    },
    "store": {
        "one_save": (StoreScope(attempts=1, crashes=1), Pinned(128, 260, 14)),
        "two_saves": (StoreScope(attempts=2, crashes=1), Pinned(1218, 2877, 26)),
        "failing_disk": (StoreScope(attempts=2, crashes=1, errors=1), Pinned(7844, 27187, 26)),
        "two_writers": (StoreScope(attempts=2, crashes=0, writers=2, lost_locks=1), Pinned(8189, 31738, 26)),
        "two_writers_crash": (StoreScope(attempts=2, crashes=1, writers=2), Pinned(2404, 5753, 26)),
        "rewind": (StoreScope(attempts=3, crashes=1, rewinds=1), Pinned(3610, 8707, 37)),
        "takeover": (StoreScope(attempts=2, crashes=0, writers=2, lost_locks=1, takeover=1), Pinned(1221, 2058, 27)),
        "copied_in": (StoreScope(attempts=2, crashes=0, copies=1), Pinned(359, 997, 24)),
        "second_life": (StoreScope(attempts=2, crashes=0, lives=1), Pinned(114, 225, 25)),
    },
}

# Millions of states: for the compiled engine. Each family has every premise of its machine in one member at least.
MEDIUM: dict[str, dict[str, tuple[Scope, Pinned]]] = {
    "barrier": {
        "four_writers": (
            BarrierScope(writers=4, rounds=2, checkpointers=3, cancellations=2, expiries=1),
            Pinned(1175817, 8922637, 29),
        ),
        "children": (
            BarrierScope(writers=3, rounds=2, checkpointers=2, cancellations=2, expiries=1, children=1),
            Pinned(1420135, 10906331, 30),
        ),
        "leases": (
            BarrierScope(writers=3, rounds=2, checkpointers=2, cancellations=1, expiries=1, leases=2),
            Pinned(170956, 1050120, 26),
        ),
    },
    "cut": {
        "features": (
            CutScope(
                batches=3,
                batch_size=2,
                lookahead=1,
                saves=2,
                crashes=2,
                failures=1,
                spares=1,
                borrow=1,
                snapshots=1,
            ),
            Pinned(806480, 1878595, 56),
        ),
        "background": (
            CutScope(
                batches=2,
                batch_size=2,
                lookahead=1,
                saves=2,
                crashes=2,
                failures=2,
                retries=1,
                snapshots=1,
                background=1,
                write_back=1,
            ),
            Pinned(1434499, 5647075, 56),
        ),
        "epochs": (
            CutScope(batches=2, batch_size=2, lookahead=1, saves=2, crashes=2, failures=2, epochs=2, last_batch=1),
            Pinned(191222, 397656, 55),
        ),
        "windowed": (
            CutScope(
                batches=3, batch_size=2, lookahead=1, saves=2, crashes=1, sampler=WINDOWED, capacity=4, failures=1
            ),
            Pinned(543656, 1250979, 48),
        ),
        # Groups that will not come, without stamps: what the gate counts them for has its premise here alone.
        "weight_fifo": (
            CutScope(batches=3, batch_size=2, lookahead=1, saves=1, crashes=1, sampler=WEIGHT_FIFO, failures=1),
            Pinned(112080, 291729, 39),
        ),
    },
    "combined": {
        "two_pairs": (
            CutScope(batches=2, batch_size=2, lookahead=1, saves=2, crashes=2, failures=1, snapshots=1),
            Pinned(417497, 1658644, 82),
        ),
    },
    "store": {
        "lost_lock": (StoreScope(attempts=3, crashes=1, writers=2, lost_locks=1), Pinned(420073, 1604005, 39)),
        "rewind": (StoreScope(attempts=3, crashes=2, writers=2, errors=1, rewinds=1), Pinned(766719, 2872763, 39)),
        "takeover": (
            StoreScope(attempts=3, crashes=1, writers=2, lost_locks=1, takeover=1),
            Pinned(389488, 1475557, 41),
        ),
        "strangers": (StoreScope(attempts=4, crashes=0, errors=1, copies=1, lives=1), Pinned(206516, 969931, 47)),
    },
}

LARGE: dict[str, dict[str, tuple[Scope, Pinned]]] = {
    "barrier": {
        "five_writers": (
            BarrierScope(writers=5, rounds=2, checkpointers=3, cancellations=1, expiries=1),
            Pinned(9309296, 65970453, 35),
        ),
        "leases": (
            BarrierScope(writers=4, rounds=2, checkpointers=2, cancellations=1, expiries=1, leases=2),
            Pinned(1962078, 14317566, 32),
        ),
    },
    "cut": {
        "features": (
            CutScope(
                batches=3,
                batch_size=2,
                lookahead=1,
                saves=3,
                crashes=2,
                failures=2,
                retries=1,
                spares=1,
                borrow=1,
                snapshots=2,
                failed_saves=1,
            ),
            Pinned(16747475, 40006010, 70),
        ),
        "background": (
            CutScope(
                batches=3,
                batch_size=2,
                lookahead=1,
                saves=2,
                crashes=2,
                failures=2,
                retries=1,
                spares=1,
                borrow=1,
                snapshots=1,
                background=1,
            ),
            Pinned(16722879, 74174350, 64),
        ),
        "epochs": (
            CutScope(batches=3, batch_size=2, lookahead=1, saves=3, crashes=2, failures=2, epochs=2, last_batch=1),
            Pinned(3660991, 8319890, 82),
        ),
        "windowed": (
            CutScope(
                batches=4, batch_size=2, lookahead=1, saves=2, crashes=1, sampler=WINDOWED, capacity=4, failures=1
            ),
            Pinned(3959212, 9901998, 57),
        ),
        "weight_fifo": (
            CutScope(batches=3, batch_size=2, lookahead=1, saves=2, crashes=2, sampler=WEIGHT_FIFO, failures=2),
            Pinned(1105744, 2578777, 49),
        ),
    },
    "combined": {
        "three_pairs": (
            CutScope(batches=3, batch_size=2, lookahead=1, saves=2, crashes=2, failures=1, snapshots=1),
            Pinned(1802908, 7546203, 107),
        ),
    },
    "store": {
        "strangers": (StoreScope(attempts=4, crashes=0, errors=1, copies=1, lives=1), Pinned(206516, 969931, 47)),
        "every_trouble": (
            StoreScope(attempts=3, crashes=1, writers=2, lost_locks=1, errors=1, rewinds=1),
            Pinned(4624480, 24266042, 41),
        ),
        "takeover": (
            StoreScope(attempts=3, crashes=1, writers=2, lost_locks=1, errors=1, takeover=1),
            Pinned(5123747, 27331679, 41),
        ),
    },
}

FAMILIES: dict[str, dict[str, dict[str, tuple[Scope, Pinned]]]] = {"small": SMALL, "medium": MEDIUM, "large": LARGE}
