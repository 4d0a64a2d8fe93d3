"""Schedules in the time zone of the exchange, after the close and before the open."""

from collections.abc import Iterator
from functools import partial

import dagster as dg

from nvtrader_pipelines.desk.preference_training import is_tunable
from nvtrader_pipelines.desk.rebalancing import skip_reason
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.orchestration.jobs import (
    AUTORESEARCH,
    DPO_CHECK,
    EXPERIMENT,
    MARKET,
    PREFERENCE_ASSETS,
    PREFERENCES,
    REBALANCE,
    upkeep,
)
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.rebalance_steps import SESSION
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.policies.agents import DpoAgent
from nvtrader_pipelines.promotion.active_policy import last_activation
from nvtrader_pipelines.runs.market_state import panel_sources
from nvtrader_pipelines.runs.registration import read_unarchived_experiments
from nvtrader_pipelines.storage.store import Store

new_york_schedule = partial(
    dg.schedule, execution_timezone=NEW_YORK.time_zone.key, default_status=dg.DefaultScheduleStatus.RUNNING
)


def current_experiments(instance: dg.DagsterInstance, store: Store) -> list[str]:
    """Registered experiments of `data/experiments`, without superseded versions and archived ones.

    Those that tune another run's policies are left out: they follow that experiment.
    """
    specs = [spec for spec in read_unarchived_experiments(store).specs if not isinstance(spec.agent, DpoAgent)]
    current = {each.partition_key for spec in specs for each in spec.variants()}
    return [key for key in instance.get_dynamic_partitions(EXPERIMENTS.name or "") if key in current]


@new_york_schedule(
    cron_schedule="30 17 * * 1-5",
    job=MARKET,
    description="After the close of every session: ingest the bars of the current year, derive returns and features.",
)
def eod_ingest(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Request one run per session, early closes included."""
    day = context.scheduled_execution_time.date()
    if not NEW_YORK.is_session(day):
        return dg.SkipReason(f"{day} is not a session of the exchange")
    return dg.RunRequest(run_key=day.isoformat(), partition_key=str(day.year))


@new_york_schedule(
    cron_schedule="0 18 * * 1-5",
    job=REBALANCE,
    description="After the ingest of every session: orders, state, target weights and next plan of an account.",
)
def eod_rebalance(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store], desk: DeskResource
) -> dg.RunRequest | dg.SkipReason:
    """Request one run per session; the run waits for bars that are still being ingested."""
    day = context.scheduled_execution_time.date()
    if not NEW_YORK.is_session(day):
        return dg.SkipReason(f"{day} is not a session of the exchange")
    reason = skip_reason(store, desk.account, day)
    if reason is not None:
        return dg.SkipReason(reason)
    return dg.RunRequest(run_key=day.isoformat(), tags={SESSION: day.isoformat()})


def experiment_run_requests(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store], period: str
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Request one run per current experiment and period."""
    keys = current_experiments(context.instance, store)
    if not keys:
        yield dg.SkipReason(
            "no experiment is registered yet; put a spec into data/experiments or run `nvtrader materialize`"
        )
    for key in keys:
        yield dg.RunRequest(run_key=f"{period}:{key}", partition_key=key)


@new_york_schedule(
    cron_schedule="0 2 * * *",
    job=PREFERENCES,
    description="Every night: decisions of people, their outcomes, and preference pairs of every experiment.",
)
def nightly_preference_extract(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store]
) -> Iterator[dg.RunRequest]:
    """Request one run per night, and one per experiment and night for what has its partitions."""
    night = context.scheduled_execution_time.date().isoformat()
    by_experiment = [each.key for each in PREFERENCE_ASSETS if each.partitions_def == EXPERIMENTS]
    yield dg.RunRequest(
        run_key=night, asset_selection=[each.key for each in PREFERENCE_ASSETS if each.key not in by_experiment]
    )
    for key in current_experiments(context.instance, store):
        yield dg.RunRequest(run_key=f"{night}:{key}", partition_key=key, asset_selection=by_experiment)


def tunable_experiments(instance: dg.DagsterInstance, store: Store) -> list[str]:
    """Current experiments whose policies dpo can tune."""
    return [key for key in current_experiments(instance, store) if is_tunable(store.ledger.read(key))]


@new_york_schedule(
    cron_schedule="0 3 * * *",
    job=DPO_CHECK,
    description="Every night after the extract: tune the policies of experiments with new preference pairs, or say "
    "why not.",
)
def dpo_check(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store]
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Request one run per night and experiment that dpo can tune."""
    keys = tunable_experiments(context.instance, store)
    if not keys:
        yield dg.SkipReason("no experiment of ppo, a2c or grouped_ppo is registered, whose policies dpo could tune")
    night = context.scheduled_execution_time.date().isoformat()
    for key in keys:
        yield dg.RunRequest(run_key=f"{night}:{key}", partition_key=key)


@new_york_schedule(
    cron_schedule="0 6 * * 0",
    job=EXPERIMENT,
    description="Every Sunday: train every experiment on the current market; up-to-date ones are skipped.",
)
def weekly_retrain(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store]
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Request one run per experiment and week."""
    yield from experiment_run_requests(context, store, context.scheduled_execution_time.strftime("%G-W%V"))


@new_york_schedule(
    cron_schedule="0 6 * * 6",
    job=AUTORESEARCH,
    description="Every Saturday: search for better settings, each week by other proposals.",
)
def weekly_autoresearch(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store]
) -> dg.RunRequest | dg.SkipReason:
    """Request one session per week, whose seed is the week, on the market that is traded, else the first one."""
    sources = panel_sources(store)
    if not sources:
        return dg.SkipReason("the market has no panel yet; run the market job or `nvtrader materialize`")
    active = last_activation(store)
    traded = store.ledger.read(active.partition_key).market.source if active else ""
    week = context.scheduled_execution_time.strftime("%G-W%V")
    seed = int(context.scheduled_execution_time.strftime("%G%V"))
    config = {"seed": seed, "source": traded if traded in sources else sources[0]}
    return dg.RunRequest(run_key=week, run_config={"ops": {"autoresearch_session": {"config": config}}})


@new_york_schedule(
    cron_schedule="0 5 * * 0",
    job=upkeep,
    description="Every Sunday before the training: expire old snapshots and delete orphaned files.",
)
def weekly_upkeep(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Request one run per week."""
    return dg.RunRequest(run_key=context.scheduled_execution_time.strftime("%G-W%V"))


SCHEDULES = [
    eod_ingest,
    eod_rebalance,
    nightly_preference_extract,
    dpo_check,
    weekly_autoresearch,
    weekly_retrain,
    weekly_upkeep,
]
