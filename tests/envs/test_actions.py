from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.actions import ResidualAction, SimplexAction
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor, VolatilityTargetAnchor
from tests.markets import synthetic_panel
from tests.panels import INELIGIBLE, eventful_panel


@pytest.mark.parametrize("n_symbols", [1, 4, 20])
def test_simplex_action_reaches_every_corner(n_symbols):
    action = SimplexAction()
    corners = action.bound * (2.0 * np.eye(n_symbols + 1) - 1.0)
    weights = action.start(synthetic_panel(30, n_symbols))(corners, np.full(n_symbols + 1, 20))
    np.testing.assert_allclose(weights, np.eye(n_symbols + 1), atol=1e-3)


def test_simplex_action_reaches_any_portfolio():
    wanted = np.random.default_rng(0).dirichlet(np.full(5, 0.5), 200)
    logits = np.log(np.maximum(wanted, 1e-12))
    logits += 5.0 - logits.max(axis=1, keepdims=True)  # in the box, but for weights below e^-10 of the largest
    weights = SimplexAction().start(synthetic_panel(30, 4))(logits, np.full(200, 20))
    np.testing.assert_allclose(weights, wanted, atol=2e-4)


def test_weight_of_an_ineligible_name_becomes_cash():
    panel = eventful_panel()
    (weights,) = SimplexAction().start(panel)(np.zeros((1, 7)), np.array([20]))
    eligible = panel.eligible[20]
    np.testing.assert_allclose(weights[:-1], eligible / 7, rtol=1e-12)
    np.testing.assert_allclose(weights[-1], 1.0 - eligible.sum() / 7, rtol=1e-12)


@pytest.mark.parametrize("anchor", [EqualWeightAnchor(), VolatilityTargetAnchor(volatility=0.05)])
def test_zero_residual_action_is_the_anchor(anchor):
    panel = eventful_panel()
    t = np.arange(len(panel.sessions))
    weights = ResidualAction(anchor=anchor).start(panel)(np.zeros((len(t), 7)), t)
    np.testing.assert_allclose(weights, anchor.weights(panel), atol=1e-15)


def test_residual_tilt_is_bounded_and_preserves_exposure():
    panel = synthetic_panel(60, 4)
    anchor = VolatilityTargetAnchor(volatility=0.05)
    (weights,) = ResidualAction(anchor=anchor, tilt=1.0).start(panel)(np.array([[3.0, -3, 0, 0, 0]]), np.array([50]))
    base = anchor.weights(panel)[50]
    tilt = np.tanh(3.0)
    np.testing.assert_allclose(np.log(weights[0] / weights[2]), tilt, rtol=1e-12)
    np.testing.assert_allclose(np.log(weights[1] / weights[2]), -tilt, rtol=1e-12)
    np.testing.assert_allclose(weights[:4].sum(), base[:4].sum(), rtol=1e-12)


def test_residual_exposure_moves_by_its_tilt_and_at_most_to_one():
    panel = synthetic_panel(60, 4)
    anchor = VolatilityTargetAnchor(volatility=0.05)
    target = ResidualAction(anchor=anchor, exposure_tilt=0.25).start(panel)
    up, down = target(np.array([[0.0] * 4 + [3.0], [0.0] * 4 + [-3.0]]), np.array([50, 50]))
    base = anchor.weights(panel)[50, :4].sum()
    np.testing.assert_allclose(up[:4].sum() / base, np.exp(0.25 * np.tanh(3.0)), rtol=1e-12)
    np.testing.assert_allclose(down[:4].sum() / base, np.exp(-0.25 * np.tanh(3.0)), rtol=1e-12)
    full = ResidualAction(anchor=EqualWeightAnchor()).start(panel)(np.full((1, 5), 3.0), np.array([50]))
    np.testing.assert_allclose(full[0], [0.25] * 4 + [0.0], atol=1e-15)


def test_anchor_in_cash_stays_in_cash_under_any_tilt():
    panel = replace(synthetic_panel(30, 4), eligible=np.zeros((30, 4), dtype=bool))
    weights = ResidualAction().start(panel)(np.full((1, 5), 2.0), np.array([20]))
    assert weights.tolist() == [[0.0, 0.0, 0.0, 0.0, 1.0]]


