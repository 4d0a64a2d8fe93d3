import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.policies.world_agents.deepscalper import DeepScalperAgent, HindsightSimulation
from nvtrader_pipelines.worlds.single_asset import BUY, HOLD, LONG, SELL, SHORT, FinAgentTrading, SingleAsset
from tests.panels import cut, eventful_panel, with_other_future
from tests.policies.world_agents.planted import planted_panel, rewards, shuffled, trained_rewards

WEIGHT, N_SESSIONS = 0.5, 4
PANEL, WINDOW = eventful_panel(), (10, 30)
TRAIN, TEST = (30, 599), (600, 999)
WORLD = SingleAsset(lookback=5)


def bonuses(panel, fill="next_open"):
    """Positions and bonuses (k, 1) of one episode over the window that takes every choice in turn."""
    simulation = HindsightSimulation(panel, SingleAsset(lookback=2, episode_len=20, fill=fill), 1, WINDOW)
    simulation.look_ahead(WEIGHT, N_SESSIONS)
    simulation.reset([0], [np.random.default_rng(0)])
    steps = [simulation.step(np.array([i % 3])) for i in range(20)]
    assert steps[-1].truncated.tolist() == [True]
    assert list(steps[0].terms) == ["log_growth", "hindsight"]
    return np.array([step.info["position"][0] for step in steps]), np.array(
        [step.terms["hindsight"][0] for step in steps]
    )


@pytest.mark.parametrize("fill", ["next_open", "next_close"])
def test_bonus_is_the_position_times_the_next_returns_of_the_window(fill):
    positions, found = bonuses(PANEL, fill)
    first, last = WINDOW
    delay = 1 if fill == "next_open" else 2  # a fill at the next close does not earn the next return
    ahead = [PANEL.close_returns[t + delay : min(t + N_SESSIONS, last) + 1, 0] for t in range(first, last)]
    deviation = np.log1p(PANEL.close_returns[first : last + 1, 0]).std()
    expected = [WEIGHT * p * (np.prod(1.0 + r) - 1.0) / deviation for p, r in zip(positions, ahead, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert set(positions) == {-1.0, 0.0, 1.0}
    assert len(ahead[-1]) == 2 - delay


def test_bonus_of_a_hold_is_that_of_what_is_held():
    simulation = HindsightSimulation(PANEL, FinAgentTrading(lookback=2, episode_len=20), 2, WINDOW)
    simulation.look_ahead(WEIGHT, N_SESSIONS)
    simulation.reset(range(2), [np.random.default_rng(i) for i in range(2)])
    simulation.step(np.array([BUY, SELL]))
    hold = simulation.step(np.array([HOLD, HOLD])).terms["hindsight"]
    assert (hold[0] != 0.0, hold[1]) == (True, 0.0)


def test_bonus_does_not_depend_on_sessions_after_the_window():
    _, expected = bonuses(PANEL)
    for panel in (with_other_future(PANEL, WINDOW[1]), cut(PANEL, WINDOW[1])):
        assert bonuses(panel)[1].tolist() == expected.tolist()


def test_test_has_no_bonus():
    simulation = WORLD.examine(PANEL, WINDOW)
    simulation.reset([0], [np.random.default_rng(0)])
    assert list(simulation.step(np.array([LONG])).terms) == ["log_growth"]


THOROUGH = [
    pytest.param(30_000, seed, lag, marks=pytest.mark.nightly, id=f"{seed}-{lag}")
    for seed in range(3)
    for lag in (1, 2)
]


@pytest.mark.slow
@pytest.mark.parametrize(("total_timesteps", "seed", "lag"), [(5_000, 0, 1), *THOROUGH])
def test_planted_sign_is_earned_and_a_shuffled_one_is_not(total_timesteps, seed, lag):
    agent = DeepScalperAgent(total_timesteps=total_timesteps)
    panel = planted_panel(1000, 1, lag=lag, opens=lag == 1)  # without opens, a fill misses the next return
    known = iter(np.where(np.roll(panel.close_returns[:, 0], -lag) > 0.0, LONG, SHORT)[TEST[0] :])
    best = rewards(WORLD, lambda _: np.array([next(known)]), panel, TEST).sum()
    held = rewards(WORLD, WORLD.reference_actions, panel, TEST).sum()
    learned = trained_rewards(agent, WORLD, panel, TRAIN, TEST, seed)
    assert best > learned.sum() > max(0.3 * best, held + 0.5)
    learned = trained_rewards(agent, WORLD, shuffled(panel, 2), TRAIN, TEST, seed)
    assert learned.sum() < 2.0 * learned.std() * len(learned) ** 0.5


def test_training_without_updates_is_refused():
    with pytest.raises(ValidationError, match=r"learning_starts"):
        DeepScalperAgent(total_timesteps=500)
