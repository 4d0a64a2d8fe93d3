"""Settings of direct preference optimization."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.components.text import RunId
from nvtrader_pipelines.policies.agents.on_policy import ActorCriticLearner


class DpoSettings(ActorCriticLearner):
    """Settings of a training on pairs of portfolios."""

    start: RunId | None = None  # run whose policies are tuned; needed
    pairs: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None  # SHA-256 of the pairs; needed
    loss: Literal["sigmoid", "robust", "ipo"] = "sigmoid"
    labels: Literal["soft", "hard"] = "soft"  # soft: by the probability that the label is right; hard: by weight
    beta: PositiveFloat = 0.5  # our choice: beta times a difference of log-probabilities is then of order 1
    label_smoothing: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0  # share of hard labels that are flipped
    sft_weight: NonNegativeFloat = 0.01  # of the negative log-probability of chosen portfolios, a logit
    total_timesteps: PositiveInt = 100_000  # pairs shown; the last epoch is completed
    batch_size: PositiveInt = 256  # pairs per minibatch
    patience: PositiveInt = 3  # epochs without a lower loss on the pairs that stop the training
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 1e-4

    @model_validator(mode="after")
    def _labels_suit_the_loss(self) -> Self:
        if self.labels == "soft" and self.label_smoothing:
            raise ValueError(
                f"label_smoothing: found {self.label_smoothing:g}, but soft labels have a probability each; "
                "leave it out, or choose labels: hard"
            )
        if self.labels == "soft" and self.loss != "sigmoid":
            raise ValueError(f"labels: soft labels need the sigmoid loss, but loss is {self.loss}; choose labels: hard")
        if self.loss == "ipo" and self.label_smoothing:
            raise ValueError("label_smoothing: the ipo loss takes none; leave it out, or choose another loss")
        return self
