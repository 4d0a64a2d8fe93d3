"""What a run's page draws and replays: curves, reward terms, weights and decisions of its own account."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import polars.selectors
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.document import Document, row_model
from nvtrader_pipelines.evaluation.guard_telemetry import guard_rows
from nvtrader_pipelines.evaluation.statistics import STATISTICS
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.runs.run_queries import read_leverage
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    EQUITY_CURVES,
    EVALUATIONS,
    REWARD_DECOMPOSITION,
    TRAINING_CURVES,
    TRAJECTORIES,
    Table,
)

N_BUCKETS = 200  # of sessions; each keeps its first, last, lowest and highest value
N_NAMES = 7  # bands of their own
Values = tuple[Annotated[float, Field(allow_inf_nan=False)] | None, ...]
SHARED_FIGURES = TableSchema(
    Column("account", pl.String, "experiment, with the short id where it has several of the runs"),
    EVALUATIONS.schema.only("first_session", "last_session", "n_sessions", *STATISTICS),
    Column("sharpe_difference", pl.Float64, "Sharpe ratio less that of the first run; null for the first"),
    EVALUATIONS.schema.only("sharpe_difference_low", "sharpe_difference_high"),
)


class AccountCurve(Document):
    """Equity and drawdown of an account over the tests, thinned."""

    policy: str
    kind: str  # ensemble or baseline
    sessions: tuple[date, ...]
    equity: Values  # 1 at the start
    drawdown: Values  # positive fractions


class SharedAccount(row_model(SHARED_FIGURES)):
    """Figures of a run over the sessions that all compared runs walked."""


class SharedSessionsDocument(Document):
    """Figures of runs over the sessions they share, and the path of their picture."""

    figures: tuple[SharedAccount, ...]
    curves: tuple[AccountCurve, ...] = Field(default=(), exclude=True)  # for `plot`; not in JSON
    picture: Path | None  # null if there is nothing to draw
    note: str | None  # why there is nothing to draw


class GrossCurve(Document):
    """Gross of the run's account at each close, thinned."""

    sessions: tuple[date, ...]
    before_cap: Values  # before the cap at the close
    gross: Values


class TermCurve(Document):
    """Running sum of a reward term, or of their total, thinned."""

    term: str
    sessions: tuple[date, ...]
    total: Values


class WeightBand(Document):
    """Weight of a name, of all other names or of cash after each trade."""

    name: str
    mean: float
    weights: Values  # by the sessions of the bands


class LearningCurve(Document):
    """Mean reward a step in the training of a fold by a seed."""

    fold: int
    seed: int
    timesteps: tuple[int, ...]
    mean_reward: Values


class TestedFold(Document):
    """Fold whose test can be replayed, with the sessions of its decisions."""

    fold: int
    first: date
    last: date


class RunCharts(Document):
    """Curves of a run over its tests, and of its training, thinned for drawing."""

    equity: tuple[AccountCurve, ...]  # of the run, then of its baselines
    gross: GrossCurve | None  # null where gross is at most 1
    rewards: tuple[TermCurve, ...]  # the total last
    weight_sessions: tuple[date, ...]
    weights: tuple[WeightBand, ...]  # bottom to top
    training: tuple[LearningCurve, ...]

    def frame(self, part: str | None = None) -> pl.DataFrame:
        """Points of a part, by default of the equity, as a frame."""
        return super().frame(part).explode(polars.selectors.list())

    def plot(self) -> Any:
        """Plot equity and drawdown of the run and its baselines."""
        from nvtrader_pipelines.figures.plotly_figures import plot_equity

        curves = [(one.policy, one.sessions, one.equity, one.drawdown) for one in self.equity]
        return plot_equity(curves, f"{curves[0][0] if curves else 'the run'} in its tests, net of costs")


class ReplayedDecision(Document):
    """Decision of a run's account in a test."""

    step: int
    session: date
    equity: float | None
    drawdown: float | None
    turnover: float
    before: Values  # weights held, cash last
    after: Values  # just after the fill
    rewards: dict[str, float]  # of the step that the decision begins, by term
    guards: tuple[str, ...] | None  # that fired, in words; null without guards


class Replay(Document):
    """Decisions of a run's account in the test of a fold, and its equity between them."""

    fold: int
    symbols: tuple[str, ...]  # cash last
    decisions: tuple[ReplayedDecision, ...]
    sessions: tuple[date, ...]
    equity: Values


