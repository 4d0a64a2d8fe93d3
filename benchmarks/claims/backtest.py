"""Back-test of daily weights, 20 names over 8,300 sessions, against bt on the same account."""

from dataclasses import replace
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.claim import Goal, import_peer, report
from nvtrader_pipelines.evaluation.weights_backtest import Execution, weights_backtest
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.portfolio.costs import ProportionalCost

N_SESSIONS, N_ROUNDS, CAPITAL, BPS = 8_300, 21, 1_000_000.0, 10.0
FREE_TOLERANCE = 1e-9  # relative, of equity at any close
COST_TOLERANCE = 1e-4  # relative: bt pays a purchase's commission out of its amount, we pay pro rata


def long_market() -> MarketPanel:
    """The sample market, with its first sessions repeated after its last."""
    panel = sample_panel()
    days = np.busday_offset(panel.sessions[-1], np.arange(1, N_SESSIONS - len(panel.sessions) + 1))
    again = slice(0, len(days))
    names = ("close_returns", "tradable", "delisted", "eligible", "features")
    longer = {name: np.concatenate([getattr(panel, name), getattr(panel, name)[again]]) for name in names}
    return replace(panel, sessions=np.concatenate([panel.sessions, days]), **longer)


def daily_weights(panel: MarketPanel) -> NDArray[np.float64]:
    """Weights (T, N+1), cash last, that move a little each session."""
    steps = np.random.default_rng(0).normal(0.0, 0.05, (len(panel.sessions), len(panel.symbols) + 1))
    scores = np.exp(np.cumsum(steps, axis=0))
    return scores / scores.sum(axis=1, keepdims=True)


def execution(bps: float) -> Execution:
    """Fills at the close of the decision, as in bt."""
    return Execution(fill="same_close", costs=(ProportionalCost(bps=bps),))


def bt_backtest(bt: Any, panel: MarketPanel, weights: NDArray[np.float64], bps: float) -> Any:
    """The same account in bt, not yet run: fractional shares, commission on traded value."""
    days, names = pd.DatetimeIndex(panel.sessions), list(panel.symbols)
    prices = pd.DataFrame(100.0 * np.cumprod(1.0 + panel.close_returns, axis=0), days, names)
    wanted = bt.algos.WeighTarget(pd.DataFrame(weights[:, :-1], days, names))
    return bt.Backtest(
        bt.Strategy("given weights", [wanted, bt.algos.Rebalance()]),
        prices,
        initial_capital=CAPITAL,
        integer_positions=False,
        commissions=lambda quantity, price: bps * 1e-4 * abs(quantity) * price,
    )


def difference(test: Any, panel: MarketPanel, weights: NDArray[np.float64], bps: float) -> float:
    """Largest relative difference of equity at a close, after the orders of that close."""
    path = weights_backtest(panel, weights, execution(bps))
    equity = np.append(1.0, path.equity) * (1.0 - np.append(path.cost, 0.0))  # a fill counts in the session after it
    theirs = test.strategy.values.to_numpy()[-len(equity) :] / CAPITAL
    return float(np.abs(theirs / equity - 1.0)[:-1].max())  # bt also pays for a last order, which we do not


def time_bt(bt: Any, panel: MarketPanel, weights: NDArray[np.float64]) -> tuple[float, str]:
    """Seconds that bt takes with costs, and a note on how closely its equity agrees."""
    gaps = []
    for bps, tolerance in ((0.0, FREE_TOLERANCE), (BPS, COST_TOLERANCE)):
        test = bt_backtest(bt, panel, weights, bps)
        start = process_time()
        test.run()
        seconds = process_time() - start
        gaps.append(difference(test, panel, weights, bps))
        if not gaps[-1] <= tolerance:
            raise AssertionError(f"bt's equity is {gaps[-1]:.1e} off at {bps:g} bps, more than {tolerance:.0e}")
    agreed = f"equity agrees within {gaps[0]:.0e} without costs and {gaps[1]:.0e} with them"
    return (
        seconds,
        f"bt {bt.__version__} took {seconds:.1f} s with WeighTarget and Rebalance of any fractions; {agreed}",
    )


def main() -> None:
    """Report the time of one back-test, and how many times longer bt takes."""
    panel = long_market()
    weights, spec = daily_weights(panel), execution(BPS)
    taken = []
    for _ in range(N_ROUNDS + 1):
        start = process_time()
        weights_backtest(panel, weights, spec)
        taken.append(process_time() - start)
    seconds = median(taken[1:])  # the first loads compiled code
    n_again = N_SESSIONS - len(sample_panel().sessions)
    note = (
        f"CPU time of one thread, median of {N_ROUNDS}, from weights to equity, checks included; 20 names of the "
        f"sample market, the first {n_again} sessions again at its end; daily weights, {BPS:g} bps, fills at the close"
    )
    report("backtest_20x8300", 1e3 * seconds, "ms", Goal(value_at_most=50.0), note=note)
    bt = import_peer("bt")
    theirs, compared = (None, "bt is not installed") if bt is None else time_bt(bt, panel, weights)
    ratio = None if theirs is None else theirs / seconds
    report("backtest_over_bt", 1e3 * seconds, "ms", Goal(ratio_at_least=100.0), ratio=ratio, note=f"{compared}; {note}")


if __name__ == "__main__":
    main()
