"""The names of `impl.inspection` that others use, each written down once."""

from .examine import Readers as Readers
from .examine import State as State
from .survey import Survey as Survey
from .survey import bytes_below as bytes_below
from .unchanged import fingerprint as fingerprint
from .watch import Watch as Watch
from .watch import picture as picture
from .watch import run_watch as run_watch
