"""Pairs of a chosen and a rejected decision."""

from nvtrader_pipelines.components.columns import TableSchema
from nvtrader_pipelines.evaluation.verdict_tables import RUN
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.storage.table import BY_RUN, Table

PREFERENCE_PAIRS = Table("preferences", "preference_pairs", TableSchema(RUN, PREFERENCE_PAIR), BY_RUN)
