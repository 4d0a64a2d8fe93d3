"""States of a home that need a person: waiting plans, stale data, the kill switch, the UI."""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from nvtrader_pipelines.desk.account_access import account_names
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records
from nvtrader_pipelines.notifications.notification import CurrentStates, Kind, Notification, text_digest
from nvtrader_pipelines.storage.code_server import REMEDY, unreachable_url
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store

DELIVERY = timedelta(hours=2)  # of the bars of a session that ends at midnight
_LOG = logging.getLogger(__name__)


def waiting_plans(store: Store, _at: datetime) -> list[Notification]:
    """Plans whose soft findings wait for a person's decision."""
    records = plan_records(store.audit.events()).values()
    return [_waiting_plan(record) for record in records if record.status == "waiting"]


def stale_data(store: Store, at: datetime) -> list[Notification]:
    """Markets of policies that trade, if one lacks bars of the last session before today, each once.

    Accounts that a replay traded last do not count: only a person continues them.
    """
    from nvtrader_pipelines.desk.rebalancing import market_end, replay_reason, stale_reason  # slow to import
    from nvtrader_pipelines.desk.traded_policy import read_traded

    stale: dict[str, Notification] = {}
    for account in account_names(store.home):
        active = read_traded(store, account) if replay_reason(store, account) is None else None
        if active is None:
            continue
        zone, (source, _) = store.calendar_of(active.partition_key).time_zone, market_end(store, active)
        reason = stale_reason(store, active, account, (at - DELIVERY).astimezone(zone).date())
        if reason is not None and source not in stale:
            stale[source] = Notification("stale_data", source, "the market data are stale", f"{reason}.")
    return list(stale.values())


def kill_switch(store: Store, _at: datetime) -> list[Notification]:
    """Kill switches that are engaged, of all accounts and of each."""
    notifications = []
    for switch in map(store.switch_of, [None, *account_names(store.home)]):
        state = switch.file_state() if switch.account else switch.state()
        if state.reason:
            verb = "stopped" if state.halt_reason else "reduced"
            of_account = f" of the account {switch.account}" if switch.account else ""
            subject = f"trading{of_account} is {verb} by the kill switch"
            effect = "No order is placed" if state.halt_reason else "No position grows"
            body = f"{state.reason}.\n{effect}; {switch.remedy}."
            notifications.append(Notification("kill_switch", text_digest(state.reason), subject, body))
    return notifications


def unreachable_ui(store: Store, _at: datetime) -> list[Notification]:
    """Running UI whose code server cannot be reached."""
    url = unreachable_url(store.home.dagster)
    if not url:
        return []
    body = f"{url} runs, but its code server cannot be reached; {REMEDY}."
    return [Notification("unreachable_ui", url, "no schedule or sensor runs", body)]


READERS: Mapping[Kind, Callable[[Store, datetime], list[Notification]]] = {
    "waiting_plan": waiting_plans,
    "stale_data": stale_data,
    "kill_switch": kill_switch,
    "unreachable_ui": unreachable_ui,
}


def home_states(store: Store, at: datetime, kinds: Iterable[Kind] = tuple(READERS)) -> CurrentStates:
    """Read the states by kind; a kind whose files are damaged is left out."""
    states: dict[Kind, list[Notification]] = {}
    for kind in kinds:
        try:
            states[kind] = READERS[kind](store, at)
        except (StorageError, ValueError, OSError) as error:
            _LOG.warning("no notification of the kind %s can be sent: %s", kind, error)
    return states


def _waiting_plan(record: PlanRecord) -> Notification:
    plan = record.plan
    findings = "\n".join(f"- {finding.level}: {finding.sentence}" for finding in record.findings)
    body = (
        f"The plan {plan.plan_id} of {plan.policy} (run {plan.run_id}) at the close of {plan.session} is placed only "
        f"if a person approves it before its fill session.\n{findings}\n"
        f"Inspect it with `nvtrader plans show {plan.plan_id}`, then `nvtrader plans approve {plan.plan_id}`, "
        "override or reject."
    )
    return Notification("waiting_plan", plan.plan_id, f"a plan of the account {plan.account} waits for you", body)
