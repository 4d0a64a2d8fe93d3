"""Agents: a family of what decides on portfolios, learners and classical rules alike."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.policies.agents.learner import Learner
from nvtrader_pipelines.policies.agents.ppo import PpoAgent
from nvtrader_pipelines.policies.baselines import (
    AnchorPortfolio,
    BuyAndHold,
    EqualWeight,
    MeanCvar,
    MinimumVariance,
    Momentum,
)
from nvtrader_pipelines.policies.fit import CURVE_POINTS, DEFAULT_HOOKS, CurvePoint, Fit, TrainingHooks, thin

Agent = Annotated[
    PpoAgent | EqualWeight | BuyAndHold | Momentum | MinimumVariance | MeanCvar | AnchorPortfolio,
    Field(discriminator="kind"),
]

__all__ = [
    "CURVE_POINTS",
    "DEFAULT_HOOKS",
    "Agent",
    "CurvePoint",
    "Fit",
    "Learner",
    "PpoAgent",
    "TrainingHooks",
    "thin",
]
