"""Long expressions over several lines: on one line where it fits, else one operand a line, to any depth."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 118


@dataclass(frozen=True)
class Group:
    """Operands, each with the sign before it: `(a && b)` is `("(", [("", a), ("&& ", b)], ")")`."""

    opening: str
    parts: Sequence[tuple[str, Piece]]
    closing: str

    @property
    def flat(self) -> str:
        """All of it on one line."""
        return self.opening + " ".join(sign + flat(part) for sign, part in self.parts) + self.closing


Piece = str | Group


def flat(piece: Piece) -> str:
    """The text on one line."""
    return piece if isinstance(piece, str) else piece.flat


def lines(piece: Piece, room: int = WIDTH) -> list[str]:
    """The text on as many lines as it takes, each within the room if that can be."""
    whole = flat(piece)
    if isinstance(piece, str) or len(whole) <= room:
        return [whole]
    result: list[str] = []
    margin = " " * len(piece.opening)
    for sign, part in piece.parts:
        first, *others = lines(part, room - len(margin) - len(sign) - len(piece.closing))
        result.append(margin + sign + first)
        result += [margin + " " * len(sign) + line for line in others]
    result[0] = piece.opening + result[0][len(margin) :]
    result[-1] += piece.closing
    return result


def comment(text: str, room: int = WIDTH) -> list[str]:
    """A comment on as many lines as it takes."""
    return textwrap.wrap(f"/* {text.replace('*/', '* /')} */", room, subsequent_indent="   ")


def indented(text: Sequence[str], margin: int) -> list[str]:
    """The lines moved to the right."""
    return [" " * margin + line for line in text]
