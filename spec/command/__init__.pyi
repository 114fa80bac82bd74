"""The names of `spec.command` that others use, each written down once."""

from .checks import check_machine as check_machine
from .checks import check_variant as check_variant
from .command_line import main as main
from .counterexample import TraceStale as TraceStale
from .counterexample import concerned as concerned
from .counterexample import replay as replay
from .counterexample import to_document as to_document
from .property_table import table as table
