"""Loops over the events of order books: replay, and generation."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_DEPTH, _TRADE, _CLEAR, _SNAPSHOT, _BEST = 1, 2, 3, 4, 5


@njit(cache=True)
def replay(
    kinds: IntArray,
    sides: FloatArray,
    events: NDArray[np.void],
    is_last: NDArray[np.bool_],
    levels: FloatArray,
    trades: FloatArray,
) -> int:
    """Write the book after every row that is the last of its time; return the first row that crosses it, or -1.

    A side keeps its levels by `key`, the price times 1 for bids and -1 for asks, so the best is the last.

    Args:
        kinds: of the events, (n,).
        sides: 1 for bids and buyers, -1 for asks and sellers, 0 for both, (n,).
        events: rows of `EVENT`, (n,).
        is_last: whether a row is the last of a time that is shown, (n,).
        levels: filled with prices and sizes of bids, then of asks, (k, 4, levels).
        trades: filled with the sizes that buyers and sellers took, (k, 2).
    """
    keys, sizes = np.empty((2, 64)), np.empty((2, 64))
    counts = np.zeros(2, np.int64)
    shown = 0
    for row in range(len(kinds)):
        if kinds[row] == _TRADE:
            if sides[row] != 0.0:  # an auction has no side
                trades[shown, 0 if sides[row] > 0.0 else 1] += events[row].qty
        else:
            if counts.max() == keys.shape[1]:
                keys, sizes = np.hstack((keys, np.empty_like(keys))), np.hstack((sizes, np.empty_like(sizes)))
            _apply(kinds[row], sides[row], events[row].px, events[row].qty, keys, sizes, counts)
        is_settled = row + 1 == len(kinds) or events[row + 1].local_ts > events[row].local_ts
        if is_settled and counts.min() and keys[0, counts[0] - 1] >= -keys[1, counts[1] - 1]:
            return row
        if is_last[row]:
            _show(keys, sizes, counts, levels[shown])
            shown += 1
    return -1


@njit(cache=True)
def _apply(  # noqa: PLR0913 - a step of the loop above
    kind: int, sign: float, price: float, size: float, keys: FloatArray, sizes: FloatArray, counts: IntArray
) -> None:
    """Change the levels by one event that is no trade."""
    if sign == 0.0:  # a clearing of both sides
        counts[:] = 0
        return
    side, key = 0 if sign > 0.0 else 1, sign * price
    if kind == _CLEAR:  # from the best to a price, which is cleared, too
        counts[side] = np.searchsorted(keys[side, : counts[side]], key) if np.isfinite(price) else 0
        return
    if kind == _BEST:
        while counts[side] and keys[side, counts[side] - 1] > key:
            counts[side] -= 1
    counts[side] = _set_level(keys[side], sizes[side], counts[side], key, size)


@njit(cache=True)
def _show(keys: FloatArray, sizes: FloatArray, counts: IntArray, levels: FloatArray) -> None:
    """Write the best levels of both sides, (4, levels)."""
    for side in range(2):
        key = np.nan
        for level in range(levels.shape[1]):
            place = counts[side] - 1 - level
            if place >= 0:
                key = keys[side, place]
                levels[2 * side + 1, level] = sizes[side, place]
            levels[2 * side, level] = key if side == 0 else -key


@njit(cache=True)
def _set_level(keys: FloatArray, sizes: FloatArray, count: int, key: float, size: float) -> int:
    """Set the size of a level, where 0 removes it; return the number of levels."""
    place = np.searchsorted(keys[:count], key)
    is_there = place < count and keys[place] == key
    if is_there and size > 0.0:
        sizes[place] = size
        return count
    if is_there:
        for i in range(place, count - 1):
            keys[i], sizes[i] = keys[i + 1], sizes[i + 1]
        return count - 1
    if size > 0.0:
        for i in range(count, place, -1):
            keys[i], sizes[i] = keys[i - 1], sizes[i - 1]
        keys[place], sizes[place] = key, size
        return count + 1
    return count


@njit(cache=True)
def generate(  # noqa: C901 - one loop over four kinds of events
    generator: Any,
    limit_rates: FloatArray,
    flow: tuple[float, float, float, float],
    first_tick: int,
    seconds: float,
) -> IntArray:
    """Draw events of a book of orders of one lot, (n, 5): kind, side, nanosecond, tick and lots.

    Empty if the price falls to 0 or doubles.

    Args:
        generator: of random numbers.
        limit_rates: orders a second by distance from the other side, from one tick.
        flow: market orders a second on each side, cancellations a second of an order, lean of market orders, and the
            seconds that it lasts on average.
        first_tick: of the first ask.
        seconds: length of the day.
    """
    market_rate, cancel_rate, persistence, regime_seconds = flow
    reach = len(limit_rates)
    lots = np.zeros((2, 2 * first_tick), np.int64)  # by side and tick
    best, totals = np.array([first_tick - 1, first_tick]), np.zeros(2, np.int64)
    rows = np.zeros((4096, 5), np.int64)
    n_rows = _first_orders(limit_rates / cancel_rate, best, lots, totals, rows)
    lean = persistence if generator.random() < 0.5 else -persistence
    now, limit_rate = 0.0, 2.0 * limit_rates.sum()
    while True:
        cancel_all = cancel_rate * totals.sum()
        rate = limit_rate + 2.0 * market_rate + cancel_all + 1.0 / regime_seconds
        now += generator.standard_exponential() / rate
        if now >= seconds:
            return rows[:n_rows]
        if n_rows + 2 > len(rows):
            rows = np.vstack((rows, np.zeros_like(rows)))
        draw = generator.random() * rate
        is_trade, change = False, -1
        if draw < limit_rate:
            side, tick = _limit_order(draw, limit_rates, best)
            change = 1
        elif draw < limit_rate + 2.0 * market_rate:
            is_trade = True
            side = int(generator.random() < 0.5 * (1.0 + lean))  # buyers take asks
            tick = best[side]
        elif draw < limit_rate + 2.0 * market_rate + cancel_all:
            side, tick = _cancelled_order(int(generator.random() * totals.sum()), lots, totals, best)
        else:
            lean = -lean
            continue
        if totals[side] + change == 0:  # a side keeps its last order
            continue
        if tick <= reach or tick >= 2 * first_tick - reach:
            return rows[:0]
        lots[side, tick] += change
        totals[side] += change
        nanosecond = int(now * 1e9)
        if is_trade:
            rows[n_rows] = _TRADE, 2 * side - 1, nanosecond, tick, 1
            n_rows += 1
        rows[n_rows] = _DEPTH, 1 - 2 * side, nanosecond, tick, lots[side, tick]
        n_rows += 1
        if change > 0 and (tick - best[side]) * (2 * side - 1) < 0:
            best[side] = tick
        while lots[side, best[side]] == 0:
            best[side] += 2 * side - 1


@njit(cache=True)
def _first_orders(sizes: FloatArray, best: IntArray, lots: IntArray, totals: IntArray, rows: IntArray) -> int:
    """Clear the book and fill it by the average sizes of its levels; return the number of rows."""
    rows[0, 0] = _CLEAR  # of what was before
    n_rows = 1
    for side in range(2):
        for i in range(len(sizes)):
            tick = best[side] + i * (2 * side - 1)
            lots[side, tick] = max(1, round(sizes[i]))
            rows[n_rows] = _SNAPSHOT, 1 - 2 * side, 0, tick, lots[side, tick]
            n_rows += 1
        totals[side] = lots[side].sum()
    return n_rows


@njit(cache=True)
def _limit_order(draw: float, limit_rates: FloatArray, best: IntArray) -> tuple[int, int]:
    """Side and tick of a limit order, by a number below twice the sum of the rates."""
    half = limit_rates.sum()
    side = int(draw >= half)
    draw -= side * half
    distance = 0
    while distance < len(limit_rates) - 1 and draw >= limit_rates[distance]:
        draw -= limit_rates[distance]
        distance += 1
    return side, best[1 - side] + (1 + distance) * (2 * side - 1)


@njit(cache=True)
def _cancelled_order(place: int, lots: IntArray, totals: IntArray, best: IntArray) -> tuple[int, int]:
    """Side and tick of the order at a place, bids first, each side from its best."""
    side = int(place >= totals[0])
    place -= side * totals[0]
    tick = best[side]
    while place >= lots[side, tick]:
        place -= lots[side, tick]
        tick += 2 * side - 1
    return side, tick
