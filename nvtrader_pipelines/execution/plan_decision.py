"""Decision of a person on a plan, as every door takes it."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.text import Reason, Text

DecisionEvent = Literal["approved", "overridden", "rejected", "skipped", "equal"]
Weights = Annotated[dict[Annotated[str, Field(max_length=32)], float], Field(min_length=1, max_length=1000)]


class Approve(Component):
    """Approve a waiting plan despite its soft findings; it is traded at its fill session."""

    event: ClassVar[DecisionEvent] = "approved"
    kind: Literal["approve"] = "approve"
    reason: Text = ""  # why; recorded in the audit


class Override(Component):
    """Override a plan: keep the current holdings, or trade edited weights.

    Names that are left out keep the plan's weights, and cash is the rest. Edited weights pass the limits and compliance
    again and become a plan of their own, whose id is in the event's detail as `edited`: cleared, or waiting for your
    approval of its soft findings.
    """

    event: ClassVar[DecisionEvent] = "overridden"
    kind: Literal["override"] = "override"
    reason: Reason  # why; recorded in the audit and in the preference data
    weights: Weights | None = None  # target, fractions of equity, of edited names; null keeps the holdings


class Reject(Component):
    """Reject a plan: place no order."""

    event: ClassVar[DecisionEvent] = "rejected"
    kind: Literal["reject"] = "reject"
    reason: Reason  # why; recorded in the audit and in the preference data


class Skip(Component):
    """Say that you do not judge a plan: it goes on as before, and your answer counts for nothing."""

    event: ClassVar[DecisionEvent] = "skipped"
    kind: Literal["skip"] = "skip"
    reason: Text = ""  # why; recorded in the audit


class Equal(Component):
    """Say that a plan is as good as the holdings: it goes on as before."""

    event: ClassVar[DecisionEvent] = "equal"
    kind: Literal["equal"] = "equal"
    reason: Text = ""  # why; recorded in the audit


PlanDecision = Annotated[Approve | Override | Reject | Skip | Equal, Field(discriminator="kind")]


def parse_decision(document: Mapping[str, Any]) -> PlanDecision:
    """Parse a decision.

    Raises:
        ValueError: if the document is no decision, with the reason.
    """
    try:
        return TypeAdapter[PlanDecision](PlanDecision).validate_python(document)
    except ValidationError as error:
        raise ValueError(explain(error, PlanDecision)) from None
