"""Compiled loops of the transition, in one file so that numba's cache mixes no versions."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.uint8]

BEFORE_FILL, AFTER_FILL, WHOLE = 0, 1, 2  # legs of a session
TRADABLE, DELISTED = 1, 2  # flags of a name's condition
MARGIN, BORROW, EXCESS = 0, 1, 2  # columns of the charges: on debt, short value, gross above 1
DRIFTED, EXECUTED, HELD, TRADES = 0, 1, 2, 3  # rows written for each portfolio
GROWTH, CASH = 0, 1  # rows of a path
BEFORE_CAP, GROSS, FINANCED, CAP_TURNOVER, CAP_COST = 2, 3, 4, 5, 6  # further rows, if exposures are tracked
PLAIN_ROWS, TRACKED_ROWS = 2, 7
FLOATS_PER_CACHE_LINE = 8  # float64
ROUNDING = 1e-9  # of a sum of weights
ALL_IN_PANEL = -1  # no row ends beyond the panel; less the number of closes at which the cap on gross traded
PLACE, AT = 0, 1  # of a close at which it traded: row * k + number of the session, and session of the panel

# Rows are read and written in place by index: a view of each would cost more than its arithmetic.


@njit(cache=True)
def _drift(  # noqa: PLR0913 - flat arrays and indices keep a compiled call cheap
    weights: Floats, i: int, returns: Floats, charges: Floats, leg: int, session: int, drifted: Floats, o: int
) -> tuple[float, float, float]:
    """Write row `o`: row `i` after a leg's returns and charges; returns growth, charge and short value before.

    Both rows may be the same. If debt and short positions reach the value of what is held, the growth is 0 and the
    weights are cash.
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
    charge = charges[leg, session, MARGIN] * max(0.0, -cash) + charges[leg, session, BORROW] * short
    charge += charges[leg, session, EXCESS] * max(0.0, 2.0 * short - cash)  # gross above 1
    cash -= charge
    growth += cash
    if growth <= 0.0:
        for j in range(n_symbols):
            drifted[o, j] = 0.0
        drifted[o, n_symbols] = 1.0
        return 0.0, charge, short
    for j in range(n_symbols):
        drifted[o, j] /= growth
    drifted[o, n_symbols] = cash / growth
    return growth, charge, short


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
    fill_cap: float,
) -> float:
    """Write row `i` after its trade, and the trades; returns the turnover.

    Tradable names share the weight that names without a price leave: of the gross if there are short positions, or a
    cap on gross at the fill.
    """
    n_symbols, has_short = condition.shape[1], False
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
        has_short |= executed[i, j] < 0.0
    room = max(0.0, 1.0 + borrowed - frozen)
    if has_short or fill_cap < np.inf:
        frozen, total, wanted = 0.0, 0.0, 0.0
        for j in range(n_symbols):
            size, is_traded = abs(executed[i, j]), trade and condition[at, j] & TRADABLE
            total += size if is_traded else 0.0
            frozen += 0.0 if is_traded else size
            wanted += abs(target[i, j]) if trade else 0.0
        room = max(0.0, min(max(1.0 + borrowed, wanted), fill_cap) - frozen)
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
    rounded = lowest >= 0.0 and -ROUNDING < cash <= 0.0  # rounding must not leave a long-only account in debt
    executed[i, n_symbols] = 0.0 if rounded else cash
    trades[i, n_symbols] = -net
    return 0.5 * (traded + abs(net))


