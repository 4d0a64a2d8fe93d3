"""Agents: a family of learners."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.policies.agents.fit import CURVE_POINTS, DEFAULT_HOOKS, CurvePoint, Fit, TrainingHooks, thin
from nvtrader_pipelines.policies.agents.ppo import PpoAgent

Agent = Annotated[PpoAgent, Field()]

__all__ = ["CURVE_POINTS", "DEFAULT_HOOKS", "Agent", "CurvePoint", "Fit", "PpoAgent", "TrainingHooks", "thin"]
