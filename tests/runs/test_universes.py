import datetime as dt

import polars as pl

from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.runs.ratio_views import ratio_views
from nvtrader_pipelines.runs.universes import with_market
from nvtrader_pipelines.storage.tables import MARKET_PANEL
from tests.storage.table_rows import conform

NAMES = tuple("ABCDEFGH")


def versions(store, *choices):
    """Register a version per choice of symbols, beside a panel of eight names, and return rows of them."""
    panel = pl.DataFrame({"source": ["landing"], "symbols": [list(NAMES)]})
    store.tables.replace(MARKET_PANEL, conform(MARKET_PANEL, panel), {})
    rows = []
    for number, symbols in enumerate(choices):
        spec = ExperimentSpec(name=f"e{number}", market=MarketChoice(source="landing", symbols=symbols))
        store.ledger.register(spec)
        rows.append({"source": "landing", "spec_hash": spec.spec_hash, "experiment": spec.name})
    return pl.DataFrame(rows)


def test_universes_of_a_source_are_different_markets(store):
    rows = versions(store, None, NAMES[:4], NAMES, NAMES[3::-1], (*NAMES[:5], "G"), (*NAMES[:5], "H"))
    six = "landing, 6 symbols (A, B, C, D, E and 1 more), choice"
    assert with_market(store, rows)["market"].to_list() == [
        "landing, 8 symbols (A, B, C, D, E and 3 more)",
        "landing, 4 symbols (A, B, C, D)",
        "landing, 8 symbols (A, B, C, D, E and 3 more)",
        "landing, 4 symbols (A, B, C, D)",
        f"{six} 1",
        f"{six} 2",
    ]


def test_one_universe_of_a_source_is_named_by_it(store):
    assert with_market(store, versions(store, None, NAMES))["market"].to_list() == ["landing", "landing"]


def test_review_ranks_the_runs_of_a_universe_alone(store):
    rows = with_market(store, versions(store, None, NAMES[:4], NAMES))
    figures = {"kind": "run", "period": "all", "finished_at": dt.datetime(2024, 1, 2, tzinfo=dt.UTC)}
    entries = [{**row, **figures, "sharpe": sharpe} for row, sharpe in zip(rows.to_dicts(), (1, 3, 2), strict=True)]
    views = ratio_views(entries)
    assert [[row["experiment"] for row in view.rows] for view in views] == [["e2", "e0"], ["e1"]]
    assert [view.name for view in views] == ["all", "1-all"]
    assert [view.title.split(" (")[0] for view in views] == ["landing, 8 symbols", "landing, 4 symbols"]
    assert ratio_views([]) == []
