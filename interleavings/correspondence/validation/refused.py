"""An event that no action of the machines fits."""

from __future__ import annotations

from collections.abc import Sequence


class Refused(Exception):
    """What is wrong with the event, and what the machine would allow in its place."""

    def __init__(self, why: str, enabled: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.enabled = tuple(enabled)
