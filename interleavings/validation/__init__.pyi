"""The public names of `interleavings.validation`, written down once."""

from .succession import TraceUnreadable as TraceUnreadable
from .validating import Refusal as Refusal
from .validating import Validation as Validation
from .validating import validate as validate
