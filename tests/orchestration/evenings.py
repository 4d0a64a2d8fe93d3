"""Scheduled rebalances of an account in Dagster, one run after the other, with faults."""

import dagster as dg

from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.orchestration.assets import portfolio
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.storage.tables import REBALANCE_PLAN
from tests.homes import run_job
from tests.runs.small_runs import land


class Evenings:
    """The account's runs, one after the other."""

    def __init__(self, store, instance):
        self.store, self.instance = store, instance

    def rebalance(self, *assets, acknowledge=False, tags=None):
        keys = [dg.AssetKey(["portfolio", name]) for name in assets] or None
        desk = {"desk": DeskResource(acknowledge=acknowledge)}
        finished = run_job(self.store.home, "rebalance", self.instance, desk, asset_selection=keys, tags=tags or {})
        return finished, self.statuses()

    def limits(self, text):
        (self.store.home.compliance / "limits.yaml").write_text(text)

    def statuses(self):
        return self.store.tables.read(REBALANCE_PLAN).sort("session")["status"].to_list()


def unanswered_once(submit):
    """A broker that takes its second order and does not say so."""
    submitted = []

    def submitting(own, order):
        receipt = submit(own, order)
        submitted.append(order.order_id)
        if len(submitted) == 2:
            raise BrokerTimeout("no answer")
        return receipt

    return submitting


def leave_out_pictures(patch):
    """Let the assets of an account draw nothing."""
    for name in ("account_figures", "stages_figures", "plan_figures"):
        patch.setattr(portfolio, name, lambda *_: {})


def landing_meanwhile(store, n_sessions):
    """The active policy, read for the second time after the market job has ended."""
    asked = []

    def reading(home, account):
        asked.append(home)
        if len(asked) == 2:
            land(store, n_sessions)
        return read_active(store, account)

    return reading


def retried(finished) -> list[str]:
    """The steps that were tried again, each as often as it was."""
    return [
        event.step_key
        for event in finished.filter_events(lambda each: each.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY)
    ]


def metadata(finished, asset):
    """What the asset told."""
    events = {
        event.asset_key.path[-1]: event.materialization.metadata
        for event in finished.get_asset_materialization_events()
    }
    return {name: value.value for name, value in events[asset].items()}
