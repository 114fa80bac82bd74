"""Copies of the tree, in which a mutant stands while it is judged: nothing is ever written into the tree itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What is left behind: what is built, what belongs to the checkout, and what no test of the library reads.
LEFT_BEHIND = shutil.ignore_patterns(".venv", ".git", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")


class Copy:
    """One copy of a tree. Its compiled files are never kept: an edit that has the length of its original is found."""

    def __init__(self, original: Path, place: Path) -> None:
        self.original = original
        self.place = place
        shutil.copytree(original, place, ignore=LEFT_BEHIND, symlinks=True)

    def write(self, path: str, text: str) -> None:
        """Let a file of the copy read so."""
        (self.place / path).write_text(text, encoding="utf-8")

    @contextmanager
    def edited(self, path: str, text: str) -> Iterator[None]:
        """The copy with one file edited, for as long as this lasts."""
        self.write(path, text)
        try:
            yield
        finally:
            shutil.copy2(self.original / path, self.place / path)
