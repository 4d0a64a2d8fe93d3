"""Asset checks of market and run tables: schemas, gaps, NaN and identities."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import dagster as dg
import polars as pl

from nvtrader_pipelines.evaluation.findings import (
    FINDINGS,
    MAX_OVERFITTING,
    MIN_DEFLATED,
    PromotionFinding,
    deflated_findings,
    overfitting_findings,
)
from nvtrader_pipelines.evaluation.invariants import (
    equity_gaps,
    inconsistent_entrants,
    off_portfolio,
    outside_unit_interval,
    reward_gaps,
    training_leaks,
)
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.cleaning import files_without_good_rows
from nvtrader_pipelines.market.returns import calendar_gaps, describe_gaps
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import asset_key
from nvtrader_pipelines.preferences.pair_leaks import (
    age_of_labels,
    duplicate_pairs,
    leaking_pairs,
    unbalanced_candidates,
)
from nvtrader_pipelines.runs.ingestion import count_non_finite
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.runs.market_summary import read_basis_changes
from nvtrader_pipelines.runs.run_tables import read_run
from nvtrader_pipelines.storage.policy_library import LATEST, training_windows
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    BARS,
    CLEAN_BARS,
    DECISIONS,
    DELIVERIES,
    EQUITY_CURVES,
    FEATURES,
    MARKET_PANEL,
    OVERFITTING,
    PREFERENCE_PAIRS,
    PRUDEX,
    QUARANTINE,
    RATIO_CURVE,
    REFUSED_DECISIONS,
    REGIME_EVALUATION,
    RETURNS,
    REWARD_DECOMPOSITION,
    SCOREBOARD,
    SCORECARDS,
    STRESS,
    TRAJECTORIES,
    VALIDATION,
    Table,
)

PARTITION_TAG = "dagster/partition"
MAX_LABEL_DAYS = 92
MAX_ROWS_SHOWN = 20  # violations listed in the metadata
FINITE = (RETURNS, FEATURES, VALIDATION, OVERFITTING, REGIME_EVALUATION, STRESS, PRUDEX, SCORECARDS, SCOREBOARD)
PROBABILITIES = {
    VALIDATION: ("probabilistic_sharpe", "deflated_sharpe", "p_value", "holm", "benjamini_hochberg"),
    OVERFITTING: ("probability_of_overfitting", "probability_of_loss"),
}


def first_rows(rows: pl.DataFrame) -> dg.MarkdownMetadataValue:
    """First rows as a Markdown table."""
    with pl.Config(tbl_formatting="MARKDOWN", tbl_hide_dataframe_shape=True, tbl_rows=MAX_ROWS_SHOWN, tbl_cols=20):
        return dg.MetadataValue.md(str(rows.head(MAX_ROWS_SHOWN)))


def check_result(
    broken: pl.DataFrame, checked: int, severity: Any = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    """Result of a check that passes if no row violates it."""
    metadata: dict[str, Any] = {"checked": checked, "broken": len(broken)}
    if len(broken):
        metadata["rows"] = first_rows(broken)
    return dg.AssetCheckResult(passed=broken.is_empty(), severity=severity, metadata=metadata)


def table_check(
    table: Table, name: str, violations: Callable[[pl.DataFrame], pl.DataFrame], description: str
) -> dg.AssetChecksDefinition:
    """Build a blocking check that no row of a table violates a condition."""

    @dg.asset_check(asset=asset_key(table), name=name, blocking=True, description=description)
    def check(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        rows = store.tables.read(table)
        return check_result(violations(rows), len(rows))

    return check


def schema_check(table: Table) -> dg.AssetChecksDefinition:
    """Build a blocking check that a table of the market has the values of its pandera schema."""

    @dg.asset_check(
        asset=asset_key(table), name="schema", blocking=True, description=f"{table.name} conforms to its schema."
    )
    def check(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        import pandera.errors  # takes most of a second to import, with the schemas

        from nvtrader_pipelines.market.schemas import market_schema

        rows = store.tables.read(table)
        try:
            market_schema(table.table, store.read_calendars()).validate(rows, lazy=True)
        except pandera.errors.SchemaErrors as errors:
            return check_result(pl.DataFrame(errors.failure_cases), len(rows))
        return check_result(rows.clear(), len(rows))

    return check


def non_finite_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with a NaN or an infinity; unknown values are null."""
    floats = [pl.col(name) for name, kind in rows.schema.items() if kind.is_float()]
    return rows.filter(pl.any_horizontal(column.is_nan() | column.is_infinite() for column in floats))