@njit(cache=True, inline="always")
def _track_close(  # noqa: PLR0913
    held: Floats,
    i: int,
    short: float,
    close_cap: float,
    condition: Flags,
    at: int,
    closing: Floats,
    capped: Ints,
    m: int,
    path: Floats,
    k: int,
) -> bool:
    """Write the gross of row `i` at a close, and scale the row to the cap; returns whether it was above.

    The trades are written to row `m` of `closing` and `capped`. `short` is the short value before the session; without
    any, the gross is what is not cash.
    """
    cash = held.shape[1] - 1
    gross = 1.0 - held[i, cash]
    if short > 0.0:
        for j in range(cash):
            gross += 2.0 * max(0.0, -held[i, j])
    path[BEFORE_CAP, i, k] = gross
    path[GROSS, i, k] = gross
    path[CAP_TURNOVER, i, k] = 0.0
    path[CAP_COST, i, k] = 0.0
    if gross > close_cap:
        _cap_gross(held, i, close_cap, condition, at, closing, m, path, k)
        capped[PLACE, m], capped[AT, m] = i * path.shape[2] + k, at
        return True
    return False


@njit(cache=True, inline="always")
def _cap_gross(  # noqa: PLR0913
    held: Floats, i: int, close_cap: float, condition: Flags, at: int, closing: Floats, m: int, path: Floats, k: int
) -> None:
    """Scale row `i` to the cap on gross; writes its gross after, turnover and trades.

    Names without a price keep their weight, so that the others are scaled by more.
    """
    cash, gross, frozen = held.shape[1] - 1, path[BEFORE_CAP, i, k], 0.0
    for j in range(cash):
        if not condition[at, j] & TRADABLE:
            frozen += abs(held[i, j])
    share = max(0.0, close_cap - frozen) / (gross - frozen) if frozen < gross else 1.0
    names, net, traded, gross = 0.0, 0.0, 0.0, 0.0
    for j in range(cash):
        change = (share - 1.0) * held[i, j] if condition[at, j] & TRADABLE else 0.0
        closing[m, j] = change
        net += change
        traded += abs(change)
        held[i, j] += change
        names += held[i, j]
        gross += abs(held[i, j])
    held[i, cash] = 1.0 - names
    path[GROSS, i, k] = gross
    path[CAP_TURNOVER, i, k] = 0.5 * (traded + abs(net))


@njit(cache=True)
def _prefetch(
    returns: Floats, charges: Floats, condition: Flags, session: int, filled_at: int, n_sessions: int
) -> float:
    """Read the cache lines of the market's returns and charges; the result has no meaning.

    The reads of all rows wait for memory together; otherwise the arithmetic of each row waits for its own reads.
    """
    touched = charges[BEFORE_FILL, session, MARGIN] + charges[AFTER_FILL, session, MARGIN] + condition[filled_at, 0]
    n_symbols = returns.shape[2]
    for j in range(0, n_symbols, FLOATS_PER_CACHE_LINE):
        touched += returns[BEFORE_FILL, session, j] + returns[AFTER_FILL, session, j]
    for at in range(session + 1, session + n_sessions):
        touched += charges[WHOLE, at, MARGIN]
        for j in range(0, n_symbols, FLOATS_PER_CACHE_LINE):
            touched += returns[WHOLE, at, j]
    return touched


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
    close_cap: float,
    fill_cap: float,
    portfolios: Floats,
    path: Floats,
    turnover: Floats,
    closing: Floats,
    capped: Ints,
) -> int:
    """Trade n portfolios once and hold them for k sessions.

    Writes `portfolios` (4, n, N+1): drifted, executed, held at the end, trades; `path` (2, n, k): growth of each
    session before costs, and cash at its close; and `turnover` (n,). A path of (7, n, k) tracks exposures: gross before
    and after the cap on it at each close, financing, the cap's turnover, and no cost of it yet; its m trades go to the
    first rows of `closing` (n * k, N) and `capped` (2, n * k).

    Returns the first row that ends beyond the panel, in which case nothing is written, or `ALL_IN_PANEL` - m.
    """
    n_sessions, cash, is_tracked = path.shape[2], returns.shape[2], len(path) == TRACKED_ROWS
    n_capped = 0
    for i in range(len(weights)):
        if decided_at[i] < 0 or decided_at[i] + n_sessions >= returns.shape[1]:
            return i
        turnover[i] = _prefetch(returns, charges, condition, decided_at[i] + 1, filled_at[i], n_sessions)
    drifted, executed, held, trades = portfolios[DRIFTED], portfolios[EXECUTED], portfolios[HELD], portfolios[TRADES]
    for i in range(len(weights)):
        at = decided_at[i] + 1
        growth, charge, _ = _drift(weights, i, returns, charges, BEFORE_FILL, at, drifted, i)
        is_trading, fill = trade[i] and growth > 0.0, filled_at[i]
        turnover[i] = _trade(drifted, i, target, is_trading, condition, fill, executed, trades, fill_cap)
        grown, charged, short = _drift(executed, i, returns, charges, AFTER_FILL, at, held, i)
        path[GROWTH, i, 0] = growth * grown
        if is_tracked:
            path[FINANCED, i, 0] = charge + growth * charged
            n_capped += _track_close(held, i, short, close_cap, condition, at, closing, capped, n_capped, path, 0)
        path[CASH, i, 0] = held[i, cash]
        for later in range(1, n_sessions):
            path[GROWTH, i, later], charge, short = _drift(held, i, returns, charges, WHOLE, at + later, held, i)
            if is_tracked:
                path[FINANCED, i, later] = charge
                n_capped += _track_close(
                    held, i, short, close_cap, condition, at + later, closing, capped, n_capped, path, later
                )
            path[CASH, i, later] = held[i, cash]
    return ALL_IN_PANEL - n_capped


