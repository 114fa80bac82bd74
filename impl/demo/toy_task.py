"""A toy token task and its policy: count upwards from the prompt's token.

A prompt is a token; the wanted completion is the tokens that follow it, modulo the vocabulary. The policy is a table
with a small network behind it, trained by policy gradient with the group's mean reward as baseline. Small enough for
milliseconds a step, real enough that parameters and optimizer state must survive a restart.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import torch

from ..controller import GenerationRequest, TrainBatch

VOCABULARY = 16
LENGTH = 6


def new_policy(seed: int) -> torch.nn.Sequential:
    """The policy with seeded parameters: logits for each place of the completion, given the prompt's token."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Embedding(VOCABULARY, 32),
            torch.nn.Tanh(),
            torch.nn.Linear(32, LENGTH * VOCABULARY),
        )


def log_probabilities(policy: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """For each prompt token, the log-probabilities of every token at every place."""
    logits: torch.Tensor = policy(tokens)
    return logits.view(-1, LENGTH, VOCABULARY).log_softmax(-1)


class ToyTrainer:
    """Policy and optimizer, and the frozen copy of the policy that generates."""

    def __init__(self, seed: int) -> None:
        self.policy = new_policy(seed)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.05)
        self._seed = seed
        # Another module: the train step runs in a thread, and a functional call swaps its module's parameters.
        self._generator = new_policy(seed)
        # Replaced whole after each step, never changed: a generation keeps the weights it began with.
        self._generating: Mapping[str, torch.Tensor] = {}
        self.publish_weights()

    def publish_weights(self) -> None:
        """Let the generations that begin from here on use the weights as they are now."""
        self._generating = {name: value.detach().clone() for name, value in self.policy.state_dict().items()}

    def generate(self, request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        """Sample one group. Seeded by key and attempt, so a repeated generation needs no shared random state."""
        assert request.generations is not None
        seed = random.Random(f"{self._seed}/{request.key}/{request.attempt}").getrandbits(62)
        chance = torch.Generator().manual_seed(seed)
        prompt = torch.full((request.generations,), request.prompt, dtype=torch.int64)
        with torch.no_grad():
            logits = torch.func.functional_call(self._generator, dict(self._generating), (prompt,))
            probabilities = logits.view(-1, VOCABULARY).softmax(-1)
            tokens = torch.multinomial(probabilities, 1, generator=chance).view(-1, LENGTH)
        wanted = (request.prompt + 1 + torch.arange(LENGTH)) % VOCABULARY
        return {"prompt": prompt, "tokens": tokens, "reward": (tokens == wanted).float().mean(-1)}

    def train(self, batch: TrainBatch) -> float:
        """One policy-gradient step over all groups; the mean reward."""
        rewards, terms = [], []
        for group in batch:
            rows = group.rows
            chosen = log_probabilities(self.policy, rows["prompt"]).gather(-1, rows["tokens"].unsqueeze(-1))
            advantage = rows["reward"] - rows["reward"].mean()
            terms.append((advantage * chosen.squeeze(-1).sum(-1)).mean())
            rewards.append(rows["reward"].mean())
        loss = -torch.stack(terms).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.publish_weights()
        return float(torch.stack(rewards).mean())
