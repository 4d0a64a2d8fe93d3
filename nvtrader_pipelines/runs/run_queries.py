"""Queries of runs: by name, listed, compared; their verdicts, leverage and guards."""

from collections.abc import Sequence

import polars as pl

from nvtrader_pipelines.components.columns import TableSchema
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.account_statistics import Leverage, leverage
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry, decode_guards, guard_telemetry
from nvtrader_pipelines.evaluation.short_samples import mask_short
from nvtrader_pipelines.portfolio.pipeline.stage import ROUNDING
from nvtrader_pipelines.runs.run_tables import suggest_run, walk_forward_runs
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.ledger import SHOWN_STATUS, Ledger, LedgerRun, schema
from nvtrader_pipelines.storage.spec_versions import document_differences, version_content
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS, RUNS, SCOREBOARD, TRAJECTORIES

KEYS = ("spec_hash", "run_id", "experiment", "fold")  # columns of a verdict that are the same in all rows of a run
LIST_COLUMNS = (
    *("run_id", "kind", "status", "partition_key", "source", "window_first", "window_last", "parent_run_id"),
    *("started_at", "finished_at", "message"),
)
LIST_FIGURES = ("sharpe", "sharpe_low", "sharpe_high", "max_drawdown", "n_sessions")
LISTED_RUNS = TableSchema(
    schema.polars_schema(schema.RUNS).only(*LIST_COLUMNS),
    EVALUATIONS.schema.only(*LIST_FIGURES),
    RUNS.schema.only("validation_only"),
    schema.polars_schema(schema.ANNOTATIONS).only("tags"),
)
COMPARED_COLUMNS = ("run_id", "partition_key", "kind", "status", "window_first", "window_last")
SAME_SHARPE = 1e-9
COMPARED_FIGURES = EVALUATIONS.schema.without(*KEYS, "policy", "kind", "period")


def find_run_by_name(ledger: Ledger, text: str) -> LedgerRun:
    """Find a run by its id, or the newest training run of an experiment or version.

    A deleted run of an experiment is found only if it has no other.

    Raises:
        NotFoundError: if no run or several runs match.
    """
    if not text.strip():
        raise NotFoundError("a run is named by its id or an experiment, but the name is empty; see `nvtrader runs`")
    runs = ledger.runs(with_deleted=True, with_worlds=True).sort(
        pl.col("deleted_at").is_not_null(), maintain_order=True
    )
    named = (pl.col("partition_key") == text) | pl.col("partition_key").str.starts_with(f"{text}@")
    of_experiment = runs.filter(named, pl.col("parent_run_id").is_null())
    if len(of_experiment):
        return ledger.run(of_experiment["run_id"][0])
    if not runs["run_id"].str.starts_with(text).any():
        near = suggest_run(runs, text) or ";"
        raise NotFoundError(
            f"no run's id begins with {text!r}, and no experiment of that name has a run{near} see `nvtrader runs`"
        )
    return ledger.find_run(text)


def require_trained_run(store: Store, text: str) -> LedgerRun:
    """Find a run as `find_run_by_name` does, and raise unless all its policies are trained.

    Raises:
        StorageError: if no run matches, or policies are missing.
    """
    run = find_run_by_name(store.ledger, text)
    require_portfolios(run)
    verb = "trains it again" if run.deleted_at else "resumes it"
    if not store.policies.is_sealed(run.partition_key, run.parent_run_id or run.run_id):
        name = run.partition_key.partition("@")[0]
        raise StorageError(
            f"all policies of run {run.run_id} of {run.partition_key} must be trained, but it is {run.shown_status}; "
            f"`nvtrader experiments run {name}` {verb}"
        )
    return run


def require_portfolios(run: LedgerRun) -> None:
    """Raise if a run is one in a world.

    Raises:
        StorageError: with the command that shows it.
    """
    if run.kind == "world":
        name = run.partition_key.partition("@")[0]
        raise StorageError(
            f"run {run.run_id} must hold portfolios, but is one in a world; `nvtrader worlds show {name}` shows it"
        )


