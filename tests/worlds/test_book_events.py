import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.worlds.book_events import (
    BUY,
    EVENT,
    EXCHANGE,
    LOCAL,
    MAX_GAP,
    SELL,
    book_history,
    read_events,
)
from nvtrader_pipelines.worlds.book_history import N_LEVELS
from nvtrader_pipelines.worlds.books import SECOND, GeneratedBooks

DEPTH, TRADE, CLEAR, SNAPSHOT, BEST = 1, 2, 3, 4, 5
SEEN = EXCHANGE | LOCAL
BOOK = [(SNAPSHOT, BUY, 0, 99.0, 3.0), (SNAPSHOT, SELL, 0, 101.0, 2.0)]


def events(*rows, flags=SEEN):
    """Rows of kind, side, second, price and size."""
    table = np.zeros(len(rows), EVENT)
    for event, (kind, side, second, price, size) in zip(table, rows, strict=True):
        event["ev"], event["px"], event["qty"] = flags | kind | side, price, size
        event["exch_ts"] = event["local_ts"] = int(second * SECOND)
    return table


def top(history):
    """Best bid, its size, best ask and its size at each time, (T, 4)."""
    sides = (history.bids, history.bid_sizes, history.asks, history.ask_sizes)
    return np.stack([side[:, 0] for side in sides], axis=1).tolist()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(table):
    file = io.BytesIO()
    np.save(file, table)
    return file.getvalue()


def compressed(table):
    file = io.BytesIO()
    np.savez_compressed(file, data=table)
    return file.getvalue()


def flipped(content):
    """Content with bytes in its middle changed."""
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 0xFF for byte in content[middle : middle + 8]) + content[middle + 8 :]


def test_history_shows_the_book_after_the_events_received_by_each_second():
    rows = [*BOOK, (DEPTH, BUY, 0.4, 100.0, 1.0), (DEPTH, BUY, 1.0, 100.0, 4.0), (DEPTH, SELL, 3.5, 101.0, 0.0)]
    history = book_history("own", events(*rows, (DEPTH, SELL, 3.5, 102.0, 7.0)), SECOND)
    assert history.sessions.astype("datetime64[s]").astype(int).tolist() == [0, 1, 2, 3, 4]
    assert top(history) == [
        [99.0, 3.0, 101.0, 2.0],
        *[[100.0, 4.0, 101.0, 2.0]] * 3,
        [100.0, 4.0, 102.0, 7.0],
    ]
    assert history.bids[1].tolist() == [100.0, *[99.0] * (N_LEVELS - 1)]  # no third level
    assert history.bid_sizes[1].tolist() == [4.0, 3.0, 0.0, 0.0, 0.0]


def test_history_counts_the_trades_of_each_second_once():
    rows = [*BOOK, (TRADE, BUY, 0.5, 101.0, 2.0), (TRADE, SELL, 0.6, 99.0, 1.5), (TRADE, BUY, 3.0, 101.0, 1.0)]
    history = book_history("own", events(*rows), SECOND)
    assert history.bought.tolist() == [0.0, 2.0, 0.0, 1.0]
    assert history.sold.tolist() == [0.0, 1.5, 0.0, 0.0]
    auction = book_history("own", events(*rows, (TRADE, 0, 3.0, 101.0, 9.0)), SECOND)  # of no side
    assert (auction.bought.tolist(), auction.sold.tolist()) == (history.bought.tolist(), history.sold.tolist())


def test_too_many_times_are_refused():
    with pytest.raises(ValueError, match="longer step"):
        book_history("own", events(*BOOK, (TRADE, BUY, 50.0, 101.0, 1.0)), 1000)


def test_long_step_leaves_a_gap_too():
    hours = [(DEPTH, BUY, 3600.0 * n, 98.0, float(n + 1)) for n in (1, 2, 5)]
    history = book_history("own", events(*BOOK, *hours), 3600 * SECOND)
    assert history.stretches((0, len(history.sessions) - 1)) == [(0, 2), (3, 3)]


def test_days_of_the_generator_are_apart():
    books = GeneratedBooks(train_days=2, day_seconds=86_400, limit_rate=0.05, market_rate=0.02)
    history = books.history(is_test=False)
    (_, last), (first, _) = history.stretches((0, len(history.sessions) - 1))
    assert first == last + 1


@pytest.mark.parametrize(
    "bounds",
    [
        {"price": 0.004},
        {"tick": 1e-7},
        {"regime_seconds": 1e-6},
        {"limit_rate": 1e6},
        {"market_rate": 900.0, "day_seconds": 86_400},
        {"cancel_rate": 1e-20},
        {"limit_decay": 1e5},
    ],
)
def test_generator_out_of_bounds_is_refused(bounds):
    with pytest.raises(ValidationError):
        GeneratedBooks(**bounds)