def test_never_eligible_name_gets_no_weight():
    panel, generator = eventful_panel(), np.random.default_rng(0)
    for action in (SimplexAction(), ResidualAction()):
        weights = action.start(panel)(generator.normal(0, 3, (160, 7)), np.arange(160))
        assert not weights[:, INELIGIBLE].any()


def test_large_logits_do_not_overflow():
    weights = SimplexAction(bound=1e4).start(synthetic_panel(30, 1))(np.array([[1e5, -1e5]]), np.array([20]))
    np.testing.assert_array_equal(weights, [[1.0, 0.0]])


@pytest.mark.parametrize("action", [SimplexAction(), ResidualAction()])
@pytest.mark.parametrize("place", [0, 4])
def test_nan_action_gives_nan_weights(action, place):
    actions = np.zeros((2, 5))
    actions[1, place] = np.nan
    weights = action.start(synthetic_panel(60, 4))(actions, np.array([50, 50]))
    assert np.isfinite(weights[0]).all()
    assert np.isnan(weights[1]).any()


@pytest.mark.parametrize("action", [SimplexAction(), ResidualAction()])
@pytest.mark.parametrize("t", [-1, 60])
def test_session_beyond_the_panel_is_refused(action, t):
    with pytest.raises(IndexError):
        action.start(synthetic_panel(60, 4))(np.zeros((2, 5)), np.array([50, t]))


def test_logits_of_simplex_weights_give_them_back_and_forget_a_shift():
    panel, t = synthetic_panel(60, 4), np.full(200, 20)
    raw = np.random.default_rng(0).uniform(-1.5, 1.5, (200, 5))
    action = SimplexAction()
    weights = action.start(panel)(raw, t)
    logits = action.logits(panel, weights, t)
    assert logits.is_reachable.all()
    np.testing.assert_allclose(logits.values, raw - raw.mean(axis=1, keepdims=True), atol=1e-9)
    np.testing.assert_allclose(action.start(panel)(logits.values, t), weights, atol=1e-12)


def test_logits_of_names_without_weight_are_lowest_and_give_the_weights_back():
    panel = eventful_panel()
    weights = np.zeros((2, 7))
    weights[:, [0, -1]] = 0.5
    weights[1, [0, INELIGIBLE]] = 0.25
    t = np.array([20, 20])
    logits = SimplexAction().logits(panel, weights, t)
    np.testing.assert_allclose(logits.values[0, [0, -1]], 0.0)
    assert set(logits.values[0].tolist()) == {0.0, -5.0}
    assert logits.is_reachable.tolist() == [True, False]
    np.testing.assert_allclose(SimplexAction().start(panel)(logits.values, t)[0], weights[0], atol=0.02)


def test_logits_of_residual_weights_are_their_tilts_and_beyond_them_unreachable():
    panel, t, action = synthetic_panel(60, 4), np.full(200, 40), ResidualAction()
    raw = np.random.default_rng(0).uniform(-3.0, 3.0, (200, 5))
    weights = action.start(panel)(raw, t)
    logits = action.logits(panel, weights, t)
    tilts = np.tanh(raw[:, :-1])
    middle = (tilts.max(axis=1, keepdims=True) + tilts.min(axis=1, keepdims=True)) / 2.0
    assert logits.is_reachable.all()
    np.testing.assert_allclose(logits.values[:, :-1], tilts - middle, atol=1e-9)
    anchor = action.anchor.weights(panel)[40]
    names = anchor[:-1].sum()
    for share in ([0.9, 0.1 / 3, 0.1 / 3, 0.1 / 3], [1.0, 0.0, 0.0, 0.0]):
        far = np.append(names * np.array(share), 1.0 - names)[None]
        assert not action.logits(panel, far, t[:1]).is_reachable.any()
    half = np.append(0.5 * anchor[:-1], 1.0 - 0.5 * names)[None]
    assert not action.logits(panel, half, t[:1]).is_reachable.any()  # exposure moves by a quarter only
