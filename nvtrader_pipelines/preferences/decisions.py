"""Decisions of people on rebalance plans, one row each."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1
HORIZON = 5  # sessions from the close of a decision to its outcome
MIN_CHANGE = 1e-9  # of equity: smaller changes of weight are no order
DecisionKind = Literal[
    "approved",
    "overridden",  # the holdings are kept
    "edited",  # an override with weights of a person
    "rejected",  # the holdings are kept
    "skipped",  # no judgement
    "equal",  # the proposal is as good as the holdings
]
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class ProposedOrder(BaseModel):
    """Change of a name that a plan proposes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    symbol: str
    side: Literal["buy", "sell"]
    change: float  # of its weight, fraction of equity, negative for a sale
    amount: float  # account currency at the close of the plan's session, negative for a sale


class DecisionRow(BaseModel):
    """Decision of a person on a plan, with what was proposed and what was chosen.

    Source: NVTrader's `rebalance_decisions.jsonl` has decision, reason, orders, time and symbols; the rest is ours.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema_version: Literal[1] = SCHEMA_VERSION
    decision_id: Id  # of the event in the audit
    plan_id: Id  # plan with the chosen weights: the person's own for an edit, else the one decided on
    parent_id: Id | None  # plan that a person edited into this one
    account: str
    session: date  # at whose close the plan was decided
    by: str
    at: AwareDatetime
    decision: DecisionKind
    reason: str
    symbols: tuple[str, ...]  # names, cash last
    held_weights: tuple[float, ...]  # at the close of the session
    proposed_weights: tuple[float, ...]  # target of the plan decided on
    chosen_weights: tuple[float, ...] | None  # None: skipped or equal
    orders: tuple[ProposedOrder, ...]  # of the proposed weights
    policy: str  # that proposed
    run_id: str
    partition_key: str  # experiment, name@hash8
    observation_hash: int | None  # XXH64 of what the policy saw; None where it sees none
    snapshot_ids: Mapping[str, int]  # of the decision's panel
    outcome_known: bool  # whether the fill session had begun, as in a replay: no label of foresight

    @model_validator(mode="after")
    def _require_weight_per_symbol(self) -> Self:
        for weights in (self.held_weights, self.proposed_weights, self.chosen_weights):
            if weights is not None and len(weights) != len(self.symbols):
                raise ValueError(f"expected a weight for each of {len(self.symbols)} symbols, got {len(weights)}")
        return self
