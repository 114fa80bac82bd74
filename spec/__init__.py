"""State machines of the checkpoint protocol, in one readable text, with the reference engine that enumerates them.

    from spec import cut, search, CutScope
    result = search(cut.model(CutScope(batches=2, batch_size=1, lookahead=0, saves=1, crashes=1)))

On the command line: `python -m spec check`, `python -m spec variants`. What is modelled, what is left out and why that
is safe stands in spec/README.md.
"""

from .barrier import BarrierScope as BarrierScope
from .barrier import barrier as barrier
from .catalogue import MACHINES as MACHINES
from .catalogue import UnknownName as UnknownName
from .cut import CutScope as CutScope
from .cut import cut as cut
from .expression import SymbolRefused as SymbolRefused
from .machine import Machine as Machine
from .machine import ModelFault as ModelFault
from .model import Model as Model
from .reference_engine import Search as Search
from .reference_engine import Violation as Violation
from .reference_engine import search as search
