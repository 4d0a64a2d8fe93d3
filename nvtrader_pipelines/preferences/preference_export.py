"""Preference pairs as text, in TRL's preference format with explicit prompt."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

TEXT = ("prompt", "chosen", "rejected")
FACTS = ("pair_id", "source", "session", "holdout", "label", "weight", "swapped")  # TRL ignores them
TENTHS = 1000  # of a percent, in a portfolio


def trl_rows(pairs: pl.DataFrame, *, with_holdout: bool = False) -> pl.DataFrame:
    """Return columns `TEXT` and `FACTS`; the text has only what was known at the close.

    Args:
        pairs: columns of `PREFERENCE_PAIR`.
        with_holdout: also pairs that are never to be trained on.

    Source: https://huggingface.co/docs/trl/dataset_formats#preference
    """
    exported = pairs.filter(~pl.col("holdout") | with_holdout).sort("session", "pair_id")
    lines = [
        (_prompt(row), *(format_weights(row["symbols"], row[f"{side}_weights"]) for side in ("chosen", "rejected")))
        for row in exported.iter_rows(named=True)
    ]
    text = pl.DataFrame(lines, schema=dict.fromkeys(TEXT, pl.String), orient="row")
    return text.hstack(exported.select(FACTS))


def format_weights(symbols: Sequence[str], weights: Sequence[float]) -> str:
    """Format weights as percents that sum to 100, in the order of the symbols.

    Weights below a tenth of a percent are left out and the others scaled; tenths that rounding down leaves over go to
    the largest remainders.
    """
    held = np.where(np.array(weights) < 1.0 / TENTHS, 0.0, weights)
    exact = held / held.sum() * TENTHS
    tenths = np.floor(exact)
    n_left = round(TENTHS - tenths.sum())
    tenths[np.argsort(tenths - exact, kind="stable")[:n_left]] += 1.0
    return ", ".join(f"{symbol} {count / 10:.1f} %" for symbol, count in zip(symbols, tenths, strict=True) if count)


def _prompt(row: dict[str, Any]) -> str:
    return (
        f"Session {row['session']}, after the close. The account holds "
        f"{format_weights(row['symbols'], row['held_weights'])}; its drawdown is {100.0 * row['drawdown']:.1f} %. "
        "Which target weights should it trade to at the next fill?\n"
    )
