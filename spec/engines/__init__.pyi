"""The names of `spec.engines` that others use, each written down once."""

from .choice import COMPILED as COMPILED
from .choice import REFERENCE as REFERENCE
from .choice import TORCH as TORCH
from .choice import Options as Options
from .choice import chosen_engine as chosen_engine
from .choice import variants_of as variants_of
from .outcome import Progress as Progress
from .reference import Search as Search
from .reference import search as search
from .retrace import EnginesDisagree as EnginesDisagree
from .symmetry import NotSymmetric as NotSymmetric
from .symmetry import Reduction as Reduction
from .symmetry import reduction_of as reduction_of
