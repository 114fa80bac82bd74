"""The library and the machines held together: events followed as they happen, and traces afterwards."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
