"""Contracts on the pure functions of the library, and wrong versions that they must refute."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
