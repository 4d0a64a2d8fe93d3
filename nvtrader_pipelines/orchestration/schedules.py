"""Schedules: after the close of every session, at night and on weekends."""

import logging
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from typing import Any

import dagster as dg

from nvtrader_pipelines.desk.bot_files import AFTER_CLOSE, BotSpec, read_bots
from nvtrader_pipelines.desk.bots import bot_calendar
from nvtrader_pipelines.desk.rebalancing import skip_reason
from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.orchestration.job_states import bot_schedule_name, schedule_name
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
from nvtrader_pipelines.orchestration.rebalance_steps import BOT, SESSION
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.promotion.active_policy import last_activation
from nvtrader_pipelines.runs.market_state import other_calendars, panel_sources
from nvtrader_pipelines.runs.registration import read_unarchived_experiments
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

_LOG = logging.getLogger(__name__)
_TYPICAL_YEAR = date(2024, 1, 1), date(2024, 12, 31)  # by which the weekdays of a calendar's sessions are known
new_york_schedule = partial(
    dg.schedule, execution_timezone=NEW_YORK.time_zone.key, default_status=dg.DefaultScheduleStatus.RUNNING
)


def current_experiments(instance: dg.DagsterInstance, store: Store) -> list[str]:
    """Registered experiments of `data/experiments`, without superseded versions and archived ones.

    Those that tune another run's policies are left out: they follow that experiment.
    """
    specs = [spec for spec in read_unarchived_experiments(store).specs if not spec.agent.is_tuned]
    current = {variant.partition_key for spec in specs for variant in spec.variants()}
    return [key for key in instance.get_dynamic_partitions(EXPERIMENTS.name or "") if key in current]


INGEST_AFTER, REBALANCE_AFTER = timedelta(minutes=90), timedelta(hours=2)  # the close of every session


