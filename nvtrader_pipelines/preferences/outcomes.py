"""What the market made of decisions: returns of proposed, chosen and kept weights five sessions later."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.dynamics import Legs, hold, holding_period
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import CostFunction, no_cost
from nvtrader_pipelines.preferences.decisions import HORIZON, MIN_CHANGE, DecisionRow
from nvtrader_pipelines.preferences.outcome_table import OUTCOME

TIE = 1e-12  # returns that differ by less are equal
SIDES = {"approved": "proposed", "overridden": "kept", "rejected": "kept", "edited": "edited"}


@dataclass(frozen=True, eq=False)
class OutcomeMarket:
    """Market of an account."""

    panel: MarketPanel
    legs: Legs
    cost: CostFunction  # fees and slippage
    spy: FloatArray | None = None  # (T,) close-to-close returns of SPY, NaN where it has no bar


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes of decisions, the number that are not known yet, and why others have none."""

    rows: pl.DataFrame  # columns of `OUTCOME`
    n_pending: int
    problems: dict[str, str]  # sentence by decision


def decision_outcomes(rows: Sequence[DecisionRow], market: OutcomeMarket, last: date) -> Outcomes:
    """Outcomes of decisions whose fifth session is in the market and not after `last`, in their order.

    Own weights start from the holdings at the decision's close and are filled, charged and written off as the account
    is; the source's baskets and the benchmark are bought at that close without cost. Rows are computed from prices up
    to the fifth session only.

    Source: NVTrader's preference learning agent for the basket, the horizon and the excess over SPY.
    """
    panel, known, problems, n_pending = market.panel, list[tuple[DecisionRow, int]](), dict[str, str](), 0
    names = set(panel.symbols)
    for row in rows:
        t = panel.index_of(np.datetime64(row.session))
        if t + HORIZON >= len(panel.sessions) or panel.sessions[t + HORIZON].item() > last:
            n_pending += 1
        elif panel.sessions[t].item() != row.session:
            problems[row.decision_id] = f"the market lacks the session {row.session}"
        elif missing := sorted(_weighted_names(row) - names):
            problems[row.decision_id] = f"the market lacks {', '.join(missing)}"
        else:
            known.append((row, t))
    own_plans = {row.plan_id for row in rows if row.decision == "edited"}
    frame = _frame(market, known, own_plans) if known else pl.DataFrame(schema=OUTCOME)
    return Outcomes(frame, n_pending, problems)


def _weighted_names(row: DecisionRow) -> set[str]:
    """Names with weight in a decision."""
    weights = np.abs([row.held_weights, row.proposed_weights, row.chosen_weights or row.held_weights]).max(axis=0)
    return {symbol for symbol, weight in zip(row.symbols[:-1], weights, strict=False) if weight > 0.0}


def _frame(market: OutcomeMarket, known: Sequence[tuple[DecisionRow, int]], own_plans: Set[str]) -> pl.DataFrame:
    rows, decided_at = [row for row, _ in known], np.array([t for _, t in known])
    held, proposed, chosen = _place_weights(market.panel, rows)
    returns = {
        "proposed": net_return(market, decided_at, held, proposed),
        "chosen": net_return(market, decided_at, held, chosen),
        "kept": net_return(market, decided_at, held, held),
    }
    benchmark, names = _benchmark(market, decided_at)
    baskets = {
        "outcome_t5": _basket(market, decided_at, np.abs(proposed - held)),
        "chosen_basket": _basket(market, decided_at, np.abs(chosen - held)),
    }
    is_judged = np.array([row.decision in SIDES for row in rows])
    for values in (returns["chosen"], baskets["chosen_basket"]):
        values[~is_judged] = np.nan
    is_approved = np.array([row.decision == "approved" for row in rows])
    excess = returns["chosen"] - np.where(is_approved, returns["kept"], returns["proposed"])
    judges = [_judges_proposal(row, gain, own_plans) for row, gain in zip(rows, excess.tolist(), strict=True)]
    shown = {**baskets, **returns}
    sessions = market.panel.sessions
    ids = ("decision_id", "plan_id", "account", "session", "by", "decision", "reason")
    columns = {
        **{name: [getattr(row, name) for row in rows] for name in ids},
        "session_number": market.panel.calendar.session_numbers(sessions[decided_at]),
        "outcome_session": sessions[decided_at + HORIZON],
        "benchmark": names,
        "benchmark_return_pct": 100.0 * benchmark,
        **{f"{name}_return_pct": 100.0 * values for name, values in shown.items()},
        **{f"{name}_vs_spy_pct": 100.0 * (values - benchmark) for name, values in shown.items()},
        "excess_pct": 100.0 * excess,
        "label": [SIDES.get(row.decision, row.decision) for row in rows],
        "market_side": [_market_side(row, returns, i) for i, row in enumerate(rows)],
        "weight": [float(judge and not row.outcome_known) for judge, row in zip(judges, rows, strict=True)],
        "practice": [judge and row.outcome_known for judge, row in zip(judges, rows, strict=True)],
    }
    frame = pl.DataFrame({name: columns[name] for name in OUTCOME}, schema=OUTCOME)
    return frame.with_columns(pl.selectors.float().fill_nan(None))


