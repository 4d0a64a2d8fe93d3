"""A configurable component: a frozen spec whose content is its identity."""

import hashlib
import json

from pydantic import BaseModel, ConfigDict


class Component(BaseModel):
    """A frozen choice with defaults; unknown fields, wrong types and non-finite numbers are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)


def canonical_json(component: BaseModel) -> str:
    """The component as JSON with defaults included, keys sorted and floats in their shortest exact form."""
    return json.dumps(component.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def content_hash(component: BaseModel) -> str:
    """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(component).encode()).hexdigest()
