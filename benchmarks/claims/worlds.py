"""Steps of worlds that make their own prices, 4,096 accounts on one core."""

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from benchmarks.claim import Goal, report, time_rounds
from nvtrader_pipelines.policies.world_vec_env import WorldVecEnv
from nvtrader_pipelines.worlds.almgren_chriss import expected_cost, trajectory
from nvtrader_pipelines.worlds.book_trading import N_POSITIONS, BookTrading
from nvtrader_pipelines.worlds.market_making import MarketMaking
from nvtrader_pipelines.worlds.order_execution import ExecutionSimulation, OrderExecution, closed_form_actions
from nvtrader_pipelines.worlds.world import World

N_ORDERS, N_STEPS, N_ROUNDS = 4096, 60, 30  # twelve whole orders of 5 steps a round, or one of 60
GOAL = Goal(value_at_least=500_000)
GOAL_OF_MAKERS = Goal(value_at_least=300_000)


def main() -> None:
    """Report steps per CPU second of orders of 5 and of 60 steps."""
    worlds = {n: OrderExecution(n_steps=n) for n in (OrderExecution().n_steps, N_STEPS)}
    envs = {str(n): WorldVecEnv(ExecutionSimulation(world, N_ORDERS)) for n, world in worlds.items()}
    for env, world in zip(envs.values(), worlds.values(), strict=True):
        env.reset()
        require_expected_cost(world)
    runs = {name: lambda _, env=env: play(env) for name, env in envs.items()}
    for name, times in time_rounds(runs, N_ROUNDS, clock=process_time).items():
        report(
            f"execution_{N_ORDERS}x{name}",
            N_STEPS * N_ORDERS / min(times),
            "steps/s",
            GOAL,
            note=f"a step is one sale of one of {N_ORDERS} orders of {name} sales, in Stable-Baselines3's vector "
            "environment with its resets and infos; actions by the closed form, whose expected cost "
            f"the orders have within 4 standard errors; CPU time of one thread, best of {N_ROUNDS} rounds of "
            f"{N_STEPS * N_ORDERS} steps",
        )
    others = {
        "market_making": (MarketMaking(), lambda world, seen: world.reference_actions(seen)),
        "tradesim_hft": (BookTrading(episode_len=N_STEPS), lambda _, seen: np.arange(len(seen)) % N_POSITIONS),
    }
    makers = {kind: WorldVecEnv(world.simulate(N_ORDERS, None, None)) for kind, (world, _) in others.items()}
    for env in makers.values():
        env.reset()
    runs = {kind: lambda _, env=env, kind=kind: walk(env, *others[kind]) for kind, env in makers.items()}
    for kind, times in time_rounds(runs, N_ROUNDS, clock=process_time).items():
        report(
            f"{kind}_{N_ORDERS}",
            makers[kind].simulation.episode_len * N_ORDERS / min(times),
            "steps/s",
            GOAL_OF_MAKERS,
            note=f"{N_ORDERS} accounts in Stable-Baselines3's vector environment; actions of the closed form, or every "
            f"position in turn; CPU time of one thread, best of {N_ROUNDS} rounds of a whole episode each",
        )


def walk(env: WorldVecEnv, world: World, decide: Callable[[World, Any], Any]) -> None:
    """Step all accounts through an episode, with its reset."""
    for _ in range(env.simulation.episode_len):
        env.step(decide(world, env.observation))


def play(env: WorldVecEnv) -> None:
    """Follow the closed form; the environment resets orders that are done."""
    simulation = env.simulation
    assert isinstance(simulation, ExecutionSimulation)
    for _ in range(N_STEPS):
        env.step(closed_form_actions(simulation.world, env.observation))


def require_expected_cost(world: OrderExecution) -> None:
    """Raise unless orders that follow the closed form cost what it expects.

    Raises:
        AssertionError: if their mean is off by more than 4 standard errors.
    """
    simulation = ExecutionSimulation(world, N_ORDERS)
    simulation.reset(range(N_ORDERS), [np.random.default_rng([0, i]) for i in range(N_ORDERS)])
    for _ in range(world.n_steps):
        step = simulation.step(closed_form_actions(world, simulation.observe()))
    costs = step.info["shortfall"] * world.value
    expected = expected_cost(world, trajectory(world))
    if abs(costs.mean() - expected) > 4.0 * costs.std() / np.sqrt(N_ORDERS):
        raise AssertionError(f"orders cost {costs.mean():,.0f} on average, but the closed form expects {expected:,.0f}")


if __name__ == "__main__":
    main()
