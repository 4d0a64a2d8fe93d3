import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.observations import LookbackObservation, ObservationScaler, RegimeObservation
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.policies.backbones import EiieConvBackbone
from tests.markets import synthetic_panel
from tests.policies.backbones.networks import LAYOUT, LOOKBACK, N, observed, policy_of, trained

ACCOUNT = LAYOUT.length - N - 2  # first column of the held weights, which cash and drawdown follow


def means(policy, observations):
    with torch.no_grad():
        return policy.get_distribution(observations).distribution.mean


def permuted(observations, order):
    """The observations with the names in another order."""
    window = observations[:, : LOOKBACK * N].reshape(-1, LOOKBACK, N)[:, :, order].flatten(1)
    held = observations[:, ACCOUNT:-2][:, order]
    return torch.cat([window, observations[:, LOOKBACK * N : ACCOUNT], held, observations[:, -2:]], dim=1)


def scores_by_loops(tensors, observation):
    """Scores (N,) of one observation, name by name and session by session."""
    first, window, score = (tensors[f"mlp_extractor.{name}.weight"] for name in ("sessions", "window", "score"))
    biases = [tensors[f"mlp_extractor.{name}.bias"] for name in ("sessions", "window", "score")]
    scores = []
    for i in range(N):
        returns = observation[: LOOKBACK * N].reshape(LOOKBACK, N)[:, i]
        evaluation = biases[1][0]
        for k in range(LOOKBACK - 2):
            maps = np.maximum(first[:, 0] @ returns[k : k + 3] + biases[0], 0.0)
            evaluation = evaluation + window[0].reshape(-1, LOOKBACK - 2)[:, k] @ maps
        held = observation[ACCOUNT + i]
        scores.append(score[0, 0] * evaluation + score[0, 1] * held + biases[2][0])
    return np.array(scores)


def test_scores_equal_convolutions_written_out_as_loops():
    policy, observations = policy_of(EiieConvBackbone(maps=4)), observed()
    tensors = {name: tensor.numpy() for name, tensor in policy.state_dict().items()}
    expected = [[*scores_by_loops(tensors, row), 1.0] for row in observations.numpy()]
    np.testing.assert_allclose(means(policy, observations), expected, atol=1e-6)


@pytest.mark.parametrize("order", [[1, 2, 0], [2, 1, 0]])
def test_permuting_names_permutes_scores_and_keeps_cash_and_value(order):
    policy, observations = policy_of(EiieConvBackbone()), observed(16)
    other, scores = means(policy, permuted(observations, order)), means(policy, observations)
    torch.testing.assert_close(other, scores[:, [*order, N]], rtol=0, atol=1e-6)
    values = policy.predict_values(permuted(observations, order))
    torch.testing.assert_close(values, policy.predict_values(observations), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("observation", [LookbackObservation(), RegimeObservation()], ids=lambda spec: spec.kind)
def test_score_depends_on_its_held_weight_and_no_other_account_column(observation):
    builder = observation.start(synthetic_panel(60, N), ObservationScaler(), LOOKBACK)
    account = np.vstack([np.zeros(N + 2), np.eye(N + 2)])  # weights, cash, drawdown: none, then one at a time
    view = AccountView(np.ascontiguousarray(account[:, :-1]), account[:, -1])
    observations = torch.as_tensor(builder.observe(np.full(N + 3, 30), view))
    actions = means(policy_of(EiieConvBackbone(), builder.layout), observations)
    moved = ((actions[1:] - actions[0]).abs() > 1e-6).numpy()
    assert np.argwhere(moved).tolist() == [[i, i] for i in range(N)]


@pytest.mark.slow
def test_training_changes_every_tensor_and_the_cash_bias_starts_at_its_field():
    before, after = trained(EiieConvBackbone())
    assert before["mlp_extractor.cash_bias"].tolist() == [1.0]
    assert all(not torch.equal(before[name], after[name]) for name in after)
    other = policy_of(EiieConvBackbone(cash_bias=-2.0))
    assert means(other, observed())[:, N].tolist() == [-2.0] * 4
