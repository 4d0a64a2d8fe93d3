import ast
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.signal import butter, filtfilt
from scipy.stats import linregress

import nvtrader_pipelines
from nvtrader_pipelines.market.regimes import (
    SliceAndMergeRegimeParams,
    equal_weight_index,
    regime_labels,
    segment_regimes,
)
from nvtrader_pipelines.market.tables import REGIMES
from tests.markets import csv_file, market_tables, synthetic_bars

PARAMS = SliceAndMergeRegimeParams()
# Drifts per session whose signs alternate, so that each change of regime is a turning point.
DRIFTS = {"strong_up": 0.01, "strong_down": -0.01, "sideways": 0.002, "weak_down": -0.002}
LENGTH, REPEATS = 40, 4
PACKAGE = Path(nvtrader_pipelines.__file__).parent
DECIDING = ("market/features", "market/panel.py", "market/history.py", "portfolio", "envs", "policies")


def known_market(noise=0.0, seed=0):
    """Returns of a market whose regimes are known, and their names."""
    names = np.repeat([*DRIFTS] * REPEATS, LENGTH)
    drifts = np.repeat([*DRIFTS.values()] * REPEATS, LENGTH)
    return np.expm1(drifts + np.random.default_rng(seed).normal(0.0, noise, len(drifts))), names


def random_market(seed, n_sessions=400, deviation=0.012):
    return np.expm1(np.random.default_rng(seed).normal(0.0003, deviation, n_sessions))


def names_of(found, params=PARAMS):
    return np.array(params.names)[found.labels][found.segments]


@pytest.mark.parametrize("noise", [0.0, 0.0005])
def test_regimes_of_known_drifts_are_found(noise):
    returns, known = known_market(noise)
    found = segment_regimes(returns, PARAMS)
    assert len(found.starts) == len(DRIFTS) * REPEATS
    assert np.abs(found.starts - LENGTH * np.arange(len(found.starts))).max() <= 4
    assert (names_of(found) == known).mean() > 0.93
    np.testing.assert_allclose(found.slopes, [*DRIFTS.values()] * REPEATS, atol=0.0015)


@pytest.mark.parametrize(("number", "expected"), [(2, {"down", "up"}), (3, {"down", "sideways", "up"})])
def test_fixed_slopes_separate_the_regimes(number, expected):
    params = SliceAndMergeRegimeParams(
        dynamic_number=number, labeling_method="slope", slope_interval=(-0.004, 0.004), min_length_limit=20
    )
    returns, _ = known_market()
    found = segment_regimes(returns, params)
    assert set(names_of(found, params)) == expected
    cuts = [0.0] if number == 2 else [-0.004, 0.004]
    np.testing.assert_array_equal(found.labels, [sum(slope > cut for cut in cuts) for slope in found.slopes])


def plain_segments(returns, params):
    """Compute (start, end, slope) of each segment by loops and another form of the filter."""
    levels = np.cumsum(np.log1p(returns))
    b, a = butter(4, 2.0 / params.min_length_limit)
    filtered = filtfilt(b, a, levels)
    steps = [filtered[t] - filtered[t - 1] for t in range(1, len(filtered))]
    turns = [t + 1 for t in range(1, len(steps)) if (steps[t] > 0) != (steps[t - 1] > 0)]
    starts = [0]
    for turn in turns:
        if min(turn - starts[-1], len(returns) - turn) >= params.min_length_limit:
            starts.append(turn)
    ends = [*starts[1:], len(returns)]
    return [(s, e, linregress(np.arange(s, e), filtered[s:e]).slope) for s, e in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("seed", range(3))
def test_segments_and_slopes_equal_a_plain_implementation(seed):
    returns = random_market(seed, 1500)
    starts, ends, slopes = zip(*plain_segments(returns, PARAMS), strict=True)
    found = segment_regimes(returns, PARAMS)
    assert found.starts.tolist() == list(starts)
    assert np.bincount(found.segments).tolist() == [e - s for s, e in zip(starts, ends, strict=True)]
    np.testing.assert_allclose(found.slopes, slopes, rtol=1e-6, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_sessions=st.integers(125, 600),
    number=st.integers(2, 5),
    shortest=st.integers(3, 25),
    deviation=st.sampled_from([0.0, 1e-6, 0.01, 0.2]),
)
def test_segments_cover_the_market_and_none_is_too_short(seed, n_sessions, number, shortest, deviation):
    params = SliceAndMergeRegimeParams(dynamic_number=number, min_length_limit=shortest)
    found = segment_regimes(random_market(seed, n_sessions, deviation), params)
    lengths = np.bincount(found.segments)
    assert lengths.min() >= shortest
    assert lengths.sum() == n_sessions
    assert (np.diff(found.segments) >= 0).all()
    assert found.starts.tolist() == [0, *np.cumsum(lengths)[:-1]]
    assert set(found.labels) <= set(range(number))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), number=st.integers(2, 5))
