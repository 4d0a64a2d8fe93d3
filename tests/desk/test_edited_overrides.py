"""Overrides with edited weights: plans of their own that trade like any other."""

from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.desk.account_access import AccountInUse, lock_account
from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment
from nvtrader_pipelines.execution.decisions import EDITED
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan_decision import Approve, Equal, Override, Reject, Skip
from nvtrader_pipelines.execution.stale_plans import StalePlan
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.storage.tables import REBALANCE_PLAN
from tests.desk.desks import days_of, desk, make_active, states, trade
from tests.promotion.activations import LATER

pytestmark = pytest.mark.slow
EDITS = {"AAA": 0.1, "BBB": 0.05}
OVERRIDE = Override(reason="too much", weights=EDITS)


@pytest.fixture
def home(trading_home):
    store, _ = trading_home
    trade(store, acknowledge=False)
    return trading_home


def plans(store):
    """Status by plan id, the newest plan's last."""
    rows = desk(store).plans().sort("session", maintain_order=True)
    return dict(rows.select("plan_id", "status").iter_rows())


def test_edited_plan_waits_for_its_findings_beside_its_overridden_parent(home):
    store, _ = home
    (parent,) = plans(store)
    event = desk(store).decide(parent, OVERRIDE, "ann")
    edited = event.detail[EDITED]
    assert plans(store) == {parent: "overridden", edited: "waiting"}
    assert (event.plan_id, event.detail["account_value"]) == (parent, states(store)[-1].value)
    desk(store).mirror()
    parents = store.tables.read(REBALANCE_PLAN, columns=["plan_id", "parent_id"])
    assert dict(parents.iter_rows()) == {parent: None, edited: parent}
    desk(store).decide(edited, Approve(), "ann")
    assert plans(store)[edited] == "approved"
    for decision in (Approve(reason="me too"), Reject(reason="me too"), OVERRIDE):
        with pytest.raises(ExecutionError):
            desk(store).decide(parent, decision, "bob")


def test_refused_weights_leave_the_plan_waiting(home):
    store, _ = home
    (parent,) = plans(store)
    (store.home.compliance).mkdir(parents=True, exist_ok=True)
    limits = store.home.compliance / "limits.yaml"
    limits.write_text("max_position: 0.08\n")
    for weights in (EDITS, {"ZZZ": 0.1}, {"AAA": 0.9}):
        with pytest.raises(ExecutionError):
            desk(store).decide(parent, Override(reason="too much", weights=weights), "ann")
    with pytest.raises(ExecutionError):
        desk(store).decide(parent, Override(reason=" ", weights=EDITS), "ann")
    assert plans(store) == {parent: "waiting"}


def test_weights_of_a_plan_of_a_replaced_policy_are_not_edited(home):
    store, run = home
    (parent,) = plans(store)
    make_active(store, run, f"{run.experiment}/seed-{run.seeds[0]}", at=LATER)
    with pytest.raises(StalePlan):
        desk(store).decide(parent, OVERRIDE, "ann")
    assert plans(store) == {parent: "waiting"}


def test_plan_is_skipped_once_and_still_decided_on(home):
    store, _ = home
    (parent,) = plans(store)
    for answer in (Skip(), Equal()):
        assert desk(store).decide(parent, answer, "ann").kind == answer.event
        with pytest.raises(ExecutionError):
            desk(store).decide(parent, answer, "bob")
    assert plans(store) == {parent: "waiting"}
    desk(store).decide(parent, Approve(), "ann")
    with pytest.raises(ExecutionError):
        desk(store).decide(parent, Skip(), "bob")


def test_second_person_at_the_same_time_is_told_so(home):
    store, _ = home
    (parent,) = plans(store)
    with lock_account(store, "paper"), pytest.raises(AccountInUse):
        desk(store).decide(parent, OVERRIDE, "bob")
    assert plans(store) == {parent: "waiting"}


class Chooses:
    """Policy that decides given weights by session."""

    def __init__(self, panel, weights):
        self.weights = {panel.index_of(np.datetime64(day)): target for day, target in weights.items()}

    def decide(self, panel, t, account):
        return Decision(target=self.weights.get(t))


def test_books_of_edited_plans_equal_those_of_the_same_weights_without_a_person(trading_home):
    store, run = trading_home
    first, chosen, shares = run.as_parent.window[0], {}, np.random.default_rng(1).dirichlet(np.ones(4), 12)
    last = next(day for n, day in enumerate(day for day in days_of(store) if day >= first) if n == 15)
    for share in shares:
        *_, _ = desk(store).trade(first, last, until_waiting=True)
        waiting = [plan for plan, status in plans(store).items() if status == "waiting"]
        if not waiting:
            break
        weights = dict(zip(("AAA", "BBB", "CCC"), (0.25 * share[:3]).tolist(), strict=True))
        edited = desk(store).decide(waiting[-1], Override(reason="as drawn", weights=weights), "ann").detail[EDITED]
        desk(store).decide(edited, Approve(), "ann")
        chosen[states(store)[-1].session] = np.array([*weights.values(), 1.0 - sum(weights.values())])
    assert len(chosen) > 2
    assert states(store)[-1].session == last
    deployment = open_deployment(store, run.run_id, run.experiment)
    policies = Chooses(deployment.panel, chosen)
    tested = account_backtest(replace(deployment, fold_policies=policies), states(store)[0].session, last)
    np.testing.assert_allclose([state.equity for state in states(store)[1:]], tested["equity"].to_list(), rtol=1e-12)
    assert not any(state.differences for state in states(store))
