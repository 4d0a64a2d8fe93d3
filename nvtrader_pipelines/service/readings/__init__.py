"""Readings of charts in four to six sentences, computed from their rows."""

from collections.abc import Mapping

from pydantic import JsonValue, ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.service.readings.ratio_sentences import RatioChart
from nvtrader_pipelines.service.readings.training_sentences import TrainingChart
from nvtrader_pipelines.service.readings.trial_sentences import SearchChart

CHARTS = {"training_curve": TrainingChart, "autoresearch": SearchChart, "ratio_curve": RatioChart}


def read_chart(kind: str, context: Mapping[str, JsonValue]) -> list[str]:
    """Read a chart from its facts and rows.

    Raises:
        ValueError: if they are not those of the chart, or fewer than two rows can be compared.
    """
    try:
        chart = CHARTS[kind].model_validate(context)
    except ValidationError as error:
        raise ValueError(f"the context is not that of a {kind}: {explain(error, CHARTS[kind])}") from error
    return chart.sentences()
