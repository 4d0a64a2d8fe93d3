"""Leverage of a run's account over its tests, and telemetry of its guards."""

from nvtrader_pipelines.evaluation.account_statistics import Leverage, leverage
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry, decode_guards, guard_telemetry
from nvtrader_pipelines.portfolio.pipeline.stage import ROUNDING
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, TRAJECTORIES


def read_leverage(store: Store, run: LedgerRun) -> Leverage | None:
    """Compute the leverage of a run's account; None if its gross was never above 1 and it paid no financing."""
    closes = store.tables.read(EQUITY_CURVES, _account(run), ["gross", "financing"]).drop_nulls()  # null in old rows
    if not (closes["gross"] > 1.0 + ROUNDING).any() and not (closes["financing"] > 0.0).any():
        return None
    periods_per_year = store.read_calendars().of(run.source).periods_per_year
    return leverage(closes["gross"].to_numpy(), closes["financing"].to_numpy(), periods_per_year)


def read_guard_telemetry(store: Store, run: LedgerRun) -> GuardTelemetry | None:
    """Compute the telemetry of the guards of a run's account; None without guards."""
    info = store.tables.read(TRAJECTORIES, _account(run), ["info"])["info"]
    if decode_guards(info).is_null().all():
        return None
    gross = store.tables.read(EQUITY_CURVES, _account(run), ["gross"])["gross"]
    return guard_telemetry(info, gross.to_numpy())


def _account(run: LedgerRun) -> dict[str, list[str]]:
    return {"spec_hash": [run.spec_hash], "run_id": [run.run_id], "kind": ["ensemble"]}
