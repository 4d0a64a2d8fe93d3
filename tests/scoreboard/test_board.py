from datetime import date

import polars as pl

from nvtrader_pipelines.runs.run_queries import with_openings
from nvtrader_pipelines.storage.tables import EVALUATIONS, SCOREBOARD
from tests.storage.table_rows import conform

WINDOW = {"first_session": date(2020, 1, 2), "last_session": date(2021, 12, 31)}
ENTRANTS = [("mine", 1.0, [0.9, 1.0]), ("anchor", 0.5, [0.4, 0.5]), ("anchor-landing", 0.7, [0.6, 0.7])]


def test_openings_are_those_of_the_entrant_with_equal_figures(store):
    board = [{"entrant": name, "sharpe": sharpe, "openings": each, **WINDOW} for name, sharpe, each in ENTRANTS]
    store.tables.replace(SCOREBOARD, conform(SCOREBOARD, pl.DataFrame(board)), {})
    account = {"period": "all", "run_id": "1" * 16, **WINDOW}
    rows = [
        {"policy": "mine", "kind": "ensemble", "sharpe": 1.0, "best_baseline": "anchor", **account},
        {"policy": "anchor", "kind": "baseline", "sharpe": 0.7, **account},
        {"policy": "other", "kind": "baseline", "sharpe": 0.5, **account},
        {"policy": "mine", "kind": "ensemble", "sharpe": 1.1, **account, "period": "fold"},
    ]
    verdicts = conform(EVALUATIONS, pl.DataFrame(rows, infer_schema_length=None))
    scored = with_openings(store, verdicts)
    assert scored["openings"].to_list() == [[0.9, 1.0], [0.6, 0.7], None, None]
    assert scored["baseline_openings"].to_list() == [[0.6, 0.7], None, None, None]


def test_openings_are_unknown_before_the_first_scoring(store):
    verdicts = EVALUATIONS.schema.to_frame()
    assert with_openings(store, verdicts).columns[-2:] == ["openings", "baseline_openings"]
