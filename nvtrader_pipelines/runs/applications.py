"""Applications: presets of experiments, each fitted to a market, so that one call leads from prices to a verdict."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.sources.delivery import LANDING
from nvtrader_pipelines.market.sources.landing import LandingSource
from nvtrader_pipelines.runs.market_state import deliver_prices, panel_sources
from nvtrader_pipelines.runs.registration import fit_history, plan_problem
from nvtrader_pipelines.storage.documents import merge_documents, read_document, validate_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import add_landing_source, read_market, store_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DELIVERIES, SERIES

COINS = LandingSource(name="coins", calendar="24/7")
OF_RANGES = {"cci", "dx"}  # features that need highs and lows
PAPER_ACCOUNT = "paper-month"
PAPER_SESSIONS = 21
_FOLDER = Path(__file__).with_name("presets")  # a file for each application


def deliver_app_files(home: Home, app: str, files: Sequence[Path]) -> None:
    """Copy files to where the application's source reads them; coins get a source that never closes if there is none.

    Raises:
        StorageError: if a file is refused, or the source must be added by hand.
    """
    if app != "crypto":
        deliver_prices(home, files)
    elif files:
        if _coins(home) is None:
            add_landing_source(home, COINS)
        deliver_prices(home, files, _coins(home) or COINS.name)


def require_accepted(store: Store, files: Sequence[Path]) -> None:
    """Raise if ingestion has refused one of the files, or one in a folder of them, whole.

    Raises:
        StorageError: with each reason.
    """
    names = {path.name for file in files for path in (file.iterdir() if file.is_dir() else [file])}
    rows = store.tables.read(DELIVERIES, columns=["file", "reason"]).drop_nulls("reason")
    refused = [f"{file}: {reason}" for file, reason in rows.iter_rows() if PurePosixPath(file).name in names]
    if refused:
        raise StorageError(f"no experiment ran, since files were refused: {'; '.join(refused)}")


def app_source(store: Store, app: str) -> str:
    """Source of an application: of coins the first that never closes, else `landing` where it has prices, or `sample`.

    Raises:
        ValueError: if there is no source of coins.
    """
    if app != "crypto":
        return LANDING if LANDING in panel_sources(store) else MarketChoice().source
    coins = _coins(store.home)
    if coins is None:
        raise ValueError(
            "crypto needs daily bars of coins, but no source of the market never closes; deliver them: "
            "`nvtrader apps crypto --files FOLDER`"
        )
    return coins


def _coins(home: Home) -> str | None:
    market = read_market(home)
    names = (name for name in market.landing_names if market.calendars.of(name).never_closes)
    return next(names, None)


def store_app(store: Store, app: str, timesteps: int | None = None) -> str:
    """Write the experiment of an application, which replaces that of an earlier call; return its name.

    Raises:
        StorageError: as `app_content`, or if a person wrote an experiment of its name.
        ValueError: as `app_content`, or if the market cannot run it.
    """
    spec = validate_document(app_content(store, app, timesteps), ExperimentSpec, f"the preset of {app} is not valid")
    if problem := plan_problem(store, spec):
        raise ValueError(problem)
    return store_experiment(store.home, spec).name


def app_content(store: Store, app: str, timesteps: int | None = None) -> dict[str, Any]:
    """Content of an application's experiment: its preset, over what fits the history of its market.

    Raises:
        StorageError: if its source is not ingested.
        ValueError: if there is no source of coins or no fundamental, or the market is too short.
    """
    source = app_source(store, app)
    preset = read_document(_FOLDER / f"{app}.yaml")
    content = merge_documents(fit_history(store, source), preset)
    panel = store.panels.read(MarketChoice(source=source))
    features = [] if app != "fundamentals" else _fundamentals(store, panel.symbols)
    features += preset.get("market", {}).get("features", [])
    if panel.high_returns is None:
        features = [feature for feature in features if feature["kind"] not in OF_RANGES]
    content["market"] = {"source": source, **({"features": features} if features else {})}
    if timesteps is not None:
        agents = content["agent"].get("members", [content["agent"]])
        for agent in agents:
            agent["total_timesteps"] = timesteps
    return content


def month_to_trade(store: Store) -> tuple[date | None, date]:
    """First and last of the last 21 sessions of the market that `paper` trades.

    An account that is open goes on from its last close, so that there is no first session.
    """
    sessions = store.panels.read(MarketChoice(source=app_source(store, "paper"))).sessions[-PAPER_SESSIONS:]
    first = None if store.book(PAPER_ACCOUNT).last() else sessions[0].item()
    return first, sessions[-1].item()


def _fundamentals(store: Store, symbols: Sequence[str]) -> list[dict[str, Any]]:
    """Features of every field that was delivered for one of the names.

    Raises:
        ValueError: if there is no fundamental of these names.
    """
    rows = store.tables.read(SERIES, columns=["symbol", "field"]).unique().sort("field")
    fields = rows.filter(pl.col("symbol").is_in(symbols))["field"].unique(maintain_order=True)
    if fields.is_empty():
        raise ValueError(
            "fundamentals needs a file `symbol,published,field,value` of the market's names, but none was delivered: "
            "`nvtrader apps fundamentals --files FOLDER` takes it beside their prices"
        )
    return [{"kind": "fundamental", "field": field} for field in fields]
