"""The Promela text of a machine: Spin confirms the counts and the counterexamples of our engines independently."""

from .document import export_promela
from .layout import WIDTH as WIDTH
from .layout import Group as Group
from .layout import Piece as Piece
from .layout import flat as flat
from .layout import lines as lines
from .names import ValueNames as ValueNames
from .simultaneous import one_by_one as one_by_one

__all__ = ["export_promela"]
