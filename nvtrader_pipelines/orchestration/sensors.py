"""Sensors for files, evaluated runs, activations, retraining, run ends and notifications."""

from collections.abc import Collection, Sequence
from functools import partial

import dagster as dg
import polars as pl

from nvtrader_pipelines.desk.bot_files import read_bots
from nvtrader_pipelines.desk.rebalancing import replay_reason
from nvtrader_pipelines.desk.traded_policy import bot_of
from nvtrader_pipelines.feedback.retraining import (
    RetrainingCheck,
    check_account_drift,
    check_market_growth,
    check_regime_change,
)
from nvtrader_pipelines.feedback.tuning import MIN_PAIRS, tuned_name
from nvtrader_pipelines.notifications.channels import has_channels
from nvtrader_pipelines.notifications.home_states import home_states
from nvtrader_pipelines.notifications.send_due import send_due
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVATION, ACTIVE_POLICY_KEY
from nvtrader_pipelines.orchestration.failed_runs import run_states
from nvtrader_pipelines.orchestration.instance import UNFINISHED_STATUSES
from nvtrader_pipelines.orchestration.jobs import (
    CONTEST,
    DPO_CHECK,
    EXPERIMENT,
    JUDGEMENT,
    MARKET,
    PROMOTION,
    REBALANCE,
    RETRAINED_AS_OF,
    RETRAINED_BECAUSE,
    is_contest_judged,
    is_promotion_current,
)
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, whole_history_tags
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.orchestration.schedules import current_experiments, tunable_experiments
from nvtrader_pipelines.orchestration.table_checks import PARTITION_TAG
from nvtrader_pipelines.research.automatic_training import select_automatic
from nvtrader_pipelines.research.hand_over import hand_on_later_winner
from nvtrader_pipelines.runs.input_digests import contest_digest, promotion_digest
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.runs.market_state import has_panel, market_is_current
from nvtrader_pipelines.runs.registration import Registration, register_experiments
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.landing_zone import landing_fingerprint
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DPO_CHECKS, PREFERENCE_PAIRS
from nvtrader_pipelines.storage.views.publishing import publish

STARTED_BY_DEFAULT = dg.DefaultSensorStatus.RUNNING
INTERVAL = 60  # seconds; a tick costs the daemon and the code server about 0.1 s of CPU time
CLEANUP_INTERVAL = 300  # commands close such entries, too
running_sensor = partial(dg.sensor, minimum_interval_seconds=INTERVAL, default_status=STARTED_BY_DEFAULT)


@running_sensor(job=MARKET, description="New or changed file in `data/landing`: ingest it and derive the market again.")
def landed_file(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]) -> dg.SensorResult | dg.SkipReason:
    """Request one run per state of the folder, unless the market was built from it."""
    fingerprint = landing_fingerprint(store.home)
    if not fingerprint or fingerprint == context.cursor:
        return dg.SkipReason("nothing new in data/landing")
    if market_is_current(store):  # built by `nvtrader materialize`
        return dg.SensorResult(cursor=fingerprint, skip_reason="the market was already built from these files")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=fingerprint, tags=whole_history_tags())], cursor=fingerprint
    )


@running_sensor(
    job=EXPERIMENT,
    description="New or changed spec in `data/experiments`, unless a draft: register it or its variants as partitions "
    "and run them.",
)
def experiment_file(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]
) -> dg.SensorResult | dg.SkipReason:
    """Request a run per new partition; report drafts, and experiments that are invalid or train for days."""
    specs, problems = select_automatic(store)
    has_market = has_panel(store)
    registered = register_experiments(store, specs) if has_market else Registration()
    problems |= registered.problems
    for name, problem in problems.items():
        context.log.warning("%s is skipped: %s", name, problem)
    if not has_market:
        return dg.SkipReason("the market has no panel yet; run the market job or `nvtrader materialize`")
    known = set(context.instance.get_dynamic_partitions(EXPERIMENTS.name or ""))
    new = [key for key in registered.keys if key not in known]
    if not new:
        skipped = "".join(f"; {name} is skipped: {problem}" for name, problem in problems.items())
        return dg.SkipReason(f"no new or changed experiment{skipped}")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=key, partition_key=key) for key in new],
        dynamic_partitions_requests=[EXPERIMENTS.build_add_request(new)],
    )


