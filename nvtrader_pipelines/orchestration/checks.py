"""Asset checks: schemas, gaps, NaN, and the identities of recorded runs; blocking where wrong data must not go on."""

from collections.abc import Callable, Iterable
from typing import Any

import dagster as dg
import pandera.errors
import polars as pl
from pandera.polars import DataFrameSchema

from nvtrader_pipelines.evaluation.invariants import (
    differs_from_rivals,
    equity_gaps,
    off_simplex,
    outside_unit_interval,
    reward_gaps,
    training_leaks,
)
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market import schemas
from nvtrader_pipelines.market.cleaning import files_without_good_rows
from nvtrader_pipelines.market.returns import calendar_gaps, describe_gaps
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import asset_key
from nvtrader_pipelines.promotion.findings import (
    FINDINGS,
    MAX_OVERFITTING,
    MIN_DEFLATED,
    PromotionFinding,
    deflated_findings,
    overfitting_findings,
)
from nvtrader_pipelines.runs.tables import read_run
from nvtrader_pipelines.storage.medallion import count_non_finite
from nvtrader_pipelines.storage.policy_library import LATEST
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    BARS,
    CLEAN_BARS,
    DELIVERIES,
    EQUITY_CURVES,
    FEATURES,
    MARKET_PANEL,
    OVERFITTING,
    PREFERENCE_PAIRS,
    PRUDEX,
    QUARANTINE,
    RATIO_CURVE,
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
PAIRS_FOR_DPO = 500
SHOWN = 20  # violations listed in the metadata
PROBABILITIES = (
    "probabilistic_sharpe",
    "deflated_sharpe",
    "deflated_sharpe_2025",
    "p_value",
    "holm",
    "benjamini_hochberg",
)


def shown(rows: pl.DataFrame) -> dg.MarkdownMetadataValue:
    """The first rows as a Markdown table."""
    with pl.Config(tbl_formatting="MARKDOWN", tbl_hide_dataframe_shape=True, tbl_rows=SHOWN, tbl_cols=20):
        return dg.MetadataValue.md(str(rows.head(SHOWN)))


def verdict(broken: pl.DataFrame, checked: int, severity: Any = dg.AssetCheckSeverity.ERROR) -> dg.AssetCheckResult:
    """Passed where no row is broken."""
    metadata: dict[str, Any] = {"checked": checked, "broken": len(broken)}
    if len(broken):
        metadata["rows"] = shown(broken)
    return dg.AssetCheckResult(passed=broken.is_empty(), severity=severity, metadata=metadata)


