from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.features import Formula, LogReturn, VolumeScore
from nvtrader_pipelines.policies.agents import Agent
from nvtrader_pipelines.policies.baselines import (
    AnchorPortfolio,
    Baseline,
    BuyAndHold,
    EqualWeight,
    FactorRank,
    MeanCvar,
    MinimumVariance,
    Momentum,
    TimeSeriesMomentum,
)
from nvtrader_pipelines.portfolio.mean_risk import mean_cvar_weights, minimum_variance_weights
from nvtrader_pipelines.portfolio.scenarios import BlockBootstrap, Historical, KernelDensity
from tests.contracts.families import members
from tests.markets import synthetic_panel
from tests.panels import eventful_panel, with_other_future

BASELINES = [
    EqualWeight(),
    BuyAndHold(),
    Momentum(months=3, top_fraction=0.5),
    FactorRank(top_fraction=0.5),
    MinimumVariance(history=60),
    MeanCvar(history=80),
]
HELD = opening_account(4)


def by_kind(baseline):
    return baseline.kind


def market(n_sessions):
    """Names of unlike risk, so that an estimate is no 1/N."""
    panel = synthetic_panel(n_sessions=n_sessions)
    return replace(panel, close_returns=panel.close_returns * [0.5, 1.0, 1.2, 1.5])


def ineligible(panel, rows, name):
    eligible = panel.eligible.copy()
    eligible[rows, name] = False
    return replace(panel, eligible=eligible)


def decisions(baseline, panel, sessions):
    policy = baseline.start()
    return [policy.decide(panel, t, HELD).target for t in sessions]


@pytest.mark.parametrize("baseline", BASELINES, ids=by_kind)
def test_weights_are_long_only_fully_invested_and_eligible(baseline):
    panel = ineligible(market(200), slice(None), 1)
    for target in decisions(baseline, panel, range(50, 200, 10)):
        if target is not None:
            assert target.sum() == pytest.approx(1.0)
            assert (target >= 0.0).all()
            assert target[1] == 0.0
            assert target[-1] == 0.0


@pytest.mark.parametrize("baseline", BASELINES, ids=by_kind)
def test_prices_after_the_decision_change_no_weight(baseline):
    panel = market(200)
    future = np.random.default_rng(1)
    close_returns, eligible, tradable = panel.close_returns.copy(), panel.eligible.copy(), panel.tradable.copy()
    close_returns[151:] = future.normal(0.0, 0.05, close_returns[151:].shape)
    eligible[151:, 2] = tradable[151:, 2] = False
    perturbed = replace(panel, close_returns=close_returns, eligible=eligible, tradable=tradable)
    sessions = range(50, 151, 5)
    for before, after in zip(
        decisions(baseline, panel, sessions), decisions(baseline, perturbed, sessions), strict=True
    ):
        assert np.array_equal(before, after) if before is not None else after is None


@pytest.mark.parametrize("baseline", BASELINES, ids=by_kind)
def test_weights_are_in_cash_without_eligible_names(baseline):
    panel = replace(market(120), eligible=np.zeros((120, 4), dtype=bool))
    for target in decisions(baseline, panel, [100, 110]):
        assert target is None or target.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_buy_and_hold_trades_once_at_the_first_eligible_name():
    panel = ineligible(ineligible(market(30), slice(0, 10), slice(None)), slice(10, 20), 3)
    targets = decisions(BuyAndHold(), panel, [5, 10, 15, 25])
    assert targets[1] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0, 0.0])
    assert [target is None for target in targets] == [True, False, True, True]


def test_started_baselines_share_no_state():
    panel = market(30)
    assert decisions(BuyAndHold(), panel, [3])[0] is not None
    assert decisions(BuyAndHold(), panel, [3])[0] is not None


@pytest.mark.parametrize(
    ("baseline", "solver"),
    [(MinimumVariance(history=60), minimum_variance_weights), (MeanCvar(history=60), mean_cvar_weights)],
    ids=["minimum_variance", "mean_cvar"],
)
def test_estimates_use_the_history_up_to_the_decision(baseline, solver):
    panel = market(100)
    (target,) = decisions(baseline, panel, [80])
    np.testing.assert_allclose(target[:-1], solver(panel.close_returns[21:81]), rtol=1e-12)


