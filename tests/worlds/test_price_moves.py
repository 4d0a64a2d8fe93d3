import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.worlds.order_execution import ExecutionSimulation, OrderExecution
from nvtrader_pipelines.worlds.price_moves import MarketMoves
from tests.panels import GAP, GAPPY, NEVER, STEADY, cut, eventful_panel, with_other_future

PANEL = eventful_panel()
WINDOW = (20, 50)


def order(symbol=STEADY, **fields):
    moves = MarketMoves(symbol=PANEL.symbols[symbol])
    return OrderExecution(**{"price": 20.0, "lookback": 3, "shares": 1e5, "moves": moves, **fields})


def drawn(world, panel=PANEL, window=WINDOW, n=1):
    """Moves (n, lookback + N) of n orders."""
    draw = world.moves.start(world, world.lookback, panel, window)
    return draw(range(n), [np.random.default_rng([4, i]) for i in range(n)]).moves


def moves_at(arrival, symbol, n_known=3, n_steps=5, price=20.0):
    """Moves of one order by sums over the closes."""
    levels = np.cumprod(1.0 + PANEL.close_returns[:, symbol])
    return price * np.diff(levels[arrival - n_known : arrival + n_steps + 1]) / levels[arrival]


def test_random_walk_has_the_deviation_of_the_model():
    world, n = OrderExecution(n_steps=20), 2_000
    moves = drawn(world, None, None, n)
    assert (moves[:, : world.lookback] == 0.0).all()
    walk = moves[:, world.lookback :] / (0.95 * np.sqrt(5.0 / 20.0))
    np.testing.assert_allclose(walk.std(axis=0), 1.0, atol=4.5 / np.sqrt(2.0 * n))
    np.testing.assert_allclose(np.corrcoef(walk.T) - np.eye(20), 0.0, atol=4.5 / np.sqrt(n))


def test_market_moves_are_those_of_the_closes_at_the_orders_price():
    arrival, returns = 20, PANEL.close_returns[:, STEADY]
    world = order(permanent_impact=0.0)
    moves = drawn(world, window=(arrival, arrival + 5))[0]
    np.testing.assert_allclose(moves, moves_at(arrival, STEADY), rtol=1e-9)
    simulation = ExecutionSimulation(world, 1, PANEL, (arrival, arrival + 5))
    simulation.reset([0], [np.random.default_rng(0)])
    np.testing.assert_allclose(simulation.observe()[0, 3:], moves[:3] / world.move_deviation, rtol=1e-6)
    for k in range(1, 5):
        step = simulation.step(np.full((1, 1), 0.1))
        growth = np.prod(1.0 + returns[arrival + 1 : arrival + k + 1])
        assert step.observation[0, 2] == pytest.approx(growth - 1.0, abs=1e-6)


def test_no_moves_are_known_before_the_first_session():
    moves = drawn(order(), window=(0, 5))[0]
    assert moves[:3].tolist() == [0.0, 0.0, 0.0]
    assert moves[3] == pytest.approx(20.0 * PANEL.close_returns[1, STEADY])


@pytest.mark.parametrize(
    ("symbol", "arrivals"), [(STEADY, range(20, 46)), (GAPPY, [*range(20, GAP[0] - 5), *range(GAP[1], 46)])]
)
def test_orders_arrive_where_prices_last_within_the_window(symbol, arrivals):
    moves = drawn(order(symbol), n=400)
    candidates = np.array([moves_at(t, symbol) for t in range(11, 70)])
    orders, found = np.isclose(moves[:, None], candidates, rtol=1e-9).all(axis=2).nonzero()
    assert orders.tolist() == list(range(400))
    assert set(found + 11) == set(arrivals)


def test_moves_do_not_depend_on_sessions_after_the_window():
    expected = drawn(order(), n=30).tobytes()
    for panel in (with_other_future(PANEL, WINDOW[1]), cut(PANEL, WINDOW[1])):
        assert drawn(order(), panel, n=30).tobytes() == expected


@pytest.mark.parametrize(
    ("panel", "window", "symbol"),
    [
        (PANEL, (20, 24), STEADY),
        (cut(PANEL, 3), (0, 3), STEADY),  # a market shorter than the order
        (PANEL, (26, 36), GAPPY),  # 4 sessions before the gap, 4 after it
        (PANEL, WINDOW, NEVER),
        (None, WINDOW, STEADY),
        (PANEL, None, STEADY),
    ],
)
def test_market_without_room_for_an_order_is_refused(panel, window, symbol):
    with pytest.raises(ValueError, match=r"sales needs|need a panel and a window"):
        drawn(order(symbol), panel, window)


def test_unknown_symbol_is_refused_with_a_suggestion():
    world = OrderExecution(moves=MarketMoves(symbol="BBX"))
    with pytest.raises(ValueError, match=r"did you mean 'BBB'"):
        drawn(world)


def test_steps_other_than_sessions_are_refused_with_market_moves():
    with pytest.raises(ValidationError, match=r"n_steps must be the horizon"):
        order(n_steps=10)
    assert order(n_steps=10, horizon=10.0).move_deviation == 0.95


@pytest.mark.parametrize(("symbol", "n_orders"), [(STEADY, 6), (GAPPY, 4)])
def test_orders_of_a_test_share_no_session(symbol, n_orders):
    world = order(symbol)
    simulation = world.examine(PANEL, WINDOW)
    assert simulation.n_accounts == n_orders
    simulation.reset(range(n_orders), [np.random.default_rng(0)] * n_orders)
    days = [simulation.step(np.full((n_orders, 1), 0.1)).info["session"] for _ in range(world.n_steps)]
    sessions = np.unique(days)
    assert len(sessions) == n_orders * world.n_steps
    assert PANEL.sessions[WINDOW[0]] <= sessions[0]
    assert sessions[-1] < PANEL.sessions[WINDOW[1]]
