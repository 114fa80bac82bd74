"""Where the elements of a state lie in its words, so that tensors of small integers can be cut from them.

An element never straddles a unit, which is the smallest integer that holds every value any expression of the machine
can take. Most machines within a scope need no number beyond 127: a unit is then a byte, and all arithmetic is done on
bytes. Numbers are exact all the same: the ranges are those of the expressions, and what wraps on the way wraps back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch

from ...language.packing import WORD_BITS, Field, Packing
from ...language.scalar_form import ScalarModel
from ...language.scalar_nodes import Node, in_order

UNITS: Final = ((8, torch.int8), (16, torch.int16), (32, torch.int32), (64, torch.int64))


@dataclass(frozen=True)
class Layout:
    """The packing of a state, and the integers that its units and all values are held in."""

    packing: Packing
    unit: int
    """Bits of a unit."""
    dtype: torch.dtype

    @property
    def words(self) -> int:
        """Words of a state."""
        return self.packing.words

    @property
    def units(self) -> int:
        """Units of a state."""
        return self.words * WORD_BITS // self.unit

    def place(self, position: int) -> tuple[int, int, Field]:
        """Of an element: its unit, how far left in it, and the field."""
        field = self.packing.fields[position]
        # Words are little-endian, so the units of a word are in the order of its bits.
        return field.word * (WORD_BITS // self.unit) + field.shift // self.unit, field.shift % self.unit, field

    def wrapped(self, number: int) -> int:
        """A number as a unit holds it: signed, of as many bits."""
        number &= (1 << self.unit) - 1
        return number - (1 << self.unit) if number >> (self.unit - 1) else number


def laid_out(form: ScalarModel, roots: Iterable[Node]) -> Layout:
    """The layout for a model of which these expressions are worked out."""
    if sys.byteorder != "little":
        raise NotImplementedError("the array engine cuts bytes out of words and knows little-endian machines alone")
    elements = [form.nodes.element(position) for position in range(len(form.elements))]
    nodes = [*elements, *in_order(roots)]
    least, most = min(n.low for n in nodes), max(n.high for n in nodes)
    unit, dtype = next((u, d) for u, d in UNITS if -(1 << (u - 1)) <= least and most < 1 << (u - 1))
    return Layout(Packing([(e.low, e.high) for e in elements], unit), unit, dtype)
