"""The state a run is in, read into a fingerprint: two runs of one fingerprint go on alike."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
