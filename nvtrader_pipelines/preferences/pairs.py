"""Counterfactual preference pairs: the policy's portfolio against each baseline's at past rebalances."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.components.ids import ID_LENGTH
from nvtrader_pipelines.envs.dynamics import Legs, hold, holding_period, market_legs
from nvtrader_pipelines.envs.fill_timing import FillTiming, resolve_fill
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.costs import CostFunction, CostModel, total_cost
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR

TIE = 1e-12  # returns that differ by less give no preference


@dataclass(frozen=True, eq=False)
class _Proposals:
    """D rebalances of one account, in time order."""

    name: str
    decided_at: NDArray[np.int64]  # (D,) session index
    target: NDArray[np.float64]  # (D, N+1), cash last
    executed: NDArray[np.float64]  # (D, N+1)
    trades: NDArray[np.float64]  # (D, N+1)


@dataclass(frozen=True, eq=False)
class _Market:
    """Market, costs and horizon that determine a proposal's outcome."""

    panel: MarketPanel
    legs: Legs
    costs: Sequence[CostModel]
    cost: CostFunction
    fill: FillTiming
    horizon: int


def preference_pairs(
    action_logs: pl.DataFrame,
    panel: MarketPanel,
    costs: Sequence[CostModel],
    fill: FillTiming,
    *,
    horizon: int = 5,
    holdout_share: float = 0.2,
) -> pl.DataFrame:
    """Return one row per rebalance and baseline, with the portfolio of the larger outcome as `chosen`.

    Both portfolios start from the policy's holdings at the decision's close and are filled and charged alike; their
    outcome is the net return from that close to the close `horizon` sessions later. The policy is the ensemble, or
    every single policy if there is no ensemble. Ties, and rebalances whose outcome lies beyond the panel, are left
    out. The last `holdout_share` of the rebalances, by time, is the hold-out; an earlier pair whose outcome reaches
    into it is dropped.

    Args:
        action_logs: policy, kind, session, symbols (cash last), target_weights, executed_weights and trades.
        panel: the market of the same symbols.
        costs: cost models of trades.
        fill: fill timing; `next_open` falls back to `next_close` on a panel without opens.
        horizon: sessions from the decision to the outcome.
        holdout_share: between 0 and 1.

    Raises:
        ValueError: if an argument is out of range, or symbols or sessions of the logs are not those of the panel.
    """
    if horizon < 1 or not 0.0 <= holdout_share < 1.0:
        raise ValueError(f"expected horizon >= 1 and 0 <= holdout_share < 1, got {horizon} and {holdout_share}")
    _require_symbols(action_logs, panel)
    filled = resolve_fill(fill, panel)
    market = _Market(panel, market_legs(panel, filled), costs, total_cost(costs, panel), filled, horizon)
    learned = "ensemble" if (action_logs["kind"] == "ensemble").any() else "policy"
    rows = [
        row
        for policy in _proposals(action_logs, learned, panel)
        for baseline in _proposals(action_logs, "baseline", panel)
        for row in _rows(market, policy, baseline)
    ]
    pairs = pl.DataFrame(rows, schema=PREFERENCE_PAIR, orient="row")
    return _split(pairs, holdout_share).sort("session", "chosen", "rejected")


def _require_symbols(action_logs: pl.DataFrame, panel: MarketPanel) -> None:
    expected = [*panel.symbols, CASH]
    for symbols in action_logs["symbols"].unique().to_list():
        if symbols != expected:
            raise ValueError(f"the action log has symbols {symbols}, the panel of {panel.source!r} {expected}")


def _proposals(action_logs: pl.DataFrame, kind: str, panel: MarketPanel) -> Iterator[_Proposals]:
    """Yield the rebalances of each account of one kind, in order of appearance."""
    chosen = action_logs.filter(pl.col("kind") == kind)
    for (name,), rows in chosen.partition_by("policy", as_dict=True).items():
        ordered = rows.sort("session")
        sessions = ordered["session"].to_numpy().astype("datetime64[D]")
        at = np.minimum(np.searchsorted(panel.sessions, sessions), len(panel.sessions) - 1)
        if (panel.sessions[at] != sessions).any():
            unknown = sessions[panel.sessions[at] != sessions][0]
            raise ValueError(f"{name} decided on {unknown}, which is not a session of the panel of {panel.source!r}")
        columns = (np.array(ordered[c].to_list()) for c in ("target_weights", "executed_weights", "trades"))
        yield _Proposals(str(name), at.astype(np.int64), *columns)


