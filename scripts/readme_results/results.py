"""Rows of the results in the README, read from the tables of a built home."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.evaluation.findings import deflated_findings, overfitting_findings
from nvtrader_pipelines.evaluation.intervals import Interval
from nvtrader_pipelines.evaluation.timing_luck import Openings, Range, difference_range
from nvtrader_pipelines.evaluation.trials import ANCHORS
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.runs.run_document import with_distinct_names
from nvtrader_pipelines.runs.run_queries import sort_accounts, with_openings
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS, OVERFITTING, RATIO_CURVE, VALIDATION
from scripts.readme_results.differences import paired_differences


class Tolerance(NamedTuple):
    """How much the figures of an account may differ between processors, in their units."""

    sharpe: float
    cagr: float
    max_drawdown: float
    turnover_per_year: float
    cost_per_year: float


TRAINED = Tolerance(sharpe=1e-3, cagr=5e-4, max_drawdown=1e-3, turnover_per_year=1e-2, cost_per_year=5e-5)
SOLVED = Tolerance(1e-5, 1e-5, 1e-5, 1e-5, 1e-5)  # nothing is trained


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AccountRow(_Row):
    """Figures of an account over the reported period."""

    policy: str
    is_learned: bool
    is_trained: bool
    sharpe: Interval
    openings: tuple[float, ...]  # Sharpe ratios, see `evaluation.timing_luck`
    cagr: float
    max_drawdown: float
    turnover_per_year: float
    cost_per_year: float
    difference: Interval | None  # of Sharpe ratios, to the best baseline; None for baselines
    over_openings: Range | None  # range of that difference; None where unknown

    @property
    def tolerance(self) -> Tolerance:
        """How much its figures differ between processors."""
        return TRAINED if self.is_trained else SOLVED


class EarlierRow(_Row):
    """Sharpe ratios of a policy and its baselines before the reported period."""

    policy: str
    sharpe: float
    best_baseline: str
    best_baseline_sharpe: float
    anchor: str
    anchor_sharpe: float


class ComparisonRow(_Row):
    """Differences between two accounts over the reported period, paired by session."""

    policy: str
    other: str
    is_other_learned: bool
    sharpe: Interval
    over_openings: Range | None  # range of the difference of Sharpe ratios
    volatility: Interval
    cvar: Interval
    exposure: Interval
    information_ratio: float
    alpha_per_year: float
    alpha_t: float | None


class Results(_Row):
    """All results shown in the README."""

    period: str  # from_<year>, or all
    first_session: date
    last_session: date
    processor: str  # that trained the policies
    n_seeds: int
    n_trials: int
    deflated: float | None  # of the best ranked run's information ratio
    overfitting: float | None  # probability of backtest overfitting
    accounts: tuple[AccountRow, ...]
    earlier: tuple[EarlierRow, ...]
    comparisons: tuple[ComparisonRow, ...]


def read_results(store: Store, source: str, beside: Sequence[tuple[str, str]] = ()) -> Results:
    """Read the results of the newest run of each experiment on a source, in its reported period.

    Args:
        store: store of the home with the runs.
        source: source of the market.
        beside: further pairs of experiments to compare; each is always compared with its anchor, else with 1/N.
    """
    runs = walk_forward_runs(store).filter(~pl.col("validation_only"), source=source).sort("finished_at")
    newest = runs.group_by("experiment", maintain_order=True).last().sort("experiment")
    ids, keys = newest["run_id"].to_list(), newest["partition_key"].to_list()
    sealed = [store.policies.read_sealed(*key) for key in zip(keys, ids, strict=True)]
    trained = {spec.name for spec in map(store.ledger.read, keys) if not spec.agent.is_classical}
    verdicts = store.tables.read(EVALUATIONS, {"run_id": ids}).filter(pl.col("period") != "fold")
    period = reported_period(verdicts["period"])
    shown = with_openings(store, verdicts.filter(pl.col("kind") != "policy", period=period))
    openings = {row["policy"]: row["openings"] or () for row in shown.iter_rows(named=True)}
    own = [name for name in shown.columns if name not in {"spec_hash", "run_id", "experiment"}]
    validation, overfitting = (store.tables.read(table).filter(source=source) for table in (VALIDATION, OVERFITTING))
    luck = deflated_findings(store.tables.read(RATIO_CURVE), validation)
    choice = overfitting_findings(overfitting)
    curves = store.tables.read(
        EQUITY_CURVES, {"run_id": ids}, ["run_id", "policy", "kind", "session", "net_return", "cash"]
    )
    accounts = with_distinct_names(shown.unique(own, maintain_order=True))
    first, last = shown.select(pl.col("first_session").min(), pl.col("last_session").max()).row(0)
    inside = curves.filter(pl.col("session").is_between(first, last))
    seeds = verdicts.filter(kind="policy", period=period).group_by("run_id").len()
    return Results(
        period=period,
        first_session=first,
        last_session=last,
        processor=" and ".join(sorted({run.processor for run in sealed})),
        n_seeds=seeds.select(pl.col("len").max()).item() or 1,
        n_trials=validation.filter(period=period).select(pl.col("n_trials").max()).item(),
        deflated=luck[0].value if luck else None,
        overfitting=choice[0].value if choice else None,
        accounts=tuple(_account(row, trained) for row in sort_accounts(accounts).to_dicts()),
        earlier=tuple(_earlier(verdicts, period, name) for name in newest["experiment"]) if period != "all" else (),
        comparisons=tuple(_compare(inside, newest, openings, *pair) for pair in (*_to_anchors(shown, newest), *beside)),
    )


def _account(row: Mapping[str, Any], trained: Collection[str]) -> AccountRow:
    difference, low, high = (row[f"sharpe_difference{bound}"] for bound in ("", "_low", "_high"))
    names = ("cagr", "max_drawdown", "turnover_per_year", "cost_per_year")
    return AccountRow(
        policy=row["policy"],
        is_learned=row["kind"] != "baseline",
        is_trained=row["policy"] in trained,
        sharpe=Interval(row["sharpe"], row["sharpe_low"], row["sharpe_high"]),
        openings=tuple(row["openings"] or ()),
        difference=None if difference is None else Interval(difference, low, high),
        over_openings=difference_range(row["openings"] or (), row["baseline_openings"] or ()),
        **{name: row[name] for name in names},
    )


def _earlier(verdicts: pl.DataFrame, period: str, experiment: str) -> EarlierRow:
    rows = verdicts.filter(experiment=experiment, period=period.replace("from_", "before_"))
    sharpes = dict(rows.filter(kind="baseline").select("policy", "sharpe").iter_rows())
    (own,) = rows.filter(kind="ensemble").to_dicts()
    anchor = next(name for name in (*ANCHORS, own["best_baseline"]) if name in sharpes)
    return EarlierRow(
        policy=experiment,
        sharpe=own["sharpe"],
        best_baseline=own["best_baseline"],
        best_baseline_sharpe=sharpes[own["best_baseline"]],
        anchor=anchor,
        anchor_sharpe=sharpes[anchor],
    )


def _to_anchors(shown: pl.DataFrame, newest: pl.DataFrame) -> list[tuple[str, str]]:
    """Pair each experiment with its anchor, else with 1/N."""
    pairs = []
    for run_id, name in newest.select("run_id", "experiment").iter_rows():
        baselines = shown.filter(run_id=run_id, kind="baseline")["policy"].to_list()
        pairs += [(name, each) for each in ANCHORS if each in baselines][:1]
    return pairs


def _compare(
    curves: pl.DataFrame, newest: pl.DataFrame, openings: Mapping[str, Openings], name: str, other: str
) -> ComparisonRow:
    """Compare an experiment's account with a baseline of its run, or with another experiment's."""
    runs = dict(newest.select("experiment", "run_id").iter_rows())
    accounts = [(runs[name], name), (runs.get(other, runs[name]), other)]
    own, theirs = (
        curves.filter(pl.col("kind") != "policy", run_id=run, policy=policy).sort("session") for run, policy in accounts
    )
    paired = own.join(theirs, on="session", how="inner", validate="1:1", maintain_order="left")
    net_returns, cash = (paired.select(each, f"{each}_right").to_numpy() for each in ("net_return", "cash"))
    found = paired_differences(net_returns, cash)
    return ComparisonRow(
        policy=name,
        other=other,
        is_other_learned=other in runs,
        sharpe=found.sharpe,
        over_openings=difference_range(openings[name], openings[other]),
        volatility=found.volatility,
        cvar=found.cvar,
        exposure=found.exposure,
        information_ratio=found.information_ratio,
        alpha_per_year=found.model.alpha_per_year,
        alpha_t=found.model.alpha_t,
    )
