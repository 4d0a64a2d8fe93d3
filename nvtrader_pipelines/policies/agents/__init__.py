"""Agents: the family of components that give a policy, learners and classical rules alike."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.policies.agents.a2c import A2cAgent
from nvtrader_pipelines.policies.agents.ars import ArsAgent
from nvtrader_pipelines.policies.agents.cma_es import CmaEsAgent
from nvtrader_pipelines.policies.agents.crossq import CrossQAgent
from nvtrader_pipelines.policies.agents.deeptrader import DeepTraderAgent
from nvtrader_pipelines.policies.agents.differentiable_grpo import DifferentiableGrpoAgent
from nvtrader_pipelines.policies.agents.dpo import DpoAgent
from nvtrader_pipelines.policies.agents.dqn import DqnAgent, QrDqnAgent
from nvtrader_pipelines.policies.agents.ensemble import EnsembleAgent
from nvtrader_pipelines.policies.agents.grouped_ppo import GroupedPpoAgent
from nvtrader_pipelines.policies.agents.investor_imitator import InvestorImitatorAgent
from nvtrader_pipelines.policies.agents.learner import Learner
from nvtrader_pipelines.policies.agents.maskable_ppo import MaskablePpoAgent
from nvtrader_pipelines.policies.agents.pathwise import EiieAgent, PathwiseAgent
from nvtrader_pipelines.policies.agents.ppo import PpoAgent
from nvtrader_pipelines.policies.agents.recurrent_ppo import RecurrentPpoAgent
from nvtrader_pipelines.policies.agents.sac import SacAgent
from nvtrader_pipelines.policies.agents.td3 import DdpgAgent, SarlAgent, Td3Agent
from nvtrader_pipelines.policies.agents.tqc import TqcAgent
from nvtrader_pipelines.policies.agents.trpo import TrpoAgent
from nvtrader_pipelines.policies.baselines import (
    AnchorPortfolio,
    BuyAndHold,
    Cufolio,
    EqualWeight,
    FactorRank,
    MeanCvar,
    MinimumVariance,
    Momentum,
    TimeSeriesMomentum,
)
from nvtrader_pipelines.policies.fit import CURVE_POINTS, DEFAULT_HOOKS, CurvePoint, Fit, TrainingHooks, TrainingPoint

Agent = Annotated[
    PpoAgent
    | A2cAgent
    | SacAgent
    | Td3Agent
    | DdpgAgent
    | SarlAgent
    | RecurrentPpoAgent
    | TqcAgent
    | CrossQAgent
    | GroupedPpoAgent
    | DpoAgent
    | ArsAgent
    | CmaEsAgent
    | TrpoAgent
    | DqnAgent
    | QrDqnAgent
    | MaskablePpoAgent
    | InvestorImitatorAgent
    | PathwiseAgent
    | EiieAgent
    | DeepTraderAgent
    | DifferentiableGrpoAgent
    | EnsembleAgent
    | EqualWeight
    | BuyAndHold
    | Momentum
    | TimeSeriesMomentum
    | FactorRank
    | MinimumVariance
    | MeanCvar
    | Cufolio
    | AnchorPortfolio,
    Field(discriminator="kind"),
    Family("agents"),
]

__all__ = [
    "CURVE_POINTS",
    "DEFAULT_HOOKS",
    "A2cAgent",
    "Agent",
    "ArsAgent",
    "CmaEsAgent",
    "CrossQAgent",
    "CurvePoint",
    "DdpgAgent",
    "DeepTraderAgent",
    "DifferentiableGrpoAgent",
    "DpoAgent",
    "DqnAgent",
    "EiieAgent",
    "EnsembleAgent",
    "Fit",
    "GroupedPpoAgent",
    "InvestorImitatorAgent",
    "Learner",
    "MaskablePpoAgent",
    "PathwiseAgent",
    "PpoAgent",
    "QrDqnAgent",
    "RecurrentPpoAgent",
    "SacAgent",
    "SarlAgent",
    "Td3Agent",
    "TqcAgent",
    "TrainingHooks",
    "TrainingPoint",
    "TrpoAgent",
]
