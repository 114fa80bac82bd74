"""The names of `interleavings.runtime` that others use, each written down once."""

from .clock_regions import Moment as Moment
from .clock_regions import plain as plain
from .fence import Fence as Fence
from .identical import Identical as Identical
from .result import Failure as Failure
from .result import Result as Result
from .run import Rules as Rules
from .run import is_a_fault as is_a_fault
from .subject import fresh_subject as fresh_subject
from .trace import KINDS as KINDS
from .trace import Step as Step
from .trace import Trace as Trace
from .trace import read_document as read_document
