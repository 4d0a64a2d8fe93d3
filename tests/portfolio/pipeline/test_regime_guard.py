import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS
from nvtrader_pipelines.portfolio.pipeline import AccountPath, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.regime_guard import MAX_WINDOW, RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.stage import Guards, one_way_turnover
from tests.markets import synthetic_panel
from tests.panels import INELIGIBLE, eventful_panel
from tests.portfolio.pipeline.situations import cash, situation, stage

PANEL = synthetic_panel(200, 3, seed=2)
PROPOSAL = np.array([0.2, 0.2, 0.2, 0.4])
OFF = {"drawdown_share": 1.0, "trailing_return_share": 1.0, "turnover_share": 1.0}
QUIET = np.zeros(63)


def random_path(n_sessions=80, seed=0):
    """Draw a random random_path of an account."""
    generator = np.random.default_rng(seed)
    returns = generator.normal(0.0, 0.01, n_sessions)
    equity = np.cumprod(1.0 + returns)
    drawdown = 1.0 - equity / np.maximum.accumulate(np.maximum(equity, 1.0))
    return AccountPath(net_returns=returns, drawdown=drawdown, turnover=generator.uniform(0.0, 0.4, n_sessions // 5))


def apply_guard(guard, panel=PANEL, proposal=PROPOSAL, **account):
    """Return the guard's stage."""
    at = situation(panel, **{"thresholds": Thresholds(), "held": proposal, **account})
    return stage(WeightPipeline(timing=guard), "regime_guard", proposal, at)


def test_drawdown_above_its_threshold_scales_the_weights():
    guard = RegimeGuard(**{**OFF, "drawdown_share": 0.6}, max_drawdown=0.05)
    assert apply_guard(guard, drawdown=0.05).reason == ""
    found = apply_guard(guard, drawdown=0.051)
    np.testing.assert_allclose(found.weights, [0.12, 0.12, 0.12, 0.64])
    assert found.reason == "drawdown of 5.1%, above 5.0%: 60% of the weights"


def test_return_below_its_threshold_scales_the_weights():
    guard = RegimeGuard(**{**OFF, "trailing_return_share": 0.5}, min_trailing_return=-0.03, window=2)
    returns = QUIET.copy()
    returns[-3:] = -0.5, -0.02, -0.02  # the window holds the last two
    found = apply_guard(guard, recent_returns=returns)
    assert found.reason == "return of -4.0%, below -3.0%: 50% of the weights"
    returns[-1] = 0.0
    assert apply_guard(guard, recent_returns=returns).reason == ""


def test_guards_of_a_decision_are_those_that_fired():
    guard = RegimeGuard(max_drawdown=0.05, drawdown_share=0.6, min_trailing_return=-0.03, max_turnover=0.9)
    account = {"thresholds": Thresholds(), "held": PROPOSAL, "drawdown": 0.06}
    run = WeightPipeline(timing=guard).start(PANEL)
    assert run(PROPOSAL, situation(PANEL, **account)).guards == Guards(drawdown=True, scale=0.6)
    losses = np.append(QUIET[1:], -0.1)
    both = run(PROPOSAL, situation(PANEL, **account, recent_returns=losses)).guards
    assert both == Guards(drawdown=True, negative_return=True, scale=0.5)
    slow = WeightPipeline(timing=RegimeGuard(**{**OFF, "turnover_share": 0.5}, max_turnover=0.1)).start(PANEL)
    held = np.array([0.4, 0.2, 0.0, 0.4])
    assert slow(PROPOSAL, situation(PANEL, thresholds=Thresholds(), held=held)).guards == Guards(turnover=True)


def test_new_account_has_no_loss():
    guard = RegimeGuard(max_drawdown=0.01, min_trailing_return=0.0, max_turnover=0.01)
    assert apply_guard(guard, held=cash(3)).reason == ""


def test_turnover_above_its_threshold_trades_part_of_the_way():
    guard = RegimeGuard(**{**OFF, "turnover_share": 0.25}, max_turnover=0.1)
    held = np.array([0.4, 0.2, 0.0, 0.4])
    found = apply_guard(guard, held=held)
    np.testing.assert_allclose(found.weights, held + 0.25 * (PROPOSAL - held))
    assert one_way_turnover(held, found.weights) == pytest.approx(0.05)
    assert found.reason == "turnover of 20.0%, above 10.0%: 25% of the way"


def test_partial_trade_does_not_exceed_the_target_exposure():
    guard = RegimeGuard(**{**OFF, "turnover_share": 0.5}, max_turnover=0.1)
    found = apply_guard(guard, held=[0.9, 0.1, 0.0, 0.0])
    assert found.weights[:-1].sum() == pytest.approx(0.6)
    np.testing.assert_allclose(found.weights[:-1], 0.6 / 0.8 * np.array([0.55, 0.15, 0.1]))


def test_partial_trade_sells_ineligible_names():
    panel = eventful_panel()
    held, proposal = cash(6), cash(6)
    held[[INELIGIBLE, 0, 6]] = 0.5, 0.5, 0.0
    proposal[[0, 1, 6]] = 0.1, 0.5, 0.4
    guard = RegimeGuard(**{**OFF, "turnover_share": 0.5}, max_turnover=0.1)
    found = apply_guard(guard, panel, proposal, held=held)
    assert found.weights[INELIGIBLE] == 0.0
    np.testing.assert_allclose(found.weights[:2], [0.3, 0.25])


def test_smallest_loss_share_scales_before_the_turnover_guard():
    guard = RegimeGuard(
        max_drawdown=0.05, drawdown_share=0.6, min_trailing_return=-0.01, trailing_return_share=0.4, max_turnover=0.1
    )
    held = np.array([0.0, 0.0, 0.6, 0.4])
    returns = QUIET.copy()
    returns[-1] = -0.05
    found = apply_guard(guard, held=held, drawdown=0.1, recent_returns=returns)
    wanted = 0.4 * PROPOSAL[:-1]
    part_way = 0.5 * (held[:-1] + wanted)
    np.testing.assert_allclose(found.weights[:-1], part_way * wanted.sum() / part_way.sum())
    assert found.reason == (
        "return of -5.0%, below -1.0%: 40% of the weights; turnover of 52.0%, above 10.0%: 50% of the way"
    )


def test_scaling_by_the_guard_is_not_counted_as_turnover():
    guard = RegimeGuard(**{**OFF, "drawdown_share": 0.5, "turnover_share": 0.5}, max_drawdown=0.05, max_turnover=0.1)
    held, reached = PROPOSAL, []
    for _ in range(5):
        found = apply_guard(guard, held=held, drawdown=0.1)
        held = found.weights
        reached.append(found.reason)
        np.testing.assert_allclose(held[:-1], 0.5 * PROPOSAL[:-1])
    assert "turnover of 30.0%" in reached[0]
    assert set(reached[1:]) == {"drawdown of 10.0%, above 5.0%: 50% of the weights"}


def test_drawdown_share_of_zero_is_refused():
    with pytest.raises(ValidationError):
        RegimeGuard(drawdown_share=0.0)
    assert RegimeGuard(trailing_return_share=0.0).trailing_return_share == 0.0


def test_fitted_thresholds_are_quantiles_of_the_training_path():
    guard, trained = RegimeGuard(window=10, quantile=0.9), random_path()
    fitted = guard.fit(PANEL, [(0, 100)], [trained])
    trailing = pd.Series(1.0 + trained.net_returns).rolling(10, min_periods=1).apply(np.prod) - 1.0
    assert guard.needs_fit
    assert guard.needs_path
    assert fitted.turbulence is None
    assert fitted.drawdown == pytest.approx(np.quantile(trained.drawdown, 0.9))
    assert fitted.turnover == pytest.approx(np.quantile(trained.turnover, 0.9))
    assert fitted.trailing_return == pytest.approx(trailing.quantile(0.1))


def test_trailing_returns_do_not_span_a_gap_of_the_training():
    guard, paths = RegimeGuard(window=10, quantile=0.9), [random_path(30, seed=1), random_path(50, seed=2)]
    fitted = guard.fit(PANEL, [(0, 30), (60, 110)], paths)
    trailing = [pd.Series(1.0 + each.net_returns).rolling(10, min_periods=1).apply(np.prod) - 1.0 for each in paths]
    assert fitted.trailing_return == pytest.approx(pd.concat(trailing).quantile(0.1))
    assert fitted.drawdown == pytest.approx(np.quantile(np.concatenate([each.drawdown for each in paths]), 0.9))
    assert fitted.turnover == pytest.approx(np.quantile(np.concatenate([each.turnover for each in paths]), 0.9))
    joined = AccountPath(*(np.concatenate([getattr(each, name) for each in paths]) for name in vars(paths[0])))
    assert guard.fit(PANEL, [(0, 110)], [joined]).trailing_return != fitted.trailing_return


@pytest.mark.parametrize(
    ("guard", "windows", "message"),
    [
        (RegimeGuard(), [(10, 15), (20, 25)], "7 .* 6"),
        (RegimeGuard(), [(10, 15), (20, 26)], None),
        (RegimeGuard(turnover_share=1.0), [(10, 10), (20, 20)], "2 .* 1"),
        (RegimeGuard(turnover_share=1.0), [(10, 11)], None),
        (RegimeGuard(), [], "0"),
        (RegimeGuard(**OFF), [], None),
    ],
)
def test_training_without_a_second_decision_is_refused(guard, windows, message):
    if message is None:
        assert guard.require_sessions(PANEL, windows, 5) is None
    else:
        with pytest.raises(ValueError, match=message):
            guard.require_sessions(PANEL, windows, 5)


def test_fitted_return_threshold_is_at_most_zero():
    gains = AccountPath(net_returns=np.full(50, 0.01), drawdown=np.zeros(50), turnover=np.full(10, 0.1))
    assert RegimeGuard().fit(PANEL, [(0, 100)], [gains]).trailing_return == 0.0


def test_only_null_thresholds_of_active_guards_are_fitted():
    guard = RegimeGuard(max_drawdown=0.1, trailing_return_share=1.0)
    assert guard.fit(PANEL, [(0, 100)], [random_path()]) == Thresholds(
        turnover=float(np.quantile(random_path().turnover, 0.9))
    )
    off = RegimeGuard(**OFF)
    assert not off.needs_fit
    assert off.fit(PANEL, [(0, 100)], []) == Thresholds()
    assert apply_guard(off, drawdown=0.9, recent_returns=np.full(63, -0.1), held=cash(3)).reason == ""


@pytest.mark.parametrize("lacking", [[], [AccountPath(np.zeros(5), np.zeros(5), np.zeros(0))]])
def test_guard_cannot_be_fitted_without_a_path(lacking):
    with pytest.raises(ValueError):
        RegimeGuard().fit(PANEL, [(0, 100)], lacking)


def test_threshold_neither_set_nor_fitted_is_refused():
    with pytest.raises(ValueError):
        apply_guard(RegimeGuard())


def test_guard_window_is_bounded_by_the_returns_of_an_account():
    assert MAX_WINDOW == RECENT_SESSIONS
