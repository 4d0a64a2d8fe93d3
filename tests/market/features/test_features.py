import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import rankdata

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import FEATURES, LOOK_BACK, Momentum, compute_features, feature_schema
from nvtrader_pipelines.market.history import price_history
from nvtrader_pipelines.market.returns import bar_returns
from tests.markets import csv_file, market_tables, synthetic_bars

TABLES = market_tables(csv_file(synthetic_bars(n_sessions=320, n_symbols=4, seed=3)))
BY_NAME = {feature.name: feature for feature in FEATURES}


def closes_of(symbol):
    return TABLES.returns.filter(pl.col("symbol") == symbol)["adj_close"].to_numpy()


def column(name, symbol="AAA"):
    return TABLES.features.filter(pl.col("symbol") == symbol)[name].to_numpy()


def test_default_features_have_their_documented_names():
    assert list(BY_NAME) == [
        "momentum_12_1",
        "momentum_6_1",
        "return_1",
        "return_5",
        "return_21",
        "volatility_21",
        "volatility_63",
        "volatility_252",
        "drawdown_252",
        "rsi_14",
        "volume_z_21",
        "rank_return_5",
        "rank_return_21",
        "rank_momentum_12_1",
        "rank_volatility_63",
    ]
    assert TABLES.features.schema == feature_schema()


def test_features_do_not_depend_on_sessions_before_the_look_back():
    bars = synthetic_bars(n_sessions=320, n_symbols=4, seed=3)
    changed, noise = 50, np.random.default_rng(1).uniform(0.9, 1.1, len(bars))
    early = pl.int_range(pl.len()).over("symbol") < changed
    prices = [
        pl.when(early).then(pl.col(name) * noise).otherwise(name).alias(name)
        for name in ("open", "high", "low", "close", "adj_close", "volume")
    ]
    other = market_tables(csv_file(bars.with_columns(prices))).features
    for feature in BY_NAME:
        here, there = (
            frame.sort("symbol", "session")[feature].to_numpy().reshape(4, -1) for frame in (TABLES.features, other)
        )
        tolerance = 1e-5 if feature == "rsi_14" else 1e-12
        np.testing.assert_allclose(here[:, changed + LOOK_BACK :], there[:, changed + LOOK_BACK :], atol=tolerance)
    reach = [
        feature
        for feature in ("momentum_12_1", "volatility_252")
        if differs_at(feature, other, changed + LOOK_BACK - 1)
    ]
    assert reach == ["momentum_12_1", "volatility_252"]  # they depend on the first session of the look-back


def differs_at(feature, other, t):
    """Whether the feature differs at a session."""
    here, there = (frame.sort("symbol", "session")[feature].to_numpy() for frame in (TABLES.features, other))
    return abs(here[t] - there[t]) > 1e-6


def test_momentum_is_log_change_from_12_months_to_1_month_ago():
    prices = np.log(closes_of("AAA"))
    assert column("momentum_12_1")[-1] == pytest.approx(prices[-22] - prices[-253], abs=1e-12)
    assert column("momentum_6_1")[-1] == pytest.approx(prices[-22] - prices[-127], abs=1e-12)
    assert np.isnan(column("momentum_12_1")).sum() == 252


@pytest.mark.parametrize("window", [1, 5, 21])
def test_return_is_log_change_over_its_window(window):
    prices = np.log(closes_of("BBB"))
    values = column(f"return_{window}", "BBB")
    assert values[window:] == pytest.approx(prices[window:] - prices[:-window], abs=1e-12)
    assert np.isnan(values[:window]).all()


@pytest.mark.parametrize("window", [21, 63, 252])
def test_volatility_is_sample_deviation_of_log_returns(window):
    daily = np.diff(np.log(closes_of("AAA")))
    values = column(f"volatility_{window}")
    expected = [daily[t - window : t].std(ddof=1) for t in range(window, len(daily) + 1)]
    assert values[window:] == pytest.approx(expected, rel=1e-9)
    assert np.isnan(values[:window]).all()


def test_drawdown_is_measured_from_the_highest_close():
    closes = closes_of("AAA")
    expected = [closes[t] / closes[t - 251 : t + 1].max() - 1 for t in range(251, len(closes))]
    assert column("drawdown_252")[251:] == pytest.approx(expected, abs=1e-12)


def test_relative_strength_equals_wilders_formula():
    change = np.diff(closes_of("CCC"))
    ages = np.arange(len(change))[::-1]
    weights = (1 - 1 / 14) ** ages / ((1 - 1 / 14) ** ages).sum()
    gain, loss = weights @ np.maximum(change, 0), weights @ np.maximum(-change, 0)
    assert column("rsi_14", "CCC")[-1] == pytest.approx(100 - 100 / (1 + gain / loss), rel=1e-9)


def test_volume_score_is_z_score_of_log_volume():
    volume = np.log1p(TABLES.returns.filter(pl.col("symbol") == "AAA")["volume"].to_numpy())
    window = volume[-21:]
    assert column("volume_z_21")[-1] == pytest.approx((window[-1] - window.mean()) / window.std(ddof=1), rel=1e-9)


