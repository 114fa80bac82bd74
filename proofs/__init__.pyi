"""The public names of `proofs`, written down once."""

from .discharging import Proved as Proved
from .discharging import Refuted as Refuted
from .discharging import Unknown as Unknown
from .discharging import discharge as discharge
from .obligations import obligations_of as obligations_of
