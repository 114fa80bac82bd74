"""The checkpoint barrier: writers share it, a checkpoint has it alone.

    a writer      OUTSIDE --request_slot--> WAITING --enter_slot--> INSIDE --leave_slot--> OUTSIDE
    a checkpoint  IDLE --request_cut--> QUEUED --open_cut--> OPEN --close_cut--> DONE

Slots never block each other. From the moment a checkpoint heads the queue new slots wait and open ones drain; then its
cut opens. When it closes, every writer waiting at that moment is let in as one batch, before the next drain starts: a
tight loop of checkpoints cannot starve the writers, nor they it. Any task may be cancelled at any wait and inside, and
the checkpoint at the head of the queue may give up its drain; each leaves everything as before.

A context that already holds a section and asks for another is refused before anything changes, so a base writer never
holds one slot while it waits for a second; the variant `nested_slot` shows why.

A writer in another process holds its slot as a lease: see `leases`.

`state` says what there is, `sections` how a section is asked for, entered, left and cancelled, `leases` what ends the
slot of a dead or stalled holder, `properties` what must hold, `rules` what must hold of every step. The variants are in
`variants` and `rule_variants`.
"""

from . import leases, properties, rules, sections
from .leases import written_late as written_late
from .properties import finished as finished
from .sections import released as released
from .state import BORN as BORN
from .state import CHECKPOINT_STANDS as CHECKPOINT_STANDS
from .state import CHILD_ENDED as CHILD_ENDED
from .state import CHILD_INSIDE as CHILD_INSIDE
from .state import CHILD_WAITING as CHILD_WAITING
from .state import DONE as DONE
from .state import FENCED as FENCED
from .state import IDLE as IDLE
from .state import INSIDE as INSIDE
from .state import LAPSED as LAPSED
from .state import NESTED as NESTED
from .state import NO_CHILD as NO_CHILD
from .state import OPEN as OPEN
from .state import OUTSIDE as OUTSIDE
from .state import QUEUED as QUEUED
from .state import SILENT as SILENT
from .state import SOUND as SOUND
from .state import WAITING as WAITING
from .state import WRITER_STANDS as WRITER_STANDS
from .state import BarrierScope as BarrierScope
from .state import barrier as barrier
from .state import drained as drained
from .state import queue_without as queue_without
from .state import shut as shut

# Actions and properties register themselves when their modules are imported, in this order.
REGISTERED_BY = (sections, leases, properties, rules)
