"""Rebalance plans, and the decisions of people on them."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.execution.audit import AuditEvent
    from nvtrader_pipelines.execution.plan_decision import PlanDecision
    from nvtrader_pipelines.service.documents.plan_review import PlanReview


@operation
def list_plans(home: OpenHome, *, account: str | None = None, waiting: bool = False) -> "pl.DataFrame":
    """List all plans, newest first, and sessions that `nvtrader halt` left without one.

    Args:
        home: the home.
        account: account; None for all.
        waiting: only plans that wait for a person.

    Raises:
        StorageError: if there is no such account.
    """
    from nvtrader_pipelines.desk.account_access import read_account
    from nvtrader_pipelines.service.documents.plan_facts import list_plans

    if account is not None:
        read_account(home.store.home, account)
    plans = list_plans(home.store.audit.events(account))
    return plans.filter(status="waiting") if waiting else plans


@operation
def show_plan(home: OpenHome, plan: str) -> "PlanReview":
    """Show a plan: findings, orders in money, the record of its policy, and the weights after each stage.

    The record has the last six months of the policy's tests beside the best baseline of its run.

    Args:
        home: the home.
        plan: id of a plan, or its beginning.

    Raises:
        ValueError: if no plan or several plans match.
    """
    from nvtrader_pipelines.service.documents.plan_facts import find_plan
    from nvtrader_pipelines.service.documents.plan_review import read_plan_review

    return read_plan_review(home.store, find_plan(home.store, plan))


@operation
def decide(home: OpenHome, plan: str, decision: "PlanDecision") -> "AuditEvent":
    """Approve, override, reject or skip a plan, or say that it is as good as the holdings.

    Args:
        home: the home.
        plan: id of a plan, or its beginning.
        decision: `Approve`, `Override`, `Reject`, `Skip` or `Equal`.

    Raises:
        ValueError: if no plan or several plans match.
        ExecutionError: if the plan cannot be decided on in this way; then nothing is recorded.
    """
    from nvtrader_pipelines.desk.desk import act_on_account
    from nvtrader_pipelines.service.documents.plan_facts import find_plan

    chosen = find_plan(home.store, plan).plan
    return act_on_account(
        home.store, chosen.account, home.by, lambda desk: desk.decide(chosen.plan_id, decision, home.by)
    )


class Plans(Family):
    """Rebalance plans: targets, compliance findings, and your decisions on them."""

    list, show, decide = list_plans, show_plan, decide