def test_quantile_regimes_are_equally_frequent_and_ordered_by_slope(seed, number):
    found = segment_regimes(random_market(seed), SliceAndMergeRegimeParams(dynamic_number=number))
    counts = np.bincount(found.labels, minlength=number)
    assert counts.max() - counts.min() <= 1
    assert (np.diff(found.labels[np.argsort(found.slopes)]) >= 0).all()


def test_regime_labels_look_ahead():
    returns = random_market(1, 600)
    other = np.concatenate([returns[:400], random_market(2, 200, 0.03)])
    known, changed = names_of(segment_regimes(returns))[:400], names_of(segment_regimes(other))[:400]
    assert (known[300:] != changed[300:]).any()
    assert (known[:300] != changed[:300]).any()  # by the quantiles alone


def test_segments_of_a_market_are_reproducible():
    first, second = (segment_regimes(random_market(5)) for _ in range(2))
    assert all(getattr(first, name).tobytes() == getattr(second, name).tobytes() for name in vars(first))


def test_flat_market_is_one_segment():
    found = segment_regimes(np.zeros(100))
    assert found.starts.tolist() == [0]
    assert found.slopes.tolist() == [0.0]


@pytest.mark.parametrize(
    "returns", [np.zeros(47), np.zeros((100, 2)), np.append(np.zeros(99), np.nan), np.append(np.zeros(99), -1.0)]
)
def test_returns_that_cannot_be_segmented_are_refused(returns):
    with pytest.raises(ValueError):
        segment_regimes(returns, PARAMS)


@pytest.mark.parametrize(
    ("field", "value"),
    [("dynamic_number", 6), ("min_length_limit", 2), ("labeling_method", "dtw"), ("slope_interval", (0.1, 0.1))],
)
def test_regime_parameters_out_of_range_are_refused(field, value):
    with pytest.raises(ValidationError):
        SliceAndMergeRegimeParams.model_validate({field: value})


def test_index_compounds_the_mean_of_known_returns():
    rows = pl.DataFrame(
        {
            "session": [1, 1, 2, 2, 3, 3],
            "symbol": ["B", "A", "A", "B", "A", "B"],
            "close_return": [None, None, 0.1, 0.2, -0.5, None],
        }
    )
    index = equal_weight_index(rows)
    assert index["market_return"].to_list() == pytest.approx([0.0, 0.15, -0.5])
    assert index["index_level"].to_list() == pytest.approx([1.0, 1.15, 0.575])


@pytest.fixture(scope="module")
def two_sources():
    long = market_tables(csv_file(synthetic_bars(n_sessions=200))).returns
    short = long.filter(pl.col("session") < long["session"].unique().sort()[47])
    return pl.concat([long.with_columns(source=pl.lit("long")), short.with_columns(source=pl.lit("short"))])


def test_sources_are_labeled_separately_and_short_ones_left_out(two_sources):
    found = regime_labels(two_sources)
    assert found.rows.schema == REGIMES
    assert found.left_out.keys() == {"short"}
    assert found.summary.startswith("200 sessions of 1 markets")
    own = regime_labels(two_sources.filter(pl.col("source") == "long").sample(fraction=1.0, shuffle=True, seed=0))
    assert own.rows.equals(found.rows)
    assert found.rows["session"].is_sorted()
    alone = segment_regimes(found.rows["market_return"].to_numpy())
    assert found.rows["segment"].to_list() == alone.segments.tolist()
    assert found.rows["regime"].to_list() == names_of(alone).tolist()


def test_regime_labels_of_no_source_are_empty(two_sources):
    found = regime_labels(two_sources.clear())
    assert found.rows.is_empty()
    assert found.left_out == {}


def imported_names(path):
    """Yield every module that a file imports, and every name it imports from one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.slow
def test_deciding_code_does_not_import_regime_labels():
    files = [
        file
        for part in DECIDING
        for file in ([PACKAGE / part] if part.endswith(".py") else (PACKAGE / part).rglob("*.py"))
    ]
    assert len(files) > 50
    of_labels = [(file.name, name) for file in files for name in imported_names(file) if "market.regimes" in name]
    assert of_labels == []
