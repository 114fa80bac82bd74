"""The names of `spec.engines.arrays` that others use, each written down once."""

from .expansion import Expander as Expander
from .expansion import Expansion as Expansion
from .expansion import Plan as Plan
from .expansion import TooMany as TooMany
from .known import FREE as FREE
from .known import Known as Known
from .known import device_named as device_named
from .known import free_memory as free_memory
