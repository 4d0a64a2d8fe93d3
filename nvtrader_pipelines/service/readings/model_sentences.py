"""Reading of a chart by a vision model that is shown its picture and its rows."""

from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from nvtrader_pipelines.llm.calls import Request
from nvtrader_pipelines.llm.client import Asked, LlmClient
from nvtrader_pipelines.llm.prompts import read_prompt
from nvtrader_pipelines.research.model_answers import on_one_line
from nvtrader_pipelines.service.readings.chart_rows import Row, label, rows_of_context

MAX_ROWS = 200  # that a model is shown
MAX_BULLET = 300  # characters
CHARTS = {  # by kind
    "training_curve": "learning curve: mean reward a step over timesteps, of each seed and of their mean",
    "autoresearch": "trials of a search session: net Sharpe ratio on validation by number of the trial, with the base, "
    "the best so far, and the luck bar that a trial must exceed",
    "ratio_curve": "completed runs and trials, by time or by rank: net Sharpe ratio with the best so far, maximum "
    "drawdown as bars from above, and below the deflated probability with the one required",
}


class ChartAnswer(BaseModel):
    """Reading of a model; other fields are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    bullets: Annotated[
        tuple[Annotated[str, Strict(), AfterValidator(on_one_line), Field(min_length=1, max_length=MAX_BULLET)], ...],
        Field(min_length=4, max_length=6),
    ]


def ask_for_sentences(client: LlmClient, kind: str, context: Row | Sequence[Any], image_png: str) -> Asked[ChartAnswer]:
    """Ask the vision model to read a chart, given its PNG in base 64."""
    prompt, rows = read_prompt("chart"), rows_of_context(context)
    facts = {
        "chart": CHARTS[kind],
        "facts": _scalars(context) if isinstance(context, dict) else {},
        "n_rows": len(rows),
        "rows": [_row_facts(row) for row in _thin(rows)],
    }
    request = Request(
        purpose="chart",
        prompt=prompt.label,
        model=client.endpoint.vision_model,
        system=prompt.system,
        user=prompt.fill(facts=facts),
        image_png=image_png,
        schema_name=ChartAnswer.__name__,
        json_schema=ChartAnswer.model_json_schema() | {"additionalProperties": False},
    )
    return client.ask(request, ChartAnswer)


def _thin(rows: Sequence[Row]) -> list[Row]:
    """At most `MAX_ROWS` rows at even distances, among them the first and the last."""
    return [rows[i] for i in np.linspace(0, len(rows) - 1, min(len(rows), MAX_ROWS)).round().astype(int)]


def _row_facts(row: Row) -> dict[str, Any]:
    knobs = row.get("knobs")
    return _scalars(row) | ({"knobs": _scalars(knobs)} if isinstance(knobs, dict) else {})


def _scalars(row: Row) -> dict[str, Any]:
    """Flags, numbers to six digits, and short labels of a row."""
    values = ((name, _scalar(value)) for name, value in row.items())
    return {name: value for name, value in values if value not in (None, "")}


def _scalar(value: object) -> float | str | None:
    if isinstance(value, float):
        return float(f"{value:.6g}") if isfinite(value) else None
    return value if isinstance(value, int) else label(value)
