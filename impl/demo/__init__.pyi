"""The names of `impl.demo` that others use, each written down once."""

from .audit import Audit as Audit
from .audit import Lineage as Lineage
from .audit import balance as balance
from .audit import read_lineage as read_lineage
from .lives import MOMENTS as MOMENTS
from .lives import Death as Death
from .lives import Event as Event
from .lives import Kill as Kill
from .lives import LifeFailed as LifeFailed
from .lives import live as live
from .lives import plan_kills as plan_kills
from .parent import account as account
from .parent import life as life
from .setting import CHECKPOINTS as CHECKPOINTS
from .setting import STEPS as STEPS
from .setting import TRAINED_LOG as TRAINED_LOG
from .toy_task import VOCABULARY as VOCABULARY
from .toy_task import ToyTrainer as ToyTrainer
