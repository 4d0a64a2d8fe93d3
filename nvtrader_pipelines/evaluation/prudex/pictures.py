"""Rows of the figures of holdings: actions in the plane, and weights by name and year."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.prudex.diversity import embed
from nvtrader_pipelines.evaluation.prudex.holdings import WindowHoldings
from nvtrader_pipelines.evaluation.prudex.measures_table import table_of
from nvtrader_pipelines.evaluation.prudex.record import SEED
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

PLANE = {"policy": pl.String, "kind": pl.String, "x": pl.Float64, "y": pl.Float64}
HEAT = {
    "policy": pl.String,
    "kind": pl.String,
    "source": pl.String,
    "year": pl.Int32,
    "symbol": pl.String,
    "weight": pl.Float64,
}
_NO_ACTIONS = np.zeros((0, 1))
_SINGLE_SEED = "single seed or path; its experiment's actions are embedded"
_OTHER_NAMES = "not embedded: its names differ from those of the embedded actions"


def action_plane(held: Sequence[WindowHoldings], seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Trustworthiness of the t-SNE (ANSWERS), and its points (PLANE).

    Experiments and baselines are embedded, not single seeds, and only those on the names with the most decisions.
    """
    decisions = Counter[tuple[str, ...]]()
    for walk in held:
        decisions[walk.symbols] += len(walk.weights)
    symbols = max(decisions, key=lambda names: (decisions[names], names), default=())
    chosen = [walk for walk in held if walk.symbols == symbols and walk.kind != SEED]
    trust, note, plane = _embed_actions(chosen, seed)
    answers = {
        (walk.policy, walk.kind): (None, None, _SINGLE_SEED if walk.kind == SEED else _OTHER_NAMES) for walk in held
    }
    answers |= {(walk.policy, walk.kind): (trust, None, note) for walk in chosen}
    return table_of([(*who, "trustworthiness", *found) for who, found in answers.items()]), plane


def _embed_actions(chosen: Sequence[WindowHoldings], seed: int) -> tuple[float | None, str | None, pl.DataFrame]:
    """Trustworthiness or the reason for its absence, and points; repeated actions count once."""
    walks: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for walk in chosen:
        walks.setdefault((walk.policy, walk.kind), []).append(walk.weights)
    actions = [np.unique(np.concatenate(weights), axis=0) for weights in walks.values()]
    try:
        embedding = embed(np.concatenate(actions or [_NO_ACTIONS]), seed)
    except UndefinedStatisticError as error:
        return None, str(error), table_of((), PLANE)
    owner = np.repeat(np.arange(len(walks)), list(map(len, actions)))[embedding.rows]
    who = list(walks)
    points = [(*who[i], *xy) for i, xy in zip(owner, embedding.points.tolist(), strict=True)]
    return embedding.trustworthiness, None, table_of(points, PLANE)


def weight_heatmap(held: Sequence[WindowHoldings]) -> pl.DataFrame:
    """Mean weight per name and year (HEAT), without years of a single decision beside longer ones."""
    rows = []
    for walk in held:
        years = walk.sessions.astype("datetime64[Y]").astype(int) + 1970
        for year in np.unique(years):
            mean = walk.weights[years == year].sum(axis=0)
            n_decisions = int((years == year).sum())
            rows += [
                (walk.policy, walk.kind, walk.source, int(year), symbol, weight, n_decisions)
                for symbol, weight in zip(walk.symbols, mean.tolist(), strict=True)
            ]
    sums = table_of(rows, {**HEAT, "n": pl.Int64})
    keys = [name for name in HEAT if name != "weight"]
    means = sums.group_by(keys, maintain_order=True).agg(
        weight=pl.col("weight").sum() / pl.col("n").sum(), n=pl.sum("n")
    )
    largest = pl.col("n").max().over("policy", "kind", "source")  # the first decision often falls in the year before
    return means.filter((pl.col("n") > 1) | (largest == 1)).select(*HEAT)