def run_charts(store: Store, run: LedgerRun) -> RunCharts:
    """Curves of a run; empty where it has no tests."""
    columns = ["policy", "kind", "session", "equity", "drawdown", "gross", "gross_before_cap"]
    equity = _rows(store, run, EQUITY_CURVES, columns)
    accounts = equity.filter(pl.col("kind") != "policy").sort(pl.col("kind") != "ensemble", "policy", "session")
    sessions, bands = _weight_bands(_own(_rows(store, run, ACTION_LOGS)))
    return RunCharts(
        equity=thinned_curves(accounts),
        gross=_gross_curve(_own(equity)) if read_leverage(store, run) else None,
        rewards=tuple(_term_curves(_own(_rows(store, run, REWARD_DECOMPOSITION)))),
        weight_sessions=sessions,
        weights=bands,
        training=tuple(_learning_curves(_rows(store, run, TRAINING_CURVES))),
    )


def has_learned(store: Store, run: LedgerRun) -> bool:
    """Whether the run has learning curves."""
    return bool(len(_rows(store, run, TRAINING_CURVES, ["fold"])))


def tested_folds(store: Store, run: LedgerRun) -> list[TestedFold]:
    """Folds in which a run's own account decided."""
    rows = _own(_rows(store, run, ACTION_LOGS, ["kind", "fold", "session"]))
    spans = rows.group_by("fold").agg(first=pl.col("session").min(), last=pl.col("session").max()).sort("fold")
    return [TestedFold(**row) for row in spans.iter_rows(named=True)]


def replay(store: Store, run: LedgerRun, fold: int) -> Replay:
    """Decisions of a run's own account in the test of a fold.

    Raises:
        StorageError: if the run has no decisions there.
    """
    is_of_fold = pl.col("fold") == fold
    decisions = _own(_rows(store, run, ACTION_LOGS)).filter(is_of_fold).sort("step")
    if decisions.is_empty():
        raise StorageError(f"run {run.run_id} has no decisions of a fold {fold}; its page lists the folds")
    curve = _own(_rows(store, run, EQUITY_CURVES)).sort("session")
    rewards = _own(_rows(store, run, REWARD_DECOMPOSITION)).filter(is_of_fold)
    by_step = {
        step: dict(rows.select("term", "contribution").iter_rows()) for (step,), rows in rewards.group_by("step")
    }
    steps = store.tables.read(TRAJECTORIES, {"run_id": [run.run_id], "kind": ["ensemble"], "fold": [fold]})
    guards = {row["step"]: _guards_in_words(row) for row in guard_rows(steps).iter_rows(named=True)}
    joined = decisions.join(curve.select("session", "equity", "drawdown"), on="session", how="left")
    within = curve.filter(
        is_of_fold | (pl.col("session") == decisions["session"][0])
    )  # its first decision precedes the test
    return Replay(
        fold=fold,
        symbols=tuple(decisions["symbols"][0]),
        decisions=tuple(
            ReplayedDecision(
                step=row["step"],
                session=row["session"],
                equity=row["equity"],
                drawdown=row["drawdown"],
                turnover=float(np.abs(row["trades"][:-1]).sum()),
                before=tuple(np.subtract(row["executed_weights"], row["trades"]).tolist()),
                after=tuple(row["executed_weights"]),
                rewards=by_step.get(row["step"], {}),
                guards=guards.get(row["step"]),
            )
            for row in joined.iter_rows(named=True)
        ),
        sessions=tuple(within["session"]),
        equity=tuple(within["equity"]),
    )


def thinned_curves(rows: pl.DataFrame) -> tuple[AccountCurve, ...]:
    """Thin curves of accounts (policy, kind, session, equity, drawdown), in order."""
    return tuple(map(_account_curve, rows.partition_by("policy", maintain_order=True)))


def kept_places(values: NDArray[np.float64], n_buckets: int = N_BUCKETS) -> NDArray[np.int64]:
    """Places (k,) of values (n,) to draw: of each bucket the first, the last, the lowest and the highest."""
    if len(values) <= 4 * n_buckets:
        return np.arange(len(values))
    buckets = np.array_split(np.arange(len(values)), n_buckets)
    kept = [
        {int(rows[0]), int(rows[-1]), int(rows[values[rows].argmin()]), int(rows[values[rows].argmax()])}
        for rows in buckets
    ]
    return np.array(sorted(set().union(*kept)))


