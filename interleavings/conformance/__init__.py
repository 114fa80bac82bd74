"""From a counterexample of a state machine to a pytest on a real controller, and back.

`emit` writes the pytest; it calls `drive`, which takes the controller through the actions of the counterexample, one by
one, and then checks the property that the counterexample broke.
"""

from spec.counterexample import TraceStale as TraceStale

from .driving import FeatureMissing as FeatureMissing
from .driving import NotConformant as NotConformant
from .driving import StepRefused as StepRefused
from .driving import controller_named as controller_named
from .driving import drive as drive
from .spec_trace import SpecTrace as SpecTrace
from .spec_trace import emit as emit
