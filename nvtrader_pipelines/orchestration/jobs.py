"""Jobs that schedules, sensors and the command line launch."""

from dataclasses import asdict
from datetime import UTC, date, datetime
from functools import partial

import dagster as dg
from pydantic import Field

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.orchestration.assets import ASSETS
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVE_POLICY_KEY
from nvtrader_pipelines.orchestration.assets.autoresearch import SESSION_KEY, TRIALS_KEY
from nvtrader_pipelines.orchestration.assets.preferences import DPO_POLICY_KEY
from nvtrader_pipelines.orchestration.assets.scoreboard import sharpe_ratio_curve
from nvtrader_pipelines.orchestration.assets.worlds import WORLD_RESULTS_KEY
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.train_walk_judge import replay_run, replay_window
from nvtrader_pipelines.storage.iceberg.upkeep import tidy
from nvtrader_pipelines.storage.store import Store

RETRIES = {"dagster/max_retries": "5"}  # of a run whose process is killed, which resumes

MARKET = dg.define_asset_job(
    "market",
    dg.AssetSelection.groups("bronze", "silver", "gold"),
    description="Ingest and clean the bars, derive returns and features by year, and pin the market panels.",
    run_tags={"nvtrader/layer": "market"},
)
PER_EXPERIMENT = dg.AssetSelection.assets(
    *(key for asset in ASSETS if asset.partitions_def == EXPERIMENTS for key in asset.keys if key != DPO_POLICY_KEY)
)
EXPERIMENT = dg.define_asset_job(
    "experiment",
    PER_EXPERIMENT,
    description="Train one experiment per fold and seed, evaluate it walk-forward and extract its preference pairs.",
    run_tags={"nvtrader/layer": "experiment", "nvtrader/training": "yes", **RETRIES},
)
PREFERENCE_ASSETS = [asset for asset in ASSETS if "preferences" in asset.group_names_by_key.values()]
PREFERENCES = dg.define_asset_job(
    "preferences",
    dg.AssetSelection.assets(*PREFERENCE_ASSETS),
    description="Extract decisions of people, their outcomes, and the preference pairs of an experiment.",
    run_tags={"nvtrader/layer": "preferences"},
)
DPO_CHECK = dg.define_asset_job(
    "dpo_check",
    dg.AssetSelection.assets(DPO_POLICY_KEY),
    description="Tune an experiment's policies to its preference pairs and judge them, or say why not.",
    run_tags={"nvtrader/layer": "preferences", "nvtrader/training": "yes", **RETRIES},
)
AUTORESEARCH = dg.define_asset_job(
    "autoresearch",
    dg.AssetSelection.assets(SESSION_KEY, TRIALS_KEY, sharpe_ratio_curve),
    description="Search for better settings of an experiment within a budget, and look once at the sealed window.",
    run_tags={
        "nvtrader/layer": "research",
        "nvtrader/training": "yes",
        "dagster/max_runtime": "604800",  # seconds: a week
        **RETRIES,
    },
    executor_def=dg.in_process_executor,  # by which a stopped session counts as a success
)
WORLD = dg.define_asset_job(
    "world",
    dg.AssetSelection.assets(WORLD_RESULTS_KEY),
    description="Train and test experiments in worlds other than portfolios: the named ones, or all that are new.",
    run_tags={"nvtrader/layer": "worlds", "nvtrader/training": "yes", **RETRIES},
)
JUDGEMENT = dg.define_asset_job(
    "judgement",
    dg.AssetSelection.groups("evaluation") - PER_EXPERIMENT,
    description="Rank all completed runs and deflate their results for the number of trials.",
    run_tags={"nvtrader/layer": "evaluation", **RETRIES},
)
PROMOTION = dg.define_asset_job(
    "promotion",
    dg.AssetSelection.assets(ACTIVE_POLICY_KEY),
    description="Let the promotion gate decide on the newest run of every experiment; a run that passes is activated.",
    run_tags={"nvtrader/layer": "portfolio", **RETRIES},
)
REBALANCE = dg.define_asset_job(
    "rebalance",
    dg.AssetSelection.groups("portfolio") - dg.AssetSelection.assets(ACTIVE_POLICY_KEY),
    description="After the close: orders, state, target weights and the next plan of an account (resource `desk`).",
    run_tags={"nvtrader/layer": "portfolio", "nvtrader/trading": "yes", **RETRIES},
)
CONTEST = "nvtrader/contest"  # tag of a run of `judgement` (contest state) or `promotion` (promotion state)
RETRAINED_BECAUSE = "nvtrader/retrained_because"  # tag of a run of `experiment` that a sensor requested: a sentence
RETRAINED_AS_OF = "nvtrader/retrained_as_of"  # tag of the same run: the market's last session