def market_schedules(calendar: TradingCalendar) -> list[dg.ScheduleDefinition]:
    """Build the schedules that run after the close of every session of a calendar."""

    @dg.schedule(
        name=schedule_name("eod_ingest", calendar),
        **_running(_after_close(calendar, INGEST_AFTER), calendar),
        job=MARKET,
        description=f"After the close of every session of {calendar.name}: ingest the bars of the current year, derive "
        "returns and features.",
    )
    def ingest_after_close(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Request one run per session, early closes included."""
        day = _session_of(context, calendar, INGEST_AFTER)
        if isinstance(day, dg.SkipReason):
            return day
        return dg.RunRequest(run_key=day.isoformat(), partition_key=str(day.year))

    @dg.schedule(
        name=schedule_name("eod_rebalance", calendar),
        **_running(_after_close(calendar, REBALANCE_AFTER), calendar),
        job=REBALANCE,
        description=f"After the ingest of every session of {calendar.name}: orders, state, target weights and next "
        "plan of an account that trades on it.",
    )
    def rebalance_after_close(
        context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store], desk: DeskResource
    ) -> dg.RunRequest | dg.SkipReason:
        """Request one run per session; the run waits for bars that are still being ingested."""
        day = _session_of(context, calendar, REBALANCE_AFTER)
        if isinstance(day, dg.SkipReason):
            return day
        reason = skip_reason(store, desk.account, day, calendar)
        if reason is not None:
            return dg.SkipReason(reason)
        return dg.RunRequest(run_key=day.isoformat(), tags={SESSION: day.isoformat()})

    return [ingest_after_close, rebalance_after_close]


def _running(cron: str, calendar: TradingCalendar) -> dict[str, Any]:
    """Arguments of a schedule that runs by default, in the time zone of a calendar."""
    running = dg.DefaultScheduleStatus.RUNNING
    return {"cron_schedule": cron, "execution_timezone": calendar.time_zone.key, "default_status": running}


def _after_close(calendar: TradingCalendar, delay: timedelta) -> str:
    """Cron expression of the time after the close of every session of a calendar."""
    closes = [calendar.close(day) + delay for day in calendar.sessions(*_TYPICAL_YEAR).tolist()]
    weekdays = sorted({at.isoweekday() % 7 for at in closes})
    days = "*" if len(weekdays) == 7 else f"{weekdays[0]}-{weekdays[-1]}"
    return f"{closes[0].minute} {closes[0].hour} * * {days}"


def _session_of(
    context: dg.ScheduleEvaluationContext, calendar: TradingCalendar, delay: timedelta
) -> date | dg.SkipReason:
    """Session that has closed the delay before, or the reason why there is none."""
    closed_at = context.scheduled_execution_time.astimezone(calendar.time_zone) - delay
    day = calendar.ending_on(closed_at.date())
    return day if calendar.is_session(day) else dg.SkipReason(f"{day} is not a session of {calendar.name}")


def bot_schedule(name: str, spec: BotSpec, calendar: TradingCalendar) -> dg.ScheduleDefinition:
    """Build the schedule of a bot, whose runs trade its account.

    Raises:
        dagster.DagsterInvalidDefinitionError: if Dagster does not know its cron expression.
    """
    is_after_close = spec.schedule == AFTER_CLOSE

    @dg.schedule(
        name=bot_schedule_name(name),
        **_running(_after_close(calendar, REBALANCE_AFTER) if is_after_close else spec.schedule, calendar),
        job=REBALANCE,
        description=f"Bot {name}: trade the account {spec.account}.",
    )
    def trade_account(
        context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store]
    ) -> dg.RunRequest | dg.SkipReason:
        """Request one run per session or, by a cron expression, per tick; it trades every session due."""
        at = context.scheduled_execution_time
        day = _session_of(context, calendar, REBALANCE_AFTER) if is_after_close else calendar.last_ended(at)
        if isinstance(day, dg.SkipReason):
            return day
        reason = skip_reason(store, spec.account, day, calendar, name)
        if reason is not None:
            return dg.SkipReason(reason)
        desk = {"resources": {"desk": {"config": {"account": spec.account}}}}
        tags = {SESSION: day.isoformat(), BOT: name}
        return dg.RunRequest(run_key=at.isoformat(), run_config=desk, tags=tags)

    return trade_account


eod_ingest, eod_rebalance = market_schedules(NEW_YORK)


def experiment_run_requests(keys: list[str], period: str, none: str) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Request one run per experiment and period, or give the reason why there is none."""
    if not keys:
        yield dg.SkipReason(none)
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
    by_experiment = [asset.key for asset in PREFERENCE_ASSETS if asset.partitions_def == EXPERIMENTS]
    yield dg.RunRequest(
        run_key=night, asset_selection=[asset.key for asset in PREFERENCE_ASSETS if asset.key not in by_experiment]
    )
    for key in current_experiments(context.instance, store):
        yield dg.RunRequest(run_key=f"{night}:{key}", partition_key=key, asset_selection=by_experiment)


def tunable_experiments(instance: dg.DagsterInstance, store: Store) -> list[str]:
    """Current experiments whose policies dpo can tune."""
    return [key for key in current_experiments(instance, store) if store.ledger.read(key).agent.is_tunable]


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
    none = "no experiment of ppo, a2c or grouped_ppo is registered, whose policies dpo could tune"
    night = context.scheduled_execution_time.date().isoformat()
    yield from experiment_run_requests(tunable_experiments(context.instance, store), night, none)


@new_york_schedule(
    cron_schedule="0 6 * * 0",
    job=EXPERIMENT,
    description="Every Sunday: train every experiment on the current market; up-to-date ones are skipped.",
)
def weekly_retrain(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Store]
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Request one run per experiment and week."""
    none = "no experiment is registered yet; put a spec into data/experiments or run `nvtrader materialize`"
    week = context.scheduled_execution_time.strftime("%G-W%V")
    yield from experiment_run_requests(current_experiments(context.instance, store), week, none)


@new_york_schedule(
    cron_schedule="0 6 * * 6",
    job=AUTORESEARCH,
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Every Saturday, once switched on: search for better settings, each week by other proposals. A search "
    "that finds something spends a look at the sealed window, of which each later one must find more.",
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


# Of a home whose markets trade in New York; each other calendar adds its two.
SCHEDULES = [
    eod_ingest,
    eod_rebalance,
    nightly_preference_extract,
    dpo_check,
    weekly_autoresearch,
    weekly_retrain,
    weekly_upkeep,
]


def schedules_of(home: Home) -> list[dg.ScheduleDefinition]:
    """Schedules of a home: those of New York, two more for each other calendar of its markets, and one per bot."""
    of_calendars = [schedule for calendar in other_calendars(home) for schedule in market_schedules(calendar)]
    return [*SCHEDULES, *of_calendars, *_bot_schedules(Store(home))]


def _bot_schedules(store: Store) -> Iterator[dg.ScheduleDefinition]:
    """Build the schedules of the bots on the calendars of their markets; one that cannot be built is left out."""
    for name, spec in read_bots(store.home).specs.items():
        try:
            yield bot_schedule(name, spec, bot_calendar(store, spec))
        except (StorageError, dg.DagsterInvalidDefinitionError) as error:
            _LOG.warning("the bot %s has no schedule: %s", name, error)
