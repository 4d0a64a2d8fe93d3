"""Content of a section of the page: HTML, rows of charts and short texts, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nvtrader_pipelines.service.api.access import IS_LOCKED
from nvtrader_pipelines.service.page_templates import render_template


@dataclass(frozen=True)
class Series:
    """Rows of a chart; each has an `id` that it keeps."""

    key: str  # of what is drawn; another key begins anew
    rows: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the whole chart


@dataclass(frozen=True)
class Content:
    """What a section shows."""

    parts: Mapping[str, str]  # HTML by name
    series: Mapping[str, Series] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)  # short texts by name


def render(template: str, **values: Any) -> str:
    """Render a template as HTML, for a browser that is locked or not."""
    return render_template(template, is_locked=IS_LOCKED.get(), **values)
