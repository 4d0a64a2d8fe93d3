"""Preference pairs: a chosen and a rejected portfolio from one state, from candidates and from decisions of people."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.preference_data import PreferenceData
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.preferences.candidates import Rebalances
from nvtrader_pipelines.preferences.decisions import HORIZON, DecisionRow
from nvtrader_pipelines.preferences.outcomes import OutcomeMarket, net_return
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR

MIN_MARGIN = 1e-4  # returns that differ by less give no preference; our choice: a tenth of a usual cost
NOISE_SESSIONS = 252
BOOST = 2.0  # weight where person and market agree, as the source has it; the factor is our choice
TRAIN, STOP, REPORT = "train", "stop", "report"
PARTS = (*4 * (TRAIN,), STOP, *4 * (TRAIN,), REPORT)  # of ten quarters


@dataclass(frozen=True, eq=False)
class _Sides:
    """P pairs before they are ordered by outcome: a first and a second portfolio from one state."""

    decided_at: NDArray[np.int64]  # (P,)
    held: FloatArray  # (P, N+1)
    first: FloatArray  # (P, N+1)
    second: FloatArray  # (P, N+1)


def holdout_part(days: NDArray[np.datetime64]) -> NDArray[np.str_]:
    """Part of days (n,): of ten calendar quarters the fifth and tenth are held out, for ever."""
    quarters = days.astype("datetime64[M]").astype(np.int64) // 3
    return np.array(PARTS)[quarters % len(PARTS)]


def pair_part(sessions: NDArray[np.datetime64], outcome_sessions: NDArray[np.datetime64]) -> NDArray[np.str_]:
    """Part of pairs (n,); empty where a pair reaches from one part into another, and belongs to neither."""
    first, last = holdout_part(sessions), holdout_part(outcome_sessions)
    return np.where(first == last, first, "")


def counterfactual_pairs(
    proposed: Rebalances,
    candidates: Mapping[str, FloatArray],
    market: OutcomeMarket,
    *,
    policy: str,
    fold: int,
    window: tuple[date, date],
) -> pl.DataFrame:
    """Return one row per rebalance and candidate, the policy's proposal or the candidate's chosen by outcome.

    All start from the policy's holdings and are filled and charged alike; their outcome is the net return from the
    close of the decision to that five sessions later. Pairs whose outcomes differ by less than `MIN_MARGIN`, and those
    that reach from one part of the time into another, are left out.

    Args:
        proposed: rebalances of the policy in the training of a fold.
        candidates: target weights (D, N+1) by name, at the same rebalances.
        market: the market.
        policy: name of the policy.
        fold: number of the fold.
        window: first and last session of its training.
    """
    frames = []
    for name, weights in candidates.items():
        sides = _Sides(proposed.decided_at, proposed.held, proposed.target, weights)
        facts = {
            "source": "counterfactual",
            "decision_id": None,
            "fold": fold,
            "window": f"{window[0]} to {window[1]}",
            "drawdown": proposed.drawdown,
            "observation_hash": list(proposed.observation_hash),
        }
        frames.append(_pair_rows(market, sides, (policy, name), facts))
    pairs = pl.concat(frames).unique("pair_id", keep="first", maintain_order=True)  # rules may agree
    return pairs.sort("session", "chosen", "rejected")


def person_pairs(rows: Sequence[DecisionRow], drawdown: Mapping[str, float], market: OutcomeMarket) -> pl.DataFrame:
    """Return one row per decision: what the person preferred, or the other side where the market contradicts.

    Args:
        rows: decisions that judge, with an outcome in the market, of its names.
        drawdown: of the account at the session, by decision.
        market: the market of their account.
    """
    if not rows:
        return pl.DataFrame(schema=PREFERENCE_PAIR)
    panel = market.panel
    decided_at = np.array([panel.index_of(np.datetime64(row.session)) for row in rows])
    held, proposed = (np.array([getattr(row, f"{name}_weights") for row in rows]) for name in ("held", "proposed"))
    chosen = np.array([row.chosen_weights or row.held_weights for row in rows])
    is_approved = np.array([row.decision == "approved" for row in rows])
    sides = _Sides(decided_at, held, chosen, np.where(is_approved[:, None], held, proposed))
    facts = {
        "source": "person",
        "decision_id": [row.decision_id for row in rows],
        "fold": None,
        "window": None,
        "drawdown": np.array([drawdown[row.decision_id] for row in rows]),
        "observation_hash": [row.observation_hash for row in rows],
    }
    return _pair_rows(market, sides, ("person", "other side"), facts).sort("session", "pair_id")


def pairs_within(pairs: pl.DataFrame, panel: MarketPanel, fold: int, windows: Sequence[Window]) -> pl.DataFrame:
    """Pairs of the policy of a fold and of people, decided in its training, with an outcome there.

    Args:
        pairs: columns of `PREFERENCE_PAIR`.
        panel: market of the fold.
        fold: its number; pairs of other folds' policies are left out.
        windows: its training, first and last session each.
    """
    names = [*panel.symbols, CASH]
    fitting = pairs.filter(
        pl.col("fold").is_null() | (pl.col("fold") == fold),
        pl.col("symbols") == pl.lit(names, dtype=pl.List(pl.String)),
    )
    at, outcome_at = _session_places(fitting, panel, "session"), _session_places(fitting, panel, "outcome_session")
    is_inside = np.zeros(len(fitting), np.bool_)
    for first, last in windows:
        is_inside |= (at >= first) & (outcome_at <= last)
    return fitting.filter(is_inside)


def pair_data(pairs: pl.DataFrame, panel: MarketPanel) -> PreferenceData:
    """Arrays of pairs of a panel's names."""
    n_weights = len(panel.symbols) + 1
    weights = {
        name: np.array(pairs[f"{name}_weights"].to_list(), np.float64).reshape(len(pairs), n_weights)
        for name in ("held", "chosen", "rejected")
    }
    return PreferenceData(
        decided_at=_session_places(pairs, panel, "session"),
        drawdown=pairs["drawdown"].to_numpy(),
        flip=1.0 - pairs["label"].to_numpy(),
        weight=pairs["weight"].to_numpy(),
        is_holdout=pairs["holdout"].to_numpy(),
        **weights,
    )


