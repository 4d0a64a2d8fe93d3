"""Accounts in bt, which keeps shares and prices and knows nothing of this package, hold the same money as ours."""

import bt
import numpy as np
import pandas as pd
import pytest

from nvtrader_pipelines.evaluation.weights_backtest import Execution, weights_backtest
from nvtrader_pipelines.portfolio.costs import ProportionalCost
from nvtrader_pipelines.portfolio.financing import STANDARD_FINANCING, Financing
from tests.markets import synthetic_panel

N_SESSIONS, N_NAMES, N_PATHS = 250, 6, 10
CAPITAL = 1_000_000.0
PANEL = synthetic_panel(N_SESSIONS, N_NAMES, seed=4, opens=False)


class CostBeforeTrade(bt.Algo):
    """Takes a share of the traded value, by bt's own holdings and prices, from the account before it trades.

    bt's commissions come out of each order's amount instead, so that what is held differs from what was wanted.
    """

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def __call__(self, target):
        worth, held = target.value, {name: target.children[name].value for name in target.children}
        traded = sum(abs(wanted * worth - held.get(name, 0.0)) for name, wanted in target.temp["weights"].items())
        fee = self.rate * traded
        target.adjust(-fee, flow=False, fee=fee)
        return True


class Interest(bt.Algo):
    """Takes interest on debt and the fee on short positions, for the days since the bar before, by bt's own money."""

    def __init__(self, financing):
        super().__init__()
        self.financing, self.last, self.debt, self.short = financing, None, 0.0, 0.0
        self.run_always = True

    def __call__(self, target):
        days = 0 if self.last is None else (target.now - self.last).days
        fee = days / 360 * (self.financing.margin_rate * self.debt + self.financing.borrow_fee * self.short)
        target.adjust(-fee, flow=False, fee=fee)
        self.last = target.now
        return True


class Remember(bt.Algo):
    """Remembers debt and short value after the trades of a bar, for the interest of the next."""

    def __init__(self, interest):
        super().__init__()
        self.interest, self.run_always = interest, True

    def __call__(self, target):
        values = [child.value for child in target.children.values()]
        self.interest.debt = max(0.0, sum(values) - target.value)
        self.interest.short = sum(max(0.0, -value) for value in values)
        return True


def levered_path(seed, gross, net):
    """Sessions that decide every third close, and weights (D, N) of a gross and a net."""
    decided, generator = np.arange(0, N_SESSIONS - 1, 3), np.random.default_rng(seed)
    long, short = (generator.dirichlet(np.ones(3), len(decided)) for _ in range(2))
    return decided, np.hstack([long * (gross + net) / 2.0, -short * (gross - net) / 2.0])


def weights_path(seed):
    """Sessions that decide, and weights (D, N) of the names: daily small moves, or rare jumps; the rest is in cash."""
    generator = np.random.default_rng(seed)
    if seed % 2 == 0:
        decided = np.arange(N_SESSIONS - 1)
        scores = np.cumsum(generator.normal(0.0, 0.2, (len(decided), N_NAMES + 1)), axis=0)
    else:
        decided = np.sort(generator.choice(N_SESSIONS - 1, 40, replace=False))
        scores = generator.normal(0.0, 2.0, (len(decided), N_NAMES + 1))
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return decided, (shares / shares.sum(axis=1, keepdims=True))[:, :-1]


def equity_in_bt(decided, weights, bps, financing=None):
    """Value of bt's account at each close, after the orders of that close, as a multiple of its first."""
    days, names = pd.DatetimeIndex(PANEL.sessions), list(PANEL.symbols)
    prices = pd.DataFrame(100.0 * np.cumprod(1.0 + PANEL.close_returns, axis=0), days, names)
    wanted = bt.algos.WeighTarget(pd.DataFrame(weights, days[decided], names))
    trading = [wanted, CostBeforeTrade(bps * 1e-4), bt.algos.Rebalance()]
    interest = Interest(financing or Financing())
    account = bt.Strategy("weights", trading if financing is None else [interest, *trading, Remember(interest)])
    run = bt.Backtest(account, prices, initial_capital=CAPITAL, integer_positions=False)
    run.run()
    return run.strategy.values.loc[days].to_numpy() / CAPITAL


def equity_here(decided, weights, bps, financing=STANDARD_FINANCING):
    """The same of ours, in which what a trade at a close costs counts in the session after it."""
    execution = Execution(fill="same_close", costs=(ProportionalCost(bps=bps),), financing=financing, gross_limit=4.0)
    path = weights_backtest(PANEL, weights, execution, sessions=PANEL.sessions[decided])
    equity, paid = np.ones(N_SESSIONS), np.zeros(N_SESSIONS)
    equity[decided[0] + 1 :], paid[decided[0] : -1] = path.equity, path.cost
    return equity * (1.0 - paid)


@pytest.mark.slow
@pytest.mark.parametrize("bps", [0.0, 25.0], ids=["free", "25 bps"])
@pytest.mark.parametrize("seed", range(N_PATHS))
def test_equity_equals_that_of_an_engine_that_trades_shares(seed, bps):
    decided, weights = weights_path(seed)
    ours = equity_here(decided, weights, bps)
    np.testing.assert_allclose(ours, equity_in_bt(decided, weights, bps), rtol=1e-9, atol=0.0)
    assert np.ptp(ours) > 0.01  # it moved


@pytest.mark.slow
@pytest.mark.parametrize(("gross", "net"), [(2.0, 2.0), (2.0, 1.0), (1.6, 0.0), (3.0, -1.0)])
@pytest.mark.parametrize("bps", [0.0, 25.0], ids=["free", "25 bps"])
def test_levered_and_short_equity_equals_that_of_an_engine_that_trades_shares(gross, net, bps):
    decided, weights = levered_path(7, gross, net)
    financing = Financing(margin_rate=0.065, borrow_fee=0.03)
    ours = equity_here(decided, weights, bps, financing)
    np.testing.assert_allclose(ours, equity_in_bt(decided, weights, bps, financing), rtol=1e-9, atol=0.0)
    assert abs(ours[-1] / equity_here(decided, weights, bps)[-1] - 1.0) > 1e-4  # the rates are charged


def test_costs_make_a_difference_far_above_the_tolerance():
    decided, weights = weights_path(0)
    assert equity_here(decided, weights, 25.0)[-1] < 0.99 * equity_here(decided, weights, 0.0)[-1]
