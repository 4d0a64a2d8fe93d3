import dataclasses
import datetime as dt
import pickle
from copy import deepcopy

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import FEATURES, compute_features
from nvtrader_pipelines.market.look_ahead import cut_after, with_other_future
from nvtrader_pipelines.market.panel import (
    PANEL_ARRAYS,
    MarketPanel,
    build_panel,
    concat_windows,
    normalize_windows,
    panel_digest,
    panel_row,
    window_mask,
)
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.market.tables import PANELS
from tests.markets import FEATURE_NAMES, csv_file, market_tables, synthetic_bars, synthetic_panel
from tests.panels import eventful_panel

TABLES = market_tables(csv_file(synthetic_bars(n_sessions=320, n_symbols=3)))
DAYS = TABLES.clean_bars["session"].unique().sort()


def panel_of(clean_bars, **options):
    returns = bar_returns(clean_bars)
    return build_panel(returns, compute_features(returns), NEW_YORK, **options)


def without(symbol, absent):
    """Drop the bars of a symbol on sessions `absent` (a slice of indices)."""
    return TABLES.clean_bars.filter((pl.col("symbol") != symbol) | ~pl.col("session").is_in(DAYS[absent].implode()))


def arrays(panel):
    values = [getattr(panel, field.name) for field in dataclasses.fields(MarketPanel)]
    return [value for value in values if isinstance(value, np.ndarray)]


def assert_no_nan(panel):
    assert all(np.isfinite(array).all() for array in arrays(panel) if array.dtype == np.float64)


def test_panel_begins_with_first_eligible_name_and_has_all_sessions():
    panel = panel_of(TABLES.clean_bars)
    assert panel.symbols == ("AAA", "BBB", "CCC")
    assert panel.sessions[0] == DAYS.to_numpy()[252]
    assert np.array_equal(panel.sessions, NEW_YORK.sessions(panel.sessions[0], panel.sessions[-1]))
    assert panel.feature_names == FEATURE_NAMES
    assert panel.features.shape == (68, 3, len(FEATURES))
    assert panel.eligible.all()
    assert not panel.delisted.any()
    assert_no_nan(panel)


@pytest.mark.parametrize(
    "received",
    [
        lambda panel: panel,
        lambda panel: pickle.loads(pickle.dumps(panel)),
        lambda panel: cut_after(panel, 20),
        deepcopy,
    ],
    ids=["built", "unpickled", "cut", "copied"],
)
def test_arrays_of_a_panel_are_read_only(received):
    panel = received(panel_of(TABLES.clean_bars))
    assert not any(array.flags.writeable for array in arrays(panel))
    with pytest.raises(ValueError):
        panel.feature("return_1")[0] = 0.0


def test_unpickled_panel_has_the_same_content():
    panel = panel_of(TABLES.clean_bars, snapshot_ids={"gold.returns": 7})
    received = pickle.loads(pickle.dumps(panel))
    assert panel_digest(received) == panel_digest(panel)
    assert received.snapshot_ids == panel.snapshot_ids


def test_panel_holds_the_values_of_the_tables():
    panel = panel_of(TABLES.clean_bars)
    row = TABLES.returns.filter((pl.col("symbol") == "BBB") & (pl.col("session") == DAYS[300])).row(0, named=True)
    t = panel.index_of(np.datetime64(DAYS[300]))
    assert panel.close_returns[t, 1] == row["close_return"]
    assert panel.overnight_returns[t, 1] == row["overnight_return"]
    known = TABLES.features.filter((pl.col("symbol") == "BBB") & (pl.col("session") == DAYS[300]))["rsi_14"].item()
    assert panel.feature("rsi_14")[t, 1] == known


def test_return_over_a_missing_bar_is_earned_on_the_next():
    panel = panel_of(without("BBB", slice(300, 301)))
    t = panel.index_of(np.datetime64(DAYS[300]))
    assert panel.tradable[t - 1 : t + 2, 1].tolist() == [True, False, True]
    assert panel.eligible[t - 1 : t + 2, 1].tolist() == [True, False, True]
    assert (panel.close_returns[t, 1], panel.overnight_returns[t, 1]) == (0.0, 0.0)
    closes = TABLES.clean_bars.filter(pl.col("symbol") == "BBB")["adj_close"]
    assert panel.close_returns[t + 1, 1] == pytest.approx(closes[301] / closes[299] - 1)
    assert not panel.delisted.any()
    assert_no_nan(panel)


