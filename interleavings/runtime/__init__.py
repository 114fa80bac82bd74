"""One run: the loop that asks for every choice, its tasks, its clock, its fence, and the trace of what was chosen."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