def _rows(store: Store, run: LedgerRun, table: Table, columns: Sequence[str] | None = None) -> pl.DataFrame:
    return store.tables.read(table, {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}, columns)


def _own(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the run's own account: the mean of its seeds, or its only policy."""
    return rows.filter(kind="ensemble")


def _account_curve(rows: pl.DataFrame) -> AccountCurve:
    places = np.union1d(kept_places(rows["equity"].to_numpy()), kept_places(rows["drawdown"].to_numpy()))
    thinned = rows[places]
    return AccountCurve(
        policy=rows["policy"][0],
        kind=rows["kind"][0],
        sessions=tuple(thinned["session"]),
        equity=tuple(thinned["equity"]),
        drawdown=tuple(thinned["drawdown"]),
    )


def _gross_curve(rows: pl.DataFrame) -> GrossCurve:
    ordered = rows.sort("session")
    places = [kept_places(ordered[name].to_numpy()) for name in ("gross_before_cap", "gross")]
    thinned = ordered[np.union1d(*places)]
    return GrossCurve(
        sessions=tuple(thinned["session"]),
        before_cap=tuple(thinned["gross_before_cap"]),
        gross=tuple(thinned["gross"]),
    )


def _guards_in_words(guards: Mapping[str, Any]) -> tuple[str, ...]:
    """Guards of a decision that fired, and what they applied."""
    words = {
        f"drawdown: weights scaled by {guards['scale']:.2f}": guards["drawdown"],
        "negative return": guards["negative_return"],
        "turnover": guards["turnover"],
        f"names shut down: {guards['n_shutdown']}": guards["n_shutdown"],
    }
    return tuple(text for text, has_fired in words.items() if has_fired)


def _term_curves(rows: pl.DataFrame) -> list[TermCurve]:
    summed = rows.group_by("session").agg(pl.col("contribution").sum()).with_columns(term=pl.lit("total"))
    parts = rows.select("session", "contribution", "term").sort("term").partition_by("term", maintain_order=True)
    curves = []
    for part in [*parts, summed.select("session", "contribution", "term")]:
        ordered = part.sort("session").with_columns(pl.col("contribution").cum_sum())
        if len(ordered):
            thinned = ordered[kept_places(ordered["contribution"].to_numpy())]
            curve = TermCurve(
                term=part["term"][0], sessions=tuple(thinned["session"]), total=tuple(thinned["contribution"])
            )
            curves.append(curve)
    return curves


def _weight_bands(rows: pl.DataFrame) -> tuple[tuple[date, ...], tuple[WeightBand, ...]]:
    """Sessions, and bands of the largest names, the others and cash; none where the names change."""
    symbols = rows["symbols"].unique()
    if len(symbols) != 1:
        return (), ()
    ordered = rows.sort("session")
    names, weights = symbols[0].to_list(), np.array(ordered["executed_weights"].to_list())
    order = np.argsort(-weights[:, :-1].mean(axis=0), kind="stable")
    largest, others = order[:N_NAMES], order[N_NAMES:]
    bands = {names[i]: weights[:, i] for i in largest}
    if len(others):
        bands[f"{len(others)} others"] = weights[:, others].sum(axis=1)
    bands[CASH] = weights[:, -1]
    places = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), 4 * N_BUCKETS)).astype(int))
    drawn = tuple(
        WeightBand(name=name, mean=float(band.mean()), weights=tuple(band[places].tolist()))
        for name, band in bands.items()
    )
    return tuple(ordered["session"][places]), drawn


def _learning_curves(rows: pl.DataFrame) -> list[LearningCurve]:
    curves = []
    for part in rows.sort("fold", "seed", "timesteps").partition_by("fold", "seed", maintain_order=True):
        thinned = part[kept_places(part["mean_reward"].to_numpy(), n_buckets=30)]
        curve = LearningCurve(
            fold=part["fold"][0],
            seed=part["seed"][0],
            timesteps=tuple(thinned["timesteps"]),
            mean_reward=tuple(thinned["mean_reward"]),
        )
        curves.append(curve)
    return curves
