"""Proofs for any number of prompts, saves and crashes, from the same text that `spec` enumerates.

`python -m proofs` discharges every obligation; proofs/README.md says what is assumed and what is not covered.
"""

from .discharging import Proved as Proved
from .discharging import Refuted as Refuted
from .discharging import Unknown as Unknown
from .discharging import discharge as discharge
from .obligations import obligations_of as obligations_of
