"""The state that stands for its orbit, on packed states: what the indexes of a block have of their own, in order.

What an index has of its own is read as one number, the first variable in its highest bits, so that the order is that
of the reduction on plain states.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from ...language.packing import Packing
from ...language.scalar_form import ScalarModel
from ..symmetry import NotSymmetric, Reduction
from .words import kernel

MOST_BITS: Final = 62


class Orbits:
    """Where in the packed state the blocks lie, as arrays for the kernel."""

    def __init__(self, form: ScalarModel, packing: Packing, reduction: Reduction) -> None:
        at = {(e.name, e.index): position for position, e in enumerate(form.elements)}
        starts, fields = [0], []
        widths: list[list[int]] = []
        for block in reduction.blocks:
            for index in block.indexes:
                own = [packing.fields[at[name, index]] for name in block.vectors]
                bits = [field.bits for field in own]
                widths.append(bits)
                if sum(bits) > MOST_BITS or bits != widths[starts[-1]]:
                    raise NotSymmetric(f"an index of {block.domain} has more bits of its own than one number holds")
                fields.append([(f.word, f.shift, f.bits) for f in own if f.bits])
            starts.append(len(fields))
        most = max((len(f) for f in fields), default=0)
        table = np.zeros((max(1, len(fields)), max(1, most), 3), np.int64)
        for row, own_fields in enumerate(fields):
            for column, place in enumerate(own_fields):
                table[row, column] = place
        self.starts = np.array(starts, np.int64)
        self.fields = table
        self.longest = max((b - a for a, b in itertools.pairwise(starts)), default=1)

    def arrange(self, rows: Any, count: int) -> None:
        """Put the state of its orbit in the place of each of the first states. Any thread."""
        if self.starts.shape[0] > 1:
            arrange(rows, count, self.starts, self.fields, np.zeros(self.longest, np.int64))


@kernel
def arrange(rows: Any, count: int, starts: Any, fields: Any, own: Any) -> int:
    """Sort what the indexes of each block have of their own, in each of the first `count` rows; how many were moved."""
    moved = 0
    for row in range(count):
        for block in range(starts.shape[0] - 1):
            first = starts[block]
            length = starts[block + 1] - first
            in_order = True
            for i in range(length):
                value = 0
                for column in range(fields.shape[1]):
                    bits = fields[first + i, column, 2]
                    mask = (1 << bits) - 1
                    part = (rows[row, fields[first + i, column, 0]] >> fields[first + i, column, 1]) & mask
                    value = (value << bits) | part
                own[i] = value
                if i > 0 and own[i] < own[i - 1]:
                    in_order = False
            if in_order:
                continue
            moved += 1
            for i in range(1, length):
                value = own[i]
                at = i
                while at > 0 and own[at - 1] > value:
                    own[at] = own[at - 1]
                    at -= 1
                own[at] = value
            for i in range(length):
                value = own[i]
                for step in range(fields.shape[1]):
                    column = fields.shape[1] - 1 - step
                    word = fields[first + i, column, 0]
                    shift = fields[first + i, column, 1]
                    bits = fields[first + i, column, 2]
                    mask = (1 << bits) - 1
                    rows[row, word] = (rows[row, word] & ~(mask << shift)) | ((value & mask) << shift)
                    value >>= bits
    return moved
