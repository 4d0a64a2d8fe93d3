"""Pictures of runs: exposure, and on request a comparison on shared sessions and a tear sheet."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from nvtrader_pipelines.components.document import rows_of
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.guard_telemetry import guard_rows
from nvtrader_pipelines.evaluation.prudex.record import REFERENCE
from nvtrader_pipelines.evaluation.rolling import ROLLING_SESSIONS
from nvtrader_pipelines.evaluation.session_windows import session_windows, window_distribution
from nvtrader_pipelines.evaluation.shared_sessions import (
    compound_to_shared_sessions,
    select_shared_sessions,
    shared_curves,
    shared_figures,
)
from nvtrader_pipelines.evaluation.short_samples import mask_short
from nvtrader_pipelines.evaluation.tear_sheet import TearSheet
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.experiments.world_experiment import WorldExperiment
from nvtrader_pipelines.figures import (
    comparison_figure,
    episode_rewards_figure,
    exposure_figure,
    quotes_figure,
    session_windows_figure,
    tear_sheet_figure,
)
from nvtrader_pipelines.figures.canvas import Picture
from nvtrader_pipelines.runs.run_charts import SharedAccount, SharedSessionsDocument, thinned_curves
from nvtrader_pipelines.runs.run_queries import require_portfolios
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_picture
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS, TRAJECTORIES

MIN_SHARED = 2  # sessions of a comparison: below that there is no line and no standard deviation


def read_shared_sessions(store: Store, runs: Sequence[LedgerRun]) -> tuple[pl.DataFrame, str | None]:
    """Read returns (account, session, net_return) over the sessions that all runs have, or say why they are few.

    Runs on several calendars are compounded to these sessions.

    The frame is empty if there are fewer than `MIN_SHARED` sessions.
    """
    labels = {run.run_id: label for run, label in zip(runs, account_labels(runs), strict=True)}
    rows = store.tables.read(
        EQUITY_CURVES, {"run_id": list(labels), "kind": ["ensemble"]}, ["run_id", "session", "net_return"]
    )
    parts = [rows.filter(run_id=run_id).select(pl.lit(name).alias("account"), "session", "net_return")
             for run_id, name in labels.items()]  # fmt: skip
    without = [name for name, part in zip(labels.values(), parts, strict=True) if part.is_empty()]
    calendars = store.read_calendars()
    is_mixed = len({calendars.of(run.source) for run in runs}) > 1
    shared = (compound_to_shared_sessions if is_mixed else select_shared_sessions)(pl.concat(parts))
    n_shared = shared["session"].n_unique()
    if without or n_shared < MIN_SHARED:
        found = f"{', '.join(without)} has none" if without else f"these share {n_shared}"
        problem = f"at least {MIN_SHARED} sessions must be in all runs, but {found}; compare other runs"
        return shared.clear(), problem
    return shared, None


def shared_periods_per_year(store: Store, runs: Sequence[LedgerRun]) -> int:
    """Sessions a year that the markets of runs share: those of the market with the fewest."""
    calendars = store.read_calendars()
    return min(calendars.of(run.source).periods_per_year for run in runs)


def draw_comparison(store: Store, runs: Sequence[LedgerRun], path: Path | None) -> SharedSessionsDocument:
    """Compare runs over shared sessions, if any, and draw equity, drawdown and rolling Sharpe ratio to a path."""
    shared, problem = read_shared_sessions(store, runs)
    if problem:
        return SharedSessionsDocument(figures=(), picture=None, note=f"no picture: {problem}")
    periods_per_year = shared_periods_per_year(store, runs)
    figures, curves = shared_figures(shared, periods_per_year), shared_curves(shared, periods_per_year)
    if path:
        first, last = figures.select("first_session", "last_session").row(0)
        title = f"{len(runs)} runs on their {shared['session'].n_unique():,} shared sessions, {first} to {last}"
        markets = list(dict.fromkeys(run.source for run in runs))
        note = f"The runs are of different markets: {', '.join(markets)}." if len(markets) > 1 else None
        write_picture(path, comparison_figure(curves, title, note))
    accounts = curves.rename({"account": "policy"}).with_columns(kind=pl.lit("ensemble"))
    rows = rows_of(SharedAccount, mask_short(figures))
    return SharedSessionsDocument(figures=rows, curves=thinned_curves(accounts), picture=path, note=None)


def account_labels(runs: Sequence[LedgerRun]) -> list[str]:
    """Labels of runs: the experiment, and the short id where it has several of the runs."""
    names = [run.partition_key.partition("@")[0] for run in runs]
    counts = Counter(names)
    return [
        f"{name} {short_id(run.run_id)}" if counts[name] > 1 else name for name, run in zip(names, runs, strict=True)
    ]


def exposure_pictures(
    spec: ExperimentSpec, curves: pl.DataFrame, trajectories: pl.DataFrame, note: str
) -> dict[str, Picture]:
    """Draw the exposure of an experiment's account by name; nothing if it is long-only without guards.

    Args:
        spec: the experiment.
        curves: rows of `rl.equity_curves`.
        trajectories: rows of `rl.trajectories`.
        note: below the panels.
    """
    guards = guard_rows(trajectories.filter(kind="ensemble"))
    if not spec.environment.is_levered and guards.is_empty():
        return {}
    limits = {"cap at the close": spec.environment.close_cap, "limit of targets": spec.pipeline.max_gross}
    finite = {name: limit for name, limit in limits.items() if math.isfinite(limit)}
    return {"exposure": exposure_figure(curves, guards, finite, f"{spec.name}: exposure over time", note)}


def world_pictures(store: Store, run: LedgerRun) -> dict[str, Picture]:
    """Draw the test of a run in a world: `rewards` of its episodes if several, `quotes` of a market maker's day."""
    if run.kind != "world":
        return {}
    spec = WorldExperiment.model_validate(version_content(store.ledger, run.partition_key, with_worlds=True))
    where = {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}
    steps = store.tables.read(TRAJECTORIES, where, ["kind", "policy", "episode", "reward"])
    day = store.tables.read(TRAJECTORIES, {**where, "episode": [0]}, ["kind", "policy", "seed", "step", "info"])
    pictures = {
        "rewards": episode_rewards_figure(
            steps, f"{spec.name}: total reward of a test episode", spec.world.reward_unit
        ),
        "quotes": quotes_figure(day, f"{spec.name}: quotes and inventory of the first test day"),
    }
    return {name: picture for name, picture in pictures.items() if picture is not None}


