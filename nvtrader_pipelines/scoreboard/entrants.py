"""Entrants: a family of what the harness judges, all of them maps from history to weights."""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, RootModel, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.policies.activations import Activation, Algorithm
from nvtrader_pipelines.policies.baselines import Baseline, EqualWeight

RebalanceFrequency = Annotated[int, Field(ge=1, le=10)]  # as an environment has it


class RunEntrant(Component):
    """A run of this home: the policies of each fold on the sessions that follow it, their weights averaged."""

    kind: Literal["run"] = "run"
    description: str = ""
    run: str | None = None  # the beginning of a run's id; null: the last run of the experiment of this file's name


class WeightsEntrant(Component):
    """Weights from outside: each row is decided at the close of its day and held until the next one."""

    kind: Literal["weights"] = "weights"
    description: str = ""
    file: str | None = None  # CSV: date, a column per symbol, perhaps cash; null: this file's name with .csv
    market: MarketChoice = MarketChoice()


class Sb3Entrant(Component):
    """A policy that Stable-Baselines3 trained elsewhere on our environment: `model.save()`'s zip, never unpickled."""

    kind: Literal["sb3"] = "sb3"
    description: str = ""
    file: str | None = None  # null: this file's name with .zip
    market: MarketChoice = MarketChoice()
    algorithm: Algorithm = "ppo"
    activation: Activation | None = None  # of the hidden layers; null: tanh of ppo and a2c, relu of sac and td3
    environment: EnvSpec = EnvSpec()  # in which it was trained
    scaler: ObservationScaler | None = None  # null: fitted on the sessions trained on, as the environment does
    train_first: date | None = None  # first session trained on; without both dates nothing is judged
    train_last: date | None = None  # last session whose prices trained it

    @model_validator(mode="after")
    def _trained_forwards(self) -> Self:
        if self.train_first is not None and self.train_last is not None and self.train_first >= self.train_last:
            raise ValueError(
                f"train_first must be before train_last, but they are {self.train_first} and {self.train_last}; "
                "state the first and last session trained on"
            )
        return self


class BaselineEntrant(Component):
    """A rule that needs no training, such as 1/N or the Mean-CVaR optimizer."""

    kind: Literal["baseline"] = "baseline"
    description: str = ""
    rule: Baseline = EqualWeight()
    rebal_freq: RebalanceFrequency = 5  # sessions between decisions
    market: MarketChoice = MarketChoice()


Entrant = Annotated[RunEntrant | WeightsEntrant | Sb3Entrant | BaselineEntrant, Field(discriminator="kind")]
EntrantKind = Literal["run", "weights", "sb3", "baseline"]


class EntrantDocument(RootModel[Entrant]):
    """One file of `data/entrants`."""