def list_runs(store: Store, *, everything: bool = False) -> pl.DataFrame:
    """List runs, newest first, with the figures of verdicts where there are any.

    Deleted runs and those of archived experiments are only listed with `everything`.
    """
    figures = ensemble_rows(store.tables.read(EVALUATIONS)).select("run_id", *LIST_FIGURES)
    runs = store.ledger.runs(with_deleted=everything, with_worlds=True).with_columns(SHOWN_STATUS)
    runs = runs.select(LIST_COLUMNS)
    if not everything:
        name = pl.col("partition_key").str.split("@").list.first()
        runs = runs.filter(~name.is_in(list(store.ledger.archived_names())))
    marks = walk_forward_runs(store, ["run_id", "validation_only"])
    listed = runs.join(figures, on="run_id", how="left").join(marks, on="run_id", how="left")
    listed = listed.join(store.ledger.annotations().select("run_id", "tags"), on="run_id", how="left")
    return listed.with_columns(pl.col("validation_only").fill_null(value=False), pl.col("tags").fill_null("")).sort(
        "started_at", descending=True
    )


def verdict_rows(store: Store, run_id: str) -> pl.DataFrame:
    """Rows of the verdict on a run by account and period; no folds, short samples masked."""
    rows = store.tables.read(EVALUATIONS, {"run_id": [run_id]}).filter(pl.col("period") != "fold")
    return mask_short(sort_accounts(rows)).drop(KEYS)


def with_openings(store: Store, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add `openings` and `baseline_openings` of the scoreboard to rows of one or more verdicts.

    They are null in periods that the scoreboard does not score. An account is that of an entrant if name, sessions and
    Sharpe ratio agree; names of baselines may have a suffix there.
    """
    window = ["first_session", "last_session"]
    board = store.tables.read(SCOREBOARD, columns=[*window, "entrant", "sharpe", "openings"]).drop_nulls("openings")
    rows = verdicts.with_row_index("row")
    pairs = rows.select("row", "policy", "sharpe", *window).join(board, on=window, suffix="_scored")
    is_same = (pl.col("sharpe") - pl.col("sharpe_scored")).abs() <= SAME_SHARPE
    is_named = (pl.col("entrant") == pl.col("policy")) | pl.col("entrant").str.starts_with(pl.col("policy") + "-")
    matched = pairs.filter(is_same, is_named).unique("row").select("row", "openings")
    rows = rows.join(matched, on="row", how="left", maintain_order="left").drop("row")
    run = [name for name in ("run_id",) if name in rows.columns]
    baselines = rows.filter(kind="baseline").select(
        "period", *window, *run, pl.col("policy").alias("best_baseline"), pl.col("openings").alias("baseline_openings")
    )
    keys = ["best_baseline", "period", *window, *run]
    return rows.join(baselines.unique(keys), on=keys, how="left", maintain_order="left", nulls_equal=True)


def fold_rows(store: Store, run_id: str) -> pl.DataFrame:
    """Rows of the verdict on a run's own account by fold."""
    return store.tables.read(EVALUATIONS, {"run_id": [run_id]}).filter(period="fold", kind="ensemble").sort("fold")


def sort_accounts(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Sort by period, then experiments, single policies and baselines, best first."""
    order = pl.col("kind").replace_strict({"ensemble": 0, "policy": 1, "baseline": 2}, return_dtype=pl.Int8)
    return verdicts.sort("period", order, "sharpe", descending=[False, False, True])


def stage_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Rows of stages by fold and seed: first time, number of events, and last message."""
    of_stage = events.group_by("stage", "fold", "seed", maintain_order=True)
    rows = of_stage.agg(pl.col("timestamp").first().alias("first"), pl.len().alias("n"), pl.col("message").last())
    return rows.select("first", "stage", "fold", "seed", "n", "message")


def ensemble_rows(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Rows of the experiments' accounts over all test sessions; short samples masked."""
    return mask_short(verdicts.filter(pl.col("kind") == "ensemble", pl.col("period") == "all"))


def compare_runs(store: Store, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """Rows of runs, in the given order, with the figures of each experiment's account."""
    rows = pl.DataFrame(
        [{name: getattr(run, name) for name in COMPARED_COLUMNS} | {"status": run.shown_status} for run in runs]
    )
    verdicts = store.tables.read(EVALUATIONS, {"run_id": [run.run_id for run in runs]})
    figures = ensemble_rows(verdicts).select("run_id", *COMPARED_FIGURES)
    return rows.join(figures, on="run_id", how="left", maintain_order="left")


def compare_specs(ledger: Ledger, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """Rows of fields that differ from the first run's spec: run, field, left (first), right."""
    first = version_content(ledger, runs[0].partition_key)
    parts = [
        document_differences(first, version_content(ledger, run.partition_key)).select(
            pl.lit(short_id(run.run_id)).alias("run"), pl.all()
        )
        for run in runs[1:]
    ]
    return pl.concat(parts)


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
