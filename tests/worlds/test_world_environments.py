import json
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import nvtrader_pipelines.worlds  # noqa: F401 - registers the environments
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.policies.world_vec_env import WorldVecEnv
from nvtrader_pipelines.worlds.book_trading import BookTrading
from nvtrader_pipelines.worlds.books import GeneratedBooks
from nvtrader_pipelines.worlds.market_making import MarketMaking, MarketMakingSimulation
from nvtrader_pipelines.worlds.order_execution import AlmgrenChrissResidual, ExecutionSimulation, OrderExecution
from nvtrader_pipelines.worlds.single_asset import FinAgentTrading, SingleAsset, SingleAssetSimulation
from nvtrader_pipelines.worlds.world_env import WorldEnv
from tests.panels import eventful_panel

N, SEED = 5, 7
SMALL_BOOK = BookTrading(books=GeneratedBooks(train_days=1, day_seconds=60), episode_len=8)
WORLDS = {
    "execution": lambda n: ExecutionSimulation(OrderExecution(), n),
    "residual": lambda n: ExecutionSimulation(OrderExecution(action=AlmgrenChrissResidual(), n_steps=8), n),
    "market_making": lambda n: MarketMakingSimulation(MarketMaking(n_steps=8, arrival_rate=8.0), n),
    "hft": lambda n: SMALL_BOOK.simulate(n, None, None),
    "finagent": lambda n: SingleAssetSimulation(eventful_panel(), FinAgentTrading(lookback=5, episode_len=9), n),
    "algotrading": lambda n: SingleAssetSimulation(eventful_panel(), SingleAsset(lookback=5, episode_len=9), n),
}
ADVICE = ("infinity", "symmetric and normalized")  # both boxes are in natural units
every_world = pytest.mark.parametrize("build", WORLDS.values(), ids=WORLDS)


def actions_of(space, n_steps):
    generator = np.random.default_rng(1)
    if isinstance(space, gymnasium.spaces.Discrete):
        return generator.integers(space.n, size=(n_steps, N))
    return generator.uniform(space.low, space.high, (n_steps, N, *space.shape)).astype(np.float32)


def run(env, actions):
    """Bytes of every step's observations, rewards and ends."""
    steps = [env.step(action)[:3] for action in actions]
    return b"".join(array.tobytes() for step in steps for array in step)


@every_world
@pytest.mark.parametrize("check", [lambda env: gymnasium_check_env(env, skip_render_check=True), sb3_check_env])
def test_environment_checker_passes(build, check):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(WorldEnv(build(1)))
    messages = [str(warning.message) for warning in caught]
    assert [text for text in messages if not any(advice in text for advice in ADVICE)] == []


@every_world
def test_single_environment_equals_its_row_of_the_batch(build):
    batch, singles = WorldVecEnv(build(N), SEED), [WorldEnv(build(1)) for _ in range(N)]
    for i, single in enumerate(singles):
        single.np_random = np.random.default_rng([SEED, i])
    np.testing.assert_array_equal(batch.reset(), [single.reset()[0] for single in singles])
    n_ended = 0
    for actions in actions_of(batch.action_space, 20):
        observation, reward, done, infos = batch.step(actions)
        for i, single in enumerate(singles):
            row, value, terminated, truncated, _ = single.step(actions[i])
            assert (reward[i], done[i]) == (np.float32(value), terminated or truncated)
            if done[i]:
                n_ended += 1
                np.testing.assert_array_equal(infos[i]["terminal_observation"], row)
                assert infos[i]["TimeLimit.truncated"] == truncated
                row = single.reset()[0]
            np.testing.assert_array_equal(observation[i], row)
    assert n_ended >= 2 * N


@every_world
def test_equal_seeds_give_equal_bytes(build):
    def walk(seed):
        env = WorldVecEnv(build(N), seed)
        env.reset()
        return run(env, actions_of(env.action_space, 20))

    assert walk(3) == walk(3)
    assert walk(3) != walk(4)


@every_world
def test_restored_environment_continues_equally(build):
    env = WorldVecEnv(build(N), SEED)
    env.reset()
    actions = actions_of(env.action_space, 23)
    run(env, actions[:3])  # in the middle of every episode
    arrays, facts = env.state()
    other = WorldVecEnv(build(N), SEED + 1)
    other.restore(arrays, json.loads(json.dumps(facts)))
    np.testing.assert_array_equal(other.observation, env.observation)
    assert run(other, actions[3:]) == run(env, actions[3:])


@pytest.mark.slow
def test_ids_make_the_worlds_and_the_portfolio():
    execution = gymnasium.make("tradesim_execution-v0", n_steps=3)
    trading = gymnasium.make("tradesim_algotrading-v0", panel=eventful_panel(), windows=(10, 60), symbol="BBB")
    finagent = gymnasium.make("finagent_trading-v0", panel=eventful_panel(), windows=(10, 60), symbol="BBB")
    making = gymnasium.make("market_making-v0", max_inventory=3)
    book = gymnasium.make("tradesim_hft-v0", episode_len=7)
    portfolio = gymnasium.make("tradesim_portfolio-v0", panel=eventful_panel())
    assert execution.unwrapped.simulation.episode_len == 3
    assert trading.unwrapped.simulation.panel.symbols == ("BBB",)
    assert isinstance(finagent.unwrapped.simulation.world, FinAgentTrading)
    assert isinstance(portfolio.unwrapped, PortfolioEnv)
    for env in (execution, trading, finagent, making, book):
        assert env.observation_space.contains(env.reset(seed=0)[0])
