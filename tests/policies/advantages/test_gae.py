import numpy as np
import torch

from nvtrader_pipelines.policies.advantages import Episodes
from nvtrader_pipelines.policies.advantages.masked import generalized_advantages, whiten
from tests.policies.advantages.golden import assert_close, cases, tensor


def nemo_episodes(inputs, loss):
    """NeMo-RL's samples: the reward comes at the last token, less a KL penalty at each."""
    mask = tensor(inputs["mask"])
    rewards = torch.zeros_like(mask)
    last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
    rewards[torch.arange(len(mask)), last] = tensor(inputs["rewards_terminal"])
    if loss.get("use_kl_in_reward"):
        log_ratio = tensor(inputs["reference_logprobs"]) - tensor(inputs["logprobs"])
        divergence = log_ratio.exp() - 1.0 - log_ratio
        rewards = rewards - loss["reference_policy_kl_penalty"] * divergence * mask
    zeros = torch.zeros_like(mask[:, 0])
    return Episodes(rewards=rewards, mask=mask, groups=zeros, values=tensor(inputs["values"]), final_values=zeros)


def rows_of(episodes):
    """Each episode alone."""
    for i in range(len(episodes.rewards)):
        yield Episodes(
            rewards=episodes.rewards[[i]],
            mask=episodes.mask[[i]],
            groups=episodes.groups[[i]],
            values=episodes.values[[i]],
            final_values=episodes.final_values[[i]],
        )


def with_lambdas(episodes, gamma, lambdas):
    """Advantages with a lambda of each episode's own."""
    found = [
        generalized_advantages(row, gamma, value)[0] for row, value in zip(rows_of(episodes), lambdas, strict=True)
    ]
    return torch.cat(found)


@cases("nemo_rl", function="GeneralizedAdvantageEstimator")
def test_generalized_advantages_are_nemo_rls(case):
    config, expected = case["inputs"]["config"], case["expected"]
    episodes = nemo_episodes(case["inputs"], case["inputs"]["loss"])
    assert_close(episodes.rewards, expected["token_rewards"])
    gamma, both = config["gae_gamma"], config["gae_lambda"]
    of_policy, of_value = config["gae_lambda_policy"] or both, config["gae_lambda_value"] or both
    lambdas = [of_policy] * len(episodes.mask)
    if alpha := config["length_adaptive_alpha"]:
        lambdas = [1.0 - 1.0 / max(alpha * length, 1.0) for length in episodes.mask.sum(dim=1).tolist()]
    advantages = with_lambdas(episodes, gamma, lambdas)
    if config["normalize_advantages"]:
        advantages = whiten(advantages, episodes.mask)
    assert_close(advantages, expected["advantages"])
    assert_close(generalized_advantages(episodes, gamma, of_value)[1], expected["returns"])


def sb3_episodes(case):
    """The episodes of each column of an SB3 buffer, and the cells each fills."""
    inputs = case["inputs"]
    rewards = np.array(inputs["rewards"] if "rewards" in inputs else inputs["env_rewards"]).reshape(
        np.shape(inputs["values"])
    )
    starts, values = np.array(inputs["episode_starts"]), np.array(inputs["values"])
    last = np.array(inputs.get("last_values", [inputs.get("V_last_obs")]))
    beyond = inputs.get("V_terminal_obs", 0.0) if case["id"].endswith("trunc") else 0.0
    for column in range(rewards.shape[1]):
        begins = np.flatnonzero(starts[:, column] > 0).tolist()
        for first, end in zip(begins, [*begins[1:], len(rewards)], strict=True):
            ongoing = last[column] * (1 - inputs["dones_last"][column]) if end == len(rewards) else beyond
            rows = slice(first, end)
            yield column, rows, rewards[rows, column], values[rows, column], ongoing


def padded(parts, length):
    """Rows of unequal length as one tensor."""
    return tensor([np.pad(part, (0, length - len(part))) for part in parts])


@cases("sb3_gae")
def test_generalized_advantages_match_sb3_at_truncation_and_termination(case):
    inputs, found = case["inputs"], list(sb3_episodes(case))
    columns, cells, rewards, values, beyond = zip(*found, strict=True)
    length = max(len(row) for row in rewards)
    episodes = Episodes(
        rewards=padded(rewards, length),
        mask=padded([np.ones(len(row)) for row in rewards], length),
        groups=torch.zeros(len(rewards)),
        values=padded(values, length),
        final_values=tensor(beyond),
    )
    advantages, returns = generalized_advantages(episodes, inputs["gamma"], inputs["gae_lambda"])
    for name, tensors in (("advantages", advantages), ("returns", returns)):
        expected = np.array(case["expected"][name])
        for i, (column, rows) in enumerate(zip(columns, cells, strict=True)):
            own = expected[rows, column]
            assert_close(tensors[i, : len(own)], own)
