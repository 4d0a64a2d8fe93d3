"""Where trading costs nothing, an account at a broker is what it is on paper: policies are told the same of it."""

from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.losses import NEVER
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.execution.brokers.test_live_venue import Live
from tests.execution.desks import ENVIRONMENT, Account, Deployed, spec_of
from tests.markets import synthetic_panel

PANEL = synthetic_panel(60, 4)
PANEL = replace(PANEL, overnight_returns=np.zeros_like(PANEL.close_returns))  # fills are at the close before
FREE = spec_of(
    environment=ENVIRONMENT.model_copy(update={"turnover_cost_bps": 0.0}),
    pipeline=WeightPipeline(risk_limits=RiskLimits(max_position=0.5)),
)
SESSIONS = range(11, 41)


class Answers:
    """Wants weights in which all that it is told has a say; half of equity or more stays in cash."""

    def decide(self, panel, t, account):
        told = 20.0 * np.array([account.drawdown, account.equity - 1.0, *account.recent_returns[-3:]])
        signs = np.random.default_rng(t).normal(size=(6, 4))
        names = 0.0625 * (1.0 + np.tanh(signs[0] + told @ signs[1:] + account.weights[:4]))
        return Decision(target=np.append(names, 1.0 - names.sum()))


@pytest.fixture(scope="module")
def states():
    """Of every session, the state at the broker and the one on paper."""
    live = Live(deployed=Deployed(PANEL, FREE, Answers())).open()
    paper = Account(Deployed(PANEL, FREE, Answers()), account_spec=SimulatedAccountSpec(capital=100_000.0)).open(10)
    return [(live.session(t), paper.session(t)) for t in SESSIONS]


def test_policy_sees_equal_accounts_at_both_venues(states):
    for at_broker, on_paper in states:
        told, wanted = at_broker.account(PANEL.symbols), on_paper.account(PANEL.symbols)
        np.testing.assert_allclose(told.weights, wanted.weights, atol=1e-12)
        assert (told.equity, told.peak) == pytest.approx((wanted.equity, wanted.peak), rel=1e-12)
        np.testing.assert_allclose(told.recent_returns, wanted.recent_returns, atol=1e-12)
        assert told.since_loss.tolist() == wanted.since_loss.tolist()
    assert any(on_paper.equity < on_paper.peak for _, on_paper in states)
    assert {0, 1, NEVER} <= {n for _, on_paper in states for n in on_paper.account(PANEL.symbols).since_loss.tolist()}


@pytest.mark.slow
def test_both_venues_store_equal_figures(states):
    for at_broker, on_paper in states:
        for name in ("turnover", "net_return", "cost", "value", "drawdown"):
            assert getattr(at_broker, name) == pytest.approx(getattr(on_paper, name), rel=1e-9, abs=1e-12), name
        assert dict(at_broker.shares) == pytest.approx(dict(on_paper.shares))
        assert (at_broker.flow, at_broker.income, at_broker.differences) == (0.0, 0.0, ())
    assert sum(on_paper.turnover > 0.0 for _, on_paper in states) == len(SESSIONS[::3])
