"""Checks of observations, actions, anchors and costs."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.actions import Action, ActionSize
from nvtrader_pipelines.envs.observations import Observation, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import cut_after, with_other_future
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import Anchor
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.testing.synthetic_panels import eventful_panel, simplex

N_NAMES, LOOKBACK = 6, 7
CUTS = (0, 31, 49, 63, 110)
SEEDS = range(10)
Sessions = NDArray[np.int64]


def _accounts(n: int) -> AccountView:
    generator = np.random.default_rng(0)
    return AccountView(simplex(generator, n, N_NAMES), generator.uniform(0.0, 0.9, n))


def _rows(observation: Observation, panel: MarketPanel, scaler: ObservationScaler, t: Sessions) -> NDArray[np.float32]:
    return observation.start(panel, scaler, LOOKBACK).observe(t, _accounts(len(t)))


def check_observations_are_finite_float32_of_the_stated_length(observation: Observation) -> None:
    """Require finite float32 rows of the builder's length, at every session."""
    panel = eventful_panel()
    t = np.arange(len(panel.sessions))
    scaler = observation.fit(panel, 0, 99)
    rows = _rows(observation, panel, scaler, t)
    assert rows.dtype == np.float32
    assert rows.shape == (len(t), observation.start(panel, scaler, LOOKBACK).length)
    assert np.isfinite(rows).all(), "observations must be finite"


def check_account_changes_only_its_own_columns(observation: Observation) -> None:
    """Require that an account changes only its own columns, and only of its own call."""
    builder = observation.start(eventful_panel(), ObservationScaler(), LOOKBACK)
    t = np.array([80])
    cash, invested = np.eye(7)[[6]], np.eye(7)[[0]]
    first = builder.observe(t, AccountView(cash, np.zeros(1)))
    builder.observe(np.array([90]), AccountView(invested, np.ones(1)))
    again = builder.observe(t, AccountView(cash, np.zeros(1)))
    np.testing.assert_array_equal(first, again)
    assert 0 < (builder.observe(t, AccountView(invested, np.zeros(1))) != first).sum() <= N_NAMES + 1


def check_observations_of_many_accounts_equal_single_ones(observation: Observation) -> None:
    """Require bit-equal observations of an account alone and among others."""
    panel = eventful_panel()
    builder = observation.start(panel, observation.fit(panel, 0, 99), LOOKBACK)
    view, t = _accounts(9), np.array([0, 3, 31, 45, 45, 61, 80, 100, 159])
    together = builder.observe(t, view)
    for i in range(9):
        alone = builder.observe(t[i : i + 1], AccountView(view.weights[i : i + 1], view.drawdown[i : i + 1]))
        np.testing.assert_array_equal(together[i], alone[0])


def check_observations_do_not_look_ahead(observation: Observation) -> None:
    """Require bit-equal past observations when the future is removed or replaced."""
    panel = eventful_panel()
    scaler = observation.fit(panel, 0, 30)
    for t in CUTS:
        known = _rows(observation, panel, scaler, np.arange(t + 1))
        for other in (with_other_future(panel, t), cut_after(panel, t)):
            np.testing.assert_array_equal(_rows(observation, other, scaler, np.arange(t + 1)), known)


def check_scaler_does_not_look_beyond_the_training_window(observation: Observation) -> None:
    """Require equal statistics when later sessions are removed or replaced."""
    panel = eventful_panel()
    known = observation.fit(panel, 10, 63)
    assert observation.fit(with_other_future(panel, 63), 10, 63) == known
    assert observation.fit(cut_after(panel, 63), 10, 63) == known


def check_scaler_survives_json(observation: Observation) -> None:
    """Require the same scaler after JSON, as policy files store it."""
    scaler = observation.fit(eventful_panel(), 0, 99)
    assert ObservationScaler.model_validate_json(scaler.model_dump_json()) == scaler


def check_session_beyond_the_panel_is_refused(observation: Observation) -> None:
    """Require an IndexError for sessions that the panel does not have."""
    panel = eventful_panel()
    builder = observation.start(panel, observation.fit(panel, 0, 99), LOOKBACK)
    for t in (-1, len(panel.sessions)):
        try:
            builder.observe(np.array([80, t]), _accounts(2))
        except IndexError:
            continue
        raise AssertionError(f"session {t} must be refused, since the panel has no such session")


def check_earlier_observations_are_not_overwritten(observation: Observation) -> None:
    """Require a new array from each call."""
    panel = eventful_panel()
    builder = observation.start(panel, observation.fit(panel, 0, 99), LOOKBACK)
    first = builder.observe(np.array([80, 90]), _accounts(2))
    before = first.copy()
    builder.observe(np.array([81, 91]), _accounts(2))
    np.testing.assert_array_equal(first, before)


