"""Kinds of plans, their phases in the tables, and the warning on runs for validation only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # takes half a second to import
    from nvtrader_pipelines.evaluation.backtest import Phase

VALIDATION_ONLY = (
    "validation only: policies were trained on sessions after their tests too, so results show their spread, not what "
    "could have been earned"
)
PlanKind = Literal["walk_forward", "replay", "forward"]
PHASES: dict[PlanKind, Phase] = {"walk_forward": "test", "replay": "replay", "forward": "forward"}
