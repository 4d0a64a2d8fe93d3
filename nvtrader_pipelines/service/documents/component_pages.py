"""Families of components with an example and the source of every member, for people who browse them."""

import inspect
from pathlib import PurePath
from typing import Any

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import every_member
from nvtrader_pipelines.runs.drafts import format_draft
from nvtrader_pipelines.service.documents.catalogue import FAMILIES, ComponentFacts, family_members


class DocumentedComponent(ComponentFacts):
    """Member of a family, with what a person reads before choosing it."""

    text: str  # its docstring
    module: str  # that has its source
    example: str  # YAML


def documented_families() -> dict[str, list[DocumentedComponent]]:
    """Members of every family by its name."""
    return {
        name: [
            DocumentedComponent(
                **facts.model_dump(), text=inspect.getdoc(member) or "", module=_module(member), example=_example(facts)
            )
            for facts, member in zip(family_members(name), every_member(family), strict=True)
        ]
        for name, family in FAMILIES.items()
    }


def _module(member: type[Component]) -> str:
    return str(PurePath(*member.__module__.split(".")).with_suffix(".py"))


def _example(facts: ComponentFacts) -> str:
    """YAML of a member with its defaults; fields without one are named as such."""
    settings: dict[str, Any] = {"kind": facts.kind}
    settings |= {field.name: field.default for field in facts.fields if field.default is not None}
    return format_draft(settings)
