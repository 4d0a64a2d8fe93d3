"""A rebalance plan: what an account shall hold, how that came about, and what compliance found."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nvtrader_pipelines.components.ids import ID_LENGTH

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
    symbol: str | None = None  # the name it is about, where it is about one
    figure: float | None  # what was found; None where it cannot be known
    bound: float | None
    sentence: str


def blocks(findings: Sequence[Finding]) -> bool:
    """Whether a plan may not be traded, and nobody may approve it."""
    return any(finding.level == "hard" for finding in findings)


def blocked_by(findings: Sequence[Finding]) -> str:
    """What blocks a plan, in words; empty where nothing does."""
    return "; ".join(each.sentence for each in findings if each.level == "hard")


def waits(findings: Sequence[Finding]) -> bool:
    """Whether somebody must acknowledge what was found before the plan is traded."""
    return not blocks(findings) and any(finding.level == "soft" for finding in findings)


class Stage(BaseModel):
    """Weights after one stage of the pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    weights: tuple[float, ...]  # in the order of the plan's symbols
    reason: str = ""


class RebalancePlan(BaseModel):
    """What the policy in force wants an account to hold, decided at the close of a session."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    plan_id: str
    account: str
    session: date  # of the decision
    policy: str
    run_id: str
    partition_key: str  # experiment, name@hash8
    spec_hash: str
    fold: int
    seeds: tuple[int, ...]  # of the policies that decided
    snapshot_ids: Mapping[str, int] = Field(default_factory=dict)
    symbols: tuple[str, ...]  # names, cash last
    held: tuple[float, ...]  # weights at the close of the decision
    stages: tuple[Stage, ...]
    truncated: bool

    @property
    def target(self) -> tuple[float, ...]:
        """Wanted weights, cash last."""
        return self.stages[-1].weights

    @property
    def turnover(self) -> float:
        """One-way turnover from held to target: half the sum of absolute changes of weight, cash included."""
        return 0.5 * sum(abs(wanted - held) for wanted, held in zip(self.target, self.held, strict=True))

    def is_over(self, symbols: Sequence[str]) -> bool:
        """Whether its weights are those of just these names, in this order, and cash."""
        return self.symbols[:-1] == tuple(symbols)


def plan_id(account: str, session: date, run_id: str, policy: str) -> str:
    """16 hexadecimal digits: the same decision is the same plan."""
    return hashlib.sha256(f"{account}|{session}|{run_id}|{policy}".encode()).hexdigest()[:ID_LENGTH]
