"""Prompts with versions, and facts as marked JSON that no text inside can end."""

import json
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict


class Prompt(BaseModel):
    """System text, and user text with `$names` of facts."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    version: int
    system: str
    user: str

    @property
    def label(self) -> str:
        """Name and version, such as `report@1`."""
        return f"{self.name}@{self.version}"

    def fill(self, **facts: Any) -> str:
        """Fill the user text with facts, each as JSON between `<data>` and `</data>`.

        Raises:
            KeyError: if a fact is missing.
        """
        return Template(self.user).substitute({name: _mark(fact) for name, fact in facts.items()})


@cache
def read_prompt(name: str) -> Prompt:
    """Read a prompt of this package."""
    text = files("nvtrader_pipelines.llm").joinpath("prompts", f"{name}.yaml").read_text(encoding="utf-8")
    return Prompt(name=name, **yaml.safe_load(text))


def _mark(fact: Any) -> str:
    content = json.dumps(fact, indent=1).replace("<", "\\u003c")  # in JSON, < occurs in strings only
    return f"<data>\n{content}\n</data>"
