"""Answer of a language model that is asked for a proposal."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, Strict

from nvtrader_pipelines.research.config_delta import ConfigDelta
from nvtrader_pipelines.research.journal import Knobs
from nvtrader_pipelines.research.space import SearchSpace

MAX_REASON = 300  # characters
Number = Annotated[FiniteFloat, Strict()]  # neither text nor a boolean


def _on_one_line(text: str) -> str:
    """Replace control characters by spaces."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class ProposalAnswer(BaseModel):
    """Document that a model answers; other fields are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    changes: dict[str, Number]  # by knob; those left out keep the base's value
    reason: Annotated[str, Strict(), Field(max_length=MAX_REASON), AfterValidator(_on_one_line)]  # one sentence
    expects: Number | None = None  # Sharpe ratio on validation


def take_answer(answer: ProposalAnswer, space: SearchSpace) -> Knobs:
    """Return the proposal of an answer, a value for every knob, which may be out of bounds.

    Raises:
        DeltaRefused: if the answer names an unknown knob, or a fraction for a whole-number knob.
    """
    delta = ConfigDelta.parse(answer.changes, space.knobs)
    beyond = {clip.knob: clip.proposed for clip in delta.clips}
    return {**space.base_values, **delta.values, **beyond}
