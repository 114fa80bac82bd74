"""What a machine is written in: expressions, actions, properties, and the same as scalars."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
