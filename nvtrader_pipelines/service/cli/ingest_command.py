"""`nvtrader ingest`: ingest files of prices without training, and show a summary."""

from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.options import open_store
from nvtrader_pipelines.service.cli.output import wide_console, write_json

EXAMPLES = ("nvtrader ingest", "nvtrader ingest prices.csv", "nvtrader ingest --json")
Files = Annotated[
    list[Path] | None,
    typer.Argument(
        help="CSV or Parquet files, or folders of them, to copy into data/landing; one of the same name is replaced."
    ),
]


def ingest(files: Files = None, *, as_json: bool) -> None:
    """Ingest and clean files without training; show rows kept, refused, and coverage, if anything is new."""
    import polars as pl

    from nvtrader_pipelines.orchestration.materialize import update_market
    from nvtrader_pipelines.runs.market_state import deliver_prices, market_is_current
    from nvtrader_pipelines.runs.market_summary import summarize_market
    from nvtrader_pipelines.runs.registration import experiment_warnings
    from nvtrader_pipelines.service.cli.pages.market_page import print_market, print_unchanged

    store = open_store()
    deliver_prices(store.home, files or [])
    if market_is_current(store) and not as_json:
        print_unchanged(summarize_market(store))
        return
    update_market(store, quiet=as_json)
    summary, experiments = summarize_market(store), experiment_warnings(store)
    if not as_json:
        print_market(summary, wide_console(), experiments)
        return
    facts = {k: v.to_dicts() if isinstance(v, pl.DataFrame) else v for k, v in vars(summary).items()}
    write_json({**facts, "experiments": experiments})
