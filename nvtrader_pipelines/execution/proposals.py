"""From what a policy wants at a close to a plan, with the ids that lead back to its data and its seeds."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Protocol

import numpy as np

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.execution.journal import Proposal
from nvtrader_pipelines.execution.plan import RebalancePlan, Stage, plan_id
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.calendar import SESSIONS_PER_YEAR
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.cash import CASH

VOLATILITY_SESSIONS = 63


class Deployed(Protocol):
    """A policy on a market."""

    @property
    def spec(self) -> ExperimentSpec:
        """The experiment."""
        ...

    @property
    def panel(self) -> MarketPanel:
        """The market."""
        ...

    @property
    def run_id(self) -> str:
        """The run that trained it."""
        ...

    @property
    def policy(self) -> str:
        """The name its account had in the evaluation."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the policies that decide."""
        ...

    @property
    def first(self) -> int:
        """The first session at whose close it may decide."""
        ...

    @property
    def remembers(self) -> bool:
        """Whether the account's earlier decisions must have been asked for before, in order."""
        ...

    def fold_at(self, t: int) -> int:
        """The fold in force at the close of session `t`."""
        ...

    def decide(self, t: int, account: Account) -> Decision:
        """The target weights at the close of session `t`, after every stage."""
        ...


def is_due(deployed: Deployed, proposals: Sequence[Proposal], t: int) -> bool:
    """Whether a decision is due at the close of session `t`: the first, one of another policy, or after its interval.

    Args:
        deployed: the policy, whose spec says after how many sessions it decides again.
        proposals: every decision for the account, the oldest first.
        t: the session.
    """
    if not proposals:
        return True
    latest = proposals[-1]
    if (latest.run_id, latest.policy) != (deployed.run_id, deployed.policy):
        return True
    return t - deployed.panel.index_of(np.datetime64(latest.session)) >= deployed.spec.environment.rebal_freq


def plan_of(deployed: Deployed, account: str, t: int, held: Account, decision: Decision) -> RebalancePlan:
    """The plan of a decision that wants a trade at the close of session `t`, where the account stands at `held`."""
    session, target, result = deployed.panel.sessions[t].item(), decision.target, decision.pipeline
    stages = [Stage(name="policy", weights=() if target is None else tuple(target.tolist()))]
    if result is not None:
        stages = [Stage(name=each.name, weights=each.weights.tolist(), reason=each.reason) for each in result.stages]
    return RebalancePlan(
        plan_id=plan_id(account, session, deployed.run_id, deployed.policy),
        account=account,
        session=session,
        policy=deployed.policy,
        run_id=deployed.run_id,
        partition_key=deployed.spec.partition_key,
        spec_hash=deployed.spec.spec_hash,
        fold=deployed.fold_at(t),
        seeds=deployed.seeds,
        snapshot_ids=deployed.panel.snapshot_ids,
        symbols=(*deployed.panel.symbols, CASH),
        held=tuple(held.weights.tolist()),
        stages=tuple(stages),
        truncated=result.truncated if result is not None else False,
    )


def no_trade(deployed: Deployed, account: str, session: date, at: datetime, by: str) -> AuditEvent:
    """The event of a decision not to trade."""
    return AuditEvent(
        event_id=event_id("proposed", account, session),
        kind="proposed",
        at=at,
        by=by,
        account=account,
        session=session,
        policy=deployed.policy,
        run_id=deployed.run_id,
        spec_hash=deployed.spec.spec_hash,
        snapshot_ids=deployed.panel.snapshot_ids,
        reason="the policy wants no trade",
    )


def reasons(decision: Decision) -> str:
    """What the stages changed and why, as one line."""
    stages = decision.pipeline.stages if decision.pipeline else ()
    return "; ".join(f"{stage.name}: {stage.reason}" for stage in stages if stage.reason)


def target_volatility(plan: RebalancePlan, panel: MarketPanel, t: int) -> float | None:
    """Volatility per year that a plan's weights would have had over the 63 sessions to `t` (ddof 1).

    None where the market is younger, or a wanted name had no price in one of them.
    """
    since, target = t + 1 - VOLATILITY_SESSIONS, np.array(plan.target[:-1])
    if since < 0 or not panel.tradable[since : t + 1, target != 0.0].all():
        return None
    returns = panel.close_returns[since : t + 1] @ target
    return float(np.std(returns, ddof=1) * np.sqrt(SESSIONS_PER_YEAR))
