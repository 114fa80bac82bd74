"""The cut: how a prompt changes owner between the loader and the trainer, and what a checkpoint of it holds.

`scope` says how large it is and which features are on, `state` what there is and who may own a prompt; the actions
stand in `rollout`, `trouble`, `training`, `saving` and `leases`, what must hold in `properties`, and of every step in
`rules`. The variants are in `variants`, `trouble_variants`, `save_variants`, `lease_variants` and `rule_variants`.
"""

from . import leases, properties, rollout, rules, saving, training, trouble
from .scope import IN_ORDER as IN_ORDER
from .scope import READY_FIRST as READY_FIRST
from .scope import WEIGHT_FIFO as WEIGHT_FIFO
from .scope import WINDOWED as WINDOWED
from .scope import CutScope as CutScope
from .state import ADMITTED as ADMITTED
from .state import CLAIMED as CLAIMED
from .state import DROPPED as DROPPED
from .state import NO_ACCOUNT as NO_ACCOUNT
from .state import READY as READY
from .state import RESERVED as RESERVED
from .state import TRAINED as TRAINED
from .state import UNREADY as UNREADY
from .state import WRITING as WRITING
from .state import cut as cut
from .state import parked as parked
from .training import claim as claim
from .training import eligible as eligible

# Actions and properties register themselves when their modules are imported.
REGISTERED_BY = (rollout, trouble, training, saving, leases, properties, rules)
