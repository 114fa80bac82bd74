"""The Promela text of a machine: Spin confirms the counts and the counterexamples of our engines independently."""

from .document import export_promela

__all__ = ["export_promela"]
