"""Plans whose weights a person edited: checked, held to the pipeline's limits, and made a child of the first plan."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.envs.account import Account, situation_of
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import RebalancePlan, Stage
from nvtrader_pipelines.experiments.deployment import Deployment
from nvtrader_pipelines.policies.pipeline_policy import limits_only
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Thresholds

ROUNDING = 1e-6  # of equity: weights typed with six decimals may miss a sum of 1 by this much
LONG_ONLY = RiskLimits()
PERSON = "person"  # stage of the weights as a person gave them


def make_edited_plan(
    deployed: Deployment, t: int, held: Account, parent: RebalancePlan, edits: Mapping[str, float]
) -> RebalancePlan:
    """Make the plan of edited weights at the close of session `t`; the pipeline's limits may cut them, with reasons.

    Raises:
        ExecutionError: if a weight is not one, a name is unknown or has no price, or they do not sum to 1.
    """
    panel, pipeline = deployed.panel, limits_only(deployed.spec.pipeline)
    is_levered = deployed.spec.environment.is_levered
    weights = edited_weights(parent, edits, deployed.spec.pipeline.risk_limits if is_levered else LONG_ONLY)
    before, wanted = np.array(parent.held[:-1]), weights[:-1]
    opened = (wanted > np.maximum(before, 0.0) + ROUNDING) | (wanted < np.minimum(before, 0.0) - ROUNDING)
    if unpriced := [panel.symbols[j] for j in np.flatnonzero(opened & ~panel.eligible[t])]:
        raise ExecutionError(
            f"edited weights must buy names that had a price at the close of {parent.session} only, but "
            f"{', '.join(unpriced)} had none; leave out what would be bought or sold short"
        )
    rebal_freq = deployed.spec.environment.rebal_freq
    situation = situation_of(held, panel, t, Thresholds(), rebal_freq)
    limited = pipeline.start(panel)(weights, situation)
    proposed, *later = limited.stages
    stages = [
        replace(proposed, name=PERSON),
        *(stage for stage in later if stage.name in pipeline.limit_names or stage.reason),
    ]
    return parent.model_copy(
        update={
            "plan_id": edited_plan_id(parent.plan_id),
            "parent_id": parent.plan_id,
            "snapshot_ids": panel.snapshot_ids,
            "stages": tuple(
                Stage(name=stage.name, weights=tuple(stage.weights.tolist()), reason=stage.reason) for stage in stages
            ),
            "truncated": limited.truncated,
        }
    )


def edited_weights(
    plan: RebalancePlan, edits: Mapping[str, float], limits: RiskLimits = LONG_ONLY
) -> NDArray[np.float64]:
    """Weights (N+1,) of a plan after edits: other names keep their target, and cash is the rest unless it is given.

    Limits above a gross of 1 allow debt, which is negative cash.

    Raises:
        ExecutionError: if a weight is outside its range (0 to 1 of a long-only account), a name is not the plan's, the
            weights do not sum to 1, or they are the plan's own.
    """
    least_cash = min(0.0, 1.0 - limits.max_gross)
    most_cash = 1.0 + limits.max_gross if limits.max_short > 0.0 else 1.0
    wanted = dict(zip(plan.symbols, plan.target, strict=True))
    for name, weight in edits.items():
        if name not in wanted:
            raise ExecutionError(
                f"edited weights must be of names of plan {plan.plan_id} or {CASH}, but {name} is neither"
                f"{suggest(name, plan.symbols)}"
            )
        low, high = (least_cash, most_cash) if name == CASH else (0.0 - limits.max_short, 1.0)
        if not (math.isfinite(weight) and low <= weight <= high):
            raise ExecutionError(f"an edited weight must be from {low:g} to {high:g}, but that of {name} is {weight:g}")
    wanted |= edits
    names = np.array([wanted[name] for name in plan.symbols[:-1]])
    total, most = float(names.sum()) + (wanted[CASH] if CASH in edits else 0.0), 1.0 - least_cash
    if total > (1.0 if CASH in edits else most) + ROUNDING or (CASH in edits and total < 1.0 - ROUNDING):
        rest = f"1 and leave the rest as {CASH}" if most == 1.0 else f"at most {most:g} without {CASH}"
        raise ExecutionError(
            f"edited weights must sum to {'1' if CASH in edits else rest}, but with the proposed weights of the other "
            f"names they sum to {total:.6g}; name those to lower, too"
        )
    names /= max(1.0, float(names.sum()) / most)  # rounding
    weights = np.append(names, max(least_cash, 1.0 - float(names.sum())))
    if np.abs(weights - np.array(plan.target)).max() <= ROUNDING:
        raise ExecutionError(f"edited weights must differ from those of plan {plan.plan_id}, but are the same; approve")
    return weights


def edited_plan_id(parent_id: str) -> str:
    """Id of the plan that a person edited a plan into."""
    return hashlib.sha256(f"{parent_id}|edited".encode()).hexdigest()[:ID_LENGTH]
