"""The durable store: a checkpoint is a directory, published whole or not at all."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
