"""The production library: one atomic cut for the checkpoint of an asynchronous RL training run.

Public names are those of `__all__`, of `impl.nemo`, `impl.ray` and `impl.trio`; everything else may change. Importing
this package imports the barrier, the ledger and the loader, which need the standard library alone. The other names are
loaded at their first use, so that nobody who wants a barrier waits for torch. `impl.nemo`, `impl.ray` and `impl.trio`
are imported by these names.
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