def test_session_without_bars_is_in_the_panel():
    panel = panel_of(TABLES.clean_bars.filter(pl.col("session") != DAYS[300]))
    assert not panel.tradable[panel.index_of(np.datetime64(DAYS[300]))].any()


def test_late_listing_is_eligible_one_year_later():
    panel = panel_of(without("CCC", slice(0, 60)))
    assert panel.sessions[0] == DAYS.to_numpy()[252]
    assert panel.tradable[:, 2].all()
    first = int(np.argmax(panel.eligible[:, 2]))
    assert panel.sessions[first] == DAYS.to_numpy()[60 + 252]
    assert not panel.delisted.any()
    assert (panel.features[:first, 2] == 0.0).all()
    assert_no_nan(panel)


def test_unlisted_name_is_neither_tradable_nor_delisted():
    panel = panel_of(without("CCC", slice(0, 280)))
    before = panel.sessions < DAYS.to_numpy()[280]
    assert before.sum() == 28
    assert not panel.tradable[before, 2].any()
    assert not panel.delisted[:, 2].any()
    assert (panel.close_returns[before, 2] == 0.0).all()
    assert panel.close_returns[28, 2] == 0.0  # no return on the first bar
    assert panel.tradable[28, 2]


def test_missing_name_is_delisted_only_after_max_gap():
    panel = panel_of(without("BBB", slice(290, None)), max_gap=5)
    t = panel.index_of(np.datetime64(DAYS[290]))
    assert not panel.tradable[t:, 1].any()
    assert not panel.delisted[: t + 5, 1].any()
    assert panel.delisted[t + 5 :, 1].all()
    assert (panel.close_returns[t:, 1] == 0.0).all()
    assert_no_nan(panel)


def test_named_symbol_with_longer_gap_is_refused_until_max_gap_allows():
    gappy = without("BBB", slice(100, 106))
    with pytest.raises(ValueError):
        panel_of(gappy, symbols=["AAA", "BBB"], max_gap=5)
    panel_of(gappy, symbols=["AAA", "BBB"], max_gap=6)


def test_unnamed_symbol_with_longer_gap_is_left_out_by_name():
    gappy = without("BBB", slice(100, 106))
    panel = panel_of(gappy, max_gap=5)
    assert (panel.symbols, list(panel.left_out)) == (("AAA", "CCC"), ["BBB"])
    assert panel_digest(panel) == panel_digest(panel_of(gappy, symbols=["AAA", "CCC"]))
    wider = panel_of(gappy, max_gap=6)
    assert (wider.symbols, wider.left_out) == (("AAA", "BBB", "CCC"), {})


def test_market_of_one_symbol_with_longer_gap_is_refused():
    alone = without("BBB", slice(100, 106)).filter(symbol="BBB")
    with pytest.raises(ValueError):
        panel_of(alone, max_gap=5)


def test_long_gap_of_an_excluded_name_is_accepted():
    assert panel_of(without("BBB", slice(100, 150)), symbols=["CCC", "AAA"]).symbols == ("AAA", "CCC")


def test_panel_without_opens_has_no_overnight_returns():
    tables = market_tables(csv_file(synthetic_bars(n_sessions=300, opens=False)))
    panel = build_panel(tables.returns, tables.features, NEW_YORK)
    assert panel.overnight_returns is panel.high_returns is panel.low_returns is None


def test_high_and_low_returns_are_from_the_last_known_close():
    panel = panel_of(without("BBB", slice(299, 300)))
    t = panel.index_of(np.datetime64(DAYS[300]))
    bars = TABLES.clean_bars.filter(symbol="BBB").sort("session")
    before, bar = bars.row(298, named=True), bars.row(300, named=True)
    adjusted = bar["adj_close"] / bar["close"]
    assert panel.high_returns[t, 1] == pytest.approx(bar["high"] * adjusted / before["adj_close"] - 1.0, abs=1e-14)
    assert panel.low_returns[t, 1] == pytest.approx(bar["low"] * adjusted / before["adj_close"] - 1.0, abs=1e-14)
    assert (panel.high_returns[t - 1, 1], panel.low_returns[t - 1, 1]) == (0.0, 0.0)


def test_bar_without_open_is_priced_at_its_close():
    gappy = TABLES.clean_bars.with_columns(open=pl.when(pl.col("session") != DAYS[300]).then("open"))
    panel = panel_of(gappy)
    t = panel.index_of(np.datetime64(DAYS[300]))
    assert np.array_equal(panel.overnight_returns[t], panel.close_returns[t])


