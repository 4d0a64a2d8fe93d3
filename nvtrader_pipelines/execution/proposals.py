"""Plans from the decisions of a deployed policy, with the ids of its data and seeds."""

from collections.abc import Sequence
from datetime import date, datetime

import numpy as np

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.execution.journal import Proposal
from nvtrader_pipelines.execution.plan import RebalancePlan, Stage, plan_id
from nvtrader_pipelines.experiments.deployment import Deployment
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.cash import CASH, cash_beside

VOLATILITY_SESSIONS = 63


def is_due(deployed: Deployment, proposals: Sequence[Proposal], t: int) -> bool:
    """Whether a decision is due at the close of session `t`.

    The first decision is due, then one after every `rebal_freq` sessions, and at once after a change of policy. The
    proposals are all decisions for the account, oldest first.
    """
    if not proposals:
        return True
    latest = proposals[-1]
    if (latest.run_id, latest.policy) != (deployed.run_id, deployed.policy):
        return True
    return t - deployed.panel.index_of(np.datetime64(latest.session)) >= deployed.spec.environment.rebal_freq


def make_plan(deployed: Deployment, account: str, t: int, held: Account, decision: Decision) -> RebalancePlan:
    """Make the plan of a decision at the close of session `t`, for an account that holds `held`."""
    session, target, result = deployed.panel.sessions[t].item(), decision.target, decision.pipeline
    stages = [Stage(name="policy", weights=() if target is None else tuple(target.tolist()))]
    if result is not None:
        stages = [
            Stage(name=stage.name, weights=stage.weights.tolist(), reason=stage.reason) for stage in result.stages
        ]
    return RebalancePlan(
        plan_id=plan_id(account, session, deployed.run_id, deployed.policy),
        account=account,
        session=session,
        policy=deployed.policy,
        run_id=deployed.run_id,
        partition_key=deployed.spec.partition_key,
        spec_hash=deployed.spec.spec_hash,
        fold=deployed.fold_index(t),
        seeds=deployed.seeds,
        snapshot_ids=deployed.panel.snapshot_ids,
        symbols=(*deployed.panel.symbols, CASH),
        held=tuple(held.weights.tolist()),
        stages=tuple(stages),
        truncated=result.truncated if result is not None else False,
        observation_hash=decision.observation_hash,
    )


def reduced_plan(plan: RebalancePlan, reason: str) -> RebalancePlan:
    """Cut a plan's targets to what is held, name by name, so that no position grows or changes its side."""
    held, target = np.array(plan.held[:-1]), np.array(plan.target[:-1])
    cut = np.where(held * target > 0.0, np.sign(held) * np.minimum(np.abs(held), np.abs(target)), 0.0)
    weights = (*cut.tolist(), float(cash_beside(cut)))
    return plan.model_copy(update={"stages": (*plan.stages, Stage(name="reducing", weights=weights, reason=reason))})


def no_trade_event(
    deployed: Deployment, account: str, session: date, at: datetime, by: str, decision: Decision
) -> AuditEvent:
    """Make the event of a decision not to trade."""
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
        reason=decision.reasons or "the policy does not trade",
    )


def target_volatility(plan: RebalancePlan, panel: MarketPanel, t: int) -> float | None:
    """Annualized volatility (ddof 1) of a plan's target weights over the 63 sessions up to `t`.

    None if the panel starts later, or a name with weight lacks a price in one of the sessions.
    """
    first, target = t + 1 - VOLATILITY_SESSIONS, np.array(plan.target[:-1])
    if first < 0 or not panel.tradable[first : t + 1, target != 0.0].all():
        return None
    returns = panel.close_returns[first : t + 1] @ target
    return float(np.std(returns, ddof=1) * np.sqrt(panel.calendar.periods_per_year))
