"""The store: what a writer does on a disk that may lose power, and what is durable then."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
