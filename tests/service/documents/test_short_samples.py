import polars as pl

from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED
from nvtrader_pipelines.service.documents.short_samples import is_short, mask_short, short_note


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
