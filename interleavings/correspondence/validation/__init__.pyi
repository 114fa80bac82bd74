"""The names of `interleavings.correspondence.validation` that others use, each written down once."""

from .live_prompts import HandedOut as HandedOut
from .succession import TraceUnreadable as TraceUnreadable
from .validating import Refusal as Refusal
from .validating import Validation as Validation
from .validating import validate as validate