@njit(cache=True)
def pay_cap_costs(path: Floats, capped: Ints, costs: Floats) -> None:
    """Write the costs (m,) of the cap's trades to a tracked path, and take them from its growth."""
    n_sessions = path.shape[2]
    for m in range(len(costs)):
        i, k = capped[PLACE, m] // n_sessions, capped[PLACE, m] % n_sessions
        cost = min(1.0, costs[m])
        path[CAP_COST, i, k] = cost
        path[GROWTH, i, k] *= 1.0 - cost


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
            growth[later, i], _, _ = _drift(before, i, returns, charges, leg, decided_at[i] + 1 + later, now, i)
        before = now
    return ALL_IN_PANEL


@njit(cache=True)
def drift_rows(  # noqa: PLR0913
    weights: Floats,
    returns: Floats,
    charges: Floats,
    condition: Flags,
    closed_at: Ints,
    close_cap: float,
    held: Floats,
    path: Floats,
    closing: Floats,
    capped: Ints,
) -> int:
    """Hold n portfolios for the session after `closed_at` (n,), without a fill.

    Writes `held` (n, N+1), and a tracked `path` (7, n, 1), `closing` and `capped` as `hold_rows` does. Returns the
    first row that ends beyond the panel, in which case nothing is written, or `ALL_IN_PANEL` - m.
    """
    cash, n_capped = weights.shape[1] - 1, 0
    for i in range(len(weights)):
        if closed_at[i] < 0 or closed_at[i] + 1 >= returns.shape[1]:
            return i
    for i in range(len(weights)):
        at = closed_at[i] + 1
        path[GROWTH, i, 0], path[FINANCED, i, 0], short = _drift(weights, i, returns, charges, WHOLE, at, held, i)
        n_capped += _track_close(held, i, short, close_cap, condition, at, closing, capped, n_capped, path, 0)
        path[CASH, i, 0] = held[i, cash]
    return ALL_IN_PANEL - n_capped


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
        before_fill, _, _ = _drift(closing, row, returns, charges, BEFORE_FILL, at, drifted, d)
        turnover[d] = _trade(drifted, d, target, before_fill > 0.0, condition, filled_at[d], executed, trades, np.inf)
        after_fill, _, _ = _drift(executed, d, returns, charges, AFTER_FILL, at, closing, row + 1)
        growth[row] = before_fill * after_fill
        for later in range(row + 1, end):
            growth[later], _, _ = _drift(closing, later, returns, charges, WHOLE, start + later + 1, closing, later + 1)
