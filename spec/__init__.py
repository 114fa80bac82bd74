"""State machines of the checkpoint protocol, in one readable text, with the reference engine that enumerates them.

    from spec import cut, search, CutScope
    result = search(cut.model(CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1)))

On the command line: `python -m spec check`, `python -m spec variants`. What is modelled, what is left out and why that
is safe stands in spec/README.md.
"""

from spec.barrier import BarrierScope as BarrierScope
from spec.barrier import barrier as barrier
from spec.catalogue import MACHINES as MACHINES
from spec.catalogue import UnknownName as UnknownName
from spec.cut import CutScope as CutScope
from spec.cut import cut as cut
from spec.expression import SymbolRefused as SymbolRefused
from spec.machine import Machine as Machine
from spec.machine import Model as Model
from spec.machine import ModelFault as ModelFault
from spec.reference_engine import Search as Search
from spec.reference_engine import Violation as Violation
from spec.reference_engine import search as search