def pictures_of_worlds(store: Store, listed: pl.DataFrame) -> dict[str, Picture]:
    """Draw the tests of the last runs of listed experiments in worlds, by experiment and name."""
    return {
        f"{experiment}-{name}": picture
        for experiment, run_id in listed.drop_nulls("run_id").select("name", "run_id").rows()
        for name, picture in world_pictures(store, store.ledger.run(run_id)).items()
    }


def read_tear_sheet(store: Store, ref: PolicyRef) -> TearSheet:
    """Compute the tear sheet of a policy over the sessions of its run's tests.

    Raises:
        StorageError: if the run has no sessions of the policy.
    """
    rows = store.tables.read(EQUITY_CURVES, {"run_id": [ref.run_id]})
    curve = rows.filter(policy=ref.policy)
    if curve.is_empty():
        walked = ", ".join(rows.filter(pl.col("kind") != "baseline")["policy"].unique().sort())
        remedy = (
            f"choose one of {walked}" if walked else f"run `nvtrader experiments run {ref.policy.partition('/')[0]}`"
        )
        raise StorageError(
            f"a tear sheet needs the sessions that {ref.policy} walked in run {short_id(ref.run_id)}, but there are "
            f"none; {remedy}"
        )
    source = store.ledger.run(ref.run_id).source
    return TearSheet.of(curve, store.read_calendars().of(source).periods_per_year)


def tear_sheet_path(store: Store, ref: PolicyRef) -> Path:
    """Default path of a policy's tear sheet, in the folder of its version."""
    experiment, _, seed = ref.policy.partition("/")
    return store.home.pictures / "tear_sheet" / store.ledger.run(ref.run_id).partition_key / f"{seed or experiment}.png"


