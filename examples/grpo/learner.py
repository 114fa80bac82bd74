"""The learner: policy and optimizer, the frozen copy of the policy that generates, and one train step.

Rows of a group, the first dimension its generations:

    tokens             prompt and answer
    log_probabilities  of the answer's tokens, under the policy that sampled them
    reward             of each answer
    advantage          written back when the group is trained
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from impl import GenerationRequest, TorchTrainerState
from impl.store import DirectoryReader

from .arithmetic import ANSWER_LENGTH, CHARACTERS, PROMPT_LENGTH, rewards_of, tokens_of, wanted_answer
from .objective import Objective, clipped_objective
from .setting import Setting
from .transformer import Transformer, log_probabilities, new_policy, sample

Rows = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class TrainStep:
    """What a train step did: mean reward, share of answers that are wholly right, and the objective's figures."""

    reward: float
    exact: float
    objective: Objective


class Learner:
    """Trains one policy while frozen copies of it generate."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.policy = new_policy(
            len(CHARACTERS), PROMPT_LENGTH + ANSWER_LENGTH, setting.width, setting.layers, setting.seed
        )
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=setting.learning_rate)
        # The first policy, rebuilt from the seed by every life: no checkpoint has to hold it.
        self._reference = _frozen(self.policy)
        self._generating = _frozen(self.policy)

    def publish_weights(self) -> None:
        """Let the generations that begin from here on use the weights as they are now.

        A copy that replaces the one before: a generation that is running keeps the weights it began with.
        """
        self._generating = _frozen(self.policy)

    def generate(self, request: GenerationRequest) -> Rows:
        """Sample one group and reward it. Any thread; seeded by key and attempt, so no random state is shared."""
        assert request.generations is not None
        policy = self._generating
        seed = random.Random(f"{self._setting.seed}/{request.key}/{request.attempt}").getrandbits(62)
        prompts = torch.tensor([tokens_of(request.prompt)]).repeat(request.generations, 1)
        tokens = sample(policy, prompts, ANSWER_LENGTH, torch.Generator().manual_seed(seed))
        with torch.no_grad():
            sampled = log_probabilities(policy, tokens, ANSWER_LENGTH)
        reward = rewards_of(request.prompt, tokens[:, PROMPT_LENGTH:])
        return {"tokens": tokens, "log_probabilities": sampled, "reward": reward}

    def evaluate(self) -> float:
        """The share of all sums that the policy writes rightly when it takes the likeliest token each time."""
        operands = range(self._setting.operands)
        prompts = [f"{first}+{second}=" for first in operands for second in operands]
        tokens = torch.tensor([tokens_of(prompt) for prompt in prompts])
        with torch.no_grad():
            for _ in range(ANSWER_LENGTH):
                likeliest = self._generating(tokens)[:, -1].argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, likeliest], dim=1)
        wanted = torch.tensor([wanted_answer(prompt) for prompt in prompts])
        return float((tokens[:, PROMPT_LENGTH:] == wanted).all(-1).float().mean())

    def train(self, groups: Sequence[Rows]) -> TrainStep:
        """One step of the optimizer over these groups, and new weights for those who generate."""
        tokens, sampled, reward, advantage = (
            torch.cat([rows[field] for rows in groups])
            for field in ("tokens", "log_probabilities", "reward", "advantage")
        )
        reference = None
        if self._setting.kl_weight:
            with torch.no_grad():
                reference = log_probabilities(self._reference, tokens, ANSWER_LENGTH)
        objective = clipped_objective(
            log_probabilities(self.policy, tokens, ANSWER_LENGTH),
            sampled,
            advantage,
            clip=self._setting.clip,
            reference=reference,
            kl_weight=self._setting.kl_weight,
        )
        self.optimizer.zero_grad()
        objective.loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.publish_weights()
        return TrainStep(float(reward.mean()), float((reward == 1).float().mean()), objective)


class LearnerState(TorchTrainerState):
    """The learner in a checkpoint: model and optimizer; what is loaded generates at once."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner.policy, learner.optimizer)
        self._learner = learner

    def load(self, reader: DirectoryReader) -> None:
        """Replace the live state."""
        super().load(reader)
        self._learner.publish_weights()


def _frozen(policy: Transformer) -> Transformer:
    return copy.deepcopy(policy).requires_grad_(False)
