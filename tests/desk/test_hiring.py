"""Each time that a desk trades, it asks policies that remember nothing of the times before."""

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


class Remembers:
    """Wants what it has been asked, and is asked in order only."""

    def __init__(self):
        self.asked = []

    def decide(self, panel, t, account):
        assert not self.asked or t > self.asked[-1], f"decided at {self.asked[-1]}, asked for {t}"
        self.asked.append(t)
        wanted = np.arange(1.0, 6.0) + len(self.asked)
        return Decision(target=np.roll(wanted / wanted.sum(), len(self.asked)))


@pytest.fixture
def desk(home, monkeypatch):
    """The desk of an account that opens at session 10, and how far the market is known."""
    spec = spec_of(agent=BuyAndHold())
    deployment = Deployment(spec, PANEL, "0" * 16, "rule", (0,), FoldPolicies([Fold(0, 0, 5, 6, 39)], [Remembers()]))
    market = SimpleNamespace(deployment=deployment, panel=PANEL, is_live=False, day=lambda t: PANEL.sessions[t].item())
    simulated_market = SimulatedMarket.from_environment(PANEL, spec.environment, prices_of(PANEL))
    market.venue = lambda book: SimulatedVenue(simulated_market, book, SimulatedAccountSpec())
    market.n_ended = len(PANEL.sessions)
    market.require_fresh, market.require_recent = lambda now: None, lambda proposals, stands_at: None
    market.index_of = lambda day: PANEL.index_of(np.datetime64(day))
    market.opening, market.last_session = lambda first, opened: 10, lambda first, last: market.index_of(last)
    market.findings, market.purchase_bans = lambda plan, t: (), lambda session: {}
    market.told, market.ended = lambda *told: told, lambda *told: told
    monkeypatch.setattr(desk_module, "active_policy", lambda store: None)
    monkeypatch.setattr(Desk, "_market_of", lambda desk, active: market)
    return lambda: Desk.open(Store(home), clock=lambda: AT)


def trade(desk, t):
    return list(desk.trade(PANEL.sessions[11].item(), PANEL.sessions[t].item()))


def test_a_policy_that_remembers_trades_on_the_same_desk_as_often_as_it_likes(desk):
    one = desk()
    for t in (14, 14, 17, 20):
        trade(one, t)
        one.due()
    weights = one.plans()
    assert len(weights) == 4


def test_a_decision_that_could_not_be_kept_is_not_remembered(desk, monkeypatch):
    one = desk()
    trade(one, 12)
    append = JsonlAudit.append

    def full(log, events):
        if any(event.kind == "proposed" for event in events):
            raise OSError("no space left")
        append(log, events)

    with monkeypatch.context() as patched:
        patched.setattr(JsonlAudit, "append", full)
        with pytest.raises(OSError, match="no space left"):
            trade(one, 14)
    trade(one, 14)
    assert len(one.plans()) == 2
