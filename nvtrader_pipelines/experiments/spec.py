"""Experiment spec: a frozen document, identified by its content."""

import operator
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PositiveInt, ValidationError, model_validator

from nvtrader_pipelines.components.component import Component, whole_document
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.text import Name
from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import Splitter, WalkForward
from nvtrader_pipelines.experiments.designs import (
    AblationDesign,
    CurriculumDesign,
    ExperimentDesign,
    WalkForwardDesign,
    value_at,
)
from nvtrader_pipelines.experiments.versioned import Versioned
from nvtrader_pipelines.market.features import FEATURES, Feature
from nvtrader_pipelines.market.sources.delivery import SourceName
from nvtrader_pipelines.policies.agents import Agent, PpoAgent
from nvtrader_pipelines.policies.agents.learner import MIN_SEEDS
from nvtrader_pipelines.policies.baselines import (
    AnchorPortfolio,
    Baseline,
    BuyAndHold,
    EqualWeight,
    MeanCvar,
    MinimumVariance,
)
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline

Seed = Annotated[int, Field(ge=0, lt=2**31)]  # range of NumPy's and torch's generators
SAMPLE_REPORT_FROM = date(2010, 1, 1)


def _seeds(known: dict[str, Any]) -> tuple[int, ...]:
    return tuple(range(known["agent"].min_seeds if "agent" in known else MIN_SEEDS))


def _report_from(known: dict[str, Any]) -> date | None:
    """2010 on the sample; elsewhere None, so that all tests are the reported period."""
    return SAMPLE_REPORT_FROM if "market" in known and known["market"].source == "sample" else None


class MarketChoice(Component):
    """Part of the market that an experiment uses."""

    source: SourceName = "sample"
    symbols: Annotated[tuple[str, ...], Field(min_length=1)] | None = None  # None = every symbol of the source
    max_gap: PositiveInt = 5  # longest stretch of sessions without a price inside a listing
    features: tuple[Feature, ...] = Field(default=(), exclude_if=operator.not_)  # in addition to those of gold.features

    @model_validator(mode="after")
    def _symbols_differ(self) -> Self:
        symbols = self.symbols or ()
        if len(set(symbols)) != len(symbols):
            raise ValueError(f"symbols must differ, but they are {list(symbols)}; name each once")
        return self

    @model_validator(mode="after")
    def _feature_names_differ(self) -> Self:
        names = [feature.name for feature in (*FEATURES, *self.features)] if self.features else []
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ValueError(
                f"features must have names of their own, but {', '.join(twins)} occurs twice; drop it, as every market "
                "has the columns of gold.features"
            )
        return self