@pytest.mark.parametrize("scenarios", [KernelDensity(n_scenarios=500), BlockBootstrap(n_scenarios=500, horizon=5)])
def test_mean_cvar_draws_equal_scenarios_at_every_estimate(scenarios):
    panel, baseline = market(100), MeanCvar(history=60, scenarios=scenarios)
    (target,), (again,) = decisions(baseline, panel, [80]), decisions(baseline, panel, [80])
    drawn = scenarios.draw(panel.close_returns[21:81], np.random.default_rng(0))
    np.testing.assert_allclose(target[:-1], mean_cvar_weights(drawn), rtol=1e-12)
    assert target.tobytes() == again.tobytes()


@pytest.mark.parametrize(
    "choice",
    [
        {"history": 30, "scenarios": Historical(horizon=20)},
        {"confidence_level": 0.999, "scenarios": KernelDensity(n_scenarios=500)},
    ],
)
def test_mean_cvar_with_a_tail_below_one_scenario_is_invalid(choice):
    with pytest.raises(ValidationError):
        MeanCvar(**choice)


def test_estimated_weights_are_equal_before_the_history_is_full():
    panel = market(100)
    targets = decisions(MinimumVariance(history=60), panel, [0, 58, 59])
    assert targets[0].tolist() == targets[1].tolist() == [0.25, 0.25, 0.25, 0.25, 0.0]
    assert targets[2].tolist() != targets[1].tolist()


def test_weights_are_re_estimated_every_given_number_of_sessions():
    panel = market(140)
    first, same, new = decisions(MinimumVariance(history=60, estimate_every=21), panel, [80, 100, 101])
    assert np.array_equal(first, same)
    assert not np.array_equal(first, new)


def test_weight_of_an_ineligible_name_goes_to_the_others():
    panel = ineligible(market(140), slice(90, None), 0)
    before, after = decisions(MinimumVariance(history=60), panel, [80, 90])
    assert after[0] == 0.0
    assert after[1:] == pytest.approx(before[1:] / (1.0 - before[0]))


def test_name_listed_within_the_history_gets_no_weight():
    panel = market(140)
    listed = panel.tradable.copy()
    listed[:50, 2] = False
    panel = ineligible(replace(panel, tradable=listed), slice(0, 50), 2)
    early, late = decisions(MinimumVariance(history=60), panel, [100, 130])
    assert early[2] == 0.0
    assert late[2] > 0.0


def test_mean_cvar_with_a_short_history_is_invalid():
    with pytest.raises(ValidationError):
        MeanCvar(history=19)


def momentum_by_pandas(panel, t, momentum):
    """The winners' equal weights at `t` from a table of prices; none until every lag is known."""
    prices = (1.0 + pd.DataFrame(panel.close_returns)).cumprod().where(panel.tradable).ffill()
    change = prices.shift(21 * momentum.skip).iloc[t] / prices.shift(21 * momentum.months).iloc[t] - 1.0
    change = change[panel.eligible[t] & change.notna()].sort_values(ascending=False, kind="stable")
    weights = np.zeros(len(panel.symbols) + 1)
    winners = change.index[: max(1, round(momentum.top_fraction * len(change)))]
    weights[winners] = 1.0 / len(winners)
    return weights


@pytest.mark.parametrize("market", [synthetic_panel(400, 12), eventful_panel(400)], ids=["plain", "eventful"])
@pytest.mark.parametrize(
    "momentum",
    [Momentum(estimate_every=1), Momentum(months=6, skip=0, top_fraction=0.5, estimate_every=1)],
    ids=["12-1", "6-0"],
)
def test_momentum_winners_match_a_price_table(market, momentum):
    sessions = range(21 * momentum.months, 400, 7)
    targets = [momentum.start().decide(market, t, HELD).target for t in sessions]
    for t, target in zip(sessions, targets, strict=True):
        np.testing.assert_array_equal(target, momentum_by_pandas(market, t, momentum))
    assert len({target.tobytes() for target in targets}) > 1