def test_day_whose_price_leaves_the_ticks_is_refused():
    wild = GeneratedBooks(price=10.0, day_seconds=20_000, persistence=0.99, regime_seconds=1e6)
    with pytest.raises(ValueError, match="smaller tick"):
        [wild.events(day) for day in range(4)]


@pytest.mark.parametrize(
    ("row", "bids"),
    [
        ((CLEAR, BUY, 1.0, 98.0, 0.0), [97.0]),  # down to a price, which is cleared, too
        ((CLEAR, BUY, 1.0, np.nan, 0.0), []),
        ((BEST, BUY, 1.0, 98.0, 9.0), [98.0, 97.0]),
    ],
    ids=["to a price", "a side", "best"],
)
def test_clearing_and_best_prices_remove_levels(row, bids):
    start = [*BOOK, (DEPTH, BUY, 0.0, 98.0, 1.0), (DEPTH, BUY, 0.0, 97.0, 1.0)]
    after = [(DEPTH, BUY, 2.0, 50.0, 1.0)]
    history = book_history("own", events(*start, row, *after), SECOND)
    assert history.bids[-1, : len(bids) + 1].tolist() == [*bids, 50.0]


def test_clearing_of_both_sides_leaves_no_time_until_a_new_snapshot():
    again = [(kind, side, 4.0, price + 10.0, size) for kind, side, _, price, size in BOOK]
    history = book_history("own", events(*BOOK, (CLEAR, 0, 1.0, 0.0, 0.0), *again), SECOND)
    assert history.sessions.astype("datetime64[s]").astype(int).tolist() == [0, 4]
    assert top(history)[1][:3:2] == [109.0, 111.0]


def test_time_without_events_is_a_gap_that_no_stretch_spans():
    late = MAX_GAP / SECOND + 10.0
    rows = [
        *BOOK,
        (DEPTH, BUY, 3.0, 98.0, 1.0),
        (DEPTH, BUY, 3.0 + late, 98.0, 2.0),
        (DEPTH, BUY, 5.0 + late, 98.0, 1.0),
    ]
    history = book_history("own", events(*rows), SECOND)
    assert history.stretches((0, len(history.sessions) - 1)) == [(0, 3), (4, 6)]


def test_rows_that_only_the_exchange_saw_are_left_out():
    hidden = events((DEPTH, BUY, 1.0, 100.0, 1.0), flags=EXCHANGE)
    history = book_history(
        "own", np.concatenate([events(*BOOK), hidden, events((TRADE, BUY, 1.0, 101.0, 1.0))]), SECOND
    )
    assert top(history)[-1][0] == 99.0


def with_value(field, value):
    table = events(*BOOK, (DEPTH, BUY, 1.0, 100.0, 1.0), (DEPTH, SELL, 2.0, 102.0, 1.0))
    table[field][2] = value
    return table


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (with_value("px", 101.0), "row 2: .*below the best ask"),
        (with_value("px", 103.0), "row 2: .*below the best ask"),
        (with_value("qty", -1.0), "row 2: qty"),
        (with_value("qty", np.nan), "row 2: qty"),
        (with_value("px", 0.0), "row 2: px"),
        (with_value("px", np.inf), "row 2: px"),
        (with_value("local_ts", -5), "row 2: local_ts"),
        (with_value("exch_ts", 3 * SECOND), "row 2: local_ts"),
        (with_value("ev", SEEN | 10 | BUY), "row 2: ev"),  # an order of a book by order
        (with_value("ev", SEEN | DEPTH), "row 2: ev"),
        (with_value("ev", SEEN | TRADE | BUY | SELL), "row 2: ev"),
        (with_value("local_ts", 2**63 - 1), "row 2: local_ts"),
        (with_value("ev", SEEN | DEPTH | BUY | SELL), "row 2: ev"),
        (with_value("ev", SEEN | DEPTH | BUY | 1 << 20), "row 2: ev"),
        (events(*BOOK, flags=EXCHANGE), "receiver"),
        (events(BOOK[0]), "bids and asks"),
        (events(*BOOK, (DEPTH, BUY, 2.0, 98.0, 1.0), (DEPTH, BUY, 1.0, 98.0, 2.0)), "row 3: local_ts must not go back"),
    ],
)
def test_events_that_are_not_valid_are_refused_with_their_row(table, named):
    with pytest.raises(ValueError, match=named):
        book_history("own", table, SECOND)


