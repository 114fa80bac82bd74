"""The next larger scopes, in which a mutant that no small scope tells from the right text is compared once more."""

from __future__ import annotations

from ..machines.barrier import BarrierScope
from ..machines.cut import READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope
from ..machines.scopes import Scope
from ..machines.store.actions import StoreScope

WIDER: dict[str, dict[str, Scope]] = {
    "barrier": {
        "children": BarrierScope(writers=2, rounds=2, checkpointers=2, cancellations=1, children=1),
        "leases": BarrierScope(writers=2, rounds=2, checkpointers=2, leases=2, expiries=1),
        "leases_and_children": BarrierScope(
            writers=2, rounds=1, checkpointers=1, cancellations=1, leases=1, children=1
        ),
    },
    "cut": {
        "spares": CutScope(
            batches=4, batch_size=1, lookahead=1, saves=0, crashes=0, failures=2, spares=1, borrow=1, retries=1
        ),
        "pairs_of_spares": CutScope(batches=3, batch_size=2, lookahead=0, saves=0, crashes=0, failures=2, spares=1),
        "snapshots": CutScope(
            batches=2, batch_size=1, lookahead=1, saves=1, crashes=1, snapshots=1, background=1, failed_saves=1
        ),
        "epochs": CutScope(batches=2, batch_size=2, lookahead=1, saves=1, crashes=1, epochs=3, last_batch=1),
        "remainder": CutScope(
            batches=2, batch_size=3, lookahead=1, saves=1, crashes=1, epochs=2, last_batch=2, drop_short=1, capacity=4
        ),
        "weight_fifo": CutScope(
            batches=3, batch_size=2, lookahead=1, saves=0, crashes=0, sampler=WEIGHT_FIFO, failures=1, last_batch=1
        ),
        "weight_fifo_restart": CutScope(
            batches=3, batch_size=1, lookahead=1, saves=1, crashes=1, sampler=WEIGHT_FIFO, failures=1, retries=1
        ),
        "ready_first": CutScope(
            batches=2, batch_size=2, lookahead=1, saves=1, crashes=1, sampler=READY_FIRST, failures=1, spares=1
        ),
        "windowed": CutScope(
            batches=3,
            batch_size=1,
            lookahead=1,
            saves=1,
            crashes=1,
            sampler=WINDOWED,
            capacity=3,
            failures=1,
            retries=1,
        ),
        "replay_free": CutScope(
            batches=2, batch_size=1, lookahead=1, saves=2, crashes=2, replay_free=1, failures=1, leases=1
        ),
    },
    "combined": {
        "failures": CutScope(batches=2, batch_size=1, lookahead=1, saves=1, crashes=1, failures=1),
        "replay_free": CutScope(batches=1, batch_size=1, lookahead=0, saves=1, crashes=2, replay_free=1, snapshots=1),
    },
    "store": {
        "rewind": StoreScope(attempts=2, crashes=1, errors=1, rewinds=1),
        "two_writers": StoreScope(attempts=2, crashes=1, writers=2, lost_locks=1),
        "two_crashes": StoreScope(attempts=2, crashes=2, errors=1),
    },
}
