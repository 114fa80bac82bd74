"""Expressions worked out over a run of states at once: each node of the graph one tensor, each worked out once.

Numbers are tensors of the layout's small integers, truth values tensors of bool. A constant is a tensor too: operations
on two tensors are many times faster than those with a number, and there are few constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor

from ...language.packing import WORD_BITS, Field, signed
from ...language.scalar_nodes import Node, in_order
from .layout import Layout

TWO_SIDED: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "==": torch.eq,
    "!=": torch.ne,
    "<": torch.lt,
    "<=": torch.le,
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
}

WIDEST: Final = (torch.int64, *[torch.uint8] * 3, torch.int32, *[torch.uint8] * 3)
"""The largest integers that a tensor of bytes can be read as, by the remainder of its length."""


class Constants:
    """Tensors full of one value, as long as the longest run of states."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.layout, self.device = layout, device
        self._full: dict[tuple[int, bool], Tensor] = {}

    def of(self, value: int, truth: bool, length: int) -> Tensor:
        """A tensor of that length with the value everywhere."""
        full = self._full.get((value, truth))
        if full is None or full.shape[0] < length:
            dtype = torch.bool if truth else self.layout.dtype
            full = torch.full((length,), value, dtype=dtype, device=self.device)
            self._full[value, truth] = full
        return full[:length]


class Chunk:
    """A run of states, and the values of expressions in them.

    All tensors are filled up to whole words with the first state once more, so that a word can be shifted and masked
    where its units would have to be; what holds somewhere then still holds somewhere. `length` counts the filled up.
    """

    def __init__(self, layout: Layout, constants: Constants, words: Tensor) -> None:
        self.layout, self.constants, self.words = layout, constants, words
        rows = int(words.shape[0])
        self.in_word = WORD_BITS // layout.unit
        self.length = -(-rows // self.in_word) * self.in_word
        self._planes = torch.empty((layout.units, self.length), dtype=layout.dtype, device=words.device)
        self._planes[:, :rows] = words.view(layout.dtype).t()
        self._planes[:, rows:] = self._planes[:, :1]
        # The same bits in every unit of a word.
        self._every = sum(1 << (i * layout.unit) for i in range(self.in_word))
        self._values: dict[Node, Tensor] = {}

    def value(self, root: Node) -> Tensor:
        """The values of an expression."""
        if root not in self._values:
            self.work_out(in_order([root]))
        return self._values[root]

    def work_out(self, order: Iterable[Node]) -> None:
        """Work out these nodes, which are in order."""
        values = self._values
        for node in order:
            if node not in values:
                values[node] = self._worked_out(node)

    def forget(self, nodes: Iterable[Node]) -> None:
        """Give the memory of values back that are not needed any more."""
        for node in nodes:
            self._values.pop(node, None)

    def put(self, values: Iterable[tuple[Node, int, Field]]) -> Tensor:
        """Units with values put into fields, each with how far left it goes."""
        whole: Tensor | None = None
        for node, shift, field in values:
            part = self._values[node]
            if field.low:
                part = torch.sub(part, self.constants.of(field.low, False, self.length))
            if shift:
                words = part.view(torch.int64) << shift
                if node.low < field.low or node.high > field.low + field.mask:
                    # Where the instance is not enabled the value may be any, and must not reach the unit beside it.
                    words &= signed((field.mask << shift) * self._every)
                part = words.view(self.layout.dtype)
            whole = part if whole is None else torch.bitwise_or(whole, part)
        assert whole is not None
        return whole

    def somewhere(self, truth: Tensor) -> bool:
        """Whether it is true in any state."""
        return bool(truth.view(torch.uint8).view(WIDEST[self.length % 8]).any())

    def _number(self, truth: Tensor) -> Tensor:
        return truth.view(torch.int8) if self.layout.unit == 8 else truth.to(self.layout.dtype)

    def _worked_out(self, node: Node) -> Tensor:
        operator = node.operator
        if operator == "constant":
            return self.constants.of(node.value, node.truth, self.length)
        if operator == "element":
            return self._element(node.value)
        parts = [self._values[a] for a in node.arguments]
        if operator in TWO_SIDED:
            return TWO_SIDED[operator](*parts)
        if operator == "not":
            return torch.logical_not(parts[0])
        if operator == "where":
            return self._chosen(node, *parts)
        join = torch.bitwise_and if operator == "and" else torch.bitwise_or
        result = join(parts[0], parts[1])
        for part in parts[2:]:
            join(result, part, out=result)
        return result

    def _chosen(self, node: Node, condition: Tensor, then: Tensor, otherwise: Tensor) -> Tensor:
        """Without a branch: `torch.where` has one on a processor, and takes a hundred times as long."""
        _, first, second = node.arguments
        if node.truth:
            bits = condition
        else:
            bits = self._number(condition)
            if first.is_constant and second.is_constant and (first.value, second.value) == (1, 0):
                return bits
            bits = torch.neg(bits)
        if second.is_constant and second.value == 0:
            return torch.bitwise_and(then, bits)
        differing = torch.bitwise_xor(then, otherwise)
        return torch.bitwise_xor(otherwise, torch.bitwise_and(differing, bits, out=differing), out=differing)

    def _element(self, position: int) -> Tensor:
        """Shifted and masked a word at a time: what comes over from the unit beside it falls to the mask."""
        unit, shift, field = self.layout.place(position)
        value = self._planes[unit]
        if field.bits < self.layout.unit:
            words = value.view(torch.int64)
            words = words >> shift if shift else words
            value = (words & signed(field.mask * self._every)).view(self.layout.dtype)
        return torch.add(value, self.constants.of(field.low, False, self.length)) if field.low else value
