"""From a counterexample of a state machine to a pytest on a real controller, and back.

`emit` writes the pytest; it calls `drive`, which takes the controller through the actions of the counterexample, one by
one, and then checks the property that the counterexample broke.
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