@running_sensor(
    job=JUDGEMENT,
    description="New run, panel, entrant or contest: rank and validate all runs, once no experiment is running.",
)
def contest_changed(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]
) -> dg.RunRequest | dg.SkipReason:
    """Request one run per contest digest, unless it was judged, once no experiment is running."""
    if walk_forward_runs(store, ["run_id"]).is_empty():
        return dg.SkipReason("there is no completed run yet")
    state = contest_digest(store)
    if is_contest_judged(context.instance, state):
        return dg.SkipReason("the contest was already judged")
    training = context.instance.get_runs_count(dg.RunsFilter(job_name=EXPERIMENT.name, statuses=UNFINISHED_STATUSES))
    if training:
        return dg.SkipReason(f"waiting for {training} runs of experiments to finish")
    return dg.RunRequest(run_key=state, tags={CONTEST: state})


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[JUDGEMENT],
    request_job=PROMOTION,
    default_status=STARTED_BY_DEFAULT,
    minimum_interval_seconds=INTERVAL,
    description="Successful run of `judgement`: let the promotion gate decide on the newest run of every experiment.",
)
def run_scored(context: dg.RunStatusSensorContext, store: dg.ResourceParam[Store]) -> dg.RunRequest | dg.SkipReason:
    """Request one promotion per scored contest, unless the gate has decided on this contest."""
    contest = context.dagster_run.tags.get(CONTEST) or contest_digest(store)
    state = promotion_digest(store.home, contest)
    if is_promotion_current(context.instance, state):  # by `nvtrader materialize`
        return dg.SkipReason("the gate has already decided on this contest")
    return dg.RunRequest(run_key=context.dagster_run.run_id, tags={CONTEST: state})


@dg.asset_sensor(
    asset_key=ACTIVE_POLICY_KEY,
    job=REBALANCE,
    minimum_interval_seconds=INTERVAL,
    default_status=STARTED_BY_DEFAULT,
    description="Decision of the promotion gate: rebalance with the active policy, once per activation, but "
    "not an account that a replay traded last.",
)
def policy_activated(
    _context: dg.SensorEvaluationContext, event: dg.EventLogEntry, store: dg.ResourceParam[Store], desk: DeskResource
) -> dg.RunRequest | dg.SkipReason:
    """Request one run per activation, unless a replay traded the account last.

    Dagster passes only the newest materialization, so each names the current activation, even an earlier one.
    """
    materialization = event.asset_materialization
    activation = materialization.metadata[ACTIVATION].value if materialization else ""
    if not activation:
        return dg.SkipReason("no policy is active")
    if bot := bot_of(store, desk.account):
        return dg.SkipReason(f"the bot {bot.name} trades the account {desk.account}")
    if reason := replay_reason(store, desk.account):
        return dg.SkipReason(reason)
    return dg.RunRequest(run_key=str(activation))


retraining_sensor = partial(running_sensor, job=EXPERIMENT)


@retraining_sensor(
    description="Market with 21 sessions after the tests of an experiment's last run: train the experiment again."
)
def market_grew(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]) -> dg.SensorResult:
    """Request one run per experiment and market state; a winner's is that of its successor, which is written first."""
    current = current_experiments(context.instance, store)
    return retraining_requests(context, store, current, check_market_growth(store, current))


@retraining_sensor(
    description="Account below the 95 % interval of its back-test over as many sessions (21 to 126): train the "
    "experiment of the active policy again."
)
def account_drifted(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store], desk: DeskResource
) -> dg.SensorResult:
    """Request one run per market state while the account is below the interval."""
    current = current_experiments(context.instance, store)
    checks = [check_account_drift(store, account) for account in _traded_accounts(store, desk)]
    return retraining_requests(context, store, current, [check for check in checks if check])


@retraining_sensor(
    description="Bull market that became a bear market since the tests of the active policy's experiment, or the "
    "reverse (20 %): train the experiment again."
)
def regime_changed(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store], desk: DeskResource
) -> dg.SensorResult:
    """Request one run per market state until a run of the experiment is tested in the present regime."""
    current = current_experiments(context.instance, store)
    checks = [check_regime_change(store, account) for account in _traded_accounts(store, desk)]
    due = {check.partition_key: check for check in checks if check}  # several accounts may trade one experiment
    return retraining_requests(context, store, current, list(due.values()))


def _traded_accounts(store: Store, desk: DeskResource) -> list[str]:
    """Accounts that schedules trade: that of `eod_rebalance`, and those of bots."""
    return [*dict.fromkeys([desk.account, *(bot.account for bot in read_bots(store.home).specs.values())])]


def retraining_requests(
    context: dg.SensorEvaluationContext, store: Store, current: Collection[str], checks: Sequence[RetrainingCheck]
) -> dg.SensorResult:
    """Request a run per current experiment that is due, at least five sessions after a sensor's last one."""
    requests, successors, reasons = [], [], []
    for check in checks:
        key, reason = check.partition_key, _skip_reason(context.instance, current, check)
        if reason is None and check.successor is not None:
            key, reason = check.successor.partition_key, hand_on_later_winner(store, check.successor)
        if reason is not None:
            reasons.append(reason)
            continue
        if key != check.partition_key:
            successors.append(key)
        requests.append(
            dg.RunRequest(
                run_key=f"{context.sensor_name}:{key}:{check.as_of}",
                partition_key=key,
                tags={RETRAINED_BECAUSE: check.sentence, RETRAINED_AS_OF: check.as_of.isoformat()},
            )
        )
    if not requests:
        return dg.SensorResult(skip_reason="; ".join(reasons) or "there is no completed run or no active policy")
    return dg.SensorResult(requests, dynamic_partitions_requests=[EXPERIMENTS.build_add_request(successors)])


