"""The policy: a small causal transformer with seeded random weights, and sampling from it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_HEADS = 4


class _Block(nn.Module):
    """Attention and a two-layer network, each behind a norm and beside a residual path."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        sequences, places, width = states.shape
        projected = self.queries_keys_values(self.before_attention(states))
        queries, keys, values = projected.view(sequences, places, 3, _HEADS, width // _HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        states = states + self.output(attended.transpose(1, 2).reshape(sequences, places, width))
        result: torch.Tensor = states + self.network(self.before_network(states))
        return result


class Transformer(nn.Module):
    """Logits of the next token at every place of the given sequences."""

    def __init__(self, vocabulary: int, longest: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*(_Block(width) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        logits: torch.Tensor = self.head(self.blocks(states))
        return logits


def new_policy(vocabulary: int, longest: int, width: int, layers: int, seed: int) -> Transformer:
    """A policy with seeded weights; the random state of the program is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(vocabulary, longest, width, layers)


def log_probabilities(policy: nn.Module, tokens: torch.Tensor, answer_length: int) -> torch.Tensor:
    """The log-probability of each of the last `answer_length` tokens, given those before it: [sequences, length]."""
    logits = policy(tokens[:, :-1])[:, -answer_length:]
    chosen = tokens[:, -answer_length:].unsqueeze(-1)
    picked: torch.Tensor = logits.log_softmax(-1).gather(-1, chosen).squeeze(-1)
    return picked


@torch.no_grad()
def sample(policy: nn.Module, prompts: torch.Tensor, answer_length: int, chance: torch.Generator) -> torch.Tensor:
    """The prompts, [sequences, places], each with an answer of so many sampled tokens behind it."""
    tokens = prompts
    for _ in range(answer_length):
        following = policy(tokens)[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(following, 1, generator=chance)], dim=1)
    return tokens
