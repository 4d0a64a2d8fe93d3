from dataclasses import replace
from datetime import date
from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.experiments.world_experiment import WorldExperiment, WorldPlan
from nvtrader_pipelines.policies.world_agents.hft_ddqn import HftDdqnAgent, ProgramSimulation, program_values
from nvtrader_pipelines.worlds.book_history import _ARRAYS, BookHistory
from nvtrader_pipelines.worlds.book_trading import N_POSITIONS, BookSimulation, BookTrading
from nvtrader_pipelines.worlds.books import GeneratedBooks, LandedBook

WORLD = BookTrading(max_position=10.0, fee_bps=0.0, episode_len=4)
LEVELS = np.arange(5.0)


def history(bids, sizes=2.0, gap_after=None):
    """Book with a spread of .1, levels .1 apart, of equal sizes."""
    bids = np.array(bids)[:, None] - 0.1 * LEVELS
    asks = bids[:, :1] + 0.1 + 0.1 * LEVELS
    shown = np.broadcast_to(sizes, (len(bids), 1)) * np.ones(5)
    seconds = np.arange(len(bids))
    if gap_after is not None:
        seconds[gap_after + 1 :] += 100
    times = seconds.astype("datetime64[s]").astype("datetime64[ns]")
    return BookHistory("own", times, bids, shown, asks, shown, *np.zeros((2, len(bids))), step=np.timedelta64(1, "s"))


def simulation(book, world=WORLD, n=1, kind=BookSimulation):
    start = kind(world, n, book, book.stretches((0, len(book.sessions) - 1)))
    start.reset(range(n), [np.random.default_rng(i) for i in range(n)])
    return start


def played(trader, choices):
    return [trader.step(np.array([choice])) for choice in choices]


def test_step_takes_from_the_book_level_by_level_and_marks_at_the_bid():
    trader = simulation(history([100.0, 101.0, 103.0, 103.0, 103.0]))
    first, second, *_ = played(trader, [5, 2])
    value = 10.0 * 100.1
    cost = 2 * 100.1 + 2 * 100.2 + 100.3  # five units from three levels
    assert first.reward[0] * value == pytest.approx(5 * 101.0 - cost)
    proceeds = 2 * 101.0 + 100.9
    assert second.reward[0] * value == pytest.approx(2 * 103.0 + proceeds - 5 * 101.0)
    assert first.info["position"].tolist() == [5.0]
    assert second.info["turnover"].tolist() == [0.3]
    assert second.info["equity"][0] == pytest.approx(1.0 + first.reward[0] + second.reward[0])


def test_fee_is_paid_on_the_traded_value_both_ways():
    book, bps = history([100.0] * 5), 20.0
    free, dear = (simulation(book, WORLD.model_copy(update={"fee_bps": fee})) for fee in (0.0, bps))
    for choice, traded in ((3, 2 * 100.1 + 100.2), (1, 2 * 100.0)):
        gap = free.step(np.array([choice])).reward - dear.step(np.array([choice])).reward
        assert gap[0] == pytest.approx(1e-4 * bps * traded / (10.0 * 100.1))


def test_choice_out_of_reach_is_the_nearest_that_four_levels_hold():
    sizes = np.array([[0.75], [5.0], [0.5], [5.0], [5.0]])  # 3, 20 and 2 units in four levels
    trader = simulation(history([100.0] * 5, sizes))
    assert trader.observe()[0, -12:-1].tolist() == [1.0] * 4 + [0.0] * 7
    held = [step.info["position"][0] for step in played(trader, [10, 10, 0])]
    assert held == [3.0, 10.0, 8.0]
    assert trader.observe()[0, -1] == np.float32(0.8)


def test_last_step_sells_what_the_book_holds():
    trader = simulation(history([100.0] * 5))
    played(trader, [6, 6, 6])
    assert trader.observe()[0, -12:-1].tolist() == [1.0] + [0.0] * 10  # nothing else is in reach
    (last,) = played(trader, [6])
    assert (last.info["position"][0], last.truncated[0]) == (0.0, True)
    thin = history([100.0] * 5, np.array([[2.0], [2.0], [2.0], [0.5], [2.0]]))
    *_, last = played(simulation(thin), [6, 6, 6, 6])
    assert last.info["position"].tolist() == [4.0]


def test_episode_that_is_over_stays_as_it_is():
    trader = simulation(history([100.0, 101.0, 102.0, 103.0, 104.0, 105.0]))
    *_, last = played(trader, [6] * 5)
    assert (last.reward[0], last.info["turnover"][0], last.truncated[0]) == (0.0, 0.0, True)


def test_episodes_of_the_test_follow_each_other_within_stretches():
    world = BookTrading(books=LandedBook(), episode_len=4)
    book = history([100.0] * 16, gap_after=9)
    test = world.examine(book, (0, 15))
    assert list(test.windows) == [(0, 4), (4, 8), (8, 9), (10, 14), (14, 15)]
    test.reset(range(5), [np.random.default_rng(0)] * 5)
    assert test.t.tolist() == [0, 4, 8, 10, 14]


