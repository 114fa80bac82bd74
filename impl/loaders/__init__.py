"""Loaders: where prompts come from, and the identity of their dataset."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
