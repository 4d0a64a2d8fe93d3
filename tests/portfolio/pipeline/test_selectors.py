from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import Momentum
from nvtrader_pipelines.market.panel import build_panel
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.selectors import Liquidity, LowVolatility, MomentumTopK
from tests.markets import csv_file, market_tables, synthetic_bars, synthetic_panel, with_values
from tests.panels import GAP, GAPPY, INELIGIBLE, LATE, LISTED_AT, STEADY, eventful_panel
from tests.portfolio.pipeline.situations import cash, situation, stage


@pytest.fixture(scope="module")
def market():
    """Build the panel of five names from three hundred bars each."""
    bars = synthetic_bars(n_sessions=300, n_symbols=5, seed=3)
    tables = market_tables(csv_file(bars))
    return bars, build_panel(tables.returns, tables.features, NEW_YORK)


def adjusted_closes(bars, panel):
    """Return adjusted closes as a pandas frame, a row per session and a column per name."""
    wide = bars.pivot("symbol", index="date", values="adj_close").sort("date").to_pandas().set_index("date")
    return wide[list(panel.symbols)]


def selected(selector, panel, t):
    return selector.start(panel)(situation(panel, t))[0]


@pytest.mark.parametrize("k", [1, 3])
def test_momentum_selects_the_names_pandas_ranks_highest(market, k):
    bars, panel = market
    closes = adjusted_closes(bars, panel)
    momentum = closes.shift(21) / closes.shift(252)
    for t in (0, 20, len(panel.sessions) - 1):
        expected = momentum.loc[str(panel.sessions[t])].nlargest(k).index
        found = selected(MomentumTopK(k=k), panel, t)
        assert set(np.array(panel.symbols)[found]) == set(expected)


@pytest.mark.slow
def test_low_volatility_selects_the_half_pandas_ranks_lowest(market):
    bars, panel = market
    closes = adjusted_closes(bars, panel)
    spread = np.log(closes).diff().rolling(63).std()
    for t in (0, 30):
        expected = spread.loc[str(panel.sessions[t])].nsmallest(2).index  # half of five, rounded to even
        found = selected(LowVolatility(lowest_fraction=0.5), panel, t)
        assert set(np.array(panel.symbols)[found]) == set(expected)


def test_ties_are_broken_by_symbol():
    panel = synthetic_panel(60, 4)
    flat = replace(panel, features=np.zeros_like(panel.features))
    assert selected(MomentumTopK(k=2), flat, 30).tolist() == [True, True, False, False]


def test_fewer_than_k_eligible_names_are_all_selected():
    panel = eventful_panel()
    np.testing.assert_array_equal(selected(MomentumTopK(k=10), panel, 100), panel.eligible[100])


def test_name_often_without_a_price_is_not_liquid():
    panel = eventful_panel()
    liquid = Liquidity(window=20, min_traded=0.9, min_volume_score=-100.0)
    after_gap = GAP[1] + 1  # three of the last twenty sessions had no price
    assert panel.eligible[after_gap, GAPPY]
    assert selected(liquid, panel, after_gap)[[STEADY, GAPPY]].tolist() == [True, False]
    assert selected(liquid, panel, after_gap + 20)[GAPPY]
    assert not selected(liquid, panel, LISTED_AT + 12)[LATE]  # eligible, but listed for 13 of 20 sessions
    assert not selected(liquid, panel, 100)[INELIGIBLE]


def test_name_is_liquid_after_a_window_of_prices():
    panel, liquid = eventful_panel(), Liquidity(window=20, min_traded=1.0, min_volume_score=-100.0)
    assert [bool(selected(liquid, panel, t)[LATE]) for t in (LISTED_AT + 18, LISTED_AT + 19)] == [False, True]


def with_feature(name, values):
    """Panel with other values of a feature at session 40."""
    panel = synthetic_panel(60, 3)
    return with_values(panel, "features", (40, slice(None), panel.feature_names.index(name)), values)


def test_name_with_unusually_low_volume_is_not_liquid():
    panel = with_feature("volume_z_21", [-2.1, -2.0, 3.0])
    assert selected(Liquidity(), panel, 40).tolist() == [False, True, True]


def test_liquidity_without_volume_feature_is_refused():
    with pytest.raises(ValueError):
        WeightPipeline(selector=Liquidity()).start(synthetic_panel(60, 3, volume=False))


def test_selector_with_unknown_feature_is_refused():
    with pytest.raises(ValueError):
        MomentumTopK(momentum=Momentum(months=3)).start(synthetic_panel(60, 3))


def test_weight_of_unselected_names_moves_to_cash_with_a_reason():
    panel = with_feature("momentum_12_1", [0.1, 0.3, 0.2])
    pipeline = WeightPipeline(selector=MomentumTopK(k=1))
    found = stage(pipeline, "momentum_top_k", [0.2, 0.1, 0.3, 0.4], situation(panel, 40))
    np.testing.assert_allclose(found.weights, [0.0, 0.1, 0.0, 0.9])
    assert found.reason == "AAA, CCC not of the 1 with the highest momentum_12_1"
    kept = stage(pipeline, "momentum_top_k", [0.0, 0.1, 0.0, 0.9], situation(panel, 40))
    assert kept.reason == ""


def test_reason_counts_further_names():
    panel = synthetic_panel(60, 12)
    found = stage(
        WeightPipeline(selector=MomentumTopK(k=1)), "momentum_top_k", np.full(13, 1.0 / 13), situation(panel, 40)
    )
    assert " and 6 more not of the 1" in found.reason
    assert not stage(WeightPipeline(), "static_universe", cash(12), situation(panel, 40)).reason


def test_reason_names_ineligible_names():
    panel = eventful_panel()
    proposal = cash(6)
    proposal[[INELIGIBLE, 6]] = [0.2, 0.8]
    found = stage(WeightPipeline(), "static_universe", proposal, situation(panel))
    assert found.reason == f"{panel.symbols[INELIGIBLE]} not eligible"
    np.testing.assert_array_equal(found.weights, cash(6))


def test_oracle_closes_match_the_panel(market):
    bars, panel = market
    assert panel.symbols == tuple(bars["symbol"].unique().sort())
    assert str(panel.sessions[-1]) == bars.select(pl.col("date").max()).item()
