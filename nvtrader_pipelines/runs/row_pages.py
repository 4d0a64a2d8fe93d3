"""Rows of a run in pages, or thinned for drawing."""

from collections.abc import Mapping
from typing import Any, Generic

import polars as pl

from nvtrader_pipelines.components.document import Document, Row, row_model, rows_of
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.row_queries import (
    ACTION_ROWS,
    EPISODE_ROWS,
    EQUITY_ROWS,
    REWARD_ROWS,
    TRAJECTORY_ROWS,
    RowSource,
    read_row_page,
    read_thinned_rows,
)


class EquityRow(row_model(EQUITY_ROWS.schema)):
    """Session of an account."""


class TrajectoryRow(row_model(TRAJECTORY_ROWS.schema)):
    """Step of an account; thinned ones lack action and info."""


class RewardRow(row_model(REWARD_ROWS.schema)):
    """Term of a step's reward."""


class ActionRow(row_model(ACTION_ROWS.schema)):
    """Decision of an account."""


class EpisodeRow(row_model(EPISODE_ROWS.schema)):
    """Summary of an episode."""


class RowPage(Document, Generic[Row]):
    """Rows, and the number of rows up to their end if more follow."""

    rows: tuple[Row, ...]
    next: int | None  # `after` of the next page; null at the end, and for thinned rows


SOURCES: dict[type[Document], RowSource] = {
    EquityRow: EQUITY_ROWS,
    TrajectoryRow: TRAJECTORY_ROWS,
    RewardRow: REWARD_ROWS,
    ActionRow: ACTION_ROWS,
    EpisodeRow: EPISODE_ROWS,
}


def row_page(
    store: Store, model: type[Row], run: LedgerRun, equal: Mapping[str, Any], limit: int, after: int
) -> RowPage[Row]:
    """Read a page of a run's rows whose columns have these values."""
    rows = read_row_page(store, SOURCES[model], run, equal, limit + 1, after)
    return _page(model, rows.head(limit), after + limit if len(rows) > limit else None)


def thinned_rows(store: Store, model: type[Row], run: LedgerRun, equal: Mapping[str, Any], points: int) -> RowPage[Row]:
    """Read the rows that draw a run's curves, each by at most `points` rows."""
    return _page(model, read_thinned_rows(store, SOURCES[model], run, equal, points), None)


def _page(model: type[Row], rows: pl.DataFrame, following: int | None) -> RowPage[Row]:
    return RowPage[model](rows=rows_of(model, rows), next=following)
