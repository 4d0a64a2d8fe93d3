"""Templates of the pages and the report, with their formats."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation import formats

PAGE = Path(__file__).parent / "api" / "page"
FILTERS = (formats.number, formats.percent, formats.moment, formats.duration, short_id)


@cache
def templates() -> Environment:
    """Templates of the pages; what they are given is text, never markup."""
    environment = Environment(
        loader=FileSystemLoader(PAGE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in FILTERS}
    environment.policies["json.dumps_kwargs"] = {}  # fields keep their order
    environment.globals |= {"bounds": formats.bounds, "position": position}
    return environment


def render_template(template: str, **values: Any) -> str:
    """Render a template as HTML."""
    return templates().get_template(f"{template}.html.j2").render(values)


def position(value: float, low: float, high: float, width: float) -> float:
    """Place of a value on an axis of `width` pixels from `low` to `high`, kept within it."""
    return round(width * min(1.0, max(0.0, (value - low) / (high - low))), 1)
