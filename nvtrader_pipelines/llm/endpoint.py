"""Settings of an OpenAI-compatible endpoint; its key is never among them."""

from collections.abc import Mapping
from typing import Any

from pydantic import AnyHttpUrl, Field, PositiveFloat, PositiveInt, ValidationError, field_validator, model_validator

from nvtrader_pipelines.components.component import Component

KEY_VARIABLE = "NVTRADER_LLM_API_KEY"
_KEY_FIELDS = {"api_key", "key"}


class Endpoint(Component):
    """OpenAI-compatible endpoint, its models and what may be spent."""

    base_url: str  # such as https://integrate.api.nvidia.com/v1
    model: str = Field("nvidia/nemotron-3-super-120b-a12b", min_length=1)
    vision_model: str = Field("nvidia/nemotron-3-nano-omni-30b-a3b-reasoning", min_length=1)  # reads images
    max_seconds: PositiveFloat = 60.0  # of one call, retries included
    max_calls: PositiveInt = 200  # of one search session
    max_tokens: PositiveInt = 1_000_000  # of one search session, input and output together
    max_seconds_lost: PositiveFloat | None = None  # that answers not taken may cost a search; null: the time of a trial

    @model_validator(mode="before")
    @classmethod
    def _reject_key(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and _KEY_FIELDS & data.keys():
            raise ValueError(f"a file must not hold the key; remove it and export {KEY_VARIABLE}")  # without the value
        return data

    @field_validator("base_url")
    @classmethod
    def _require_plain_url(cls, base_url: str) -> str:
        try:
            url = AnyHttpUrl(base_url)
        except ValidationError:
            raise ValueError("must be an http or https URL, such as http://127.0.0.1:8000/v1") from None
        if url.username or url.password or url.query or url.fragment:  # not repeated, since it may be a secret
            raise ValueError(f"must hold no user, password, query or fragment; export the key as {KEY_VARIABLE}")
        return base_url
