"""Compiled loops of the transition, in one file so that numba's cache mixes no versions."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.uint8]

BEFORE_FILL, AFTER_FILL, WHOLE = 0, 1, 2  # legs of a session
TRADABLE, DELISTED = 1, 2  # flags of a name's condition
MARGIN, BORROW = 0, 1  # columns of the charges
DRIFTED, EXECUTED, HELD, TRADES = 0, 1, 2, 3  # rows written for each portfolio
FLOATS_PER_CACHE_LINE = 8  # float64
ALL_IN_PANEL = -1  # no row ends beyond the panel

# Rows are read and written in place by index: a view of each would cost more than its arithmetic.


@njit(cache=True)
def _drift(  # noqa: PLR0913 - flat arrays and indices keep a compiled call cheap
    weights: Floats, i: int, returns: Floats, charges: Floats, leg: int, session: int, drifted: Floats, o: int
) -> float:
    """Write row `o`: row `i` after a leg's returns and charges; returns the growth.

    Both rows may be the same. If an account's debt reaches its equity, its growth is 0 and its weights are cash.
    """
    n_symbols = returns.shape[2]
    growth, short = 0.0, 0.0
    for j in range(n_symbols):
        weight = weights[i, j]
        short += max(0.0, -weight)
        grown = weight * (1.0 + returns[leg, session, j])
        drifted[o, j] = grown
        growth += grown
    cash = weights[i, n_symbols]
    cash -= charges[leg, session, MARGIN] * max(0.0, -cash) + charges[leg, session, BORROW] * short
    growth += cash
    if growth <= 0.0:
        for j in range(n_symbols):
            drifted[o, j] = 0.0
        drifted[o, n_symbols] = 1.0
        return 0.0
    for j in range(n_symbols):
        drifted[o, j] /= growth
    drifted[o, n_symbols] = cash / growth
    return growth


@njit(cache=True)
def _trade(  # noqa: PLR0913
    drifted: Floats,
    i: int,
    target: Floats,
    trade: bool,  # noqa: FBT001
    condition: Flags,
    at: int,
    executed: Floats,
    trades: Floats,
) -> float:
    """Write row `i` after its trade, and the trades; returns the turnover.

    Tradable names share the weight that names without a price leave.
    """
    n_symbols = condition.shape[1]
    frozen, total, net, traded = 0.0, 0.0, 0.0, 0.0
    names = 0.0 * target[i, n_symbols] if trade else 0.0  # a NaN in the target is preserved
    borrowed = max(0.0, -target[i, n_symbols]) if trade else 0.0
    lowest = min(drifted[i, n_symbols], -borrowed)
    for j in range(n_symbols):
        flags = condition[at, j]
        if trade and flags & TRADABLE:
            executed[i, j] = target[i, j]
            total += target[i, j]
        else:
            executed[i, j] = 0.0 if flags & DELISTED else drifted[i, j]
            frozen += executed[i, j]
            names += 0.0 * target[i, j] if trade else 0.0
        lowest = min(lowest, drifted[i, j], executed[i, j])
    room = max(0.0, 1.0 + borrowed - frozen)
    scale = room / total if total > room else 1.0
    for j in range(n_symbols):
        flags = condition[at, j]
        if trade and flags & TRADABLE:
            executed[i, j] *= scale
        change = 0.0 if flags & DELISTED else executed[i, j] - drifted[i, j]  # a write-off is no trade
        trades[i, j] = change
        names += executed[i, j]
        net += change
        traded += abs(change)
    cash = 1.0 - names
    rounded = lowest >= 0.0 and cash <= 0.0  # rounding must not leave a long-only account in debt
    executed[i, n_symbols] = 0.0 if rounded else cash
    trades[i, n_symbols] = -net
    return 0.5 * (traded + abs(net))


@njit(cache=True)
def _prefetch(
    returns: Floats, charges: Floats, condition: Flags, session: int, filled_at: int, n_sessions: int
) -> float:
    """Read the cache lines of the market's returns and charges; the result has no meaning.

    The reads of all rows wait for memory together; otherwise the arithmetic of each row waits for its own reads.
    """
    found = charges[BEFORE_FILL, session, MARGIN] + charges[AFTER_FILL, session, MARGIN] + condition[filled_at, 0]
    n_symbols = returns.shape[2]
    for j in range(0, n_symbols, FLOATS_PER_CACHE_LINE):
        found += returns[BEFORE_FILL, session, j] + returns[AFTER_FILL, session, j]
    for at in range(session + 1, session + n_sessions):
        found += charges[WHOLE, at, MARGIN]
        for j in range(0, n_symbols, FLOATS_PER_CACHE_LINE):
            found += returns[WHOLE, at, j]
    return found


@njit(cache=True)
def hold_rows(  # noqa: PLR0913
    weights: Floats,
    target: Floats,
    trade: NDArray[np.bool_],
    returns: Floats,
    charges: Floats,
    condition: Flags,
    decided_at: Ints,
    filled_at: Ints,
    portfolios: Floats,
    path: Floats,
    turnover: Floats,
) -> int:
    """Trade n portfolios once and hold them for k sessions.

    Writes `portfolios` (4, n, N+1): drifted, executed, held at the end, trades; `path` (2, n, k): growth of each
    session before costs, and cash at its close; and `turnover` (n,). Returns the first row that ends beyond the panel,
    in which case nothing is written, or `ALL_IN_PANEL`.
    """
    n_sessions, cash = path.shape[2], returns.shape[2]
    for i in range(len(weights)):
        if decided_at[i] < 0 or decided_at[i] + n_sessions >= returns.shape[1]:
            return i
        turnover[i] = _prefetch(returns, charges, condition, decided_at[i] + 1, filled_at[i], n_sessions)
    drifted, executed, held, trades = portfolios[DRIFTED], portfolios[EXECUTED], portfolios[HELD], portfolios[TRADES]
    for i in range(len(weights)):
        at = decided_at[i] + 1
        growth = _drift(weights, i, returns, charges, BEFORE_FILL, at, drifted, i)
        turnover[i] = _trade(drifted, i, target, trade[i] and growth > 0.0, condition, filled_at[i], executed, trades)
        path[0, i, 0] = growth * _drift(executed, i, returns, charges, AFTER_FILL, at, held, i)
        path[1, i, 0] = held[i, cash]
        for later in range(1, n_sessions):
            path[0, i, later] = _drift(held, i, returns, charges, WHOLE, at + later, held, i)
            path[1, i, later] = held[i, cash]
    return ALL_IN_PANEL


@njit(cache=True)
def close_rows(
    executed: Floats, returns: Floats, charges: Floats, decided_at: Ints, held: Floats, growth: Floats
) -> int:
    """Hold n executed portfolios to the next k closes.

    Writes `held` (k, n, N+1), the weights at each close, and `growth` (k, n) since the fill or the last close. Returns
    the first row that ends beyond the panel, in which case nothing is written, or `ALL_IN_PANEL`.
    """
    n_sessions = len(held)
    for i in range(len(executed)):
        if decided_at[i] < 0 or decided_at[i] + n_sessions >= returns.shape[1]:
            return i
    before = executed
    for later in range(n_sessions):
        now, leg = held[later], WHOLE if later else AFTER_FILL
        for i in range(len(executed)):
            growth[later, i] = _drift(before, i, returns, charges, leg, decided_at[i] + 1 + later, now, i)
        before = now
    return ALL_IN_PANEL


@njit(cache=True)
def drift_rows(weights: Floats, returns: Floats, charges: Floats, closed_at: Ints, held: Floats, growth: Floats) -> int:
    """Hold n portfolios for the session after `closed_at` (n,), without a fill.

    Writes `held` (n, N+1) and `growth` (n,). Returns the first row that ends beyond the panel, in which case nothing is
    written, or `ALL_IN_PANEL`.
    """
    for i in range(len(weights)):
        if closed_at[i] < 0 or closed_at[i] + 1 >= returns.shape[1]:
            return i
    for i in range(len(weights)):
        growth[i] = _drift(weights, i, returns, charges, WHOLE, closed_at[i] + 1, held, i)
    return ALL_IN_PANEL


@njit(cache=True)
def hold_path(  # noqa: PLR0913
    target: Floats,
    returns: Floats,
    charges: Floats,
    condition: Flags,
    decided_at: Ints,
    filled_at: Ints,
    drifted: Floats,
    executed: Floats,
    trades: Floats,
    closing: Floats,
    growth: Floats,
    turnover: Floats,
) -> None:
    """Trade one portfolio from cash to each of D targets, and hold it to the last of S closes.

    Decisions ascend and are in the panel. Writes `drifted`, `executed` and `trades` (D, N+1); `closing` (S+1, N+1),
    weights at the first decision and each close after it; `growth` (S,) before costs; and `turnover` (D,).
    """
    start, n_decisions = decided_at[0], len(decided_at)
    closing[0] = 0.0
    closing[0, returns.shape[2]] = 1.0
    for d in range(n_decisions):
        row = decided_at[d] - start
        end = decided_at[d + 1] - start if d + 1 < n_decisions else len(growth)
        at = decided_at[d] + 1
        before_fill = _drift(closing, row, returns, charges, BEFORE_FILL, at, drifted, d)
        turnover[d] = _trade(drifted, d, target, before_fill > 0.0, condition, filled_at[d], executed, trades)
        growth[row] = before_fill * _drift(executed, d, returns, charges, AFTER_FILL, at, closing, row + 1)
        for later in range(row + 1, end):
            growth[later] = _drift(closing, later, returns, charges, WHOLE, start + later + 1, closing, later + 1)
