"""Jobs: what schedules, sensors and the command line launch."""

from dataclasses import asdict
from datetime import UTC, date, datetime

import dagster as dg
from pydantic import Field

from nvtrader_pipelines.evaluation.steps import drain
from nvtrader_pipelines.orchestration.assets import ASSETS
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVE_POLICY_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.progress import ProgressLog
from nvtrader_pipelines.runs.launch import replay_run, replay_window
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.storage.iceberg.upkeep import tidy
from nvtrader_pipelines.storage.store import Store

MARKET = dg.define_asset_job(
    "market",
    dg.AssetSelection.groups("bronze", "silver", "gold"),
    description="Ingest, clean and derive the market, year by year, and pin its panels.",
    run_tags={"nvtrader/layer": "market"},
)
PER_EXPERIMENT = dg.AssetSelection.assets(
    *(key for asset in ASSETS if asset.partitions_def == EXPERIMENTS for key in asset.keys)
)
EXPERIMENT = dg.define_asset_job(
    "experiment",
    PER_EXPERIMENT,
    description="Train one experiment on every fold and seed, judge it walk-forward, extract its preference pairs.",
    run_tags={"nvtrader/layer": "experiment", "nvtrader/training": "yes"},
)
PREFERENCES = dg.define_asset_job(
    "preferences",
    dg.AssetSelection.groups("preferences"),
    description="Extract the preference pairs of one experiment again.",
    run_tags={"nvtrader/layer": "preferences"},
)
DPO_CHECK = dg.define_asset_job(
    "dpo_check",
    dg.AssetSelection.checks(
        dg.AssetCheckKey(dg.AssetKey(["preferences", "preference_pairs"]), "enough_pairs_for_dpo")
    ),
    description="Say whether there are enough preference pairs to tune a policy on.",
    run_tags={"nvtrader/layer": "preferences"},
)
JUDGEMENT = dg.define_asset_job(
    "judgement",
    dg.AssetSelection.groups("evaluation") - PER_EXPERIMENT,
    description="Judge every completed run beside all others: rank them, discount them for their number.",
    run_tags={"nvtrader/layer": "evaluation"},
)
PROMOTION = dg.define_asset_job(
    "promotion",
    dg.AssetSelection.assets(ACTIVE_POLICY_KEY),
    description="Ask the promotion gate about every experiment's newest policy; one that passes trades from then on.",
    run_tags={"nvtrader/layer": "portfolio"},
)
REBALANCE = dg.define_asset_job(
    "rebalance",
    dg.AssetSelection.groups("portfolio") - dg.AssetSelection.assets(ACTIVE_POLICY_KEY),
    description="After the close: orders, state, target weights and the next plan of an account (resource `desk`).",
    run_tags={"nvtrader/layer": "portfolio", "nvtrader/trading": "yes"},
)
CONTEST = "nvtrader/contest"  # the tag of a judgement: the state of what competes; of a promotion: and of its gate


def is_judged(instance: dg.DagsterInstance, contest: str) -> bool:
    """Whether the last judgement that ended well was of what competes now."""
    return _is_done(instance, JUDGEMENT.name, contest)


def is_promoted(instance: dg.DagsterInstance, question: str) -> bool:
    """Whether the gate, as it is now, was last asked about what competes now."""
    return _is_done(instance, PROMOTION.name, question)


def _is_done(instance: dg.DagsterInstance, job: str, contest: str) -> bool:
    done = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS])
    return [run.tags.get(CONTEST) for run in instance.get_runs(done, limit=1)] == [contest]


@dg.op(description="Merge small files, expire superseded snapshots, delete files that nothing refers to.")
def expire_and_sweep(context: dg.OpExecutionContext, store: dg.ResourceParam[Store]) -> None:
    """Keep commits and scans fast as the history grows; what a panel or a run pins stays readable."""
    gone = tidy(store.tables, datetime.now(UTC), on_table=lambda table, part: context.log.info("%s: %s", table, part))
    context.log.info("%s", gone)
    context.add_output_metadata(asdict(gone))


@dg.job(name="upkeep", description="Keep the warehouse small.", tags={"nvtrader/layer": "storage"})
def upkeep() -> None:
    """One step over every table."""
    expire_and_sweep()


class ReplayConfig(dg.Config):
    """Which run's policies, and over which sessions."""

    run_id: str = Field(description="the run's id, or enough of its beginning")
    first: str | None = Field(default=None, description="first day (YYYY-MM-DD); without one, its own tests' first")
    last: str | None = Field(default=None, description="last day (YYYY-MM-DD); without one, its own tests' last")
    pinned: bool = Field(default=False, description="on the market the run recorded, not the present one")


@dg.op(description="Walk a run's own policies through another window, or through its own again.")
def replay_policies(
    context: dg.OpExecutionContext,
    config: ReplayConfig,
    store: dg.ResourceParam[Store],
    progress: dg.ResourceParam[ProgressLog],
) -> None:
    """A new run of the same version, whose parent is the run that trained the policies."""
    days = (day_of(config.first), day_of(config.last))
    window = replay_window(store, config.run_id, days)
    launch = Launch(context.run_id, context.run_id)
    drain(replay_run(store, config.run_id, launch, window, pinned=config.pinned), progress.to(context))


def day_of(text: str | None) -> date | None:
    """A day from its text."""
    return None if text is None else date.fromisoformat(text)


@dg.job(name="replay", description="Would a trained policy have held up in that window?", tags={"nvtrader/layer": "rl"})
def replay() -> None:
    """One step, configured in the launchpad."""
    replay_policies()


JOBS = [MARKET, EXPERIMENT, PREFERENCES, DPO_CHECK, JUDGEMENT, PROMOTION, REBALANCE, replay, upkeep]
