"""Fields in which two documents differ."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from nvtrader_pipelines.experiments.designs import leaves


def document_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> pl.DataFrame:
    """List the fields in which two documents differ, by dotted path; null for a missing one."""
    first, second = (
        {path: value if isinstance(value, str) else json.dumps(value) for path, value in leaves(dict(side))}
        for side in (left, right)
    )
    rows = [(path, first.get(path), second.get(path)) for path in dict.fromkeys([*first, *second])]
    rows = [row for row in rows if row[1] != row[2]]
    return pl.DataFrame(rows, schema=dict.fromkeys(("field", "left", "right"), pl.String), orient="row")