@dg.asset_check(asset=asset_key(RETURNS), description="No symbol misses a session between its first and last bar.")
def calendar_has_no_gaps(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Warn only: the environment bridges short gaps, and a name with a long one is left out."""
    rows = store.tables.read(RETURNS, columns=["source", "symbol", "session", "span"])
    calendars = store.read_calendars()
    parts = [calendar_gaps(part, calendars.of(part["source"][0])) for part in rows.partition_by("source")]
    gaps = pl.concat([calendar_gaps(rows.clear(), NEW_YORK), *parts])  # columns, where there is no part
    result = check_result(gaps, len(rows), dg.AssetCheckSeverity.WARN)
    return result._replace(description="\n".join(describe_gaps(gaps, MarketChoice().max_gap)[-MAX_ROWS_SHOWN:]))


@dg.asset_check(asset=asset_key(CLEAN_BARS), description="Every delivered file has at least one valid bar.")
def every_file_has_a_good_bar(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Do not block: one bad file must not stop the others."""
    delivered = store.tables.read(DELIVERIES)
    return check_result(files_without_good_rows(store.tables.read(BARS), store.tables.read(QUARANTINE)), len(delivered))


@dg.asset_check(
    asset=asset_key(CLEAN_BARS),
    description="No delivery leaves older bars of a symbol on another basis, as one after a split does.",
)
def history_has_one_basis(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Warn only: whether a split or a correction changed the bars, a person must say."""
    return check_result(
        read_basis_changes(store.tables),
        len(store.tables.read(CLEAN_BARS, columns=["source"])),
        dg.AssetCheckSeverity.WARN,
    )


def runs_to_check(context: dg.AssetCheckExecutionContext, store: Store) -> list[SealedRun]:
    """Latest run of the partition; without a partition, of every trained experiment."""
    library, partition_key = store.policies, context.run.tags.get(PARTITION_TAG)
    known = context.instance.get_dynamic_partitions(EXPERIMENTS.name or "")
    trained = [key for key in known if (store.home.policies / key / LATEST).exists()]
    return [library.read_latest(key) for key in ([partition_key] if partition_key else trained)]


def concat_frames(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames; without any, return an empty frame."""
    return pl.concat([pl.DataFrame(), *parts], how="diagonal")


@dg.asset_check(
    asset=asset_key(MARKET_PANEL), name="no_nan", blocking=True, description="No array of a market panel has NaN."
)
def panel_has_no_nan(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Rebuild every pinned panel and look for NaN."""
    return check_result(count_non_finite(store.tables), len(store.tables.read(MARKET_PANEL, columns=["source"])))


def run_check(
    table: Table, name: str, tables: tuple[Table, ...], broken: Callable[..., pl.DataFrame], description: str
) -> dg.AssetChecksDefinition:
    """Build a blocking check of an identity that the rows of a run must satisfy."""

    @dg.asset_check(asset=asset_key(table), name=name, blocking=True, description=description)
    def check(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        frames_by_run = [[read_run(store, table, run) for table in tables] for run in runs_to_check(context, store)]
        return check_result(
            concat_frames(broken(*frames) for frames in frames_by_run), sum(len(frames[0]) for frames in frames_by_run)
        )

    return check


@dg.asset_check(
    asset=asset_key(ACTION_LOGS),
    blocking=True,
    description="Weights sum to one, without debt or short positions beyond the limits of the experiment.",
)
def weights_sum_to_one(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Compare the weights of runs with the risk limits of their experiments."""
    runs = runs_to_check(context, store)
    logs = [read_run(store, ACTION_LOGS, run) for run in runs]
    limits = [store.ledger.read(run.partition_key).pipeline.risk_limits for run in runs]
    broken = (off_portfolio(rows, limit) for rows, limit in zip(logs, limits, strict=True))
    return check_result(concat_frames(broken), sum(map(len, logs)))


@dg.asset_check(
    asset=asset_key(EQUITY_CURVES),
    blocking=True,
    description="No fold was trained on its test sessions, nor closer to them than its purge and embargo allow.",
)
def no_training_in_test(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Compare the training windows on the policy cards with the tested sessions."""
    library = store.policies
    runs = runs_to_check(context, store)
    specs = [store.ledger.read(run.partition_key) for run in runs]
    calendars = store.read_calendars()
    leaks = (
        training_leaks(
            training_windows(run, library.read_run(run)),
            read_run(store, EQUITY_CURVES, run),
            spec.splitter.purge_size,
            spec.splitter.embargo_size,
            calendars.of(spec.market.source),
        )
        for run, spec in zip(runs, specs, strict=True)
    )
    return check_result(concat_frames(leaks), sum(len(run.policies) for run in runs))


@dg.asset_check(
    asset=["policies", "trained_policy"],
    blocking=True,
    description="Every policy file still has the digest recorded when the run was sealed.",
)
def policy_digest(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Hash every policy file of the run again."""
    library, runs = store.policies, runs_to_check(context, store)
    return check_result(
        concat_frames(library.find_tampered_files(run) for run in runs), sum(len(run.policies) for run in runs)
    )


@dg.asset_check(
    asset=asset_key(DECISIONS),
    description="Every line of data/audit/rebalance_decisions.jsonl is a decision of the audit.",
)
def no_refused_decisions(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Warn of lines that were set aside; the others are in the table."""
    refused = store.tables.read(REFUSED_DECISIONS)
    return check_result(refused, len(refused), dg.AssetCheckSeverity.WARN)


@dg.asset_check(
    asset=asset_key(PREFERENCE_PAIRS),
    blocking=True,
    description="No pair that is trained on reaches into the hold-out, and none into a test of its fold.",
)
def pairs_do_not_leak(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Compare the days of every pair with the hold-out and with the tests of its fold."""
    frames, n_pairs = [], 0
    for run in runs_to_check(context, store):
        pairs = read_run(store, PREFERENCE_PAIRS, run)
        tests = {fold.index: fold.test or ((fold.test_first, fold.test_last),) for fold in run.folds}
        frames.append(leaking_pairs(pairs, tests))
        n_pairs += len(pairs)
    return check_result(concat_frames(frames), n_pairs)


@dg.asset_check(asset=asset_key(PREFERENCE_PAIRS), description="Every pair is in the table once.")
def pairs_differ(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Count pairs by their identity."""
    runs = [read_run(store, PREFERENCE_PAIRS, run) for run in runs_to_check(context, store)]
    return check_result(concat_frames(duplicate_pairs(pairs) for pairs in runs), sum(map(len, runs)))


@dg.asset_check(
    asset=asset_key(PREFERENCE_PAIRS),
    description="Of the pairs with each candidate the policy wins from 10 to 90 %; a warning only.",
)
def pairs_are_balanced(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Warn of candidates whose pairs teach nothing."""
    runs = [(run, read_run(store, PREFERENCE_PAIRS, run)) for run in runs_to_check(context, store)]
    broken = concat_frames(unbalanced_candidates(pairs, run.experiment) for run, pairs in runs)
    return check_result(broken, sum(len(pairs) for _, pairs in runs), dg.AssetCheckSeverity.WARN)


@dg.asset_check(
    asset=asset_key(PREFERENCE_PAIRS),
    description=f"The newest decision of a person among the pairs is at most {MAX_LABEL_DAYS} days old; a warning.",
)
def labels_are_recent(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Warn of labels of people that have aged; without any there is nothing to warn of."""
    today = now().date()
    ages = [age_of_labels(read_run(store, PREFERENCE_PAIRS, run), today) for run in runs_to_check(context, store)]
    days = [age for age in ages if age is not None]
    return dg.AssetCheckResult(
        passed=not days or min(days) <= MAX_LABEL_DAYS,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"days": min(days) if days else "no decision of a person is a pair yet"},
    )


def promotion_check(
    table: Table,
    name: str,
    tables: tuple[Table, ...],
    findings: Callable[..., list[PromotionFinding]],
    description: str,
) -> dg.AssetChecksDefinition:
    """Build a warning about evidence against promoting the best-ranked run; it never blocks."""

    @dg.asset_check(
        asset=asset_key(table),
        name=name,
        additional_deps=[asset_key(other) for other in tables if other is not table],
        description=description,
    )
    def check(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        found = findings(*(store.tables.read(table) for table in tables))
        return dg.AssetCheckResult(
            passed=all(finding.passed for finding in found),
            severity=dg.AssetCheckSeverity.WARN,
            description="\n".join(finding.sentence for finding in found)
            or "no trial has been validated yet; run `nvtrader materialize`",
            metadata={"figures": first_rows(pl.DataFrame(found, schema=FINDINGS).drop("sentence"))},
        )

    return check


CHECKS = [
    pairs_do_not_leak,
    pairs_differ,
    pairs_are_balanced,
    labels_are_recent,
    no_refused_decisions,
    *(schema_check(table) for table in (CLEAN_BARS, QUARANTINE, RETURNS, FEATURES)),
    *(table_check(table, "no_nan", non_finite_rows, f"{table.name} has no NaN.") for table in FINITE),
    *(
        table_check(
            table, "probabilities", partial(outside_unit_interval, columns=columns), "Probabilities are in [0, 1]."
        )
        for table, columns in PROBABILITIES.items()
    ),
    table_check(
        SCOREBOARD,
        "like_with_like",
        inconsistent_entrants,
        "All ranked entrants of a contest share market, window and costs.",
    ),
    calendar_has_no_gaps,
    every_file_has_a_good_bar,
    history_has_one_basis,
    panel_has_no_nan,
    policy_digest,
    no_training_in_test,
    weights_sum_to_one,
    run_check(
        REWARD_DECOMPOSITION,
        "terms_sum_to_reward",
        (TRAJECTORIES, REWARD_DECOMPOSITION),
        reward_gaps,
        "The reward terms of every step sum to its reward.",
    ),
    run_check(
        EQUITY_CURVES,
        "equity_is_product_of_growth",
        (EQUITY_CURVES,),
        equity_gaps,
        "Equity is the cumulative product of net growth.",
    ),
    promotion_check(
        VALIDATION,
        "candidate_is_more_than_luck",
        (RATIO_CURVE, VALIDATION),
        deflated_findings,
        f"In the reported period the best-ranked run has a deflated information ratio of {MIN_DEFLATED} or more.",
    ),
    promotion_check(
        OVERFITTING,
        "choice_is_not_overfitted",
        (OVERFITTING,),
        overfitting_findings,
        f"In the reported period the probability of backtest overfitting is {MAX_OVERFITTING} or less.",
    ),
]
