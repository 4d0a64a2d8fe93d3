"""Entrant specs: the files of `data/entrants`, each describing a map from history to weights."""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, RootModel, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.policies.baselines import Baseline, EqualWeight
from nvtrader_pipelines.policies.sb3_limits import Activation, Algorithm

RebalanceFrequency = Annotated[int, Field(ge=1, le=10)]  # sessions, as in `EnvSpec`


class RunEntrantSpec(Component):
    """Run of this home: the policies of each fold trade the sessions after it, weights averaged over seeds."""

    kind: Literal["run"] = "run"
    description: str = ""
    run: str | None = None  # prefix of a run id; null: the last run of the experiment with this file's name
    judged: bool = True  # false: neither the run nor its baselines are entrants; it still counts as a trial
    after_tests: bool = False  # true: also sessions after the `test_last` of the experiment, which uses them up


class WeightsEntrantSpec(Component):
    """Weights from a file: each row is decided at the close of its day and held until the next row."""

    kind: Literal["weights"] = "weights"
    description: str = ""
    file: str | None = None  # CSV: date, a column per symbol, optionally cash; null: this file's name with .csv
    market: MarketChoice = MarketChoice()


class Sb3EntrantSpec(Component):
    """Policy that Stable-Baselines3 trained elsewhere: the zip of `model.save()`, never unpickled."""

    kind: Literal["sb3"] = "sb3"
    description: str = ""
    file: str | None = None  # null: this file's name with .zip
    market: MarketChoice = MarketChoice()
    algorithm: Algorithm = "ppo"
    activation: Activation | None = None  # of the hidden layers; null: tanh for ppo and a2c, relu for sac and td3
    environment: EnvSpec = EnvSpec()  # the one it was trained in
    scaler: ObservationScaler | None = None  # null: fitted on the training sessions, as the environment does
    train_first: date | None = None  # first training session; required, like train_last, for a score
    train_last: date | None = None  # last training session

    @model_validator(mode="after")
    def _require_ordered_dates(self) -> Self:
        if self.train_first is not None and self.train_last is not None and self.train_first >= self.train_last:
            raise ValueError(
                f"train_first must be before train_last, but they are {self.train_first} and {self.train_last}; "
                "state the first and last training session"
            )
        return self


class BaselineEntrantSpec(Component):
    """Rule without training, such as 1/N or the Mean-CVaR optimizer."""

    kind: Literal["baseline"] = "baseline"
    description: str = ""
    rule: Baseline = EqualWeight()
    rebal_freq: RebalanceFrequency = 5  # sessions between decisions
    market: MarketChoice = MarketChoice()


EntrantSpec = Annotated[
    RunEntrantSpec | WeightsEntrantSpec | Sb3EntrantSpec | BaselineEntrantSpec, Field(discriminator="kind")
]
EntrantKind = Literal["run", "weights", "sb3", "baseline"]


class EntrantFile(RootModel[EntrantSpec]):
    """File of `data/entrants`."""
