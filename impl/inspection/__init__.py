"""Looks into a checkpoint directory without changing it: what `python -m impl fsck` and `inspect` show."""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
