import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.policies.advantages.groups import group_baseline
from tests.policies.advantages.golden import assert_close, cases, group_numbers, tensor

OUTCOMES = st.lists(st.floats(-1000.0, 1000.0), min_size=2, max_size=12)
BOTH_WAYS = pytest.mark.parametrize("leave_one_out", [False, True])


@cases("nemo_rl", function="calculate_baseline_and_std_per_prompt")
def test_group_baseline_and_deviation_match_nemo_rl(case):
    inputs, expected = case["inputs"], case["expected"]
    groups, way = group_numbers(inputs["prompts"]), {"leave_one_out": inputs["leave_one_out_baseline"]}
    baseline, deviation = group_baseline(tensor(inputs["rewards"]), groups, **way)
    if "std_rewards" in inputs:
        deviation = group_baseline(tensor(inputs["std_rewards"]), groups, **way)[1]
    assert_close(baseline, expected["baseline"])
    true = expected.get("true_std_ddof1")  # where NeMo-RL's single precision has lost it
    assert_close(deviation, expected["std"] if true is None else [true] * len(groups))


@BOTH_WAYS
@given(outcome=st.floats(-1e6, 1e6), n=st.integers(2, 9))
def test_deviation_of_equal_outcomes_is_exactly_zero(leave_one_out, outcome, n):
    outcomes = torch.full((n,), outcome, dtype=torch.float64)
    baseline, deviation = group_baseline(outcomes, torch.zeros(n), leave_one_out=leave_one_out)
    assert torch.equal(baseline, outcomes)
    assert not deviation.any()


@BOTH_WAYS
@given(outcomes=OUTCOMES, others=OUTCOMES)
def test_baselines_are_means_of_the_own_group(leave_one_out, outcomes, others):
    together, groups = tensor(outcomes + others), torch.tensor([0] * len(outcomes) + [5] * len(others))
    baseline, deviation = group_baseline(together, groups, leave_one_out=leave_one_out)
    for i in range(len(outcomes)):
        peers = tensor(outcomes[:i] + outcomes[i + 1 :] if leave_one_out else outcomes)
        spread = peers.std() if len(peers) > 1 else torch.zeros((), dtype=torch.float64)
        torch.testing.assert_close(baseline[i], peers.mean(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(deviation[i], spread, rtol=1e-6, atol=1e-6)


@given(outcomes=OUTCOMES)
def test_leave_one_out_advantage_is_n_over_n_minus_1_of_group_mean(outcomes):
    found, groups, n = tensor(outcomes), torch.zeros(len(outcomes)), len(outcomes)
    own = found - group_baseline(found, groups, leave_one_out=False)[0]
    others = found - group_baseline(found, groups, leave_one_out=True)[0]
    torch.testing.assert_close(others, own * n / (n - 1), rtol=1e-9, atol=1e-9)