def tear_sheet_picture(store: Store, ref: PolicyRef) -> tuple[TearSheet, Picture]:
    """Compute and draw the tear sheet of a policy.

    Raises:
        StorageError: if the run has no sessions of the policy.
    """
    sheet, run = read_tear_sheet(store, ref), store.ledger.run(ref.run_id)
    first, last = sheet.by_session.select(first=pl.col("session").min(), last=pl.col("session").max()).row(0)
    note = (
        f"Run {short_id(ref.run_id)} of {run.partition_key} on {run.source}: its tests, net of costs. Rolling figures "
        f"are of the last {ROLLING_SESSIONS} sessions, per year; turnover is one-way, exposure the sum of absolute "
        "weights."
    )
    return sheet, tear_sheet_figure(sheet, f"{ref.policy}: tear sheet, {first} to {last}", note)


def draw_tear_sheet(store: Store, ref: PolicyRef, path: Path) -> TearSheet:
    """Draw the tear sheet of a policy into a file, and return its figures.

    Raises:
        StorageError: if the run has no sessions of the policy.
    """
    sheet, picture = tear_sheet_picture(store, ref)
    write_picture(path, picture)
    return sheet


def read_session_windows(store: Store, run: LedgerRun, n_sessions: int) -> pl.DataFrame:
    """Compute the results of all windows of sessions of a run's ensemble, its best baseline and 1/N.

    Raises:
        StorageError: if the run has no tests, as a deleted one.
        ValueError: if no window fits.
    """
    require_portfolios(run)
    verdict = store.tables.read(EVALUATIONS, {"run_id": [run.run_id]}).filter(kind="ensemble", period="all")
    experiment = run.partition_key.partition("@")[0]
    accounts = list(dict.fromkeys([experiment, *verdict["best_baseline"].drop_nulls(), REFERENCE]))
    where = {"run_id": [run.run_id], "policy": accounts}
    curves = store.tables.read(EQUITY_CURVES, where, ["policy", "fold", "session", "net_return"])
    decisions = store.tables.read(TRAJECTORIES, where, ["policy", "session", "episode"])
    if decisions.is_empty():
        raise StorageError(
            f"windows of sessions need the tests of run {short_id(run.run_id)}, but there are none; "
            f"run `nvtrader experiments run {experiment}`"
        )
    walked = curves.sort("session").join_asof(  # a decision holds from the session after it
        decisions.sort("session"), on="session", by="policy", allow_exact_matches=False, check_sortedness=False
    )
    windows = session_windows(walked, n_sessions)
    return windows.sort(pl.col("policy").cast(pl.Enum(accounts)), maintain_order=True)


def session_windows_path(store: Store, run: LedgerRun) -> Path:
    """Default path of the picture of a run's windows, in the folder of its version."""
    return store.home.pictures / "session_windows" / run.partition_key / f"{short_id(run.run_id)}.png"


def draw_session_windows(store: Store, run: LedgerRun, n_sessions: int, path: Path) -> pl.DataFrame:
    """Draw the distribution of results over all windows of sessions into a file, and return it.

    Raises:
        StorageError: if the run has no tests, as a deleted one.
        ValueError: if no window fits.
    """
    windows = read_session_windows(store, run, n_sessions)
    first, last = windows.select(pl.col("first_session").min(), pl.col("last_session").max()).row(0)
    title = f"{account_labels([run])[0]}: windows of {n_sessions} sessions, {first} to {last}"
    origin = f"Run {short_id(run.run_id)} of {run.partition_key} on {run.source}, net of costs."
    write_picture(path, session_windows_figure(windows, title, f"{origin} {windows_note(n_sessions)}"))
    return window_distribution(windows)


def windows_note(n_sessions: int) -> str:
    """State that windows overlap, where they lie, and which accounts are beside the policy."""
    return (
        f"Windows start at every session and overlap: neighbors share {n_sessions - 1} of {n_sessions} sessions, so "
        "they are no independent sample. Each lies within the tests of one fold. Beside the policy: the best baseline, "
        "picked with hindsight, and 1/N."
    )
