"""Proofs for any number of prompts, saves and crashes, from the same text that `spec` enumerates.

`python -m proofs` discharges every obligation; proofs/README.md says what is assumed and what is not covered.
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