def test_moves_do_not_go_over_a_gap():
    prices = [100.0, 100.5, 101.0, 150.0, 150.5]
    whole = simulation(history(prices, gap_after=2), n=1).features
    alone = simulation(history(prices[3:])).features
    assert whole[4, 22:29] == pytest.approx(alone[1, 22:29], rel=1e-6)
    assert whole[3, 22:29].tolist() == [0.0] * 7


def test_observation_does_not_depend_on_later_times():
    book = GeneratedBooks(train_days=1, day_seconds=120).history(is_test=False)
    whole, cut = simulation(book).features, simulation(book.until(60)).features
    np.testing.assert_array_equal(whole[:61], cut)


@pytest.mark.parametrize("seed", range(3))
def test_program_gains_the_most_of_all_choices(seed):
    generator = np.random.default_rng(seed)
    book = history(100.0 + np.cumsum(generator.normal(0.0, 0.3, 5)), generator.uniform(0.3, 1.0, (5, 1)))
    world = WORLD.model_copy(update={"fee_bps": 2.0})
    paths = list(product(range(N_POSITIONS), repeat=3))
    traders = simulation(book, world, len(paths))
    gains = sum(traders.step(np.array(choices)).reward for choices in [*zip(*paths, strict=True), [0] * len(paths)])
    values = program_values(simulation(book, world))
    assert values[0, 0] / (10.0 * book.asks[0, 0]) == pytest.approx(gains.max(), abs=1e-12)


def test_program_sees_nothing_after_its_stretch():
    prices = [100.0, 99.0, 101.0, 100.0, 100.0]
    values = program_values(simulation(history([*prices, 200.0, 300.0], gap_after=4)))
    np.testing.assert_array_equal(values[:5], program_values(simulation(history(prices))))


def test_observation_in_training_ends_with_the_program_of_the_choices():
    prices = [100.0, 101.0, 102.0, 101.0, 100.0]
    taught = simulation(history(prices, np.full((5, 1), 5.0)), kind=ProgramSimulation)
    taught.solve()
    assert taught.observe().shape == (1, 48 + N_POSITIONS)
    own, values = taught.observe()[0, :48], taught.observe()[0, 48:]
    assert own.tolist() == simulation(taught.history).observe()[0].tolist()
    gains = [1.1 * min(n, 5) + 0.9 * max(n - 5, 0) for n in range(N_POSITIONS)]  # 100.1, not 101.2; 100.2, not 101.1
    np.testing.assert_allclose((values - values[0]) * taught._deviation, gains, atol=1e-4)
    assert taught.observation_space.contains(taught.observe()[0])


def test_deviation_of_rewards_leaves_gaps_out():
    prices = [100.0, 101.0, 100.0, 101.0, 100.0]
    trained = [
        simulation(history(path, gap_after=gap), kind=ProgramSimulation)
        for path, gap in ((prices, None), ([*prices, 900.0, 900.0], 4))
    ]
    for taught in trained:
        taught.solve()
    assert trained[0]._deviation == pytest.approx(10.0)  # ten units, moves of 1 and -1
    assert trained[1]._deviation == pytest.approx(10.0 * np.std([1.0, -1.0, 1.0, -1.0, 0.0]))


def test_day_beyond_the_range_of_nanoseconds_ends_with_the_book():
    book = history([100.0] * 5)
    later = replace(book, sessions=book.sessions + np.timedelta64(1, "D"))
    both = {name: np.concatenate([getattr(book, name), getattr(later, name)]) for name in _ARRAYS}
    spec = WorldExperiment(
        name="own",
        world=BookTrading(books=LandedBook()),
        agent=HftDdqnAgent(),
        train=(date(1500, 1, 1), date(1970, 1, 1)),
        test=(date(1970, 1, 2), date(9999, 12, 31)),
    )
    plan = WorldPlan.of(spec, replace(book, **both))
    assert (plan.train, plan.test) == ((0, 4), (5, 9))


@pytest.mark.parametrize(
    "books",
    [
        {"market_rate": 0.0},
        {"limit_rate": 0.0},
        {"cancel_rate": 0.0},
        {"price": 0.0},
        {"tick": 0.0},
        {"persistence": 1.0},
    ],
)
def test_rates_of_zero_are_refused(books):
    with pytest.raises(ValidationError):
        GeneratedBooks(**books)


def test_position_that_the_book_never_holds_is_refused():
    with pytest.raises(ValueError, match="max_position"):
        simulation(history([100.0] * 5), WORLD.model_copy(update={"max_position": 1e6}))


def test_landed_book_that_is_not_given_is_refused():
    with pytest.raises(ValueError, match="history"):
        BookTrading(books=LandedBook()).simulate(1, None, None)


def test_book_without_two_times_in_a_row_is_refused():
    with pytest.raises(ValueError, match="two times"):
        BookTrading(books=LandedBook()).examine(history([100.0] * 2, gap_after=0), (0, 1))