def test_bar_without_high_and_low_has_those_of_its_body():
    missing = [pl.when(pl.col("session") != DAYS[300]).then(name).alias(name) for name in ("high", "low")]
    panel = panel_of(TABLES.clean_bars.with_columns(missing))
    t = panel.index_of(np.datetime64(DAYS[300]))
    body = np.stack([panel.overnight_returns[t], panel.close_returns[t]])
    assert np.array_equal(panel.high_returns[t], body.max(axis=0))
    assert np.array_equal(panel.low_returns[t], body.min(axis=0))
    assert_no_nan(panel)


@pytest.mark.slow
@pytest.mark.parametrize("opens", [True, False])
@settings(max_examples=settings.default.max_examples // 3)
@given(absent=st.integers(253, 318), seed=st.integers(0, 9))
def test_returns_of_a_session_lie_between_low_and_high(opens, absent, seed):
    bars = synthetic_bars(n_sessions=320, seed=seed)
    holes = np.random.default_rng(seed).random((3, len(bars))) < 0.1
    names = ("open", "high", "low")
    holed = [pl.when(~pl.Series(hole)).then(name).alias(name) for name, hole in zip(names, holes, strict=True)]
    bars = bars.with_columns(holed).filter((pl.col("symbol") != "BBB") | (pl.col("date") != str(DAYS[absent])))
    panel = panel_of(market_tables(csv_file(bars if opens else bars.with_columns(open=None))).clean_bars)
    body = panel.close_returns if panel.overnight_returns is None else panel.overnight_returns
    highest, lowest = np.maximum(panel.close_returns, body), np.minimum(panel.close_returns, body)
    assert (panel.overnight_returns is not None) == opens
    assert (panel.high_returns >= highest - 1e-12).all()
    assert (panel.low_returns <= lowest + 1e-12).all()
    assert_no_nan(panel)


def test_panel_without_volume_has_no_volume_features():
    tables = market_tables(csv_file(synthetic_bars(n_sessions=300, volume=False)))
    panel = build_panel(tables.returns, tables.features, NEW_YORK)
    assert panel.feature_names == tuple(name for name in FEATURE_NAMES if name != "volume_z_21")
    assert panel.eligible[-1].all()


def test_name_that_lacks_one_feature_is_refused_or_left_out():
    gappy = TABLES.clean_bars.with_columns(volume=pl.when(pl.col("symbol") != "BBB").then("volume"))
    with pytest.raises(ValueError):
        panel_of(gappy, symbols=["AAA", "BBB"])
    panel = panel_of(gappy)
    assert (panel.symbols, list(panel.left_out)) == (("AAA", "CCC"), ["BBB"])
    assert panel.eligible[-1].all()


def test_named_symbols_without_volume_have_no_volume_features():
    lone = TABLES.clean_bars.with_columns(volume=pl.when(pl.col("symbol") == "BBB").then("volume"))
    assert "volume_z_21" not in panel_of(lone, symbols=["AAA", "CCC"]).feature_names


def test_unknown_symbol_short_history_and_empty_market_are_refused():
    with pytest.raises(ValueError):
        panel_of(TABLES.clean_bars, symbols=["AAA", "ZZZ"])
    for bars in (TABLES.clean_bars.filter(pl.col("session") < DAYS[200]), TABLES.clean_bars.head(0)):
        with pytest.raises(ValueError):
            panel_of(bars)


def test_panel_digest_depends_on_content_alone():
    panel = panel_of(TABLES.clean_bars, snapshot_ids={"gold.returns": 1})
    same = panel_of(TABLES.clean_bars, snapshot_ids={"gold.returns": 2})
    assert panel_digest(panel) == panel_digest(same)
    for name in ("close_returns", "overnight_returns", "high_returns", "low_returns", "features"):
        moved = getattr(panel, name).copy()
        moved.flat[-1] = np.nextafter(moved.flat[-1], 1.0)
        assert panel_digest(dataclasses.replace(panel, **{name: moved})) != panel_digest(panel)
    optional = ("overnight_returns", "high_returns", "low_returns")
    lacking = [dataclasses.replace(panel, **{name: None}) for name in optional]
    assert len({panel_digest(each) for each in [panel, *lacking]}) == 4


def test_panel_row_names_the_snapshots():
    built_at = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
    ids = {"gold.returns": 1, "gold.features": 2, "silver.clean_bars": 3, "bronze.bars": 4}
    panel = panel_of(TABLES.clean_bars, snapshot_ids=ids)
    frame = panel_row(panel, built_at)
    row = frame.row(0, named=True)
    assert frame.schema == PANELS
    assert [row[f"{name}_snapshot_id"] for name in ("returns", "features", "clean_bars", "bars")] == [1, 2, 3, 4]
    assert (row["first_session"], row["last_session"]) == (DAYS[252], DAYS[-1])
    assert (row["n_sessions"], row["n_symbols"], row["symbols"]) == (68, 3, ["AAA", "BBB", "CCC"])
    assert row["digest"] == panel_digest(panel)


def test_unknown_feature_is_refused():
    with pytest.raises(KeyError):
        panel_of(TABLES.clean_bars).feature("alpha")


def test_synthetic_panel_has_the_form_of_a_built_one():
    built, synthetic = panel_of(TABLES.clean_bars), synthetic_panel(n_sessions=68, n_symbols=3)
    assert [array.shape for array in arrays(built)] == [array.shape for array in arrays(synthetic)]
    assert [array.dtype for array in arrays(built)] == [array.dtype for array in arrays(synthetic)]
    assert (built.symbols, built.feature_names) == (synthetic.symbols, synthetic.feature_names)


def test_other_future_differs_in_every_array_after_the_session_alone():
    panel, t = eventful_panel(), 100
    other = with_other_future(panel, t)
    for name in PANEL_ARRAYS:
        was, now = getattr(panel, name), getattr(other, name)
        assert np.array_equal(was[: t + 1], now[: t + 1])
        assert (was[t + 1 :] != now[t + 1 :]).any()
        assert np.array_equal(getattr(cut_after(panel, t), name), was[: t + 1])


def test_synthetic_returns_lie_between_low_and_high():
    for panel in (synthetic_panel(60, 3), eventful_panel()):
        body = np.stack([panel.close_returns, panel.overnight_returns])
        assert (panel.high_returns >= body.max(axis=0)).all()
        assert (panel.low_returns <= body.min(axis=0)).all()


@pytest.mark.slow
@settings(max_examples=15)
@given(
    cut=st.integers(260, 318),
    factor=st.floats(0.1, 3.0),
    leaves=st.sampled_from([None, "AAA", "BBB"]),
    arrives=st.booleans(),
)
def test_later_bars_do_not_change_the_panel_up_to_a_session(cut, factor, leaves, arrives):
    later = pl.col("session") > DAYS[cut]
    bars = TABLES.clean_bars if arrives else TABLES.clean_bars.filter((pl.col("symbol") != "CCC") | ~later)
    bars = bars.with_columns(adj_close=pl.when(later).then(pl.col("adj_close") * factor).otherwise("adj_close"))
    changed = bars if leaves is None else bars.filter((pl.col("symbol") != leaves) | ~later)
    before, after = panel_of(TABLES.clean_bars), panel_of(changed)
    end = before.index_of(np.datetime64(DAYS[cut])) + 1
    for one, other in zip(arrays(before), arrays(after), strict=True):
        assert one[:end].tobytes() == other[:end].tobytes()


def test_normalized_windows_are_a_tuple():
    assert normalize_windows((5, 60)) == ((5, 60),)
    assert normalize_windows(((5, 60),)) == ((5, 60),)
    assert normalize_windows([(5, 60), (80, 90)]) == ((5, 60), (80, 90))
    assert np.flatnonzero(window_mask([(1, 2), (5, 5)], 8)).tolist() == [1, 2, 5]


def test_concatenated_windows_have_their_sessions_alone():
    panel = synthetic_panel(60, 3)
    short = concat_windows(panel, [(2, 9), (40, 44)])
    chosen = [*range(2, 10), *range(40, 45)]
    assert short.sessions.tolist() == panel.sessions[chosen].tolist()
    assert all(np.array_equal(found, whole[chosen]) for found, whole in zip(arrays(short), arrays(panel), strict=True))
    assert concat_windows(synthetic_panel(60, 3, opens=False), [(2, 9)]).high_returns is None


def test_panel_of_features_in_another_order_is_the_same():
    returns = bar_returns(TABLES.clean_bars)
    features = compute_features(returns)
    assert panel_digest(build_panel(returns, features.reverse(), NEW_YORK)) == panel_digest(
        build_panel(returns, features, NEW_YORK)
    )
