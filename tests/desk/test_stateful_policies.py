import datetime as dt
from types import SimpleNamespace

import numpy as np
import pytest

from nvtrader_pipelines.desk import desk as desk_module
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.execution.brokers.simulated_market import SimulatedMarket
from nvtrader_pipelines.execution.brokers.simulated_venue import SimulatedVenue
from nvtrader_pipelines.experiments.deployment import Deployment, FoldPolicies
from nvtrader_pipelines.policies.baselines import BuyAndHold
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.store import Store
from tests.execution.desks import prices_of, spec_of
from tests.markets import synthetic_panel

PANEL = synthetic_panel(40, 4)
AT = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)


class StatefulPolicy:
    """Policy whose target depends on its earlier decisions, which must be in order."""

    def __init__(self):
        self.decided = []

    def decide(self, panel, t, account):
        assert not self.decided or t > self.decided[-1], f"decided at {self.decided[-1]}, then at {t}"
        self.decided.append(t)
        weights = np.arange(1.0, 6.0) + len(self.decided)
        return Decision(target=np.roll(weights / weights.sum(), len(self.decided)))


@pytest.fixture
def desk(home, monkeypatch):
    """Factory of desks of an account that opens at session 10."""
    spec = spec_of(agent=BuyAndHold())
    deployment = Deployment(
        spec, PANEL, "0" * 16, "rule", (0,), FoldPolicies([Fold(0, 0, 5, 6, 39)], [StatefulPolicy()])
    )
    market = SimpleNamespace(
        bot=None, deployment=deployment, panel=PANEL, is_live=False, day=lambda t: PANEL.sessions[t].item()
    )
    simulated_market = SimulatedMarket.from_environment(PANEL, spec.environment, prices_of(PANEL))
    market.account = SimulatedAccountSpec()
    market.venue = lambda book: SimulatedVenue(simulated_market, book, market.account)
    market.n_ended = len(PANEL.sessions)
    market.name, market.require_recent = "paper", lambda proposals, as_of: None
    market.index_of = lambda day: PANEL.index_of(np.datetime64(day))
    market.opening, market.last_session = lambda first, opened: 10, lambda first, last: market.index_of(last)
    market.findings, market.purchase_bans = lambda plan, t: (), lambda session: {}
    monkeypatch.setattr(desk_module, "require_active", lambda store, account: None)
    monkeypatch.setattr(Desk, "_load_market", lambda desk, active: market)
    return lambda: Desk(Store(home), clock=lambda: AT)


def trade(desk, t):
    return list(desk.trade(PANEL.sessions[11].item(), PANEL.sessions[t].item()))


@pytest.mark.slow
def test_stateful_policy_trades_repeatedly_on_one_desk(desk):
    one = desk()
    for t in (14, 14, 17, 20):
        trade(one, t)
        one.due()
    assert len(one.plans()) == 4


def test_failed_decision_leaves_no_policy_state(desk, monkeypatch):
    one = desk()
    trade(one, 12)
    append = JsonlAudit.append

    def full(log, events):
        if any(event.kind == "proposed" for event in events):
            raise OSError("no space left")
        append(log, events)

    with monkeypatch.context() as patched:
        patched.setattr(JsonlAudit, "append", full)
        with pytest.raises(OSError):
            trade(one, 14)
    trade(one, 14)
    assert len(one.plans()) == 2