def _skip_reason(instance: dg.DagsterInstance, current: Collection[str], check: RetrainingCheck) -> str | None:
    """Reason not to retrain an experiment now, or None."""
    if not check.is_due:
        return check.sentence
    if check.partition_key not in current:
        return f"{check.partition_key} is no current experiment of data/experiments ({check.sentence})"
    partition = {PARTITION_TAG: check.partition_key}
    if instance.get_runs_count(dg.RunsFilter(job_name=EXPERIMENT.name, tags=partition, statuses=UNFINISHED_STATUSES)):
        return f"a run of {check.partition_key} is not finished ({check.sentence})"
    recent = {**partition, RETRAINED_AS_OF: list(map(str, check.recent_sessions))}
    runs = instance.get_runs(dg.RunsFilter(job_name=EXPERIMENT.name, tags=recent), limit=1)
    if runs:
        return f"{check.partition_key} was retrained as of {runs[0].tags[RETRAINED_AS_OF]} ({check.sentence})"
    return None


@running_sensor(
    job=DPO_CHECK,
    description=f"{MIN_PAIRS} preference pairs of an experiment whose policies were never tuned: tune them.",
)
def enough_pairs(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]
) -> dg.SensorResult | dg.SkipReason:
    """Request one run per experiment, once; later pairs wait for the night."""
    state = str(store.tables.describe(PREFERENCE_PAIRS).snapshot_id)
    if state == context.cursor:
        return dg.SkipReason("no new preference pairs")
    counts = store.tables.read(PREFERENCE_PAIRS, columns=["run_id", "holdout"]).filter(holdout=False)
    enough = set(counts.group_by("run_id").len().filter(pl.col("len") >= MIN_PAIRS)["run_id"])
    tuned = set(store.tables.read(DPO_CHECKS, columns=["experiment"])["experiment"])
    keys = [
        key
        for key in tunable_experiments(context.instance, store)
        if _latest_run(store, key) in enough and tuned_name(key.partition("@")[0]) not in tuned
    ]
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, partition_key=key) for key in keys], cursor=state)


def _latest_run(store: Store, partition_key: str) -> str | None:
    try:
        return store.policies.read_latest(partition_key).run_id
    except StorageError:  # not trained yet, or damaged, which `doctor` says
        return None


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    default_status=STARTED_BY_DEFAULT,
    minimum_interval_seconds=INTERVAL,
    description="Successful run: publish the DuckDB views over the tables.",
)
def publish_views(context: dg.RunStatusSensorContext, store: dg.ResourceParam[Store]) -> None:
    """Publish the views; a training run without a verdict is closed as interrupted."""
    store.ledger.close_interrupted([context.dagster_run.run_id])
    publish(store)


def close_entries(context: dg.RunStatusSensorContext, store: dg.ResourceParam[Store]) -> None:
    """Close the runs in the ledger that this Dagster run had launched."""
    store.ledger.close_interrupted([context.dagster_run.run_id])


close_failed = dg.run_failure_sensor(
    name="close_failed",
    default_status=STARTED_BY_DEFAULT,
    minimum_interval_seconds=CLEANUP_INTERVAL,
    description="Failed or crashed run: close its running entries in the ledger.",
)(close_entries)
close_canceled = dg.run_status_sensor(
    name="close_canceled",
    run_status=dg.DagsterRunStatus.CANCELED,
    default_status=STARTED_BY_DEFAULT,
    minimum_interval_seconds=CLEANUP_INTERVAL,
    description="Canceled run: close its running entries in the ledger.",
)(close_entries)


@running_sensor(
    description="Failed run or check, waiting plan, stale data, kill switch: notify each channel of "
    "`data/notifications.yaml` once.",
)
def notifications(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]) -> dg.SkipReason:
    """Send what is due; a message that was not accepted is due again at the next tick."""
    if not has_channels(store.home):
        return dg.SkipReason("no channel is configured: docs/guides/notifications.md")
    at = now()
    sending = send_due(store.home, {**home_states(store, at), **run_states(context.instance, at)}, at)
    return dg.SkipReason(sending.summary)


SENSORS = [
    landed_file,
    experiment_file,
    contest_changed,
    run_scored,
    policy_activated,
    market_grew,
    account_drifted,
    regime_changed,
    enough_pairs,
    publish_views,
    close_failed,
    close_canceled,
    notifications,
]
