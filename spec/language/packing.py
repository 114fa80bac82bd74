"""Elements in bit fields of 64-bit words: as few bits each as its range needs, as many words as they need together.

Words are signed, as the array elements of generated code are; all shifts and masks are written so that the sign does
not matter. A field never straddles two words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WORD_BITS: Final = 64


def signed(bits: int) -> int:
    """The signed 64-bit number of these bits."""
    bits &= (1 << WORD_BITS) - 1
    return bits - (1 << WORD_BITS) if bits >> (WORD_BITS - 1) else bits


@dataclass(frozen=True)
class Field:
    """Where an element lies. With no bits it is always `low`."""

    word: int
    shift: int
    bits: int
    low: int

    @property
    def mask(self) -> int:
        """Its bits, at the right end."""
        return (1 << self.bits) - 1


class Packing:
    """The layout of a state: a field for each element, first fit, in the order of the elements.

    With a `unit` of fewer bits than a word no field straddles a unit either.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]], unit: int = WORD_BITS) -> None:
        used: list[int] = []
        in_word = WORD_BITS // unit
        self.fields: list[Field] = []
        for low, high in ranges:
            bits = (high - low).bit_length()
            if bits > min(unit, WORD_BITS - 1):
                raise ValueError(f"a range of {low} to {high} needs more than {min(unit, WORD_BITS - 1)} bits")
            place = next((u for u, taken in enumerate(used) if taken + bits <= unit), len(used))
            if place == len(used):
                used.append(0)
            self.fields.append(Field(place // in_word, place % in_word * unit + used[place], bits, low))
            used[place] += bits
        self.words = max(1, -(-len(used) // in_word))

    def packed(self, values: Sequence[int]) -> list[int]:
        """The words of a state."""
        words = [0] * self.words
        for field, value in zip(self.fields, values, strict=True):
            words[field.word] |= (value - field.low) << field.shift
        return [signed(word) for word in words]

    def unpacked(self, words: Sequence[int]) -> tuple[int, ...]:
        """The elements of a state, from its words."""
        return tuple(((int(words[f.word]) >> f.shift) & f.mask) + f.low for f in self.fields)
