"""The shuffled order of one epoch, as a function of the place: no table, no state, no turn of a random generator.

A restart at any place needs nothing but the place, and an epoch of ten million prompts begins as fast as one of ten.
The order depends on length, seed and epoch alone: it is the same in every process, on every Python, for good.

It is a Feistel network with addition (Black and Rogaway, *Ciphers with Arbitrary Finite Domains*, 2002): a permutation
of a square that is hardly larger than the dataset, walked on until it falls inside. Good to mix prompts, no cipher.
"""

from __future__ import annotations

from hashlib import sha256
from math import isqrt

from cleancut_leaf.words import counted

_ROUNDS = 8
_WORD = (1 << 64) - 1


class EpochOrder:
    """Which row of the dataset comes at which place of an epoch."""

    __slots__ = ("_keys", "_side", "length")

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        self.length = length
        self._side = isqrt(length - 1) + 1 if length else 0
        digest = sha256(f"{seed}/{epoch}".encode()).digest() + sha256(f"{epoch}/{seed}".encode()).digest()
        self._keys = tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(_ROUNDS))

    def __getitem__(self, place: int) -> int:
        """The row at `place`, from 0 to length - 1."""
        if not 0 <= place < self.length:
            raise IndexError(f"place {place} of an epoch with {counted(self.length, 'prompt')}")
        side = self._side
        while True:
            left, right = divmod(place, side)
            for key in self._keys:
                left, right = right, (left + _mixed(right + key)) % side
            place = left * side + right
            if place < self.length:
                return place

    def place_of(self, row: int) -> int:
        """The place at which a row comes: the rounds backwards, walked back until inside."""
        if not 0 <= row < self.length:
            raise IndexError(f"row {row} of an epoch with {counted(self.length, 'prompt')}")
        side = self._side
        while True:
            left, right = divmod(row, side)
            for key in reversed(self._keys):
                left, right = (right - _mixed(left + key)) % side, left
            row = left * side + right
            if row < self.length:
                return row

    def __len__(self) -> int:
        return self.length


def _mixed(word: int) -> int:
    """A well spread 64-bit number: the finisher of SplitMix64."""
    word &= _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31
