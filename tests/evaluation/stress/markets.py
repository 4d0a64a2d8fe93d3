"""Small markets to stress: constant prices and random walks."""

from dataclasses import replace

import numpy as np

from nvtrader_pipelines.evaluation.backtest import PolicyAccount
from nvtrader_pipelines.evaluation.stress.price_arrays import PriceArrays
from nvtrader_pipelines.evaluation.stress.scenario import OutOfSample, PanelChoice, UnstressedMarket
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from tests.markets import synthetic_sessions, synthetic_symbols

N_SESSIONS, WINDOW, BEFORE = 700, 100, 504
FIRST = N_SESSIONS - WINDOW  # of the window
SHOCK = FIRST + WINDOW // 2
JUDGED_FROM = 420


def random_walks(n_symbols=4, seed=0, opens=True, volume=True) -> PriceArrays:
    """Names that have a bar on every session."""
    generator = np.random.default_rng(seed)
    shape = (N_SESSIONS, n_symbols)
    closes = 50.0 * np.exp(np.cumsum(generator.normal(0.0003, 0.012, shape), axis=0))
    unknown = np.full(shape, np.nan)
    open_prices = closes * np.exp(generator.normal(0.0, 0.004, shape)) if opens else unknown
    return PriceArrays(
        "synthetic",
        synthetic_sessions(N_SESSIONS),
        synthetic_symbols(n_symbols),
        open_prices,
        1.003 * np.maximum(open_prices, closes),
        0.997 * np.minimum(open_prices, closes),
        closes,
        generator.integers(10_000, 90_000, shape).astype(float) if volume else unknown,
        NEW_YORK,
    )


def without(prices, start, stop, names) -> PriceArrays:
    """Remove the bars of some names (N,) from session `start` up to, not including, `stop`."""
    arrays = {name: getattr(prices, name).copy() for name in ("opens", "highs", "lows", "closes", "volumes")}
    for array in arrays.values():
        array[start:stop, names] = np.nan
    return replace(prices, **arrays)


def still(n_symbols=4) -> PriceArrays:
    """Names whose prices never change."""
    level = np.full((N_SESSIONS, n_symbols), 100.0)
    sessions, symbols = synthetic_sessions(N_SESSIONS), synthetic_symbols(n_symbols)
    unknown = np.full_like(level, np.nan)
    return PriceArrays("synthetic", sessions, symbols, level, level, level, level, unknown, NEW_YORK)


def day(prices, t):
    """A session as a date."""
    return prices.sessions[t].item()


def judged(prices, first=JUDGED_FROM, last=-1, fold=0, trained=(253, 410)) -> OutOfSample:
    """Out-of-sample sessions, and the span of training."""
    spans = ((day(prices, trained[0]), day(prices, trained[1])),) if trained else ()
    return OutOfSample(fold, day(prices, first), day(prices, last), spans)


def unstressed_market(prices=None, *parts, max_gap=5) -> UnstressedMarket:
    """The market with its last 100 sessions as the window."""
    prices = random_walks() if prices is None else prices
    return UnstressedMarket.of(
        prices.rows(), parts or (judged(prices),), (WINDOW, BEFORE), PanelChoice(NEW_YORK, max_gap=max_gap)
    )


def rules(stressed, *baselines):
    """Accounts of baselines on a stressed market."""
    n = len(stressed.blocks)
    chosen = baselines or (EqualWeight(), BuyAndHold())
    return [PolicyAccount(rule.kind, "baseline", (None,) * n, (rule.start(),) * n) for rule in chosen]
