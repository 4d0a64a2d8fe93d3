"""Experiment spec: a frozen document, identified by its content."""

import operator
from datetime import date
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt, ValidationError, model_validator

from nvtrader_pipelines.components.component import Component, content_hash, whole_document
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import PurgedBlocks, Splitter, WalkForward
from nvtrader_pipelines.experiments.designs import AblationDesign, ExperimentDesign, WalkForwardDesign, value_at
from nvtrader_pipelines.market.features import FEATURES, Feature
from nvtrader_pipelines.market.sources.delivery import SourceName
from nvtrader_pipelines.policies.agents import Agent, DpoAgent, Learner, PpoAgent
from nvtrader_pipelines.policies.agents.learner import EXTRACTORS
from nvtrader_pipelines.policies.backbones.backbone import ExtractorBackbone
from nvtrader_pipelines.policies.baselines import (
    AnchorPortfolio,
    Baseline,
    BuyAndHold,
    Cufolio,
    EqualWeight,
    MeanCvar,
    MinimumVariance,
)
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard

Seed = Annotated[int, Field(ge=0, lt=2**31)]  # range of NumPy's and torch's generators
MIN_SEEDS = 3  # of a learner, to see the spread
MAX_SESSIONS_PER_MONTH = 31
SAMPLE_REPORT_FROM = date(2010, 1, 1)


def _seeds(known: dict[str, Any]) -> tuple[int, ...]:
    return (0,) if "agent" in known and known["agent"].is_classical else (0, 1, 2)


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
        names = [each.name for each in (*FEATURES, *self.features)] if self.features else []
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ValueError(
                f"features must have names of their own, but {', '.join(twins)} occurs twice; drop it, as every market "
                "has the columns of gold.features"
            )
        return self


