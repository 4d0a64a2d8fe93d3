"""Small markets to be stressed: names that stand still, and random walks."""

import numpy as np

from nvtrader_pipelines.evaluation.backtest import Contestant
from nvtrader_pipelines.evaluation.stress.prices import Prices
from nvtrader_pipelines.evaluation.stress.scenario import CalmMarket, OutOfSample
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from tests.markets import synthetic_sessions, synthetic_symbols

N_SESSIONS, WINDOW, BEFORE = 700, 100, 504
FIRST = N_SESSIONS - WINDOW  # of the window
SHOCK = FIRST + WINDOW // 2
JUDGED_FROM = 420


def random_walks(n_symbols=4, seed=0, opens=True, volume=True) -> Prices:
    """Names that have a bar on every session."""
    generator = np.random.default_rng(seed)
    shape = (N_SESSIONS, n_symbols)
    closes = 50.0 * np.exp(np.cumsum(generator.normal(0.0003, 0.012, shape), axis=0))
    unknown = np.full(shape, np.nan)
    return Prices(
        "synthetic",
        synthetic_sessions(N_SESSIONS),
        synthetic_symbols(n_symbols),
        closes * np.exp(generator.normal(0.0, 0.004, shape)) if opens else unknown,
        closes,
        generator.integers(10_000, 90_000, shape).astype(float) if volume else unknown,
    )


def still(n_symbols=4) -> Prices:
    """Names whose prices never change."""
    level = np.full((N_SESSIONS, n_symbols), 100.0)
    sessions, symbols = synthetic_sessions(N_SESSIONS), synthetic_symbols(n_symbols)
    return Prices("synthetic", sessions, symbols, level, level, np.full_like(level, np.nan))


def day(prices, t):
    """A session as a date."""
    return prices.sessions[t].item()


def judged(prices, first=JUDGED_FROM, last=-1, fold=0, trained=(253, 410)) -> OutOfSample:
    """Sessions that may be judged, and those trained on."""
    spans = ((day(prices, trained[0]), day(prices, trained[1])),) if trained else ()
    return OutOfSample(fold, day(prices, first), day(prices, last), spans)


def calm_market(prices=None, *parts, max_gap=5) -> CalmMarket:
    """The market with its last 100 sessions as the window."""
    prices = random_walks() if prices is None else prices
    return CalmMarket.of(prices.rows(), parts or (judged(prices),), (WINDOW, BEFORE), max_gap=max_gap)


def rules(world, *baselines):
    """Baselines as contestants in a world."""
    n = len(world.blocks)
    chosen = baselines or (EqualWeight(), BuyAndHold())
    return [Contestant(rule.kind, "baseline", (None,) * n, (rule.start(),) * n) for rule in chosen]
