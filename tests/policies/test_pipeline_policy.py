import numpy as np
import pytest

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from tests.markets import synthetic_panel

PANEL = synthetic_panel(120, 3)
HELD = np.array([0.25, 0.25, 0.25, 0.25])
LOSING = np.append(np.zeros(62), -0.04)


@pytest.mark.parametrize(
    ("account", "share"),
    [
        (Account(HELD, recent_returns=np.zeros(63)), 1.0),
        (Account(HELD, equity=0.9, peak=1.0, recent_returns=np.zeros(63)), 0.5),
        (Account(HELD, recent_returns=LOSING), 0.25),
    ],
)
def test_timing_uses_drawdown_and_returns_of_the_deciding_account(account, share):
    guard = RegimeGuard(drawdown_share=0.5, trailing_return_share=0.25, turnover_share=1.0)
    pipeline = WeightPipeline(timing=guard, risk_limits=RiskLimits(max_position=1.0))
    policy = PipelinedPolicy(
        EqualWeight().start(), pipeline, Thresholds(drawdown=0.05, trailing_return=-0.03, turnover=10.0), rebal_freq=5
    )
    target = policy.decide(PANEL, 100, account).target
    assert target is not None
    np.testing.assert_allclose(target[:-1], share / 3)


def test_weights_that_are_held_are_no_trade_with_the_stages_reasons():
    pipeline = WeightPipeline(allocator=CufolioAllocator(history=63, n_scenarios=1000))
    policy = PipelinedPolicy(EqualWeight().start(), pipeline, Thresholds(), rebal_freq=5)
    held = np.full(len(PANEL.symbols) + 1, 1.0 / (len(PANEL.symbols) + 1))
    decision = policy.decide(PANEL, 110, Account(held))
    assert decision.target is None
    assert decision.reasons == "cufolio: held, rebalanced every 20 sessions"