def test_book_that_is_crossed_within_one_time_is_accepted():
    rows = [*BOOK, (DEPTH, BUY, 1.0, 102.0, 1.0), (DEPTH, SELL, 1.0, 101.0, 0.0), (DEPTH, SELL, 1.0, 103.0, 1.0)]
    assert top(book_history("own", events(*rows), SECOND))[-1] == [102.0, 1.0, 103.0, 1.0]


def test_file_of_the_layout_is_read():
    table = events(*BOOK)
    assert read_events(npz(data=table)).tobytes() == table.tobytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"x,y\n1,2\n",
        npz(rows=events(*BOOK)),
        npz(data=np.zeros(3)),
        npz(data=events()[:0]),
        npy(events(*BOOK)),
        flipped(compressed(events(*BOOK * 50))),
        npz(
            data=events(*BOOK).astype([(name, "M8[us]" if name == "local_ts" else EVENT[name]) for name in EVENT.names])
        ),
    ],
    ids=["empty", "cut", "csv", "other name", "other columns", "no rows", "npy", "damaged", "dates"],
)
def test_file_of_another_layout_is_refused(content):
    with pytest.raises(ValueError, match="data"):
        read_events(content)


def test_pickled_objects_are_refused_unopened():
    with pytest.raises(ValueError, match="data"):
        read_events(npz(data=np.array([print], dtype=object)))


def oracle(rows, second):
    """Levels of each side after the rows by a second, kept in dictionaries."""
    bids, asks = {}, {}
    for kind, side, at, price, size in rows:
        if at <= second and kind != TRADE:
            levels = bids if side == BUY else asks
            levels.pop(price, None)
            if size:
                levels[price] = size
    return sorted(bids.items(), reverse=True)[:N_LEVELS], sorted(asks.items())[:N_LEVELS]


@given(
    st.lists(
        st.tuples(st.sampled_from([BUY, SELL]), st.integers(1, 12), st.integers(0, 3), st.integers(0, 7)),
        max_size=60,
    )
)
def test_history_equals_a_book_in_dictionaries(changes):
    rows, at = [*BOOK], 0.0
    for side, distance, size, wait in changes:
        at += wait / 8
        rows.append((DEPTH, side, at, 100.0 + (-distance if side == BUY else distance), float(size)))
    rows += [(DEPTH, BUY, at, 60.0, 1.0), (DEPTH, SELL, at, 140.0, 1.0)]  # each side has a level at the end
    history = book_history("own", events(*rows), SECOND)
    for t, second in enumerate(history.sessions.astype("datetime64[s]").astype(int).tolist()):
        for levels, prices, sizes in zip(
            oracle(rows, second), (history.bids, history.asks), (history.bid_sizes, history.ask_sizes), strict=True
        ):
            assert list(zip(prices[t], sizes[t], strict=True))[: len(levels)] == levels
            assert not sizes[t, len(levels) :].any()


@pytest.mark.slow
def test_generated_book_is_never_crossed_and_a_seed_gives_the_same():
    books = GeneratedBooks(train_days=1, day_seconds=25_000)
    table = books.events(0)
    assert len(table) > 950_000
    book_history("generated", table, SECOND)  # checks the book after each time of the events
    few = GeneratedBooks(day_seconds=60)
    assert few.events(0).tobytes() == GeneratedBooks(day_seconds=60).events(0).tobytes()
    others = (few.events(1), few.events(0, is_test=True), GeneratedBooks(day_seconds=60, seed=1).events(0))
    assert len({table.tobytes() for table in (few.events(0), *others)}) == 4


@pytest.mark.slow
def test_generated_orders_arrive_at_their_rates():
    books = GeneratedBooks(day_seconds=20_000, market_rate=0.5, persistence=0.0)
    table = books.events(0)
    trades = table[(table["ev"] & 0xFF) == TRADE]
    n_bought = ((trades["ev"] & BUY) > 0).sum()
    expected = 0.5 * 20_000
    for count in (n_bought, len(trades) - n_bought):
        assert abs(count - expected) < 4.0 * expected**0.5
    assert trades["qty"].tolist() == [1.0] * len(trades)


@pytest.mark.slow
def test_persistent_market_orders_lean_for_a_regime():
    lean = GeneratedBooks(day_seconds=20_000, persistence=0.8, regime_seconds=100.0)
    trades = lean.events(0)
    trades = trades[(trades["ev"] & 0xFF) == TRADE]
    signs = np.where(trades["ev"] & BUY, 1.0, -1.0)
    for lag in (19, 94):  # 10 and 50 seconds of market orders
        expected = 0.64 * np.exp(-2.0 * lag / 1.88 / 100.0)  # of a chain of two states
        assert np.mean(signs[:-lag] * signs[lag:]) == pytest.approx(expected, abs=0.08)
