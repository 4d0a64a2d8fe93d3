from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.worlds.single_asset import (
    BUY,
    FLAT,
    HOLD,
    LONG,
    SELL,
    SHORT,
    FinAgentTrading,
    SingleAsset,
    SingleAssetSimulation,
)
from tests.envs.two_names import FREE, two_names
from tests.panels import INELIGIBLE, cut, eventful_panel, with_other_future

CLOSES, NIGHTS = (0.0, 0.02, -0.03, 0.05), (0.0, 0.01, -0.01, 0.02)
COST = 0.001


def market(nights=NIGHTS, closes=CLOSES):
    both = [np.column_stack([values, np.zeros(len(values))]) if values else None for values in (closes, nights)]
    return replace(two_names(*both), high_returns=None, low_returns=None)


def simulate(panel, n=1, windows=None, world=SingleAsset, **fields):
    simulation = SingleAssetSimulation(panel, world(**{"lookback": 2, **fields}), n, windows)
    simulation.reset(range(n), [np.random.default_rng([3, i]) for i in range(n)])
    return simulation


def rewards(simulation, choices):
    return [simulation.step(np.array([choice])).reward[0] for choice in choices]


def test_order_fills_at_the_next_open_after_the_night():
    earned = rewards(simulate(market(), financing=FREE), (LONG, FLAT, FLAT))
    bought = (1.0 - COST) * 1.02 / 1.01  # misses the night before the fill
    sold = 0.99 * (1.0 - COST)  # has the night, not the day
    np.testing.assert_allclose(earned, [np.log(bought), np.log(sold), 0.0], rtol=1e-12, atol=1e-15)


def test_order_fills_at_the_next_close_without_opens():
    for panel, fill in ((market(nights=None), "next_open"), (market(), "next_close")):
        earned = rewards(simulate(panel, financing=FREE, fill=fill), (LONG, LONG, FLAT))
        expected = [np.log(1.0 - COST), np.log(0.97), np.log(1.05 * (1.0 - COST))]
        np.testing.assert_allclose(earned, expected, rtol=1e-12)


def test_short_position_gains_from_a_fall_and_is_brought_back():
    earned = rewards(simulate(market(), financing=FREE), (SHORT, SHORT))
    opened = (1.0 - COST) * (1.0 - (1.02 / 1.01 - 1.0))
    held = 1.02 / 1.01  # value of the short over opening equity, cost aside
    drifted = -held / (2.0 - held)
    before = 1.0 + drifted * -0.01
    trade = abs(-1.0 - drifted * 0.99 / before)
    expected = before * (1.0 - COST * trade) * (1.0 - (0.97 / 0.99 - 1.0))
    np.testing.assert_allclose(earned, [np.log(opened), np.log(expected)], rtol=1e-9)


def test_short_that_loses_all_terminates_with_a_finite_reward():
    simulation = simulate(market(None, (0.0, 0.01, 1.5, 0.01)))
    simulation.step(np.array([SHORT]))
    step = simulation.step(np.array([SHORT]))
    assert (step.terminated[0], step.truncated[0], step.info["equity"][0]) == (True, False, 0.0)
    assert np.isfinite(step.reward[0])


def test_ineligible_name_is_not_held():
    panel = eventful_panel()
    step = simulate(panel, symbol=panel.symbols[INELIGIBLE]).step(np.array([LONG]))
    assert (step.info["position"][0], step.reward[0]) == (0.0, 0.0)


def test_observations_of_a_test_do_not_depend_on_its_later_sessions():
    panel, t = eventful_panel(), 40
    walks = []
    for variant in (panel, with_other_future(panel, t)):
        simulation = SingleAsset(lookback=5).examine(variant, (20, 90))
        simulation.reset([0], [np.random.default_rng(0)])
        walks.append([simulation.step(np.array([i % 3])).observation.tobytes() for i in range(t - 20)])
    assert walks[0] == walks[1]


@pytest.mark.parametrize("t", [30, 61])
def test_world_does_not_look_ahead(t):
    panel, walks = eventful_panel(), []
    for variant in (panel, with_other_future(panel, t), cut(panel, t + 1)):
        simulation = simulate(variant, windows=(10, t), episode_len=t - 10)
        steps = [simulation.step(np.array([i % 3])) for i in range(t - 10)]
        walks.append([(step.observation.tobytes(), step.reward[0]) for step in steps])
        assert steps[-1].truncated.tolist() == [True]
    assert walks[0] == walks[1] == walks[2]


def test_observation_is_the_latest_bars_and_the_position():
    simulation = simulate(market(nights=None), financing=FREE)
    simulation.step(np.array([LONG]))
    scale = np.sqrt(np.mean(np.log1p(CLOSES[:2]) ** 2))
    expected = np.append(np.log1p(CLOSES[:2]) / scale, 1.0)
    np.testing.assert_allclose(simulation.observe()[0], expected, rtol=1e-6)


def test_episodes_stay_within_the_windows():
    simulation = simulate(eventful_panel(), 200, windows=[(10, 40), (60, 65)], episode_len=20)
    starts = simulation.accounts.t
    assert set(starts.tolist()) == {*range(10, 21), 60}
    assert {(end - start) for start, end in zip(starts, simulation.ends, strict=True)} == {20, 5}


@pytest.mark.parametrize("windows", [(5, 5), (-1, 20), (0, 160)])
def test_window_without_room_or_beyond_the_market_is_refused(windows):
    with pytest.raises(ValueError, match=r"window must be two positions"):
        simulate(eventful_panel(), windows=windows)


def test_unknown_symbol_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match=r"did you mean 'BBB'"):
        simulate(eventful_panel(), symbol="BBX")


@pytest.mark.parametrize("choice", [-1, 3, 0.5])
def test_number_of_no_choice_is_refused(choice):
    with pytest.raises(ValueError):
        simulate(eventful_panel()).step(np.array([choice]))


def test_finagent_buys_holds_and_sells_at_the_costs_of_its_trades():
    closes, nights = (0.0, 0.02, -0.03, 0.05, 0.01, 0.04), (0.0, 0.01, -0.01, 0.02, 0.005, 0.03)
    simulation = simulate(market(nights, closes), world=FinAgentTrading, financing=FREE)
    steps = [simulation.step(np.array([choice])) for choice in (HOLD, BUY, HOLD, SELL, HOLD)]
    bought, sold = (1.0 - COST) * 0.97 / 0.99, 1.005 * (1.0 - COST)  # after the night of the fill, and before its day
    expected = np.log([1.0, bought, 1.05, sold, 1.0])
    np.testing.assert_allclose([step.reward[0] for step in steps], expected, rtol=1e-12, atol=1e-15)
    assert [step.info["turnover"][0] for step in steps] == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert [step.info["position"][0] for step in steps] == [0.0, 1.0, 1.0, 0.0, 0.0]
    assert [step.info["cost"][0] for step in steps] == pytest.approx([0.0, COST, 0.0, COST, 0.0])


def test_finagent_trades_a_name_in_full_or_not_at_all():
    simulation = simulate(market(), 4, world=FinAgentTrading, financing=FREE, episode_len=3)
    simulation.step(np.array([SELL, BUY, BUY, BUY]))
    step = simulation.step(np.array([SELL, SELL, HOLD, BUY]))
    assert step.info["position"].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert step.info["turnover"].tolist() == [0.0, 1.0, 0.0, 0.0]  # a second purchase has no cash left
