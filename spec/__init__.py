"""State machines of the checkpoint protocol, in one readable text, with the reference engine that enumerates them.

    from spec import CutScope, cut_machine, search
    result = search(cut_machine.model(CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1)))

The machines are `barrier_machine`, `cut_machine` and `store_machine`; `MACHINES` has them by name. On the command line:
`python -m spec check`, `python -m spec variants`. What is modelled, what is left out and why that is safe stands in
spec/README.md.
"""

from .engines.reference import Search, Violation, search
from .language.expression import SymbolRefused
from .language.machine import Machine, ModelFault
from .language.model import Model
from .machines.barrier import BarrierScope
from .machines.barrier import barrier as barrier_machine
from .machines.catalogue import MACHINES, UnknownName
from .machines.cut import CutScope
from .machines.cut import cut as cut_machine
from .machines.store.actions import StoreScope
from .machines.store.actions import store as store_machine

__all__ = [
    "MACHINES",
    "BarrierScope",
    "CutScope",
    "Machine",
    "Model",
    "ModelFault",
    "Search",
    "StoreScope",
    "SymbolRefused",
    "UnknownName",
    "Violation",
    "barrier_machine",
    "cut_machine",
    "search",
    "store_machine",
]
