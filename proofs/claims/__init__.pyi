"""The names of `proofs.claims` that others use, each written down once."""

from .barrier_exclusion import open_cut_heads_the_queue as open_cut_heads_the_queue
from .inductions import ARGUMENTS as ARGUMENTS
from .inductions import Argument as Argument
from .inductions import foundations as foundations
