"""Windows of test sessions against sums by hand, and their distance from training."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.session_windows import (
    WINDOW_DISTRIBUTION,
    session_windows,
    window_distribution,
)
from nvtrader_pipelines.evaluation.splits import BacktestPaths, CombinatorialPurged, Holdout, PurgedKFold, WalkForward
from tests.markets import synthetic_sessions

RETURNS = (0.1, -0.5, 0.2, 0.0)
SESSIONS = synthetic_sessions(500)
SPLITTERS = (
    WalkForward(train_months=6, test_months=3),
    WalkForward(train_months=None, first_test=SESSIONS[130].item(), test_months=3),
    Holdout(test_first=SESSIONS[300].item()),
    PurgedKFold(),
    CombinatorialPurged(),
)


def curve(returns=RETURNS, **columns):
    """Rows of one account."""
    sessions = SESSIONS[: len(returns)].tolist()
    return pl.DataFrame(
        {"policy": "ppo", "session": sessions, "net_return": returns, "fold": 0, "episode": 0, **columns}
    )


def curves_of(splitter):
    """Rows of an account that earns nothing, and the training spans of each of its fold numbers."""
    folds = splitter.split(SESSIONS)
    paths = BacktestPaths.of(folds)
    training, rows = {}, []
    for block, deciding in zip(paths.blocks, zip(*paths.by_path, strict=True), strict=True):
        training[block.index] = [span for position in deciding for span in folds[position].train]
        rows += [("ppo", 0, block.index, SESSIONS[t].item(), 0.0) for t in range(block.test_first, block.test_last + 1)]
    columns = ["policy", "episode", "fold", "session", "net_return"]
    return pl.DataFrame(rows, schema=columns, orient="row"), training


def test_windows_compound_returns_and_drawdowns_from_their_own_start():
    windows = session_windows(curve(), 3)
    assert windows["first_session"].to_list() == SESSIONS[:2].tolist()
    assert windows["last_session"].to_list() == SESSIONS[2:4].tolist()
    np.testing.assert_allclose(windows["net_return"], [1.1 * 0.5 * 1.2 - 1.0, 0.5 * 1.2 - 1.0])
    np.testing.assert_allclose(windows["max_drawdown"], [0.5, 0.5])


def test_distribution_has_quartiles_extremes_and_deepest_drawdown():
    (row,) = window_distribution(session_windows(curve(), 2)).iter_rows(named=True)  # -0.45, -0.4 and 0.2
    assert list(row) == list(WINDOW_DISTRIBUTION)
    assert (row["policy"], row["n_windows"]) == ("ppo", 3)
    figures = [row[name] for name in ("minimum", "lower_quartile", "median", "upper_quartile", "maximum")]
    assert figures == pytest.approx([-0.45, -0.425, -0.4, -0.1, 0.2])
    assert row["max_drawdown"] == pytest.approx(0.5)


@pytest.mark.parametrize("part", ["fold", "episode"])
def test_windows_span_neither_two_folds_nor_two_episodes(part):
    parts = [0, 0, 0, 1, 1, 0, 0]  # a number that comes again is another stretch
    windows = session_windows(curve([0.01] * 7, **{part: parts}), 2)
    assert windows["first_session"].to_list() == [SESSIONS[i].item() for i in (0, 1, 3, 5)]


def test_every_account_has_windows_of_its_own():
    accounts = pl.concat([curve(), curve([0.0] * 4, policy="equal_weight")])
    distribution = window_distribution(session_windows(accounts, 4))
    assert distribution["policy"].to_list() == ["ppo", "equal_weight"]
    assert distribution["median"].to_list() == pytest.approx([1.1 * 0.5 * 1.2 - 1.0, 0.0])


@pytest.mark.parametrize("rows", [curve(), curve(fold=[0, 0, 1, 1]), curve().clear()])
def test_tests_shorter_than_a_window_are_refused(rows):
    with pytest.raises(ValueError):
        session_windows(rows)


@pytest.mark.slow
@given(splitter=st.sampled_from(SPLITTERS), n_sessions=st.integers(2, 50))
def test_no_window_has_a_session_of_the_training_that_decides_it(splitter, n_sessions):
    rows, training = curves_of(splitter)
    folds = dict(rows.select("session", "fold").iter_rows())
    windows = session_windows(rows, n_sessions)
    assert len(windows) == sum(count - n_sessions + 1 for count in rows["fold"].value_counts()["count"])
    for first, last in windows.select("first_session", "last_session").iter_rows():
        start, end = np.searchsorted(SESSIONS, np.array([first, last], dtype=SESSIONS.dtype))
        deciding = {folds[SESSIONS[t].item()] for t in range(start, end + 1)}
        spans = [span for fold in deciding for span in training[fold]]
        assert all(end < train_first or start > train_last for train_first, train_last in spans)
