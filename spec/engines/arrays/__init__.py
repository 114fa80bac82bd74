"""The array engine: the same search on torch tensors, on the processor or on a GPU, with exact keys and no compilation.

layout      where the elements of a state lie in its words, so that tensors of small integers can be cut from them
chunk       expressions worked out over a run of states at once
known       all states met so far: rows of words, and a table of open addressing, in tensors of the device
expansion   a run of states expanded: what they lead to, what is new, and what breaks
engine      the search itself, with the result type of the reference engine
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
