"""Members of every union of the package, read from the unions, so that new ones are tested."""

from typing import get_args

from pydantic import TypeAdapter

from nvtrader_pipelines.envs.actions import Action
from nvtrader_pipelines.envs.observations import Observation
from nvtrader_pipelines.envs.rewards import RewardTerm
from nvtrader_pipelines.envs.terminations import Termination
from nvtrader_pipelines.evaluation.engines import BacktestEngine, BacktestStrategy
from nvtrader_pipelines.evaluation.splits import Splitter
from nvtrader_pipelines.evaluation.stress import StressScenario
from nvtrader_pipelines.execution.protections import Protection
from nvtrader_pipelines.experiments.designs import ExperimentDesign
from nvtrader_pipelines.experiments.entrant_specs import EntrantSpec
from nvtrader_pipelines.experiments.world_experiment import World
from nvtrader_pipelines.market.features import Feature
from nvtrader_pipelines.market.sources import Source
from nvtrader_pipelines.policies.advantages import Advantage
from nvtrader_pipelines.policies.agents import Agent
from nvtrader_pipelines.policies.backbones import Backbone
from nvtrader_pipelines.policies.baselines import Baseline
from nvtrader_pipelines.policies.replay import Replay
from nvtrader_pipelines.policies.world_agents import WorldAgent
from nvtrader_pipelines.policies.world_agents.execution_backbones import ExecutionBackbone
from nvtrader_pipelines.portfolio.anchors import Anchor
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.portfolio.financing import FinancingModel
from nvtrader_pipelines.portfolio.pipeline.allocators import Allocator
from nvtrader_pipelines.portfolio.pipeline.limits import Limit
from nvtrader_pipelines.portfolio.pipeline.selectors import Selector
from nvtrader_pipelines.portfolio.pipeline.timings import Timing
from nvtrader_pipelines.portfolio.scenarios import Scenarios
from nvtrader_pipelines.research.proposers import Proposer
from nvtrader_pipelines.testing.synthetic_panels import simplex  # noqa: F401 - shared with authors of parts
from nvtrader_pipelines.worlds.books import Books
from nvtrader_pipelines.worlds.market_making import Arrivals, QuoteAction
from nvtrader_pipelines.worlds.order_execution import ExecutionAction
from nvtrader_pipelines.worlds.price_moves import PriceMoves

FAMILIES = {
    "action": Action,
    "advantage": Advantage,
    "agent": Agent,
    "allocator": Allocator,
    "anchor": Anchor,
    "baseline": Baseline,
    "backbone": Backbone,
    "design": ExperimentDesign,
    "engine": BacktestEngine,
    "entrant": EntrantSpec,
    "feature": Feature,
    "observation": Observation,
    "cost_model": CostModel,
    "financing": FinancingModel,
    "limit": Limit,
    "proposer": Proposer,
    "protection": Protection,
    "replay": Replay,
    "reward_term": RewardTerm,
    "scenarios": Scenarios,
    "selector": Selector,
    "source": Source,
    "splitter": Splitter,
    "strategy": BacktestStrategy,
    "stress": StressScenario,
    "termination": Termination,
    "timing": Timing,
    "world": World,
    "execution_action": ExecutionAction,
    "price_moves": PriceMoves,
    "quote_action": QuoteAction,
    "arrivals": Arrivals,
    "books": Books,
    "world_agent": WorldAgent,
    "execution_backbone": ExecutionBackbone,
}


def members(family):
    """Return the classes of a union, which may be a union of one."""
    union = get_args(family)[0]
    return get_args(union) or (union,)


def defaults(name):
    """Return a default instance of each member of a family."""
    return [member() for member in members(FAMILIES[name])]


ADAPTERS = {name: TypeAdapter(family) for name, family in FAMILIES.items()}
EVERY_MEMBER = [(name, member) for name, family in FAMILIES.items() for member in members(family)]
