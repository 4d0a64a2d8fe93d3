from nvtrader_pipelines.policies.advantages import GrpoAdvantage
from tests.policies.advantages.golden import assert_close, cases, group_numbers, outcome_episodes


@cases("nemo_rl", function="GRPOAdvantageEstimator")
def test_group_relative_advantages_are_nemo_rls(case):
    inputs = case["inputs"]
    episodes = outcome_episodes(inputs["rewards"], inputs["mask"], group_numbers(inputs["prompt_ids"]))
    advantage = GrpoAdvantage(normalize=inputs["normalize_rewards"], leave_one_out=inputs["use_leave_one_out_baseline"])
    assert_close(advantage.estimate(episodes, 0.9).advantages, case["expected"]["advantages"])
