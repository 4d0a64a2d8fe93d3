import numpy as np
import pytest
import torch
from torch.distributions import Dirichlet, Normal

from nvtrader_pipelines.policies.advantages.masked import masked_mean
from nvtrader_pipelines.policies.preference_losses import LogProbs, centered_log_prob, preference_loss
from tests.evaluation.golden import golden
from tests.policies.advantages.golden import assert_close, cases, tensor

GOLDEN = golden("dpo_preference")
GAUSSIAN, GAUGE = GOLDEN["gaussian_policy"], GOLDEN["softmax_gauge"]


def approx(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def label(case):
    return "-".join(str(case[key]) for key in ("loss_type", "beta", "label_smoothing"))


def pair_log_probs():
    """The four pairs of the golden file, with gradients of the policy's log-probabilities."""
    names = ("policy_chosen", "policy_rejected", "ref_chosen", "ref_rejected")
    chosen, rejected, *references = (tensor(GOLDEN["inputs"][name]) for name in names)
    return LogProbs(chosen.requires_grad_(), rejected.requires_grad_(), *references)


def first_trl_loss(case, log_probs):
    """Losses of TRL 0.19.1 from those of 1.16.0, some without a reference."""
    references = [log_probs.reference_chosen, log_probs.reference_rejected]
    if case["reference_free"]:
        references = [torch.zeros_like(reference) for reference in references]
    log_probs = LogProbs(log_probs.chosen, log_probs.rejected, *references)
    return preference_loss(case["loss_type"], log_probs, beta=case["beta"], label_smoothing=case["label_smoothing"])


def later_trl_loss(case, log_probs):
    """Losses of TRL 1.16.0; log-probabilities of several tokens are averaged."""
    if case["completion_mask"] is not None:  # of the chosen rows, then the rejected ones
        lengths = tensor(case["completion_mask"]).sum(dim=1).chunk(2)
        log_probs = LogProbs(*(log_prob / count for log_prob, count in zip(log_probs, lengths * 2, strict=True)))
    smoothing = case["label_smoothing"]
    return preference_loss(case["loss_type"], log_probs, beta=case["beta"], label_smoothing=smoothing)


@pytest.mark.parametrize("case", GOLDEN["trl_0_19_1"], ids=lambda case: f"{label(case)}-{case['reference_free']}")
def test_preference_loss_and_gradients_match_trl_0_19_1(case):
    log_probs = pair_log_probs()
    losses = first_trl_loss(case, log_probs)
    losses.mean().backward()
    assert losses.tolist() == approx(case["losses"])
    assert losses.mean().item() == approx(case["mean"])
    assert log_probs.chosen.grad.tolist() == approx(case["grad_policy_chosen"])
    assert log_probs.rejected.grad.tolist() == approx(case["grad_policy_rejected"])
    assert (case["beta"] * log_probs.chosen_log_ratios).tolist() == approx(case["chosen_rewards"])
    assert (case["beta"] * log_probs.rejected_log_ratios).tolist() == approx(case["rejected_rewards"])


@pytest.mark.parametrize("case", GOLDEN["trl_1_16_0"], ids=label)
def test_preference_loss_matches_trl_1_16_0(case):
    losses = later_trl_loss(case, pair_log_probs())
    assert losses.tolist() == approx(case["losses"])
    assert losses.mean().item() == approx(case["mean"])


def mean_losses(version, loss_of):
    """Mean loss by name, beta and smoothing, with reference."""
    names = ("loss_type", "beta", "label_smoothing")
    with_reference = [case for case in GOLDEN[version] if not case.get("reference_free")]
    return {
        tuple(case[name] for name in names): loss_of(case, pair_log_probs()).mean().item() for case in with_reference
    }


def test_preference_loss_of_trl_versions_differs_for_ipo_only():
    first, later = mean_losses("trl_0_19_1", first_trl_loss), mean_losses("trl_1_16_0", later_trl_loss)
    pairs = {str(key[:2]): [first[key], later[key]] for key in first.keys() & later.keys()}
    differences = {key: means for key, means in pairs.items() if means[0] != pytest.approx(means[1], abs=1e-12)}
    assert differences == {key: approx(means) for key, means in GOLDEN["version_differences"].items()}


@pytest.mark.parametrize("loss", ["sigmoid", "robust"])
def test_preference_loss_with_soft_labels_equals_that_of_each_pair(loss):
    log_probs, smoothing = pair_log_probs(), [0.0, 0.1, 0.25, 0.4]
    losses = preference_loss(loss, log_probs, beta=0.5, label_smoothing=tensor(smoothing))
    alone = [preference_loss(loss, log_probs, beta=0.5, label_smoothing=value)[i] for i, value in enumerate(smoothing)]
    assert losses.tolist() == approx([value.item() for value in alone])


@cases("nemo_rl", function="DPOLossFn")
def test_sigmoid_loss_of_summed_or_mean_log_probs_matches_nemo_rl(case):
    inputs, expected = case["inputs"], case["expected"]
    mask = tensor(inputs["token_mask"])[:, 1:]
    count = mask.sum(dim=1) if inputs["preference_average_log_probs"] else torch.ones(len(mask))
    policy = masked_mean(tensor(inputs["policy_token_logprobs"]), mask, 1, count)
    reference = masked_mean(tensor(inputs["reference_policy_logprobs"])[:, :-1], mask, 1, count)
    log_probs = LogProbs(policy[0::2], policy[1::2], reference[0::2], reference[1::2])
    chosen, rejected = log_probs.chosen_log_ratios, log_probs.rejected_log_ratios
    assert_close(preference_loss("sigmoid", log_probs, beta=inputs["beta"]).mean(), expected["loss"])
    assert_close(chosen.mean(), expected["rewards_chosen_mean"])
    assert_close(rejected.mean(), expected["rewards_rejected_mean"])
    assert (chosen > rejected).double().mean().item() == expected["accuracy"]


def test_sigmoid_loss_of_gaussian_policy_matches_closed_form():
    case, sigma = GAUSSIAN, GAUSSIAN["sigma_shared"]
    mean, reference = tensor(case["mu"]).requires_grad_(), tensor(case["mu_ref"])
    chosen, rejected = tensor(case["a_chosen"]), tensor(case["a_rejected"])
    log_probs = LogProbs(
        *(Normal(mu, sigma).log_prob(action).sum(-1) for mu in (mean, reference) for action in (chosen, rejected))
    )
    loss = preference_loss("sigmoid", log_probs, beta=0.1)
    loss.backward()
    logit = (log_probs.chosen_log_ratios - log_probs.rejected_log_ratios).item()
    assert logit == approx(case["logit"])
    assert logit == approx(case["closed_value"])
    assert loss.item() == approx(case["loss_beta0p1"])
    assert mean.grad.tolist() == approx(case["grad_mu"])


def test_sigmoid_loss_of_dirichlet_policy_matches_closed_form():
    case = GOLDEN["dirichlet_policy"]
    policies = [Dirichlet(tensor(case[name])) for name in ("alpha", "alpha_ref")]
    weights = [tensor(case[name]) for name in ("w_chosen", "w_rejected")]
    log_probs = LogProbs(*(policy.log_prob(row) for policy in policies for row in weights))
    expected = (case[name] for name in ("logp_chosen", "logp_rejected", "ref_chosen", "ref_rejected"))
    assert torch.stack(log_probs).tolist() == approx(list(expected))
    logit = (log_probs.chosen_log_ratios - log_probs.rejected_log_ratios).item()
    assert logit == approx(case["logit"])
    assert logit == approx(case["closed_value"])
    assert preference_loss("sigmoid", log_probs, beta=0.1).item() == approx(case["loss_beta0p1"])


def logistic_normal_log_prob(weights, mean, sigma):
    """Log-density of weights whose logits, less the last one, are normal."""
    logits = weights[..., :-1].log() - weights[..., -1:].log()
    return Normal(mean, sigma).log_prob(logits).sum(-1) - weights.log().sum(-1)


def test_logistic_normal_log_ratios_are_those_of_the_logits():
    case, sigma = GOLDEN["logistic_normal_policy"], GOLDEN["logistic_normal_policy"]["sigma"]
    means = [tensor(case[name]) for name in ("mu", "mu_ref")]
    logits = torch.stack([tensor(case[name]) for name in ("z_chosen", "z_rejected")])
    weights = torch.cat([logits, torch.zeros(2, 1)], dim=1).softmax(dim=1)
    assert weights.tolist() == [approx(case["w_chosen"]), approx(case["w_rejected"])]
    of_weights = LogProbs(*torch.cat([logistic_normal_log_prob(weights, mean, sigma) for mean in means]))
    of_logits = LogProbs(*torch.cat([Normal(mean, sigma).log_prob(logits).sum(-1) for mean in means]))
    assert of_weights.chosen.item() == approx(case["logp_w_chosen"])
    assert of_weights.rejected.item() == approx(case["logp_w_rejected"])
    for log_probs in (of_weights, of_logits):
        assert (log_probs.chosen_log_ratios - log_probs.rejected_log_ratios).item() == approx(case["logit"])
    losses = [preference_loss("sigmoid", log_probs, beta=0.1).item() for log_probs in (of_weights, of_logits)]
    assert losses[0] == approx(losses[1])


def test_logistic_normal_density_integrates_to_one():
    case, n = GOLDEN["logistic_normal_policy"], 400
    first, second = np.mgrid[0:n, 0:n].reshape(2, -1) + 0.5
    inside = first + second < n - 0.25  # the last weight is positive
    weights = tensor(np.stack([first, second, n - first - second], axis=-1)[inside] / n)
    density = logistic_normal_log_prob(weights, tensor(case["mu"]), case["sigma"]).exp()
    assert density.sum().item() / n**2 == pytest.approx(case["integral_check"], abs=1e-6)


def test_centered_log_prob_ignores_a_shift_that_changes_the_density():
    mean, sigma, logits = tensor(GAUSSIAN["mu"]), GAUSSIAN["sigma_shared"], tensor(GAUGE["z"])
    actions = torch.stack([logits, logits + GAUGE["shift"]])
    assert actions.softmax(dim=1).tolist() == [approx(GAUGE["w"])] * 2
    density = Normal(mean, sigma).log_prob(actions).sum(-1)
    assert density.tolist() == approx([GAUGE["logp_z"], GAUGE["logp_z_shifted"]])
    errors = np.array(GAUGE["z"]) - np.array(GAUSSIAN["mu"])
    projected = (np.eye(3) - 1.0 / 3.0) @ errors
    expected = [-0.5 * projected @ projected / sigma**2] * 2
    assert centered_log_prob(mean.expand(2, 3), actions, sigma).tolist() == approx(expected)
    assert centered_log_prob(mean + actions[1:] - actions[:1], actions[:1], sigma).tolist() == approx(expected[:1])


def test_columns_without_effect_do_not_count_and_a_shift_of_the_others_changes_nothing():
    means, actions = tensor([[0.1, -0.2, 0.3, 9.0]]), tensor([[0.4, -0.1, 0.5, float("nan")]])
    alone = centered_log_prob(means[:, :3], actions[:, :3], 1.0)
    assert centered_log_prob(means, actions, 1.0).tolist() == approx(alone.tolist())
    shifted = means + tensor([[1.0, 1.0, 1.0, 0.0]])
    assert centered_log_prob(shifted, actions, 1.0).tolist() == approx(alone.tolist())
