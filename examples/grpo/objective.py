"""Group-relative policy optimisation: advantages within a group, and the clipped loss over tokens.

After Shao et al., DeepSeekMath (arXiv 2402.03300), section 4.1, with outcome rewards. A group is one prompt with its G
answers; there is no value network, since the answers of a group are each other's baseline. A group may have been
generated some steps ago, so the loss weighs each token by the ratio of its probabilities, now and when it was sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: Added to the spread of a group's rewards.
EPSILON = 1e-4


def group_advantages(rewards: torch.Tensor) -> torch.Tensor:
    """How much better each answer of one group is than its mean, in units of the group's spread: [generations].

    A group whose answers are all equally good teaches nothing: every advantage is 0.
    """
    deviation = rewards - rewards.mean()
    return deviation / (deviation.square().mean().sqrt() + EPSILON)


@dataclass(frozen=True)
class Objective:
    """The loss to go down, and what is worth watching beside it, as plain numbers."""

    loss: torch.Tensor
    #: Divergence of the policy from the reference, per token; 0 without one.
    divergence: float
    #: The share of tokens whose ratio is beyond the bound on the side that the clipping cuts.
    clipped: float
    #: Mean distance of the ratio from 1: how far the policy has moved since the answers were sampled.
    moved: float


def clipped_objective(
    now: torch.Tensor,
    sampled: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: float,
    reference: torch.Tensor | None = None,
    kl_weight: float = 0.0,
) -> Objective:
    """The loss of answers given the log-probabilities of their tokens, [answers, tokens].

    `now` are those of the policy being trained and carry its gradient, `sampled` those of the policy that wrote the
    answers; `advantages` has one number an answer. Each token gains min(r·A, clip(r, 1−ε, 1+ε)·A), with r the ratio of
    its probabilities; with `reference` it pays `kl_weight` times the estimate e^d − d − 1 of the divergence, d being
    how much likelier the reference finds it. Means are taken over the tokens of an answer, then over answers.
    """
    ratio = (now - sampled).exp()
    advantage = advantages.unsqueeze(-1)
    bounded = ratio.clamp(1 - clip, 1 + clip)
    gain = torch.minimum(ratio * advantage, bounded * advantage)
    divergence = torch.zeros_like(gain)
    if reference is not None:
        likelier = reference - now
        divergence = likelier.exp() - likelier - 1
    loss = -(gain - kl_weight * divergence).mean(-1).mean()
    with torch.no_grad():
        cut = (ratio * advantage > bounded * advantage).float().mean()
        return Objective(loss, float(divergence.mean()), float(cut), float((ratio - 1).abs().mean()))