def test_momentum_is_equal_weights_before_the_history_is_full():
    panel = synthetic_panel(300, 5)
    before, after = decisions(Momentum(), panel, [251, 252])
    assert before.tolist() == [0.2] * 5 + [0.0]
    assert sorted(after) == [0.0] * 5 + [1.0]


@pytest.mark.parametrize("market", [synthetic_panel(200, 12), eventful_panel(200)], ids=["plain", "eventful"])
def test_time_series_momentum_holds_the_names_that_rose(market):
    prices = (1.0 + pd.DataFrame(market.close_returns)).cumprod()
    risen = (prices / prices.shift(28) > 1.0).to_numpy() & market.eligible
    for t, target in zip(range(60, 200), decisions(TimeSeriesMomentum(window=28), market, range(60, 200)), strict=True):
        expected = risen[t] / max(1, market.eligible[t].sum())
        np.testing.assert_allclose(target, [*expected, 1.0 - expected.sum()], atol=1e-15)
    assert 0.0 < risen[60:].mean() < 1.0


def test_time_series_momentum_is_equal_weights_before_its_window_is_full():
    before, after = decisions(TimeSeriesMomentum(window=28), synthetic_panel(60, 5), [27, 28])
    assert before.tolist() == [0.2] * 5 + [0.0]
    assert after[-1] > 0.0


@pytest.mark.parametrize("fraction", [0.01, 0.2, 1.0])
def test_momentum_holds_the_top_fraction_and_at_least_one_name(fraction):
    (target,) = decisions(Momentum(top_fraction=fraction), synthetic_panel(300, 10), [280])
    assert np.count_nonzero(target) == max(1, round(10 * fraction))


def test_factor_rank_holds_the_eligible_names_of_the_highest_values():
    panel, rule = ineligible(synthetic_panel(60, 5), 50, 1), FactorRank(feature=LogReturn(window=5), top_fraction=0.5)
    (target,) = decisions(rule, panel, [50])
    values = np.where(panel.eligible[50], panel.feature("return_5")[50], -np.inf)
    expected = np.isin(np.arange(5), np.argsort(-values)[:2]) / 2.0
    assert target.tolist() == [*expected, 0.0]


def test_factor_rank_needs_its_feature_in_the_market():
    rule = FactorRank(feature=Formula())
    with pytest.raises(ValidationError, match=r"agent\.feature"):
        ExperimentSpec(name="lacking", agent=rule, seeds=(0,))
    assert ExperimentSpec(name="given", agent=rule, seeds=(0,), market=MarketChoice(features=(Formula(),)))
    with pytest.raises(ValueError, match="volume_z_21"):
        FactorRank(feature=VolumeScore()).require_market(synthetic_panel(30, volume=False))


@pytest.mark.parametrize("skip", [3, 4])
def test_momentum_with_skip_above_months_is_invalid(skip):
    with pytest.raises(ValidationError):
        Momentum(months=3, skip=skip)


@pytest.mark.parametrize("baseline", [*BASELINES, TimeSeriesMomentum(window=28), AnchorPortfolio()], ids=by_kind)
def test_later_sessions_do_not_change_a_decision(baseline):
    panel = eventful_panel(200)
    sessions = range(100, 151, 10)
    other = with_other_future(panel, 150)
    for before, after in zip(decisions(baseline, panel, sessions), decisions(baseline, other, sessions), strict=True):
        assert np.array_equal(before, after) if before is not None else after is None


@pytest.mark.parametrize("member", members(Baseline))
def test_every_baseline_is_a_classical_agent(member):
    assert member in members(Agent)
    assert member.is_classical
    assert not member.backbones
    fit = member().train(market(30), EnvSpec(), (0, 29), 0)
    assert (fit.tensors, fit.curve) == ({}, [])
    assert fit.rollouts.is_empty()
