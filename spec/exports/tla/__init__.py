"""The TLA+ text of a machine, with its properties and a configuration for TLC.

expressions   what an action or a claim says, as a TLA+ expression
names         the machine's names where TLA+ allows them
document      the module and its configuration
"""

from .document import Export, export_tla

__all__ = ["Export", "export_tla"]
