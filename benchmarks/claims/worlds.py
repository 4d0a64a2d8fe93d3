"""Steps of the world `tradesim_execution`, 4,096 orders on one core."""

from time import process_time

import numpy as np

from benchmarks.claim import Goal, report, time_rounds
from nvtrader_pipelines.policies.world_vec_env import WorldVecEnv
from nvtrader_pipelines.worlds.almgren_chriss import expected_cost, trajectory
from nvtrader_pipelines.worlds.order_execution import ExecutionSimulation, OrderExecution, closed_form_actions

N_ORDERS, N_STEPS, N_ROUNDS = 4096, 60, 30  # twelve whole orders of 5 steps a round, or one of 60
GOAL = Goal(value_at_least=500_000)


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
