import pytest
import torch

from nvtrader_pipelines.policies.advantages.masked import masked_mean
from nvtrader_pipelines.policies.agents.grouped_training import clipped_policy_loss, value_loss
from tests.policies.advantages.golden import assert_close, cases, tensor


@cases("nemo_rl", function="ClippedPGLossFn")
def test_clipped_policy_loss_and_gradient_match_nemo_rl(case):
    inputs, expected = case["inputs"], case["expected"]
    log_probs = tensor(inputs["curr_logprobs"]).requires_grad_()
    loss = clipped_policy_loss(
        log_probs,
        tensor(inputs["prev_logprobs"]),
        tensor(inputs["advantages"]),
        clip_range=inputs["config"].get("ratio_clip_min", 0.2),
        clip_range_high=inputs["config"].get("ratio_clip_max", 0.2),
    )
    total = masked_mean(loss, tensor(inputs["token_mask"]) * tensor(inputs["sample_mask"])[:, None])
    total.backward()
    assert_close(total.detach(), expected["loss"])
    assert log_probs.grad is not None
    assert_close(log_probs.grad, expected["grad_wrt_curr_logprobs"])


@cases("nemo_rl", function="MseValueLossFn")
def test_half_the_value_loss_is_nemo_rls(case):
    inputs = case["inputs"]
    loss = value_loss(tensor(inputs["values"]), tensor(inputs["returns"]))
    assert_close(0.5 * masked_mean(loss, tensor(inputs["mask"])), case["expected"]["loss"])


@pytest.mark.parametrize(("advantage", "ratio", "pushed"), [(1.0, 1.3, False), (1.0, 1.2, True), (-1.0, 0.75, False)])
def test_clipped_ratio_has_no_gradient(advantage, ratio, pushed):
    log_prob = torch.tensor(ratio).log().requires_grad_()
    clipped_policy_loss(
        log_prob, torch.zeros(()), torch.tensor(advantage), clip_range=0.2, clip_range_high=0.28
    ).backward()
    assert bool(log_prob.grad) is pushed