class ExperimentSpec(Component):
    """Experiment: all settings that decide its result, besides data and code."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    description: str = ""
    market: MarketChoice = MarketChoice()
    environment: EnvSpec = EnvSpec()
    agent: Agent = PpoAgent()
    pipeline: WeightPipeline = WeightPipeline()
    splitter: Splitter = WalkForward()
    design: ExperimentDesign = WalkForwardDesign()
    training_sample_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01  # share of training episodes recorded
    baselines: tuple[Baseline, ...] = (EqualWeight(), BuyAndHold(), MinimumVariance(), MeanCvar())
    seeds: tuple[Seed, ...] = Field(default_factory=_seeds)  # 0, 1, 2; of a classical agent 0 alone
    report_from: date | None = Field(default_factory=_report_from)  # reported period starts here; null: all is reported

    @model_validator(mode="after")
    def _network_fits(self) -> Self:
        agent, observation = self.agent, self.environment.observation
        if not isinstance(agent, Learner):
            return self
        backbone = agent.backbone
        is_extractor = isinstance(backbone, ExtractorBackbone) and agent.backbones >= EXTRACTORS
        if backbone.kind not in agent.backbones and not is_extractor:
            raise ValueError(
                f"agent.backbone: found {backbone.kind}, but {agent.kind} takes one of "
                f"{', '.join(sorted(agent.backbones))}"
            )
        if backbone.kind == "shared_asset" and observation.kind != "per_asset":
            raise ValueError(
                "agent.backbone: the shared_asset backbone needs the per_asset observation, but "
                f"environment.observation is {observation.kind}"
            )
        if backbone.needs_window and not observation.has_window:
            raise ValueError(
                f"agent.backbone: the {backbone.kind} backbone reads a window of returns, but environment.observation "
                f"is {observation.kind}, which has none; choose the lookback observation or the mlp backbone"
            )
        return self

    @model_validator(mode="after")
    def _account_names_are_distinct(self) -> Self:
        kinds = [baseline.kind for baseline in self.baselines]
        if len(set(kinds)) != len(kinds) or not kinds:
            raise ValueError(f"baselines must name each kind once and at least one, but they are {kinds}")
        if self.name in (baseline.kind for baseline in self.all_baselines):
            raise ValueError(f"name: found {self.name!r}, which is a baseline's; choose another or drop the baseline")
        return self

    @model_validator(mode="after")
    def _seeds_suit_the_agent(self) -> Self:
        seeds = list(self.seeds)
        if self.agent.is_classical and len(seeds) != 1:
            raise ValueError(
                f"seeds: {self.agent.kind} draws nothing at random and takes one seed, but they are {seeds}; "
                "set seeds to [0]"
            )
        if not self.agent.is_classical and len(seeds) < MIN_SEEDS:
            raise ValueError(
                f"seeds: {self.agent.kind} learns, and its results need at least {MIN_SEEDS} seeds, "
                f"but they are {seeds}"
            )
        if len(set(seeds)) != len(seeds):
            raise ValueError(f"seeds must differ, but they are {seeds}")
        return self

    @model_validator(mode="after")
    def _sessions_can_be_held_out(self) -> Self:
        held_out, splitter = self.design.validation_sessions, self.splitter
        if held_out and self.agent.is_classical:
            raise ValueError(
                f"design: best_of_n chooses among seeds, but {self.agent.kind} does not learn and has none; "
                "choose walk_forward or basic"
            )
        if held_out and splitter.kind == "walk_forward" and splitter.train_months is not None:
            most = splitter.train_months * MAX_SESSIONS_PER_MONTH - splitter.purge_size
            if held_out >= most:
                raise ValueError(
                    f"design.validation_sessions: found {held_out}, but {splitter.train_months} months of training "
                    f"hold fewer than {most} sessions beside a purge of {splitter.purge_size}; hold fewer out"
                )
        return self

    @model_validator(mode="after")
    def _blocks_suit_the_rest(self) -> Self:
        splitter, rebal_freq = self.splitter, self.environment.rebal_freq
        if not isinstance(splitter, PurgedBlocks):
            return self
        if self.agent.is_classical:
            raise ValueError(
                f"splitter: {splitter.kind} tells luck from training, but {self.agent.kind} does not learn; choose "
                "walk_forward or holdout"
            )
        if self.design.validation_sessions:
            raise ValueError(
                f"design: best_of_n holds out the end of one training window, but {splitter.kind} trains on both sides "
                "of what it tests; choose the walk_forward design, or the walk_forward or holdout splitter"
            )
        if splitter.purge_size < rebal_freq - 1:
            raise ValueError(
                f"splitter.purge_size: found {splitter.purge_size}, but what is decided last in a tested block is held "
                f"for up to {rebal_freq - 1} sessions beyond it, by environment.rebal_freq; purge as many at least"
            )
        return self

    @model_validator(mode="after")
    def _timing_can_act(self) -> Self:
        timing = self.pipeline.timing
        if isinstance(self.agent, BuyAndHold) and timing.kind != "constant":
            raise ValueError(
                f"pipeline.timing: {timing.kind} acts on each decision, but {self.agent.kind} decides once and then "
                "never trades; choose the constant timing, or an agent that restores its weights, such as equal_weight"
            )
        if isinstance(self.agent, Cufolio) and timing.kind != "constant":
            raise ValueError(
                f"pipeline.timing: {timing.kind} acts on each decision, but {self.agent.kind} decides every "
                f"{self.agent.cufolio_hold_days} sessions only; choose the constant timing, or cufolio as allocator of "
                "an agent that decides each time, such as equal_weight"
            )
        return self

    @model_validator(mode="after")
    def _pipeline_can_train(self) -> Self:
        if self.environment.pipeline and self.pipeline.timing.needs_path:
            raise ValueError(
                f"environment.pipeline: {self.pipeline.timing.kind} has thresholds to be fitted to the path of the "
                "trained account, which must be known before it is trained; set them"
            )
        return self

    @model_validator(mode="after")
    def _guard_has_a_penalty_to_replace(self) -> Self:
        timing, terms = self.pipeline.timing, [term.kind for term in self.environment.rewards]
        if self.environment.pipeline and isinstance(timing, GymrlGuard) and "turnover_penalty" not in terms:
            raise ValueError(
                "environment.rewards: training through the gymrl_guard needs a turnover_penalty, which its guard on "
                f"negative returns replaces, but has {terms}; add it"
            )
        return self

    @model_validator(mode="after")
    def _limits_allow_the_action(self) -> Self:
        """Require limits that leave leverage or short positions to an action that has them."""
        action, limits = self.environment.action, self.pipeline.risk_limits
        if getattr(action, "max_short", 0.0) > 0.0 and self.pipeline.allocator.kind != "policy_action":
            raise ValueError(
                f"pipeline.allocator: {self.pipeline.allocator.kind} makes long portfolios of the proposals, but the "
                f"action {action.kind} sells short; use policy_action"
            )
        if self.environment.is_levered and isinstance(self.agent, DpoAgent):
            raise ValueError(
                f"environment.action: preferences tune policies of the simplex and the residual action only, but it is "
                f"{action.kind}; choose another policy"
            )
        for limit, least in (("max_gross", 1.0), ("max_short", 0.0)):
            most = getattr(action, limit, least)
            if most > least and getattr(limits, limit) <= least:
                raise ValueError(
                    f"environment.action: {action.kind} has a {limit} of {most:g}, but pipeline.risk_limits.{limit} is "
                    f"{getattr(limits, limit):g} and would cut it away; raise the limit"
                )
        return self

    @model_validator(mode="after")
    def _cap_is_within_the_limits(self) -> Self:
        rules = {"agent": self.agent, **{f"baselines.{i}": rule for i, rule in enumerate(self.baselines)}}
        for field, rule in rules.items():
            if isinstance(rule, Cufolio):
                rule.require_cap_within(field, self.pipeline.risk_limits.max_position)
        return self

    @model_validator(mode="after")
    def _variants_are_valid(self) -> Self:
        """Build every variant of an ablation, and store values as the field parses them."""
        if isinstance(self.design, AblationDesign):
            path = self.design.field
            values = tuple(value_at(whole_document(variant), path) for variant in self.variants())
            object.__setattr__(self, "design", AblationDesign(field=path, values=values))  # still being validated
            self.variants()  # parsed values reveal two spellings of one variant
        return self

    def variants(self) -> tuple[Self, ...]:
        """Experiments of an ablation; for other designs, the experiment itself.

        Raises:
            ValueError: if a variant is not a valid experiment.
        """
        if not isinstance(self.design, AblationDesign):
            return (self,)
        documents = self.design.documents(whole_document(self))
        return tuple(self._variant(*each) for each in zip(self.design.values, documents, strict=True))

    @classmethod
    def _variant(cls, value: Any, document: dict[str, Any]) -> Self:
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise ValueError(f"design.values: {value!r} makes no valid experiment: {explain(error, cls)}") from error

    @property
    def all_baselines(self) -> tuple[Baseline, ...]:
        """Baselines of every table: those listed, with the anchor that a residual action tilts as `anchor`."""
        action = self.environment.action
        if not isinstance(action, ResidualAction):
            return self.baselines
        own = AnchorPortfolio(anchor=action.anchor)
        listed = tuple(own if isinstance(each, AnchorPortfolio) else each for each in self.baselines)
        return listed if own in listed else (*listed, own)

    @property
    def spec_hash(self) -> str:
        """SHA-256 of the content, 64 hexadecimal digits."""
        return content_hash(self)

    @property
    def partition_key(self) -> str:
        """`name@hash8`: the experiment's partition."""
        return f"{self.name}@{short_id(self.spec_hash)}"