def test_ranks_run_from_minus_one_to_one_within_a_session():
    for ranked in ("return_5", "return_21", "momentum_12_1", "volatility_63"):
        wide = TABLES.features.pivot("symbol", index="session", values=[ranked, f"rank_{ranked}"]).drop_nulls()
        values = wide.select(pl.selectors.starts_with(f"{ranked}_")).to_numpy()
        ranks = wide.select(pl.selectors.starts_with(f"rank_{ranked}_")).to_numpy()
        assert ranks == pytest.approx((rankdata(values, axis=1) - 1) / 3 * 2 - 1, abs=1e-12)


def test_name_listed_less_than_a_year_is_not_ranked():
    days = TABLES.clean_bars["session"].unique().sort()
    late = TABLES.clean_bars.filter((pl.col("symbol") != "AAA") | (pl.col("session") >= days[290]))
    features = compute_features(bar_returns(late)).filter(pl.col("session") == days[-1])
    assert features["rank_return_5"].null_count() == 1
    assert sorted(features["rank_return_5"].drop_nulls()) == [-1.0, 0.0, 1.0]


def test_constant_price_has_neutral_features():
    still = TABLES.clean_bars.with_columns(pl.lit(10.0).alias("adj_close"), pl.lit(7.0).alias("volume"))
    last = compute_features(bar_returns(still)).filter(pl.col("symbol") == "AAA").row(-1, named=True)
    neutral = {"volatility_21": 0.0, "drawdown_252": 0.0, "rsi_14": 50.0, "volume_z_21": 0.0, "rank_return_5": 0.0}
    assert {name: last[name] for name in neutral} == neutral


def test_only_the_volume_score_is_null_without_volume():
    tables = market_tables(csv_file(synthetic_bars(n_sessions=300, volume=False)))
    counts = (
        tables.features.filter(pl.col("session") == tables.features["session"].max()).null_count().row(0, named=True)
    )
    assert [name for name, count in counts.items() if count] == ["volume_z_21"]


def test_features_are_known_the_session_after_a_missing_bar():
    days = TABLES.clean_bars["session"].unique().sort()
    hole = TABLES.clean_bars.filter((pl.col("symbol") != "AAA") | (pl.col("session") != days[300]))
    features = compute_features(bar_returns(hole)).filter(pl.col("symbol") == "AAA")
    assert days[300] not in features["session"].to_list()
    assert features.filter(pl.col("session") == days[301]).null_count().sum_horizontal().item() == 0


def test_features_of_a_source_do_not_depend_on_other_sources():
    other = TABLES.returns.with_columns(source=pl.lit("other"), adj_close=pl.col("adj_close") * 2.0)
    both = compute_features(pl.concat([TABLES.returns, other]))
    assert both.filter(pl.col("source") == "landing").equals(TABLES.features)


def test_features_are_null_or_finite():
    numbers = TABLES.features.select(pl.selectors.float())
    assert numbers.select(pl.all().is_finite().fill_null(value=True).all()).row(0) == (True,) * numbers.width


def test_momentum_with_skip_not_below_months_is_refused():
    with pytest.raises(ValidationError):
        Momentum(months=1, skip=1)


def test_price_history_of_two_sources_is_refused():
    two = pl.concat([TABLES.returns, TABLES.returns.with_columns(source=pl.lit("other"))])
    with pytest.raises(ValueError):
        price_history(two, NEW_YORK)


def _market_with_gaps():
    """Four names: one listed late, one with missing bars, one with missing volumes."""
    days = TABLES.clean_bars["session"].unique().sort()
    late = (pl.col("symbol") == "DDD") & (pl.col("session") < days[45])
    missing = (pl.col("symbol") == "BBB") & pl.col("session").is_in(days.gather_every(23).implode())
    silent = (pl.col("symbol") == "CCC") & pl.col("session").is_in(days.gather_every(31).implode())
    return TABLES.clean_bars.filter(~late & ~missing).with_columns(volume=pl.when(~silent).then("volume"))


GAPPY = _market_with_gaps()
GAPPY_FEATURES = compute_features(bar_returns(GAPPY))


def _changed_future(last, spread, dropped):
    """Change prices and volumes after session `last`, and drop a share of those bars."""
    later = pl.col("session") > last
    generator = np.random.default_rng(int(spread * 1e6))
    noise = pl.Series("noise", np.exp(generator.normal(0.0, spread, len(GAPPY))))
    gone = pl.Series("gone", generator.random(len(GAPPY)) < dropped)
    changed = GAPPY.with_columns(noise, gone).filter(~(later & pl.col("gone")))
    changed = changed.with_columns(
        pl.when(later).then(pl.col(name) * pl.col("noise")).otherwise(name).alias(name)
        for name in ("open", "close", "adj_close", "volume")
    )
    return changed.select(GAPPY.columns)


@pytest.mark.slow
@settings(max_examples=40)
@given(cut=st.integers(20, 318), spread=st.floats(0.001, 2.0), dropped=st.sampled_from([0.0, 0.3, 1.0]))
def test_later_prices_change_no_earlier_feature(cut, spread, dropped):
    last = GAPPY["session"].unique().sort()[cut]
    features = compute_features(bar_returns(_changed_future(last, spread, dropped)))
    past = pl.col("session") <= last
    before, after = GAPPY_FEATURES.filter(past), features.filter(past)
    for name in BY_NAME:
        assert after[name].equals(before[name]), f"{name} looks ahead"
