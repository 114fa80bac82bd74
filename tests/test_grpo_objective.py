"""The learner's arithmetic of examples/grpo, against values computed by hand; wrong versions of it are found."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

import pytest
import torch

from examples.grpo.objective import EPSILON, Objective, clipped_objective, group_advantages

#: Two answers of two tokens; the ratios are 1.5 and 0.5 in both, the advantages 1 and −1.
SAMPLED = [[log(0.4), log(0.4)], [log(0.2), log(0.6)]]
NOW = [[log(0.6), log(0.2)], [log(0.3), log(0.3)]]


@pytest.mark.parametrize(
    ("rewards", "advantages"),
    [
        # Mean 1/2, spread 1/2.
        ([1.0, 0.0, 0.0, 1.0], [1.0, -1.0, -1.0, 1.0]),
        # Mean 1/4, spread √(3/16): the one good answer stands out by √3.
        ([0.0, 0.0, 1.0, 0.0], [-(3**-0.5), -(3**-0.5), 3**0.5, -(3**-0.5)]),
        # Mean 1/2, spread √(1/8).
        ([0.0, 0.5, 1.0, 0.5], [-(2**0.5), 0.0, 2**0.5, 0.0]),
        ([0.5, 0.5, 0.5], [0.0, 0.0, 0.0]),
        ([1.0], [0.0]),
    ],
)
def test_an_advantage_is_the_distance_from_the_groups_mean_in_units_of_its_spread(
    rewards: list[float], advantages: list[float]
) -> None:
    """And it is nothing, not infinite, where all answers are alike."""
    found = group_advantages(torch.tensor(rewards))
    torch.testing.assert_close(found, torch.tensor(advantages), atol=8 * EPSILON, rtol=0)
    assert float(found.sum()) == pytest.approx(0, abs=1e-6)


def evaluated(
    objective: Callable[..., Objective],
    now: list[list[float]],
    advantages: list[float],
    **given: Any,
) -> tuple[float, list[list[float]], Objective]:
    """Loss and its gradient by the log-probabilities of now."""
    policy = torch.tensor(now, requires_grad=True)
    result = objective(policy, torch.tensor(SAMPLED), torch.tensor(advantages), clip=0.2, **given)
    result.loss.backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    return float(result.loss.detach()), policy.grad.tolist(), result


def agrees_with_the_values_by_hand(objective: Callable[..., Objective]) -> None:
    # Where nothing has moved every ratio is 1: the loss is the mean advantage, and a token's gradient −A over the four.
    loss, gradient, found = evaluated(objective, SAMPLED, [1.0, -2.0])
    assert loss == pytest.approx(0.5)
    assert gradient == [[pytest.approx(-0.25)] * 2, [pytest.approx(0.5)] * 2]
    assert (found.clipped, found.divergence) == (0, 0)
    assert found.moved == pytest.approx(0, abs=1e-6)
    # min(1.5, 1.2) and min(0.5, 0.8) gain 0.85; min(−1.5, −1.2) and min(−0.5, −0.8) gain −1.15. The tokens that were
    # cut, the first of the good answer and the second of the bad one, pull no further; the others by −A·r over four.
    loss, gradient, found = evaluated(objective, NOW, [1.0, -1.0])
    assert loss == pytest.approx(0.15)
    assert gradient == [[0, pytest.approx(-0.125)], [pytest.approx(0.375), 0]]
    assert found.clipped == pytest.approx(0.5)
    assert found.moved == pytest.approx(0.5)
    # The reference finds each token twice as likely: e^d − d − 1 = 2 − ln 2 − 1, and its gradient is 1 − e^d = −1.
    twice = torch.tensor(SAMPLED) + log(2)
    loss, gradient, found = evaluated(objective, SAMPLED, [1.0, -2.0], reference=twice, kl_weight=0.5)
    assert found.divergence == pytest.approx(1 - log(2))
    assert loss == pytest.approx(0.5 + 0.5 * (1 - log(2)))
    assert gradient == [[pytest.approx(-0.25 - 0.125)] * 2, [pytest.approx(0.5 - 0.125)] * 2]


def test_the_loss_and_its_gradient_are_those_computed_by_hand() -> None:
    """On the policy that sampled, off it within and beyond the bound, and with a reference."""
    agrees_with_the_values_by_hand(clipped_objective)


def unclipped(now: Any, sampled: Any, advantages: Any, *, clip: float, **given: Any) -> Objective:
    return clipped_objective(now, sampled, advantages, clip=1e9, **given)


def without_ratio(now: Any, sampled: Any, advantages: Any, *, clip: float, **given: Any) -> Objective:
    return clipped_objective(now, now.detach(), advantages, clip=clip, **given)


def upside_down(now: Any, sampled: Any, advantages: Any, *, clip: float, **given: Any) -> Objective:
    return clipped_objective(now, sampled, -advantages, clip=clip, **given)


def ratio_turned_over(now: Any, sampled: Any, advantages: Any, *, clip: float, **given: Any) -> Objective:
    return clipped_objective(2 * sampled - now, sampled, advantages, clip=clip, **given)


def without_reference(now: Any, sampled: Any, advantages: Any, *, clip: float, **given: Any) -> Objective:
    return clipped_objective(now, sampled, advantages, clip=clip)


@pytest.mark.parametrize("wrong", [unclipped, without_ratio, upside_down, ratio_turned_over, without_reference])
def test_a_wrong_loss_does_not_agree(wrong: Callable[..., Objective]) -> None:
    """Or the values above would say nothing."""
    with pytest.raises(AssertionError):
        agrees_with_the_values_by_hand(wrong)
