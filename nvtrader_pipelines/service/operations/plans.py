"""Rebalance plans, and the decisions of people on them."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.execution.plan_decision import PlanDecision
from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.desk.plan_queries import ListedPlan
    from nvtrader_pipelines.desk.plan_review import PlanReview
    from nvtrader_pipelines.execution.audit import AuditEvent

PlanId = Annotated[str, Field(max_length=64, pattern=r"^[0-9A-Za-z-]+$", description="Id of a plan, or its beginning.")]


class Plans(Family):
    """Rebalance plans: targets, compliance findings, and your decisions on them."""

    command, alone = "plans", "list"
    examples = ("nvtrader plans", "nvtrader plans --waiting --account paper", "nvtrader plans show 3f2a")

    @operation(
        "nvtrader plans list", "nvtrader plans list --account paper --json", route="GET /api/plans", is_kept=True
    )
    def list(
        self,
        *,
        account: Annotated[str | None, Field(max_length=63, description="Account; default: all accounts.")] = None,
        waiting: Annotated[bool, Field(description="Only plans that wait for a person.")] = False,
    ) -> "Annotated[pl.DataFrame, ListedPlan]":
        """List all plans, newest first, and sessions that `nvtrader halt` left without one.

        A table begins with the plans that wait for you, and ends with the ranges of halted sessions.

        Raises:
            NotFoundError: if there is no such account.
        """
        from nvtrader_pipelines.desk.account_access import read_account
        from nvtrader_pipelines.desk.plan_queries import list_plans

        if account is not None:
            read_account(self.store.home, account)
        plans = list_plans(self.store.audit.events(account))
        return plans.filter(status="waiting") if waiting else plans

    @operation("nvtrader plans show 3f2a", route="GET /api/plans/{plan}", is_kept=True)
    def show(self, plan: PlanId) -> "PlanReview":
        """Show a plan: findings, orders in money, the record of its policy, and the weights after each stage.

        The record has the last six months of the policy's tests beside the best baseline of its run.

        Raises:
            NotFoundError: if no plan or several plans match.
        """
        from nvtrader_pipelines.desk.plan_queries import find_plan
        from nvtrader_pipelines.desk.plan_review import read_plan_review

        return read_plan_review(self.store, find_plan(self.store, plan))

    @operation(
        "nvtrader plans decide 3f2a approve",
        'nvtrader plans decide 3f2a override AAPL=0.1 MSFT=0.05 --reason "too much of one sector"',
        'nvtrader plans decide 3f2a reject --reason "a stale price"',
        route="POST /api/plans/{plan}/decision",
        writes=True,
    )
    def decide(self, plan: PlanId, decision: PlanDecision) -> "AuditEvent":
        """Approve, override, reject or skip a plan, or say that it is as good as the holdings.

        Each kind of decision is a command, too, such as `nvtrader plans override`, whose help says what follows from
        it, and a route, such as `/api/plans/PLAN/override`.

        Raises:
            NotFoundError: if no plan or several plans match.
            ExecutionError: if the plan cannot be decided on in this way; then nothing is recorded.
        """
        from nvtrader_pipelines.desk.plan_queries import find_plan
        from nvtrader_pipelines.feedback.decisions import act_on_account

        chosen, by = find_plan(self.store, plan).plan, self.opened.by
        return act_on_account(self.store, chosen.account, by, lambda desk: desk.decide(chosen.plan_id, decision, by))
