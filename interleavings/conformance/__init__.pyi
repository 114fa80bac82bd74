"""The names of `interleavings.conformance` that others use, each written down once."""

from .controller import ImplController as ImplController
from .controller import InlineExecutor as InlineExecutor
from .driving import FeatureMissing as FeatureMissing
from .driving import NotConformant as NotConformant
from .driving import StepRefused as StepRefused
from .driving import controller_named as controller_named
from .driving import drive as drive
from .driving import settled as settled
from .pages import explain as explain
from .spec_trace import DEFAULTS as DEFAULTS
from .spec_trace import SpecTrace as SpecTrace
from .spec_trace import TraceStale as TraceStale
from .spec_trace import emit as emit
