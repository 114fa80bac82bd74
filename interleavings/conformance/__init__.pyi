"""The public names of `interleavings.conformance`, written down once."""

from .driving import FeatureMissing as FeatureMissing
from .driving import NotConformant as NotConformant
from .driving import StepRefused as StepRefused
from .driving import controller_named as controller_named
from .driving import drive as drive
from .spec_trace import SpecTrace as SpecTrace
from .spec_trace import TraceStale as TraceStale
from .spec_trace import emit as emit
