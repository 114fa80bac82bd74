"""The learner of examples/grpo: its task, its policy, and that it learns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from examples.grpo.arithmetic import (
    ANSWER_LENGTH,
    CHARACTERS,
    PROMPT_LENGTH,
    broken_rows,
    dataset,
    rewards_of,
    text_of,
    tokens_of,
    wanted_answer,
)
from examples.grpo.learner import Learner
from examples.grpo.objective import group_advantages
from examples.grpo.setting import Setting
from examples.grpo.transformer import log_probabilities, new_policy, sample
from impl import GenerationRequest, Key

SMALL = Setting(operands=4, generations=16, width=32, layers=1, learning_rate=0.005)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a life of the run; what is compared bit for bit must be summed in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def request(prompt: str, row: int = 0, attempt: int = 0) -> GenerationRequest:
    return GenerationRequest(row, Key(0, row), prompt, SMALL.generations, 0, 0, attempt)


def test_the_reward_is_the_share_of_right_digits() -> None:
    """3+4 is 07; a digit in the wrong place is wrong."""
    assert text_of(wanted_answer("3+4=")) == "07"
    assert text_of(wanted_answer("9+8=")) == "17"
    answers = torch.tensor([tokens_of("3+4=")[:1] * 2, [0, 7], [0, 1], [7, 0], [1, 7]])
    assert rewards_of("3+4=", answers).tolist() == [0.0, 1.0, 0.5, 0.0, 0.5]


def test_the_data_repeats_from_its_seed_and_the_broken_rows_cannot_be_read() -> None:
    """Resuming needs the same rows; the rows that fail must be those that are counted as failed later."""
    rows = dataset(40, 4, 9, seed=1)
    assert rows == dataset(40, 4, 9, seed=1) != dataset(40, 4, 9, seed=2)
    assert len(set(rows)) < 40, "equal texts stand in several rows"
    unreadable = []
    for row, prompt in enumerate(rows):
        try:
            assert text_of(tokens_of(prompt)) == prompt
        except ValueError:
            unreadable.append(row)
    assert unreadable == list(broken_rows(40, 9)) == [8, 17, 26, 35]
    with pytest.raises(ValueError, match="is no sum of two digits"):
        wanted_answer(rows[8])


def test_a_token_is_judged_by_those_before_it_alone() -> None:
    """Otherwise the probabilities of a finished answer are not those that it was sampled with."""
    policy = new_policy(len(CHARACTERS), 6, 32, 2, seed=3)
    tokens = torch.randint(0, len(CHARACTERS), (5, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = policy(tokens)
        for length in range(1, 6):
            torch.testing.assert_close(policy(tokens[:, :length]), whole[:, :length])
            changed = tokens.clone()
            changed[:, length:] = (changed[:, length:] + 1) % len(CHARACTERS)
            torch.testing.assert_close(policy(changed)[:, :length], whole[:, :length])
        judged = log_probabilities(policy, tokens, ANSWER_LENGTH)
    for place in range(ANSWER_LENGTH):
        before = PROMPT_LENGTH + place
        expected = whole[:, before - 1].log_softmax(-1)[torch.arange(5), tokens[:, before]]
        torch.testing.assert_close(judged[:, place], expected)


def test_sampling_follows_the_policy() -> None:
    """The share of each first token among 20,000 answers is its probability, within five standard errors."""
    policy = new_policy(len(CHARACTERS), 6, 32, 1, seed=4)
    prompts = torch.tensor([tokens_of("2+3=")]).repeat(20_000, 1)
    answers = sample(policy, prompts, 1, torch.Generator().manual_seed(0))[:, PROMPT_LENGTH]
    with torch.no_grad():
        wanted = policy(prompts[:1])[0, -1].softmax(-1)
    shares = torch.bincount(answers, minlength=len(CHARACTERS)) / len(answers)
    assert bool(((shares - wanted).abs() < 5 * (wanted * (1 - wanted) / len(answers)).sqrt()).all())
    assert float(wanted.max() - wanted.min()) > 0.05, "a policy that is flat would hide a sampler that ignores it"


def test_a_generation_repeats_from_its_key_and_carries_the_probabilities_of_its_policy() -> None:
    """A group that is generated again after a crash is the same group, if the weights are the same."""
    learner, other = Learner(SMALL), Learner(SMALL)
    rows, again, retried = (one.generate(request("1+2=", 5, attempt)) for one, attempt in
                            ((learner, 0), (other, 0), (learner, 1)))  # fmt: skip
    assert all(torch.equal(rows[field], again[field]) for field in ("tokens", "log_probabilities", "reward"))
    assert not torch.equal(rows["tokens"], retried["tokens"])
    with torch.no_grad():
        assert torch.equal(rows["log_probabilities"], log_probabilities(learner.policy, rows["tokens"], ANSWER_LENGTH))
    assert torch.equal(rows["reward"], rewards_of("1+2=", rows["tokens"][:, PROMPT_LENGTH:]))


def test_the_weights_that_generate_change_with_a_train_step_and_not_before() -> None:
    """One that is running keeps the weights it began with; the next has the new ones."""
    learner = Learner(SMALL)
    generating = learner._generating
    before = {name: value.clone() for name, value in generating.state_dict().items()}
    rows = dict(learner.generate(request("1+2=")))
    rows["advantage"] = group_advantages(rows["reward"])
    learner.train([rows])
    assert all(torch.equal(value, before[name]) for name, value in generating.state_dict().items())
    assert all(torch.equal(value, learner.policy.state_dict()[name])
               for name, value in learner._generating.state_dict().items())  # fmt: skip
    assert not torch.equal(learner._generating.state_dict()["tokens.weight"], before["tokens.weight"])


def rise(setting: Setting, advantages: Callable[[torch.Tensor], torch.Tensor], steps: int = 120) -> float:
    """By how much the mean reward of the last ten steps is above that of the first five."""
    learner, chance = Learner(setting), random.Random(setting.seed)
    rewards = []
    for step in range(steps):
        groups = []
        for place in range(6):
            prompt = f"{chance.randrange(setting.operands)}+{chance.randrange(setting.operands)}="
            rows = dict(learner.generate(request(prompt, 6 * step + place)))
            rows["advantage"] = advantages(rows["reward"])
            groups.append(rows)
        rewards.append(learner.train(groups).reward)
    return sum(rewards[-10:]) / 10 - sum(rewards[:5]) / 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_policy_learns_to_add(seed: int) -> None:
    """From a fifth of the digits to most of them in 120 steps; guessing small numbers alone would be 0.56."""
    assert rise(replace(SMALL, seed=seed), group_advantages) > 0.4


@pytest.mark.slow
def test_without_a_right_advantage_it_does_not_learn() -> None:
    """The control: the same steps with advantages of no meaning, and with none, stay where they were."""
    chance = torch.Generator().manual_seed(0)

    def shuffled(reward: torch.Tensor) -> torch.Tensor:
        return group_advantages(reward)[torch.randperm(len(reward), generator=chance)]

    assert abs(rise(SMALL, shuffled, 60)) < 0.2
    assert abs(rise(SMALL, torch.zeros_like, 60)) < 0.1


@pytest.mark.slow
def test_a_reference_holds_the_policy_back() -> None:
    """With a heavy weight on the divergence the policy stays near where it began."""
    assert rise(replace(SMALL, kl_weight=50.0), group_advantages, 40) < rise(SMALL, group_advantages, 40) - 0.1
