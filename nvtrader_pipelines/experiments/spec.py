"""An experiment as a frozen document: its content is its identity."""

from datetime import date
from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator

from nvtrader_pipelines.components import Component, content_hash
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import Splitter, WalkForward
from nvtrader_pipelines.experiments.designs import ExperimentDesign, WalkForwardDesign
from nvtrader_pipelines.policies.agents import Agent, PpoAgent
from nvtrader_pipelines.policies.baselines import Baseline, BuyAndHold, EqualWeight, MeanCvar, MinimumVariance

Seed = Annotated[int, Field(ge=0, lt=2**31)]  # what NumPy's and torch's generators take


class MarketChoice(Component):
    """Which part of the market an experiment uses."""

    source: str = "sample"
    symbols: tuple[str, ...] | None = None  # None = every symbol of the source
    max_gap: PositiveInt = 5  # sessions without a price inside a listing that are borne


class ExperimentSpec(Component):
    """Everything that decides an experiment's result but the data's snapshot and the code."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    description: str = ""
    market: MarketChoice = MarketChoice()
    environment: EnvSpec = EnvSpec()
    agent: Agent = PpoAgent()
    splitter: Splitter = WalkForward()
    design: ExperimentDesign = WalkForwardDesign()
    training_sample_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01  # share of training episodes recorded
    baselines: tuple[Baseline, ...] = (EqualWeight(), BuyAndHold(), MinimumVariance(), MeanCvar())
    seeds: Annotated[tuple[Seed, ...], Field(min_length=3)] = (0, 1, 2)
    report_from: date = date(2010, 1, 1)  # folds from here on are reported apart; nothing is tuned on them

    @model_validator(mode="after")
    def _backbone_fits_observation(self) -> Self:
        backbone, observation = self.agent.backbone.kind, self.environment.observation.kind
        if backbone == "shared_asset" and observation != "per_asset":
            raise ValueError(
                f"the shared_asset backbone needs the per_asset observation, but the environment has {observation}"
            )
        return self

    @model_validator(mode="after")
    def _baselines_are_distinct(self) -> Self:
        kinds = [baseline.kind for baseline in self.baselines]
        if len(set(kinds)) != len(kinds) or not kinds:
            raise ValueError(f"baselines must name each kind once and at least one, but they are {kinds}")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must differ, but they are {list(self.seeds)}")
        return self

    @property
    def spec_hash(self) -> str:
        """SHA-256 of the content, 64 hexadecimal digits."""
        return content_hash(self)

    @property
    def partition_key(self) -> str:
        """`name@hash8`: the experiment's partition."""
        return f"{self.name}@{self.spec_hash[:8]}"
