"""Cash is one less the names: rounding is no debt, for every member that makes weights, on 2 to 50 names."""

from functools import cache

import numpy as np
import pytest

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.policies.agents import Agent
from nvtrader_pipelines.policies.baselines import (
    AnchorPortfolio,
    BuyAndHold,
    ClassicalAgent,
    Cufolio,
    EqualWeight,
    FactorRank,
    MeanCvar,
    MinimumVariance,
    Momentum,
    TimeSeriesMomentum,
)
from nvtrader_pipelines.portfolio.cash import ROUNDING, cash_beside
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import NetExposure
from tests.contracts.families import FAMILIES, defaults, members, simplex
from tests.markets import synthetic_panel
from tests.portfolio.pipeline.situations import ALLOCATORS, situation

T = 70
RULES = [
    EqualWeight(),
    BuyAndHold(),
    Momentum(months=2),
    TimeSeriesMomentum(window=20),
    FactorRank(),
    MinimumVariance(history=30),
    MeanCvar(history=30),
    Cufolio(history=63, n_scenarios=1000),
    AnchorPortfolio(),
]
SOLVED = {"minimum_variance", "mean_cvar", "mean_cvar_tilt", "cufolio"}
PIPELINES = [WeightPipeline(allocator=allocator) for allocator in ALLOCATORS]
panel_of = cache(lambda n_names: synthetic_panel(T + 1, n_names))


def sizes(kind):
    """Numbers of names: all from 2 to 50, fewer where a solver is slow."""
    return (2, 23, 50) if kind in SOLVED else range(2, 51)


def assert_long_only(weights):
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=ROUNDING)


def fully_invested(n_names, seed=0):
    """Weights that sum to 1 up to rounding, their cash as one less the sum."""
    names = np.random.default_rng(seed).dirichlet(np.ones(n_names))
    return np.append(names, 1.0 - names.sum())


def test_every_rule_is_tried():
    classical = {kind_of(rule) for rule in members(Agent) if issubclass(rule, ClassicalAgent)}
    assert {rule.kind for rule in RULES} == {kind_of(rule) for rule in members(FAMILIES["baseline"])} | classical


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_rule_leaves_no_debt_by_rounding(rule):
    for n_names in sizes(rule.kind):
        panel, policy = panel_of(n_names), rule.start()
        for t in (0, T - 1, T):
            target = policy.decide(panel, t, opening_account(n_names)).target
            if target is not None:
                assert_long_only(target)
                WeightPipeline().start(panel)(target, situation(panel, t))


@pytest.mark.parametrize("anchor", defaults("anchor"), ids=lambda anchor: anchor.kind)
def test_anchor_leaves_no_debt_by_rounding(anchor):
    for n_names in sizes(anchor.kind):
        assert_long_only(anchor.weights(panel_of(n_names)))


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.allocator.kind)
def test_pipeline_takes_a_debt_by_rounding_as_none(pipeline):
    for n_names in sizes(pipeline.allocator.kind):
        panel = panel_of(n_names)
        for proposal in (fully_invested(n_names), np.append(np.full(n_names, (1.0 + 5e-10) / n_names), -5e-10)):
            held = Account(simplex(np.random.default_rng(1), 1, n_names)[0]).weights
            for stage in pipeline.start(panel)(proposal, situation(panel, T, held=held)).stages:
                assert_long_only(stage.weights)


@pytest.mark.parametrize("debt", [2e-9, 1e-6, 0.1])
@pytest.mark.parametrize("max_short", [0.0, 0.5])
def test_debt_beyond_rounding_is_refused(debt, max_short):
    proposal = np.append(np.full(4, (1.0 + debt) / 4), -debt)
    limits = (*WeightPipeline().limits, NetExposure())
    pipeline = WeightPipeline(limits=limits, risk_limits=RiskLimits(max_short=max_short))
    with pytest.raises(ValueError):
        pipeline.start(panel_of(4))(proposal, situation(panel_of(4), T))


def test_cash_is_a_debt_only_beyond_rounding():
    names = np.array([[0.5, 0.25], [0.5, 0.5 + 1e-12], [1.0, 0.5], [0.5, 0.5 - 1e-12]])
    np.testing.assert_array_equal(cash_beside(names), [0.25, 0.0, -0.5, 1.0 - (0.5 + (0.5 - 1e-12))])
    np.testing.assert_array_equal([cash_beside(row) for row in names], cash_beside(names))