class ExperimentSpec(Versioned):
    """Experiment: all settings that decide its result, besides data and code."""

    version_kind: ClassVar[str] = "experiment"

    name: Name
    description: str = ""
    market: MarketChoice = MarketChoice()
    environment: EnvSpec = EnvSpec()
    agent: Agent = PpoAgent()
    pipeline: WeightPipeline = WeightPipeline()
    splitter: Splitter = WalkForward()
    design: ExperimentDesign = WalkForwardDesign()
    training_sample_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01  # share of training episodes recorded
    baselines: tuple[Baseline, ...] = (EqualWeight(), BuyAndHold(), MinimumVariance(), MeanCvar())
    seeds: tuple[Seed, ...] = Field(default_factory=_seeds)  # from 0, as few as the agent needs
    report_from: date | None = Field(default_factory=_report_from)  # reported period starts here; null: all is reported

    @model_validator(mode="after")
    def _account_names_are_distinct(self) -> Self:
        kinds = [baseline.kind for baseline in self.baselines]
        if len(set(kinds)) != len(kinds) or not kinds:
            raise ValueError(f"baselines must name each kind once and at least one, but they are {kinds}")
        if self.name in (baseline.kind for baseline in self.all_baselines):
            raise ValueError(f"name: found {self.name!r}, which is a baseline's; choose another or drop the baseline")
        return self

    @model_validator(mode="after")
    def _parts_suit_each_other(self) -> Self:
        for field, part in self._parts():
            part.require_experiment(self, field)
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must differ, but they are {list(self.seeds)}")
        if self.environment.pipeline and self.pipeline.timing.needs_path:
            raise ValueError(
                f"environment.pipeline: {self.pipeline.timing.kind} has thresholds to be fitted to the path of the "
                "trained account, which must be known before it is trained; set them"
            )
        return self

    def _parts(self) -> Iterator[tuple[str, Component]]:
        """Yield the parts that may require something of others, with their fields."""
        yield "agent", self.agent
        yield "design", self.design
        yield "splitter", self.splitter
        yield "pipeline.timing", self.pipeline.timing
        yield "environment.action", self.environment.action
        yield from ((f"baselines.{i}", rule) for i, rule in enumerate(self.baselines))

    @model_validator(mode="after")
    def _variants_are_valid(self) -> Self:
        """Build the stages of a curriculum and the variants of an ablation, whose values the field parses."""
        self.stages()
        if isinstance(self.design, AblationDesign):
            path = self.design.field
            values = tuple(value_at(whole_document(variant), path) for variant in self.variants())
            object.__setattr__(self, "design", AblationDesign(field=path, values=values))  # still being validated
            self.variants()  # parsed values reveal two spellings of one variant
        return self

    def agent_of(self, seed: int) -> Agent:
        """Agent that trains a seed: of an ensemble, the member whose turn it is, for other seeds by number."""
        return self.agent.member(self.seeds.index(seed) if seed in self.seeds else seed)

    def variants(self) -> tuple[Self, ...]:
        """Experiments of an ablation; for other designs, the experiment itself.

        Raises:
            ValueError: if a variant is not a valid experiment.
        """
        if not isinstance(self.design, AblationDesign):
            return (self,)
        documents = self.design.documents(whole_document(self))
        return tuple(self._variant("values", *value) for value in zip(self.design.values, documents, strict=True))

    def stages(self) -> tuple[Self, ...]:
        """Experiments that a curriculum trains before this one; of other designs, none.

        Raises:
            ValueError: if a stage is not a valid experiment, or has another network.
        """
        if not isinstance(self.design, CurriculumDesign):
            return ()
        documents = self.design.documents(whole_document(self))
        stages = tuple(self._variant("stages", *stage) for stage in zip(self.design.stages, documents, strict=True))
        for values, stage in zip(self.design.stages, stages, strict=True):
            if any(
                network_settings(stage.agent_of(seed), stage.environment)
                != network_settings(self.agent_of(seed), self.environment)
                for seed in self.seeds
            ):
                raise ValueError(
                    "design.stages: a stage goes on with the network of the one before, so agent.kind, agent.backbone, "
                    f"environment.action, .observation and .lookback must stay, but found {values}; drop them there"
                )
        return stages

    def _variant(self, field: str, value: Any, document: dict[str, Any]) -> Self:
        try:
            return type(self).model_validate(document)
        except ValidationError as error:
            raise ValueError(
                f"design.{field}: {value!r} makes no valid experiment: {explain(error, type(self))}"
            ) from error

    @property
    def all_baselines(self) -> tuple[Baseline, ...]:
        """Baselines of every table: those listed, with the anchor that a residual action tilts as `anchor`."""
        action = self.environment.action
        if not isinstance(action, ResidualAction):
            return self.baselines
        own = AnchorPortfolio(anchor=action.anchor)
        listed = tuple(own if isinstance(baseline, AnchorPortfolio) else baseline for baseline in self.baselines)
        return listed if own in listed else (*listed, own)


def network_settings(agent: Agent, environment: EnvSpec) -> dict[str, Any]:
    """Settings that decide the network of a policy, by dotted path; other fields of some agents do, too."""
    return {
        "agent.kind": agent.kind,
        "agent.backbone": getattr(agent, "backbone", None),
        "environment.action": environment.action,
        "environment.observation": environment.observation,
        "environment.lookback": environment.lookback,
    }