def _place_weights(panel: MarketPanel, rows: Sequence[DecisionRow]) -> FloatArray:
    """Held, proposed and chosen weights over the panel's names, (3, n, N+1); of no choice, the held ones."""
    placed = np.zeros((3, len(rows), len(panel.symbols) + 1))
    column = {symbol: j for j, symbol in enumerate(panel.symbols)}
    for i, row in enumerate(rows):
        at = [column.get(symbol, -1) for symbol in row.symbols[:-1]]  # names that the panel lacks have no weight
        for k, weights in enumerate((row.held_weights, row.proposed_weights, row.chosen_weights or row.held_weights)):
            placed[k, i, at] = weights[:-1]
            placed[k, i, -1] = weights[-1]
    return placed


def net_return(
    market: OutcomeMarket, decided_at: NDArray[np.int64], held: FloatArray, target: FloatArray
) -> FloatArray:
    """Net returns (n,) over five sessions of trading once from held to target weights, as the account would."""
    trades = np.abs(target - held).max(axis=1) > MIN_CHANGE
    period = holding_period(market.legs, decided_at, HORIZON)
    return hold(held, target, trades, period, market.cost).growth - 1.0


def _basket(market: OutcomeMarket, decided_at: NDArray[np.int64], changes: FloatArray) -> FloatArray:
    """Returns (n,) of equal weights of the names that change, bought at the close; NaN without one."""
    return _equal_weights(market, decided_at, changes[:, :-1] > MIN_CHANGE)


def _benchmark(market: OutcomeMarket, decided_at: NDArray[np.int64]) -> tuple[FloatArray, list[str]]:
    """Returns (n,) and names of the benchmark."""
    equal = _equal_weights(market, decided_at, market.panel.eligible[decided_at])
    if market.spy is None:
        return equal, ["1/N"] * len(equal)
    window = market.spy[decided_at[:, None] + np.arange(1, HORIZON + 1)]
    spy = np.prod(1.0 + window, axis=1) - 1.0
    return np.where(np.isnan(spy), equal, spy), ["1/N" if np.isnan(value) else "SPY" for value in spy]


def _equal_weights(market: OutcomeMarket, decided_at: NDArray[np.int64], names: NDArray[np.bool_]) -> FloatArray:
    """Returns (n,) of equal weights of some names (n, N), bought at the close and held; NaN without a name."""
    n_names = names.sum(axis=1, keepdims=True)
    weights = np.hstack([names / np.maximum(n_names, 1), n_names == 0])
    period = holding_period(market.legs, decided_at, HORIZON)
    returns = hold(weights, weights, np.zeros(len(weights), np.bool_), period, no_cost).growth - 1.0
    return np.where(n_names[:, 0] > 0, returns, np.nan)


def _market_side(row: DecisionRow, returns: dict[str, FloatArray], i: int) -> str:
    """Side with the larger return, of the proposal and of the edit, or else the holdings."""
    other, compared = ("edited", "chosen") if row.decision == "edited" else ("kept", "kept")
    difference = float(returns["proposed"][i] - returns[compared][i])
    if abs(difference) <= TIE:
        return "tie"
    return "proposed" if difference > 0.0 else other


def _judges_proposal(row: DecisionRow, excess: float, own_plans: Set[str]) -> bool:
    """Whether a decision judges the policy's proposal, not a plan of the person's own, and is no tie."""
    is_answer_to_own = row.parent_id in own_plans if row.decision == "edited" else row.parent_id is not None
    return row.decision in SIDES and not is_answer_to_own and abs(excess) > TIE
