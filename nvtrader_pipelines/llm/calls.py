"""Calls of a language model: request, answer, record and budget."""

from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from nvtrader_pipelines.components.component import content_hash
from nvtrader_pipelines.llm.endpoint import Endpoint


class Request(BaseModel):
    """Question to a model, with the JSON Schema of the document that must come back."""

    model_config = ConfigDict(frozen=True)
    purpose: str
    prompt: str  # name and version, such as propose@1
    model: str
    system: str
    user: str
    image_png: str = ""  # base64
    schema_name: str
    json_schema: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the request, independent of endpoint and key."""
        return content_hash(self)


class Answer(BaseModel):
    """Complete answer of a model."""

    model_config = ConfigDict(frozen=True)
    text: str
    n_input_tokens: NonNegativeInt = 0
    n_output_tokens: NonNegativeInt = 0


class AnswerCache(Protocol):
    """Answers by digest of their request."""

    def read(self, digest: str) -> Answer | None:
        """Read an answer; None if there is none."""
        ...

    def write(self, digest: str, answer: Answer) -> None:
        """Write an answer."""
        ...


class Call(BaseModel):
    """Record of a call: a row without texts."""

    model_config = ConfigDict(frozen=True)
    purpose: str
    prompt: str
    model: str
    digest: str
    n_input_tokens: NonNegativeInt
    n_output_tokens: NonNegativeInt
    seconds: float
    is_cached: bool  # so that its tokens were not spent
    problem: str = ""  # empty if a valid document came back


@dataclass(frozen=True)
class Budget:
    """Calls and tokens of a search session; cached ones count, so that a replay ends where the original did."""

    endpoint: Endpoint
    n_calls: int
    n_tokens: int

    @property
    def problem(self) -> str:
        """Sentence that names the budget spent; empty while both calls and tokens are left."""
        if self.n_calls >= self.endpoint.max_calls:
            return f"the budget of {self.endpoint.max_calls:,} calls is spent; raise max_calls in data/llm.yaml"
        if self.n_tokens >= self.endpoint.max_tokens:
            return f"the budget of {self.endpoint.max_tokens:,} tokens is spent; raise max_tokens in data/llm.yaml"
        return ""