def _rows(market: _Market, policy: _Proposals, baseline: _Proposals) -> Iterator[tuple[object, ...]]:
    """Yield the pairs of one policy and one baseline, before the hold-out split."""
    n_known = len(market.panel.sessions) - market.horizon
    shared, own, other = np.intersect1d(policy.decided_at, baseline.decided_at, return_indices=True)
    own, other = own[shared < n_known], other[shared < n_known]
    if not len(own):
        return
    start = _held_weights(market, policy, own)
    is_traded = np.abs(policy.trades[own]).sum(axis=1) > 0.0  # without a trade, no cost
    decided_at, target, baseline_target = policy.decided_at[own], policy.target[own], baseline.target[other]
    outcome = _outcome(market, decided_at, start, (target, is_traded))
    baseline_outcome = _outcome(market, decided_at, start, (baseline_target, np.ones(len(own), dtype=bool)))
    for i in np.flatnonzero(np.abs(outcome - baseline_outcome) > TIE):
        sides = [
            (float(outcome[i]), policy.name, target[i]),
            (float(baseline_outcome[i]), baseline.name, baseline_target[i]),
        ]
        better, worse = sides if outcome[i] > baseline_outcome[i] else reversed(sides)
        yield _row(market, int(decided_at[i]), better, worse)


def _held_weights(market: _Market, policy: _Proposals, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights at each decision's close, (D, N+1): the weights before the trade, with the drift to the fill undone."""
    before_fill = market.legs.before_fill[policy.decided_at[rows] + 1]
    held = policy.executed[rows] - policy.trades[rows]
    held[:, :-1] /= 1.0 + before_fill
    held = np.maximum(held, 0.0)  # rounding of the subtraction
    return held / held.sum(axis=1, keepdims=True)


def _outcome(
    market: _Market,
    decided_at: NDArray[np.int64],
    start: NDArray[np.float64],
    order: tuple[NDArray[np.float64], NDArray[np.bool_]],
) -> NDArray[np.float64]:
    """Net return (D,) over the horizon of each order: a target, and whether it trades."""
    period = holding_period(market.legs, decided_at, market.horizon)
    return hold(start, *order, period, market.cost).growth - 1.0


_Side = tuple[float, str, NDArray[np.float64]]  # outcome, name, weights


def _row(market: _Market, decided_at: int, better: _Side, worse: _Side) -> tuple[object, ...]:
    panel = market.panel
    session, outcome_session = panel.sessions[decided_at], panel.sessions[decided_at + market.horizon]
    costs = ",".join(canonical_json(model) for model in market.costs)
    content = f"{session}|{market.horizon}|{market.fill}|{costs}|{better[1]}|{worse[1]}".encode()
    digest = hashlib.sha256(content + better[2].tobytes() + worse[2].tobytes())
    return (
        digest.hexdigest()[:ID_LENGTH],
        session.item(),
        outcome_session.item(),
        better[1],
        worse[1],
        [*panel.symbols, CASH],
        better[2].tolist(),
        worse[2].tolist(),
        better[0],
        worse[0],
        better[0] - worse[0],
        False,
    )


def _split(pairs: pl.DataFrame, holdout_share: float) -> pl.DataFrame:
    """Mark the last rebalances as hold-out and drop the earlier pairs that reach into them."""
    sessions = pairs["session"].unique().sort()
    n_holdout = math.ceil(holdout_share * len(sessions) - 1e-9)
    if n_holdout == 0:
        return pairs
    boundary = sessions[-n_holdout]
    separate = pairs.filter((pl.col("session") >= boundary) | (pl.col("outcome_session") < boundary))
    return separate.with_columns(holdout=pl.col("session") >= boundary)