def is_contest_judged(instance: dg.DagsterInstance, contest: str) -> bool:
    """Whether the last successful run of `judgement` had this contest state."""
    return _is_last_success(instance, JUDGEMENT.name, contest)


def is_promotion_current(instance: dg.DagsterInstance, state: str) -> bool:
    """Whether the last successful run of `promotion` had this promotion state."""
    return _is_last_success(instance, PROMOTION.name, state)


def _is_last_success(instance: dg.DagsterInstance, job: str, state: str) -> bool:
    done = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS])
    return [run.tags.get(CONTEST) for run in instance.get_runs(done, limit=1)] == [state]


@dg.op(description="Merge small files, expire superseded snapshots and delete orphaned files.")
def expire_and_sweep(context: dg.OpExecutionContext, store: dg.ResourceParam[Store]) -> None:
    """Tidy every table; snapshots pinned by a panel or a run stay readable."""
    removed = tidy(
        store.tables, datetime.now(UTC), on_table=lambda table, part: context.log.info("%s: %s", table, part)
    )
    context.log.info("%s", removed)
    context.add_output_metadata(asdict(removed))


@dg.job(
    name="upkeep",
    description="Merge small files, expire superseded snapshots and delete orphaned files in every table.",
    tags={"nvtrader/layer": "storage"},
)
def upkeep() -> None:
    """Tidy every table in one step."""
    expire_and_sweep()


class ReplayConfig(dg.Config):
    """Run and window of a replay."""

    run_id: str = Field(description="id of the run, or an unambiguous prefix")
    first: str | None = Field(
        default=None, description="first day (YYYY-MM-DD); by default the first test session of the run"
    )
    last: str | None = Field(
        default=None,
        description="last day (YYYY-MM-DD); default: the last test session, or the market's if `first` is later",
    )
    pinned: bool = Field(
        default=False, description="use the market snapshots recorded by the run instead of the current market"
    )


@dg.op(description="Walk the policies of a run through another window, or again through its test window.")
def replay_policies(
    context: dg.OpExecutionContext,
    config: ReplayConfig,
    store: dg.ResourceParam[Store],
    mlflow: MlflowTracking,
    progress: dg.ResourceParam[ProgressLog],
) -> None:
    """Replay as a new run of the same version, with the training run as its parent."""
    window = replay_window(store, config.run_id, (parse_day(config.first), parse_day(config.last)))
    launch = Launch(context.run_id, context.run_id)
    track = partial(mlflow.track, warn=context.log.warning)
    drain(
        replay_run(store, config.run_id, launch, window, pinned=config.pinned, track=track), progress.reporter(context)
    )


def parse_day(text: str | None) -> date | None:
    """Parse an ISO date; None stays None."""
    return None if text is None else date.fromisoformat(text)


@dg.job(name="replay", description="Walk the policies of a run through another window.", tags={"nvtrader/layer": "rl"})
def replay() -> None:
    """Replay one run; configure the run and the window in the launchpad."""
    replay_policies()


JOBS = [
    *(MARKET, EXPERIMENT, AUTORESEARCH, WORLD, PREFERENCES, DPO_CHECK),
    *(JUDGEMENT, PROMOTION, REBALANCE, replay, upkeep),
]
