"""Reading of a chart by a vision model that is shown its picture and its rows."""

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, Strict

from nvtrader_pipelines.llm.calls import Request
from nvtrader_pipelines.llm.client import Asked, LlmClient
from nvtrader_pipelines.llm.prompts import read_prompt
from nvtrader_pipelines.research.model_answers import on_one_line
from nvtrader_pipelines.service.readings.chart_rows import LISTS, short_label

MAX_ROWS = 200  # that a model is shown
MAX_BULLET = 300  # characters
SUBJECTS = {  # by kind of chart
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


def ask_for_sentences(
    client: LlmClient, kind: str, context: Mapping[str, JsonValue], image_png: str
) -> Asked[ChartAnswer]:
    """Ask the vision model to read a chart, given its PNG in base 64."""
    prompt = read_prompt("chart")
    posted = next((rows for name in LISTS if isinstance(rows := context.get(name), list)), [])
    rows = [row for row in posted if isinstance(row, dict)]
    thinned = np.linspace(0, len(rows) - 1, min(len(rows), MAX_ROWS)).round().astype(int)  # the first and last are in
    facts = {
        "chart": SUBJECTS[kind],
        "facts": _scalars(context),
        "n_rows": len(rows),
        "rows": [_row_facts(rows[i]) for i in thinned],
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


def _row_facts(row: Mapping[str, JsonValue]) -> dict[str, Any]:
    knobs = row.get("knobs")
    return _scalars(row) | ({"knobs": _scalars(knobs)} if isinstance(knobs, dict) else {})


def _scalars(row: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Flags, numbers to six digits, and short labels of a row."""
    scalars: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, str) and (text := short_label(value)):
            scalars[name] = text
        elif isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
            scalars[name] = value if isinstance(value, int) else float(f"{value:.6g}")
    return scalars
