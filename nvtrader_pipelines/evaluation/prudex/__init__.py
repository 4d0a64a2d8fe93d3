"""PRUDEX-Compass: six axes, seventeen measures, and scores where 50 is the market average, 1/N."""

from nvtrader_pipelines.evaluation.prudex.compass import Compass, axis_scores, prudex_compass
from nvtrader_pipelines.evaluation.prudex.measures import AXES, MEASURES, PRIDE, RING, Measure, Statistic
from nvtrader_pipelines.evaluation.prudex.record import PrudexRecord, latest_runs

__all__ = [
    "AXES",
    "MEASURES",
    "PRIDE",
    "RING",
    "Compass",
    "Measure",
    "PrudexRecord",
    "Statistic",
    "axis_scores",
    "latest_runs",
    "prudex_compass",
]
