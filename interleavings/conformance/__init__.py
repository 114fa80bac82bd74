"""From a counterexample of a state machine to a pytest on a real controller, and back.

`emit` writes the pytest; it calls `drive`, which takes the controller through the actions of the counterexample, one by
one, and then checks the property that the counterexample broke.
"""

from .drive import FeatureMissing as FeatureMissing
from .drive import NotConformant as NotConformant
from .drive import StepRefused as StepRefused
from .drive import controller_named as controller_named
from .drive import drive as drive
from .spec_trace import SpecTrace as SpecTrace
from .spec_trace import emit as emit
