"""The public names of `proofs`, written down once."""

from .solver.discharging import Proved as Proved
from .solver.discharging import Refuted as Refuted
from .solver.discharging import Unknown as Unknown
from .solver.discharging import discharge as discharge
from .solver.obligations import obligations_of as obligations_of
