"""PRUDEX-Compass: six axes, seventeen measures, and scores on which 50 is the market's average, 1/N."""

from nvtrader_pipelines.evaluation.prudex.measures import AXES, MEASURES, PRIDE, PRUDEX, RING, Measure, Statistic

__all__ = ["AXES", "MEASURES", "PRIDE", "PRUDEX", "RING", "Measure", "Statistic"]