def schema_check(table: Table, schema: DataFrameSchema) -> dg.AssetChecksDefinition:
    """A blocking check of a table against its pandera schema."""

    @dg.asset_check(asset=asset_key(table), name="schema", blocking=True, description=f"{table.name} fits its schema.")
    def check(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        rows = store.tables.read(table)
        try:
            schema.validate(rows, lazy=True)
        except pandera.errors.SchemaErrors as errors:
            return verdict(pl.DataFrame(errors.failure_cases), len(rows))
        return verdict(rows.clear(), len(rows))

    return check


@dg.asset_check(asset=asset_key(RETURNS), description="No symbol misses a session between its first and last bar.")
def calendar_has_no_gaps(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """A warning: short gaps are borne by the environment, long ones stop the experiment that meets them."""
    rows = store.tables.read(RETURNS, columns=["source", "symbol", "session", "span"])
    gaps = calendar_gaps(rows)
    found = verdict(gaps, len(rows), dg.AssetCheckSeverity.WARN)
    return found._replace(description="\n".join(describe_gaps(gaps, MarketChoice().max_gap)[-SHOWN:]))


@dg.asset_check(asset=asset_key(CLEAN_BARS), description="Every delivered file gave at least one valid bar.")
def every_file_has_a_good_bar(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Not blocking: one bad file never stops the good ones."""
    delivered = store.tables.read(DELIVERIES)
    return verdict(files_without_good_rows(store.tables.read(BARS), store.tables.read(QUARANTINE)), len(delivered))


def no_nan_check(table: Table) -> dg.AssetChecksDefinition:
    """A blocking check that what the panel is made of holds no NaN; unknown values are null."""

    @dg.asset_check(asset=asset_key(table), name="no_nan", blocking=True, description=f"{table.name} holds no NaN.")
    def check(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        rows = store.tables.read(table)
        floats = [name for name, kind in rows.schema.items() if kind.is_float()]
        broken = rows.filter(pl.any_horizontal(pl.col(name).is_nan() | pl.col(name).is_infinite() for name in floats))
        return verdict(broken, len(rows))

    return check


def runs_to_check(context: dg.AssetCheckExecutionContext, store: Store) -> list[SealedRun]:
    """The run just recorded; every experiment's latest where only the check was asked for, without a partition."""
    library, asked = store.policies, context.run.tags.get(PARTITION_TAG)
    known = context.instance.get_dynamic_partitions(EXPERIMENTS.name or "")
    trained = [key for key in known if (store.home.policies / key / LATEST).exists()]
    return [library.read_latest(key) for key in ([asked] if asked else trained)]


def concat(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all parts."""
    return pl.concat([pl.DataFrame(), *parts], how="diagonal")


@dg.asset_check(asset=asset_key(MARKET_PANEL), name="no_nan", blocking=True, description="No panel array holds NaN.")
def panel_has_no_nan(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Builds every pinned panel again."""
    return verdict(count_non_finite(store.tables), len(store.tables.read(MARKET_PANEL, columns=["source"])))


def run_check(
    table: Table, name: str, tables: tuple[Table, ...], broken: Callable[..., pl.DataFrame], description: str
) -> dg.AssetChecksDefinition:
    """A blocking check of an identity on the run an experiment has just recorded."""

    @dg.asset_check(asset=asset_key(table), name=name, blocking=True, description=description)
    def check(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        recorded = [[read_run(store, each, run) for each in tables] for run in runs_to_check(context, store)]
        return verdict(concat(broken(*frames) for frames in recorded), sum(len(frames[0]) for frames in recorded))

    return check


@dg.asset_check(
    asset=asset_key(EQUITY_CURVES),
    blocking=True,
    description="No fold was trained on a session of its tests, or closer to one than its splitter promises.",
)
def no_training_in_test(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """From the cards of the policies against the sessions they were tested on."""
    library = store.policies
    runs = runs_to_check(context, store)
    splitters = [store.ledger.read(run.partition_key).splitter for run in runs]
    leaks = (
        training_leaks(
            library.training_windows(run),
            read_run(store, EQUITY_CURVES, run),
            splitter.purge_size,
            splitter.embargo_size,
        )
        for run, splitter in zip(runs, splitters, strict=True)
    )
    return verdict(concat(leaks), sum(len(run.policies) for run in runs))


@dg.asset_check(
    asset=["policies", "trained_policy"],
    blocking=True,
    description="Every policy file has the digest it was sealed with.",
)
def policy_digest(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Reads every file of the run again."""
    library, runs = store.policies, runs_to_check(context, store)
    return verdict(concat(library.find_tampered_files(run) for run in runs), sum(len(run.policies) for run in runs))


@dg.asset_check(
    asset=asset_key(PREFERENCE_PAIRS), description=f"At least {PAIRS_FOR_DPO} pairs outside the hold-out to tune on."
)
def enough_pairs_for_dpo(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """A warning until there are; the number is our own choice."""
    pairs = store.tables.read(PREFERENCE_PAIRS, columns=["holdout"])
    free = len(pairs) - int(pairs["holdout"].sum())
    return dg.AssetCheckResult(
        passed=free >= PAIRS_FOR_DPO,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"pairs": len(pairs), "outside_holdout": free, "needed": PAIRS_FOR_DPO},
    )


def probabilities_check(table: Table, *columns: str) -> dg.AssetChecksDefinition:
    """A blocking check that probabilities are between 0 and 1."""

    @dg.asset_check(
        asset=asset_key(table), name="probabilities", blocking=True, description="Probabilities are in [0, 1]."
    )
    def check(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        rows = store.tables.read(table)
        return verdict(outside_unit_interval(rows, columns), len(rows))

    return check


@dg.asset_check(
    asset=asset_key(SCOREBOARD),
    blocking=True,
    description="A contest is one market and window, ranked by Sharpe ratio.",
)
def like_with_like(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Never a rank across markets, windows or costs."""
    rows = store.tables.read(SCOREBOARD)
    return verdict(differs_from_rivals(rows), len(rows))


def promotion_check(
    table: Table,
    name: str,
    tables: tuple[Table, ...],
    findings: Callable[..., list[PromotionFinding]],
    description: str,
) -> dg.AssetChecksDefinition:
    """A warning where something speaks against promoting what ranks best; nothing stops for it."""

    @dg.asset_check(
        asset=asset_key(table),
        name=name,
        additional_deps=[asset_key(each) for each in tables if each is not table],
        description=description,
    )
    def check(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
        found = findings(*(store.tables.read(each) for each in tables))
        return dg.AssetCheckResult(
            passed=all(each.passed for each in found),
            severity=dg.AssetCheckSeverity.WARN,
            description="\n".join(each.sentence for each in found) or "no trial is judged yet: nvtrader materialize",
            metadata={"figures": shown(pl.DataFrame(found, schema=FINDINGS).drop("sentence"))},
        )

    return check


CHECKS = [
    enough_pairs_for_dpo,
    schema_check(CLEAN_BARS, schemas.CLEAN_BARS),
    schema_check(QUARANTINE, schemas.QUARANTINE),
    schema_check(RETURNS, schemas.RETURNS),
    schema_check(FEATURES, schemas.FEATURES),
    calendar_has_no_gaps,
    every_file_has_a_good_bar,
    no_nan_check(RETURNS),
    no_nan_check(FEATURES),
    panel_has_no_nan,
    policy_digest,
    no_training_in_test,
    run_check(ACTION_LOGS, "weights_sum_to_one", (ACTION_LOGS,), off_simplex, "Weights are on the simplex."),
    run_check(
        REWARD_DECOMPOSITION,
        "terms_sum_to_reward",
        (TRAJECTORIES, REWARD_DECOMPOSITION),
        reward_gaps,
        "Every step's terms sum to its reward.",
    ),
    run_check(
        EQUITY_CURVES,
        "equity_is_product_of_growth",
        (EQUITY_CURVES,),
        equity_gaps,
        "Equity is the product of net growth.",
    ),
    no_nan_check(VALIDATION),
    no_nan_check(OVERFITTING),
    no_nan_check(REGIME_EVALUATION),
    no_nan_check(STRESS),
    no_nan_check(PRUDEX),
    no_nan_check(SCORECARDS),
    no_nan_check(SCOREBOARD),
    like_with_like,
    probabilities_check(VALIDATION, *PROBABILITIES),
    probabilities_check(OVERFITTING, "probability_of_overfitting", "probability_of_loss"),
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
