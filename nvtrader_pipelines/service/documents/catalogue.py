"""The families an experiment is made of: their members with fields, defaults and bounds, and their JSON Schemas."""

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from nvtrader_pipelines.components.component import Component, kind_of, members
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.components.json_schema import Node, describe_allowed
from nvtrader_pipelines.envs.actions import Action
from nvtrader_pipelines.envs.observations import Observation
from nvtrader_pipelines.envs.rewards import RewardTerm
from nvtrader_pipelines.envs.terminations import Termination
from nvtrader_pipelines.evaluation.splits import Splitter
from nvtrader_pipelines.evaluation.stress import StressScenario
from nvtrader_pipelines.experiments.designs import ExperimentDesign
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.features import Feature
from nvtrader_pipelines.market.sources import Source
from nvtrader_pipelines.policies.advantages import Advantage
from nvtrader_pipelines.policies.agents import Agent
from nvtrader_pipelines.policies.backbones import Backbone
from nvtrader_pipelines.policies.baselines import Baseline
from nvtrader_pipelines.portfolio.anchors import Anchor
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.portfolio.pipeline.allocators import Allocator
from nvtrader_pipelines.portfolio.pipeline.limits import Limit
from nvtrader_pipelines.portfolio.pipeline.selectors import Selector
from nvtrader_pipelines.portfolio.pipeline.timings import Timing
from nvtrader_pipelines.portfolio.scenarios import Scenarios
from nvtrader_pipelines.scoreboard.entrant_specs import EntrantSpec

FAMILIES: dict[str, Any] = {
    "sources": Source,
    "features": Feature,
    "observations": Observation,
    "actions": Action,
    "rewards": RewardTerm,
    "terminations": Termination,
    "costs": CostModel,
    "anchors": Anchor,
    "scenarios": Scenarios,
    "selectors": Selector,
    "allocators": Allocator,
    "timings": Timing,
    "limits": Limit,
    "agents": Agent,
    "backbones": Backbone,
    "advantages": Advantage,
    "splitters": Splitter,
    "stresses": StressScenario,
    "baselines": Baseline,
    "designs": ExperimentDesign,
    "entrants": EntrantSpec,
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXTENDS = {
    "title": "Extends",
    "description": "another file, from this file's folder, whose fields this one takes over and changes",
    "type": "string",
}


class FieldFacts(BaseModel):
    """A field of a component."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    default: JsonValue
    allowed: str  # in words
    comment: str  # such as its unit; empty if it has none

    @property
    def line(self) -> str:
        """The field in one line."""
        comment = f"  # {self.comment}" if self.comment else ""
        return f"{self.name}: {self.default_text}  ({self.allowed}){comment}"

    @property
    def default_text(self) -> str:
        """Default, of a component its kind alone."""
        return _brief(self.default)


class ComponentInfo(BaseModel):
    """A member of a family."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str
    doc: str  # the first line of what is said of it
    fields: tuple[FieldFacts, ...]


def family_members(family: str) -> list[ComponentInfo]:
    """The members of a family, in the order of its union.

    Raises:
        ValueError: if there is no such family.
    """
    return [_info(member) for member in members(_family(family))]


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an `experiment` or of one member of a family, for editors.

    Raises:
        ValueError: if there is no such family.
    """
    if name == "experiment":
        found = ExperimentSpec.model_json_schema()
        found["properties"] = {"extends": EXTENDS, **found["properties"]}
        return {"$schema": DIALECT, **found, "title": "Experiment"}
    described = f"one of the {name}: {', '.join(map(kind_of, members(_family(name))))}"
    return {"$schema": DIALECT, **TypeAdapter(_family(name)).json_schema(), "title": name, "description": described}


def _family(name: str) -> Any:
    if name not in FAMILIES:
        near = suggest(name, list(FAMILIES))
        raise ValueError(f"there is no family {name!r}; there are {', '.join(FAMILIES)}{near}")
    return FAMILIES[name]


def _info(member: type[Component]) -> ComponentInfo:
    found = member.model_json_schema()
    fields = tuple(_field(name, node, found) for name, node in found["properties"].items() if name != "kind")
    return ComponentInfo(kind=kind_of(member), doc=(member.__doc__ or "").partition("\n")[0], fields=fields)


def _field(name: str, node: Node, found: Node) -> FieldFacts:
    return FieldFacts(
        name=name,
        default=node.get("default"),
        allowed=describe_allowed(found, node),
        comment=node.get("description", ""),
    )


def _brief(default: JsonValue) -> str:
    """A default in one word where it is a component."""
    if isinstance(default, dict) and "kind" in default:
        return str(default["kind"])
    if isinstance(default, list):
        return f"[{', '.join(map(_brief, default))}]"
    return json.dumps(default)
