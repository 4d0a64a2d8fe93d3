"""What PRUDEX-Compass is computed from, read from the tables: only the latest runs, only the columns it needs."""

from nvtrader_pipelines.evaluation.prudex.record import ACTIONS, CURVES, RETURNS, PrudexRecord, latest_runs
from nvtrader_pipelines.market.features import FEATURES as MARKET_FEATURES
from nvtrader_pipelines.storage.runs import walk_forward_runs
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, FEATURES
from nvtrader_pipelines.storage.tables import RETURNS as RETURNS_TABLE
from nvtrader_pipelines.storage.warehouse import Warehouse


def read_record(lake: Warehouse) -> PrudexRecord:
    """The rows of each experiment's latest completed run on each market, and of the markets in their years."""
    keys = ["run_id", "spec_hash", "experiment", "source", "window_first", "window_last", "finished_at"]
    runs = latest_runs(walk_forward_runs(lake, keys))
    where = {"spec_hash": runs["spec_hash"].unique().to_list(), "run_id": runs["run_id"].to_list()}
    first, last = runs["window_first"].min(), runs["window_last"].max()
    actions = lake.read(ACTION_LOGS, where, ACTIONS)
    # the first decision is made before the first test session, which may be in the year before
    years = list(range(first.year - 1, last.year + 1)) if first and last else []
    market = {"source": runs["source"].unique().to_list(), "year": years}
    columns = ("source", "symbol", "session", *(feature.name for feature in MARKET_FEATURES))
    features = lake.read(FEATURES, market, columns).join(actions.select("session").unique(), on="session", how="semi")
    return PrudexRecord(
        runs.select("run_id", "experiment", "source", "finished_at"),
        lake.read(EQUITY_CURVES, where, CURVES),
        actions,
        lake.read(RETURNS_TABLE, market, RETURNS),
        features,
    )
