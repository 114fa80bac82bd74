"""The task: write the sum of two numbers with two digits. `3+4=` wants `07`.

The reward of an answer is the share of its digits that are right, each in its place. A policy that knows nothing gets
one twelfth; one that has only learnt that sums are small gets about a half; for more it has to add.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import torch

CHARACTERS = "0123456789+="
PROMPT_LENGTH, ANSWER_LENGTH = 4, 2
_PROMPT = re.compile(r"([0-9])\+([0-9])=")


def dataset(rows: int, operands: int, broken_every: int, seed: int) -> list[str]:
    """Prompts drawn with repetition, so that equal texts stand in several rows; some rows lack an operand."""
    chance = random.Random(f"dataset {seed}")
    prompts = [f"{chance.randrange(operands)}+{chance.randrange(operands)}=" for _ in range(rows)]
    for row in broken_rows(rows, broken_every):
        prompts[row] = prompts[row].replace("+", "")
    return prompts


def broken_rows(rows: int, broken_every: int) -> range:
    """The rows whose generation always fails: they have to end as dropped, once in each epoch."""
    return range(broken_every - 1, rows, broken_every)


def tokens_of(prompt: str) -> list[int]:
    """The tokens of a prompt. ValueError if it is no sum of two digits."""
    if _PROMPT.fullmatch(prompt) is None:
        raise ValueError(f"{prompt!r} is no sum of two digits")
    return [CHARACTERS.index(character) for character in prompt]


def wanted_answer(prompt: str) -> list[int]:
    """The tokens of the right answer."""
    found = _PROMPT.fullmatch(prompt)
    if found is None:
        raise ValueError(f"{prompt!r} is no sum of two digits")
    return [CHARACTERS.index(digit) for digit in f"{int(found[1]) + int(found[2]):02d}"]


def rewards_of(prompt: str, answers: torch.Tensor) -> torch.Tensor:
    """The reward of each answer, a row of tokens: the share of its digits that are right."""
    return (answers == torch.tensor(wanted_answer(prompt))).float().mean(-1)


def text_of(tokens: Sequence[int]) -> str:
    """Tokens as text."""
    return "".join(CHARACTERS[token] for token in tokens)
