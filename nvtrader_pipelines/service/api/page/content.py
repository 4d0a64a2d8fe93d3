"""Content of a section of the page: HTML, rows of charts and short texts, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.service.api.guard import IS_LOCKED
from nvtrader_pipelines.service.api.page import formats

TEMPLATES = Path(__file__).with_name("templates")
FILTERS = (formats.number, formats.percent, formats.moment, formats.duration, short_id)


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


@cache
def pages() -> Environment:
    """Templates of the page; what they are given is text, never markup."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in FILTERS}
    environment.policies["json.dumps_kwargs"] = {}  # fields keep their order
    environment.globals |= {"bounds": formats.bounds, "position": formats.position, "is_locked": IS_LOCKED.get}
    return environment


def render(template: str, **values: Any) -> str:
    """Render a template as HTML."""
    return pages().get_template(f"{template}.html.j2").render(values)
