"""Families of components: members with fields, defaults and bounds, and their JSON Schemas."""

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from nvtrader_pipelines.components.component import Component, aliases_of, kind_of
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.components.family import every_member, is_open, package_of, part_entry_points, parts_of_family
from nvtrader_pipelines.components.json_schema import describe_allowed
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
from nvtrader_pipelines.experiments.spec import ExperimentSpec
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
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.worlds.books import Books
from nvtrader_pipelines.worlds.market_making import Arrivals, QuoteAction
from nvtrader_pipelines.worlds.order_execution import ExecutionAction
from nvtrader_pipelines.worlds.price_moves import PriceMoves

FAMILIES: dict[str, Any] = {
    "sources": Source,
    "features": Feature,
    "observations": Observation,
    "actions": Action,
    "rewards": RewardTerm,
    "terminations": Termination,
    "costs": CostModel,
    "financing": FinancingModel,
    "anchors": Anchor,
    "scenarios": Scenarios,
    "selectors": Selector,
    "allocators": Allocator,
    "timings": Timing,
    "limits": Limit,
    "agents": Agent,
    "backbones": Backbone,
    "advantages": Advantage,
    "replays": Replay,
    "splitters": Splitter,
    "stresses": StressScenario,
    "engines": BacktestEngine,
    "strategies": BacktestStrategy,
    "baselines": Baseline,
    "designs": ExperimentDesign,
    "entrants": EntrantSpec,
    "proposers": Proposer,
    "protections": Protection,
    "worlds": World,
    "execution_actions": ExecutionAction,
    "price_moves": PriceMoves,
    "quote_actions": QuoteAction,
    "arrivals": Arrivals,
    "books": Books,
    "world_agents": WorldAgent,
    "execution_backbones": ExecutionBackbone,
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXTENDS = {
    "title": "Extends",
    "description": "file in the same folder whose fields this one inherits and overrides",
    "type": "string",
}


class FieldFacts(BaseModel):
    """A field of a component."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    default: JsonValue
    allowed: str  # in words
    comment: str  # such as its unit; may be empty

    @property
    def line(self) -> str:
        """Name, default, allowed values and comment in one line."""
        comment = f"  # {self.comment}" if self.comment else ""
        return f"{self.name}: {self.default_text}  ({self.allowed}){comment}"

    @property
    def default_text(self) -> str:
        """Default as text; a component is shortened to its kind."""
        return _format_default(self.default)


class ComponentFacts(BaseModel):
    """A member of a family."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str
    aliases: tuple[str, ...]  # other names of the kind that documents may use
    doc: str  # first line of its docstring
    fields: tuple[FieldFacts, ...]


def family_members(family: str, kind: str | None = None) -> list[ComponentFacts]:
    """List a family: the members of its union in order, then parts of installed packages.

    Args:
        family: name of the family.
        kind: kind, or alias of a kind, of the only member to list.

    Raises:
        NotFoundError: if the family or the member does not exist.
    """
    facts = [_component_facts(member) for member in every_member(_family(family))]
    if kind is None:
        return facts
    named = [member for member in facts if kind in {member.kind, *member.aliases}]
    if not named:
        near = suggest(kind, [name for member in facts for name in (member.kind, *member.aliases)])
        raise NotFoundError(f"{family} have no {kind!r}; there are {', '.join(member.kind for member in facts)}{near}")
    return named


def part_problems() -> list[str]:
    """Problems of the parts of installed packages that cannot be used, one sentence each."""
    known = {name: family for name, family in FAMILIES.items() if is_open(family)}
    strangers = [entry for entry in part_entry_points() if entry.name.rpartition(".")[0] not in known]
    problems = [
        f"the part {entry.name} of package {package_of(entry)} must be named <family>.<kind> with one of the families "
        f"{', '.join(known)}; rename its entry point or uninstall {package_of(entry)}"
        for entry in strangers
    ]
    return [*problems, *(problem for family in known.values() for problem in parts_of_family(family).problems)]


def json_schema_of(name: str) -> dict[str, Any]:
    """Build the JSON Schema of `experiment` or of a family, for editors.

    Raises:
        NotFoundError: if the family does not exist.
    """
    if name == "experiment":
        schema = ExperimentSpec.model_json_schema()
        schema["properties"] = {"extends": EXTENDS, **schema["properties"]}
        return {"$schema": DIALECT, **schema, "title": "Experiment"}
    description = f"one of the {name}: {', '.join(map(kind_of, every_member(_family(name))))}"
    return {"$schema": DIALECT, **TypeAdapter(_family(name)).json_schema(), "title": name, "description": description}


def _family(name: str) -> Any:
    if name not in FAMILIES:
        near = suggest(name, list(FAMILIES))
        raise NotFoundError(f"there is no family {name!r}; there are {', '.join(FAMILIES)}{near}")
    return FAMILIES[name]


def _component_facts(member: type[Component]) -> ComponentFacts:
    schema = member.model_json_schema()
    fields = tuple(
        FieldFacts(
            name=name,
            default=node.get("default"),
            allowed=describe_allowed(schema, node),
            comment=node.get("description", ""),
        )
        for name, node in schema["properties"].items()
        if name != "kind"
    )
    doc = (member.__doc__ or "").partition("\n")[0]
    return ComponentFacts(kind=kind_of(member), aliases=aliases_of(member), doc=doc, fields=fields)


def _format_default(default: JsonValue) -> str:
    """Format a default; a component is shortened to its kind."""
    if isinstance(default, dict) and "kind" in default:
        return str(default["kind"])
    if isinstance(default, list):
        return f"[{', '.join(map(_format_default, default))}]"
    return json.dumps(default)
