"""The names of `spec.engines.compiled` that others use, each written down once."""

from .kept_code import looked_at as looked_at
from .kept_code import write_whole as write_whole
from .kernels import PARTS as PARTS
from .owner import Expanded as Expanded
from .owner import Inserted as Inserted
from .owner import Kept as Kept
from .owner import Owner as Owner
from .owner import Plan as Plan
from .owner import Settled as Settled
from .ownership import LevelsLost as LevelsLost
from .ownership import OwnersLost as OwnersLost
from .source import FALLS as FALLS
from .source import Generated as Generated
from .storage import FIRST_SLOTS as FIRST_SLOTS
from .storage import FULLEST as FULLEST
from .storage import Storage as Storage
from .team import processors as processors
from .words import generated as generated
