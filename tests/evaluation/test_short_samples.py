import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.short_samples import is_short, mask_short, sharpe_interval, short_note
from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED


def test_mask_short_nulls_annualized_figures_below_minimum_only():
    counts = [MIN_ANNUALIZED - 1, MIN_ANNUALIZED, None]
    rows = pl.DataFrame({"n_sessions": counts, "sharpe": [3.0] * 3, "rank": [1, 2, 3], "max_drawdown": [0.1] * 3})
    found = mask_short(rows)
    assert found["sharpe"].to_list() == [None, 3.0, 3.0]
    assert found["rank"].to_list() == [None, 2, 3]
    assert found["max_drawdown"].to_list() == [0.1] * 3
    assert found.schema == rows.schema


def test_short_note_names_fewest_and_most_sessions_that_are_too_few():
    assert short_note([2, 40, 6, 200, None]).endswith(f": 2 to 40 of {MIN_ANNUALIZED} sessions")
    assert short_note([6, 6]).endswith(f": 6 of {MIN_ANNUALIZED} sessions")
    assert not short_note([MIN_ANNUALIZED, None])
    assert [is_short({"n_sessions": n}) for n in (None, 62, 63)] == [False, True, False]


@pytest.mark.parametrize(
    ("returns", "known"),
    [
        (np.tile([0.01, -0.008], 31), []),  # 62 sessions, fewer than a quarter
        (np.tile([0.01, -0.008], 32), ["s", "s_low", "s_high"]),
        (np.zeros(64), ["s"]),  # constant: a ratio without an error
    ],
)
def test_sharpe_ratio_of_a_short_account_has_an_interval(returns, known):
    figures = sharpe_interval("s", returns, 252)
    assert [name for name, figure in figures.items() if figure is not None] == known
    if len(known) == 3:
        assert figures["s_low"] < figures["s"] < figures["s_high"]