def _session_places(pairs: pl.DataFrame, panel: MarketPanel, column: str) -> NDArray[np.int64]:
    days = pairs[column].to_numpy().astype(panel.sessions.dtype)
    return np.searchsorted(panel.sessions, days).astype(np.int64)


def difference_noise(market: OutcomeMarket, decided_at: NDArray[np.int64], difference: FloatArray) -> FloatArray:
    """Deviation (n,) over five sessions of the return of weight differences (n, N+1), from the past year's returns."""
    returns, noise = market.panel.close_returns, np.empty(len(decided_at))
    for i, t in enumerate(decided_at):
        past = returns[max(0, t + 1 - NOISE_SESSIONS) : t + 1] @ difference[i, :-1]
        noise[i] = np.sqrt(HORIZON) * past.std()
    return noise


def _pair_rows(market: OutcomeMarket, sides: _Sides, names: tuple[str, str], facts: Mapping[str, Any]) -> pl.DataFrame:
    """Rows of pairs, the better outcome chosen."""
    from scipy.special import ndtr

    panel, t = market.panel, sides.decided_at
    outcomes = [net_return(market, t, sides.held, target) for target in (sides.first, sides.second)]
    gain = outcomes[0] - outcomes[1]
    is_first, margin = gain > 0.0, np.abs(gain)
    noise = difference_noise(market, t, sides.first - sides.second)
    sessions, outcome_sessions = panel.sessions[t], panel.sessions[t + HORIZON]
    part = pair_part(sessions, outcome_sessions)
    better, worse = (np.where(first[:, None], sides.first, sides.second) for first in (is_first, ~is_first))
    is_person = facts["source"] == "person"  # who prefers the first
    columns = {
        **facts,
        "pair_id": [
            _pair_id(str(facts["fold"]), *row) for row in zip(sessions, sides.held, better, worse, strict=True)
        ],
        "session": sessions,
        "outcome_session": outcome_sessions,
        "part": part,
        "holdout": part != TRAIN,
        "chosen": np.where(is_first, *names),
        "rejected": np.where(is_first, *names[::-1]),
        "held_weights": sides.held.tolist(),
        "chosen_weights": better.tolist(),
        "rejected_weights": worse.tolist(),
        "chosen_outcome": np.maximum(*outcomes),
        "rejected_outcome": np.minimum(*outcomes),
        "margin": margin,
        "noise": noise,
        "label": ndtr(margin / np.maximum(noise, np.finfo(np.float64).tiny)),
        "weight": np.where(is_first & is_person, BOOST, 1.0),
        "swapped": ~is_first & is_person,
    }
    frame = pl.DataFrame(columns, strict=False).with_columns(symbols=pl.lit([*panel.symbols, CASH]))
    rows = frame.select(pl.col(name).cast(kind) for name, kind in PREFERENCE_PAIR.items())
    return rows.filter(pl.col("margin") > MIN_MARGIN, pl.col("part") != "")


def _pair_id(fold: str, session: np.datetime64, *weights: FloatArray) -> str:
    digest = hashlib.sha256(f"{fold}|{session}".encode())
    for values in weights:
        digest.update(values.tobytes())
    return digest.hexdigest()[:ID_LENGTH]
