"""Fields in which two documents differ."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from nvtrader_pipelines.experiments.designs import leaves


def document_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> pl.DataFrame:
    """List the fields in which two documents differ, by dotted path; null for a missing one."""
    sides = [dict(leaves(dict(side))) for side in (left, right)]
    paths = [path for path in dict.fromkeys([*sides[0], *sides[1]]) if _texts(path, sides)[0] != _texts(path, sides)[1]]
    rows = [(path, *_texts(path, sides)) for path in paths]
    return pl.DataFrame(rows, schema=dict.fromkeys(("field", "left", "right"), pl.String), orient="row")


def _texts(path: str, sides: list[dict[str, Any]]) -> tuple[str | None, str | None]:
    first, second = (_text(side[path]) if path in side else None for side in sides)
    return first, second


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
