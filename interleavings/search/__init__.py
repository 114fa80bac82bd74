"""The search: which run comes next, what is judged, and the graph of all states."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