def _targets(
    action: Action, panel: MarketPanel, actions: NDArray[np.floating], t: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Targets (n, N+1) of accounts in cash, on the panel with prices of the names as a further feature."""
    closes = 50.0 * np.cumprod(1.0 + panel.close_returns, axis=0) * panel.eligible
    priced = replace(
        panel,
        features=np.dstack([panel.features, closes]),
        feature_names=(*panel.feature_names, "adjusted_close"),
    )
    environment = EnvSpec().model_copy(update={"action": action, "fill": "same_close"})
    cash = np.tile(np.eye(N_NAMES + 1)[-1], (len(t), 1))
    return environment.start_action(priced)(actions, t, cash, np.ones(len(t)))


def check_targets_are_portfolios_of_eligible_names(action: Action) -> None:
    """Require weights of eligible names and cash that sum to 1; without debt or short positions unless levered."""
    panel, length = eventful_panel(), action.size(N_NAMES).length
    max_gross, max_short = getattr(action, "max_gross", 1.0), getattr(action, "max_short", 0.0)
    for seed, scale in zip(SEEDS, (0.0, 0.1, 3.0, 1e3) * 3, strict=False):
        generator = np.random.default_rng(seed)
        t = generator.integers(0, len(panel.sessions), 20)
        weights = _targets(action, panel, generator.normal(0.0, 1.0, (20, length)) * scale, t)
        assert weights.dtype == np.float64
        _require_portfolios(weights, panel.eligible[t], max_gross=max_gross, max_short=max_short)


def check_action_beyond_the_box_is_clipped(action: Action) -> None:
    """Require the target of the nearest action within the bounds."""
    size = action.size(N_NAMES)
    beyond = np.random.default_rng(0).normal(0.0, 10.0 * size.bound, (20, size.length))
    panel, t = eventful_panel(), np.arange(60, 80)
    within = np.clip(beyond, -size.bound, size.bound)
    np.testing.assert_array_equal(_targets(action, panel, beyond, t), _targets(action, panel, within, t))


def check_float32_and_float64_actions_give_equal_targets(action: Action) -> None:
    """Require the same target for both precisions of one action."""
    raw = np.random.default_rng(0).normal(0.0, 1.0, (20, action.size(N_NAMES).length)).astype(np.float32)
    panel, t = eventful_panel(), np.arange(60, 80)
    np.testing.assert_array_equal(_targets(action, panel, raw, t), _targets(action, panel, raw.astype(np.float64), t))


def check_action_states_its_size(action: Action) -> None:
    """Require a positive length and bound."""
    size = action.size(N_NAMES)
    assert isinstance(size, ActionSize)
    assert size.length > 0
    assert size.bound > 0.0


def check_targets_do_not_look_ahead(action: Action) -> None:
    """Require bit-equal targets when the future is removed or replaced."""
    panel, length = eventful_panel(), action.size(N_NAMES).length
    for t in CUTS[1:]:
        past = np.arange(t + 1)
        raw = np.random.default_rng(0).normal(0.0, 1.0, (t + 1, length))
        known = _targets(action, panel, raw, past)
        for other in (with_other_future(panel, t), cut_after(panel, t)):
            np.testing.assert_array_equal(_targets(action, other, raw, past), known)


def check_anchor_is_on_the_simplex_of_eligible_names(anchor: Anchor) -> None:
    """Require non-negative weights of eligible names and cash that sum to 1."""
    panel = eventful_panel()
    weights = anchor.weights(panel)
    assert weights.shape == (len(panel.sessions), N_NAMES + 1)
    _require_portfolios(weights, panel.eligible)


def check_anchor_does_not_look_ahead(anchor: Anchor) -> None:
    """Require bit-equal past weights when the future is removed or replaced."""
    panel = eventful_panel()
    for t in CUTS:
        known = anchor.weights(panel)[: t + 1]
        for other in (with_other_future(panel, t), cut_after(panel, t)):
            np.testing.assert_array_equal(anchor.weights(other)[: t + 1], known)


def random_trades(seed: int, n: int = 20) -> tuple[NDArray[np.float64], Sessions]:
    """Draw changes of weight (n, 6) and the sessions of their fills (n,)."""
    generator = np.random.default_rng(seed)
    change = simplex(generator, n, N_NAMES) - simplex(generator, n, N_NAMES)
    return change[:, :-1], generator.integers(0, 160, n)


def check_cost_is_finite_and_not_negative(model: CostModel) -> None:
    """Require one finite cost of at least 0 per account."""
    for seed in SEEDS:
        cost = model.start(eventful_panel())(*random_trades(seed))
        assert cost.shape == (20,)
        assert np.isfinite(cost).all()
        assert (cost >= 0.0).all(), "a cost must not be negative"


def check_no_trade_costs_nothing(model: CostModel) -> None:
    """Require a cost of 0 without a trade."""
    assert model.start(eventful_panel())(np.zeros((3, N_NAMES)), np.array([0, 40, 159])).tolist() == [0.0] * 3


def check_order_costs_at_least_as_much_as_its_parts(model: CostModel) -> None:
    """Require that cost grows at least in proportion to a trade."""
    for seed, factor in zip(SEEDS, np.linspace(1.0, 10.0, len(SEEDS)), strict=True):
        cost, (trades, filled_at) = model.start(eventful_panel()), random_trades(seed)
        assert (cost(factor * trades, filled_at) >= factor * cost(trades, filled_at) * (1.0 - 1e-12)).all()


def check_buying_and_selling_cost_the_same(model: CostModel) -> None:
    """Require equal costs of a trade and its reverse."""
    cost, (trades, filled_at) = model.start(eventful_panel()), random_trades(0)
    np.testing.assert_array_equal(cost(trades, filled_at), cost(-trades, filled_at))


def check_costs_of_many_accounts_equal_single_ones(model: CostModel) -> None:
    """Require bit-equal costs of an account alone and among others."""
    cost, (trades, filled_at) = model.start(eventful_panel()), random_trades(1)
    alone = [cost(trades[[i]], filled_at[[i]])[0] for i in range(20)]
    assert cost(trades, filled_at).tolist() == alone


def check_coefficients_give_the_cost(model: CostModel) -> None:
    """Require that coefficients, if a model has them, give its cost."""
    if hasattr(model, "coefficients"):
        panel, (trades, filled_at) = eventful_panel(), random_trades(3)
        linear, root = (side[filled_at] for side in model.coefficients(panel))
        size = np.abs(trades)
        cost = (linear * size + root * size**1.5).sum(axis=1)
        np.testing.assert_allclose(cost, model.start(panel)(trades, filled_at), rtol=1e-12, atol=1e-15)


def check_cost_does_not_look_at_the_session_of_the_fill(model: CostModel) -> None:
    """Require bit-equal costs when sessions from the fill on are removed or replaced."""
    panel = eventful_panel()
    for session in (1, 31, 41, 49, 63, 110):
        trades, filled_at = random_trades(2, session + 1)[0], np.arange(session + 1)
        known = model.start(panel)(trades, filled_at)
        for other in (with_other_future(panel, session - 1), cut_after(panel, session)):
            np.testing.assert_array_equal(model.start(other)(trades, filled_at), known)


def _require_portfolios(
    weights: NDArray[np.float64], eligible: NDArray[np.bool_], *, max_gross: float = 1.0, max_short: float = 0.0
) -> None:
    assert (weights[:, :-1] >= -max_short).all(), "weights must not be negative"
    lowest_cash = 0.0 if max_gross <= 1.0 else 1.0 - max_gross - 1e-12
    assert (weights[:, -1] >= lowest_cash).all(), "cash must not be negative"
    assert (np.abs(weights[:, :-1]).sum(axis=1) <= max_gross + 1e-12).all(), "gross must be within its cap"
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    assert not weights[:, :-1][~eligible].any(), "ineligible names must have no weight"


OBSERVATIONS = (
    check_observations_are_finite_float32_of_the_stated_length,
    check_account_changes_only_its_own_columns,
    check_observations_of_many_accounts_equal_single_ones,
    check_observations_do_not_look_ahead,
    check_scaler_does_not_look_beyond_the_training_window,
    check_scaler_survives_json,
    check_session_beyond_the_panel_is_refused,
    check_earlier_observations_are_not_overwritten,
)
ACTIONS = (
    check_targets_are_portfolios_of_eligible_names,
    check_action_beyond_the_box_is_clipped,
    check_float32_and_float64_actions_give_equal_targets,
    check_action_states_its_size,
    check_targets_do_not_look_ahead,
)
ANCHORS = (check_anchor_is_on_the_simplex_of_eligible_names, check_anchor_does_not_look_ahead)
COSTS = (
    check_cost_is_finite_and_not_negative,
    check_no_trade_costs_nothing,
    check_order_costs_at_least_as_much_as_its_parts,
    check_buying_and_selling_cost_the_same,
    check_costs_of_many_accounts_equal_single_ones,
    check_coefficients_give_the_cost,
    check_cost_does_not_look_at_the_session_of_the_fill,
)
