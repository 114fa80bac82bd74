"""Rows: what a generation leaves, in memory and on a device, and the planes that hold them."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
