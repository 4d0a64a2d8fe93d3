"""Sensors: a landed file, an experiment, a policy retrained, judged, activated; a run that ended well, or did not."""

import dagster as dg

from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVATION, ACTIVE_POLICY_KEY
from nvtrader_pipelines.orchestration.jobs import (
    CONTEST,
    EXPERIMENT,
    JUDGEMENT,
    MARKET,
    PROMOTION,
    REBALANCE,
    is_judged,
    is_promoted,
)
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, register_all, whole_history
from nvtrader_pipelines.runs.fingerprints import contest_state, market_is_current, question_state
from nvtrader_pipelines.runs.planning import has_panel
from nvtrader_pipelines.storage.landing_zone import landing_fingerprint
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views import publish

RUNNING = dg.DefaultSensorStatus.RUNNING


@dg.sensor(
    job=MARKET,
    minimum_interval_seconds=30,
    default_status=RUNNING,
    description="A file new or changed in `data/landing`: ingest it and derive the market again.",
)
def landed_file(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]) -> dg.SensorResult | dg.SkipReason:
    """One run per state of the folder; none where `nvtrader materialize` has built the market from it."""
    found = landing_fingerprint(store.home)
    if not found or found == context.cursor:
        return dg.SkipReason("nothing new in data/landing")
    if market_is_current(store):  # `nvtrader materialize` was here first
        return dg.SensorResult(cursor=found, skip_reason="the market was already built from these files")
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key=found, tags=whole_history())], cursor=found)


@dg.sensor(
    job=EXPERIMENT,
    minimum_interval_seconds=30,
    default_status=RUNNING,
    description="A spec new or changed in `data/experiments`: register it, or its variants, as partitions; run them.",
)
def experiment_file(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]
) -> dg.SensorResult | dg.SkipReason:
    """One run per new partition; a file that holds no valid experiment is told in the tick's log."""
    found = read_experiments(store.home)
    for path, problem in found.problems.items():
        context.log.warning("%s is left out: %s", path, problem)
    known = set(context.instance.get_dynamic_partitions(EXPERIMENTS.name or ""))
    new = [key for key in register_all(store.ledger, found.specs) if key not in known]
    if not new:
        return dg.SkipReason("no new or changed experiment")
    if not has_panel(store):
        return dg.SkipReason("the market has no panel yet; materialise the market job or run `nvtrader materialize`")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=key, partition_key=key) for key in new],
        dynamic_partitions_requests=[EXPERIMENTS.build_add_request(new)],
    )


@dg.asset_sensor(
    asset_key=dg.AssetKey(["evaluation", "walk_forward_evaluation"]),
    job=JUDGEMENT,
    default_status=RUNNING,
    description="A policy newly trained and tested: judge it among all runs.",
)
def policy_retrained(
    context: dg.SensorEvaluationContext, _event: dg.EventLogEntry, store: dg.ResourceParam[Store]
) -> dg.RunRequest | dg.SkipReason:
    """One judgement for all that came since the last; none where `nvtrader materialize` has judged it."""
    state = contest_state(store)
    if is_judged(context.instance, state):  # `nvtrader materialize` was here first
        return dg.SkipReason("all that competes was already judged")
    return dg.RunRequest(run_key=state, tags={CONTEST: state})


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[JUDGEMENT],
    request_job=PROMOTION,
    default_status=RUNNING,
    minimum_interval_seconds=30,
    description="A judgement that ended well: ask the promotion gate about every experiment's newest policy.",
)
def judged(context: dg.RunStatusSensorContext, store: dg.ResourceParam[Store]) -> dg.RunRequest | dg.SkipReason:
    """One question per judgement; none where the gate, as it is now, was asked about the same."""
    contest = context.dagster_run.tags.get(CONTEST) or contest_state(store)
    state = question_state(store.home, contest)
    if is_promoted(context.instance, state):  # `nvtrader materialize` was here first
        return dg.SkipReason("the gate was asked about all that was judged")
    return dg.RunRequest(run_key=context.dagster_run.run_id, tags={CONTEST: state})


@dg.asset_sensor(
    asset_key=ACTIVE_POLICY_KEY,
    job=REBALANCE,
    default_status=RUNNING,
    description="The promotion gate was asked: rebalance with the policy that trades, once per activation.",
)
def policy_activated(_context: dg.SensorEvaluationContext, event: dg.EventLogEntry) -> dg.RunRequest | dg.SkipReason:
    """Only the newest materialisation is seen, so each names the activation in force, and not only one that it made.

    The activation is the run's key, of which Dagster launches one run; an account decides once at a close.
    """
    materialization = event.asset_materialization
    activation = materialization.metadata[ACTIVATION].value if materialization else ""
    if not activation:
        return dg.SkipReason("no policy trades")
    return dg.RunRequest(run_key=str(activation))


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    default_status=RUNNING,
    minimum_interval_seconds=30,
    description="A run that ended well: publish the DuckDB views over what it wrote.",
)
def publish_views(context: dg.RunStatusSensorContext, store: dg.ResourceParam[Store]) -> None:
    """A training it did not judge waits closed."""
    store.ledger.close_interrupted([context.dagster_run.run_id])
    publish(store)


@dg.run_failure_sensor(
    default_status=RUNNING,
    minimum_interval_seconds=30,
    description="A run that failed or crashed: close what the ledger has as running under it.",
)
def close_failed(context: dg.RunFailureSensorContext, store: dg.ResourceParam[Store]) -> None:
    """Nobody works on it any more."""
    store.ledger.close_interrupted([context.dagster_run.run_id])


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.CANCELED,
    default_status=RUNNING,
    minimum_interval_seconds=30,
    description="A run that was canceled: close what the ledger has as running under it.",
)
def close_canceled(context: dg.RunStatusSensorContext, store: dg.ResourceParam[Store]) -> None:
    """Nobody works on it any more."""
    store.ledger.close_interrupted([context.dagster_run.run_id])


SENSORS = [
    landed_file,
    experiment_file,
    policy_retrained,
    judged,
    policy_activated,
    publish_views,
    close_failed,
    close_canceled,
]
