"""What enumerates a machine: the readable reference, the compiled engine, the array engine, and shards on Ray."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
