import torch

from nvtrader_pipelines.policies.advantages import ReinforcePlusPlusAdvantage
from nvtrader_pipelines.policies.advantages.masked import masked_mean, masked_variance, normalize
from tests.policies.advantages.golden import assert_close, cases, group_numbers, outcome_episodes, tensor

EIGHT = [[10]] * 4 + [[11]] * 4


@cases("nemo_rl", function="ReinforcePlusPlusAdvantageEstimator")
def test_reinforce_plus_plus_advantages_match_nemo_rl(case):
    inputs, expected = case["inputs"], case["expected"]
    baseline = "group_mean" if inputs["minus_baseline"] else "none"
    mask = inputs.get("mask", [[1.0] * 3] * 8)
    episodes = outcome_episodes(inputs["rewards"], mask, group_numbers(inputs.get("prompt_ids", EIGHT)))
    found = ReinforcePlusPlusAdvantage(baseline=baseline).estimate(episodes, 0.9).advantages
    if inputs.get("use_kl_in_reward"):  # a penalty per token comes between the two steps
        plain = ReinforcePlusPlusAdvantage(baseline=baseline, global_normalization=False).estimate(episodes, 0.9)
        divergence = (tensor(inputs["logprobs_reference"]) - tensor(inputs["logprobs_policy"])).square() / 2.0
        found = normalize(plain.advantages - inputs["kl_coef"] * divergence, episodes.mask)
    assert_close(found, expected["advantages"])
    if "masked_mean" in expected:
        assert_close(masked_mean(found, episodes.mask), expected["masked_mean"])
        assert_close(masked_variance(found, episodes.mask, unbiased=False), expected["masked_var_biased"])


@cases("nemo_rl", function="RawRewardAdvantageEstimator")
def test_advantage_without_a_baseline_matches_nemo_rl(case):
    inputs = case["inputs"]
    episodes = outcome_episodes(inputs["rewards"], inputs["mask"], torch.arange(8))
    advantage = ReinforcePlusPlusAdvantage(baseline="none", global_normalization=inputs["normalize_advantages"])
    assert_close(advantage.estimate(episodes, 0.9).advantages, case["expected"]["advantages"])
