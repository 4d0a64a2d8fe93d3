"""Rebalance plans, and the findings of compliance."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.portfolio.cash import ROUNDING

Level = Literal["hard", "soft", "warn"]
Rule = Literal[
    "max_position_pct",
    "limits_hold",
    "restricted_list",
    "wash_sale_window_days",
    "turnover_pct_warn",
    "sector_concentration_max",
    "min_diversification",
    "realized_vol_target",
]


class Finding(BaseModel):
    """One breach of a rule: hard blocks, soft waits for acknowledgement, warn is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    rule: Rule
    level: Level
    symbol: str | None = None  # the name, if the finding is of one name
    figure: float | None  # the figure found; None if unknown
    bound: float | None
    sentence: str


def is_blocked(findings: Sequence[Finding]) -> bool:
    """Whether a hard finding forbids trading, which no approval overrules."""
    return any(finding.level == "hard" for finding in findings)


def block_reason(findings: Sequence[Finding]) -> str:
    """Sentences of the hard findings; empty if there are none."""
    return "; ".join(finding.sentence for finding in findings if finding.level == "hard")


def needs_approval(findings: Sequence[Finding]) -> bool:
    """Whether soft findings, and no hard ones, wait for a person's approval."""
    return not is_blocked(findings) and any(finding.level == "soft" for finding in findings)


class Stage(BaseModel):
    """Weights after one stage of the pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    weights: tuple[float, ...]  # in the order of the plan's symbols
    reason: str = ""


class RebalancePlan(Document):
    """Target weights of an account, decided at the close of a session, with the stages that led to them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    plan_id: str
    account: str
    session: date  # of the decision
    policy: str
    run_id: str
    partition_key: str  # experiment, name@hash8
    spec_hash: str
    fold: int
    seeds: tuple[int, ...]  # of the deciding policies
    snapshot_ids: Mapping[str, int] = Field(default_factory=dict)
    symbols: tuple[str, ...]  # names, cash last
    held: tuple[float, ...]  # weights at the close of the decision
    stages: tuple[Stage, ...]
    truncated: bool
    parent_id: str | None = None  # plan that a person edited into this one
    bot: str = ""  # that made it; empty without one
    observation_hash: int | None = None  # XXH64 of what the policy saw; None where it sees none

    @property
    def target(self) -> tuple[float, ...]:
        """Target weights, cash last."""
        return self.stages[-1].weights

    @property
    def turnover(self) -> float:
        """One-way turnover from held to target weights: half the sum of absolute changes, cash included."""
        return 0.5 * sum(abs(target - held) for target, held in zip(self.target, self.held, strict=True))

    def has_symbols(self, symbols: Sequence[str]) -> bool:
        """Whether the plan is over exactly these names, in this order, and cash."""
        return self.symbols[:-1] == tuple(symbols)


class WeightCut(BaseModel):
    """Weight of a name that limits changed after a person had edited the plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    symbol: str
    edited: float  # by the person
    target: float
    limits: tuple[str, ...]  # stages that changed it
    sentence: str


def weight_cuts(plan: RebalancePlan) -> tuple[WeightCut, ...]:
    """Weights of an edited plan that limits changed, in the plan's order; none of a plan of a policy."""
    if plan.parent_id is None:
        return ()
    cuts = []
    for j, symbol in enumerate(plan.symbols[:-1]):
        edited, target = plan.stages[0].weights[j], plan.target[j]
        steps = [(stage.name, abs(stage.weights[j] - before.weights[j])) for before, stage in pairwise(plan.stages)]
        limits = tuple(name for name, change in steps if change > ROUNDING)
        if abs(target - edited) > ROUNDING:
            sentence = f"{symbol} of {edited:.1%} became {target:.1%} by {', '.join(limits)}"
            cuts.append(WeightCut(symbol=symbol, edited=edited, target=target, limits=limits, sentence=sentence))
    return tuple(cuts)


def plan_id(account: str, session: date, run_id: str, policy: str) -> str:
    """Id of a plan, 16 hexadecimal digits: equal decisions give equal ids."""
    return hashlib.sha256(f"{account}|{session}|{run_id}|{policy}".encode()).hexdigest()[:ID_LENGTH]
