"""The machines of the protocol, each with its actions, properties and variants, and their scopes."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
