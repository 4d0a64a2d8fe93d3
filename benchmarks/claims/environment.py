"""Steps of the vector environment, 64 portfolios of 20 names, beside a single-asset peer."""

from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.claim import Goal, import_peer, report, time_rounds
from nvtrader_pipelines.envs.actions import LeveredSimplexAction
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

N_PORTFOLIOS, N_STEPS, N_ROUNDS = 64, 104, 200  # two whole episodes a round
SESSIONS_BETWEEN = (1, 5)  # decisions; the second is the default
GOAL = Goal(value_at_least=1_000_000)
Actions = NDArray[np.float32]


def main() -> None:
    """Report steps per CPU second at two decision frequencies, and the ratio to a peer."""
    panel, generator = sample_panel(), np.random.default_rng(0)
    actions = generator.standard_normal((N_STEPS, N_PORTFOLIOS, len(panel.symbols) + 1)).astype(np.float32)
    specs = {f"every_{n}": EnvSpec(rebal_freq=n) for n in SESSIONS_BETWEEN}
    levered = LeveredSimplexAction()  # targets of a gross of 2.5 on average, cut to 2 at each close
    specs |= {f"levered_every_{n}": EnvSpec(rebal_freq=n, action=levered) for n in SESSIONS_BETWEEN}
    envs = {name: reset_env(panel, spec) for name, spec in specs.items()}
    for spec in specs.values():
        require_same_as_scalar(panel, spec, actions)
    implementations: dict[str, Any] = {name: lambda _, env=env: play(env, actions) for name, env in envs.items()}
    theirs = import_peer("gym_trading_env.environments")
    if theirs is not None:
        single = single_asset(theirs, panel)
        implementations["peer"] = lambda _: play_single(single, actions[:, 0, 0] > 0.0)
    fastest = {name: min(times) for name, times in time_rounds(implementations, N_ROUNDS, clock=process_time).items()}
    speed = {name: N_STEPS * N_PORTFOLIOS / fastest[name] for name in envs}
    note = describe(panel, envs["every_1"])
    report("environment_64x20", speed["every_1"], "steps/s", GOAL, note=f"a decision every session; {note}")
    report("environment_64x20_weekly", speed["every_5"], "steps/s", GOAL, note=f"a decision every 5 sessions; {note}")
    for n in SESSIONS_BETWEEN:
        report(
            f"environment_levered_every_{n}",
            speed[f"levered_every_{n}"],
            "steps/s",
            Goal(ratio_at_least=0.8),
            ratio=speed[f"levered_every_{n}"] / speed[f"every_{n}"],
            note=f"a gross of 1 to 4 with interest and a cap of 2 at each close, over the same without; {note}",
        )
    report(
        "environment_over_gym_trading_env",
        speed["every_1"],
        "steps/s",
        Goal(ratio_at_least=10.0),
        ratio=speed["every_1"] * fastest["peer"] / N_STEPS if theirs else None,
        note="gym-trading-env's TradingEnv is one portfolio of one asset: window 20 of its log return, fees of 10 bps, "
        f"episodes of 52, in or out at random, no logs; ours is 64 portfolios of 20 names; {note}",
    )


def reset_env(panel: MarketPanel, spec: EnvSpec) -> PortfolioVecEnv:
    """Build the environment and reset it."""
    env = PortfolioVecEnv(PortfolioSimulation(panel, spec, N_PORTFOLIOS))
    env.reset()
    return env


def play(env: PortfolioVecEnv, actions: Actions) -> None:
    """Take every action in turn; the environment resets episodes that end."""
    for action in actions:
        env.step_async(action)
        env.step_wait()


def require_same_as_scalar(panel: MarketPanel, spec: EnvSpec, actions: Actions) -> None:
    """Raise unless the vector environment has the rewards of a scalar one, bit for bit.

    Raises:
        AssertionError: if a reward of the first or the last portfolio differs.
    """
    env = PortfolioVecEnv(PortfolioSimulation(panel, spec, N_PORTFOLIOS))
    env.reset()
    rows, walks = (0, N_PORTFOLIOS - 1), []
    for row in rows:
        alone = PortfolioEnv(panel, spec)
        alone.reset(seed=row)
        walks.append([np.float32(alone.step(action[row])[1]) for action in actions[: spec.episode_len]])
    together = [env.step(action)[1][list(rows)] for action in actions[: spec.episode_len]]
    if not np.array_equal(together, np.transpose(walks)):
        raise AssertionError("the vector environment and a scalar environment have different rewards")


def single_asset(module: Any, panel: MarketPanel) -> Any:
    """The peer's environment on the first name, as it recommends but without its printing."""
    returns = panel.close_returns[:, 0]
    prices = 100.0 * np.cumprod(1.0 + returns)
    quotes = dict.fromkeys(("open", "high", "low", "close"), prices)
    frame = pd.DataFrame({**quotes, "feature_return": np.log1p(returns)}, pd.DatetimeIndex(panel.sessions))
    return module.TradingEnv(
        frame,
        positions=[0, 1],
        windows=20,
        trading_fees=0.001,
        max_episode_duration=EnvSpec().episode_len,
        verbose=0,
    )


def play_single(env: Any, invested: NDArray[np.bool_]) -> None:
    """Take as many steps in the peer's environment, with a reset after each episode."""
    env.reset()
    for position in invested.tolist():
        *_, terminated, truncated, _ = env.step(int(position))
        if terminated or truncated:
            env.reset()


def describe(panel: MarketPanel, env: PortfolioVecEnv) -> str:
    """Describe the measured steps."""
    columns, spec = env.simulation.builder.length, env.simulation.spec
    terms = ", ".join(term.kind for term in spec.reward_terms)
    return (
        f"a step is one decision of one portfolio; {N_PORTFOLIOS} portfolios by {len(panel.symbols)} names of the "
        f"sample market, {columns} float32 columns observed, softmax of random logits, masks, drift, "
        f"{spec.turnover_cost_bps:g} bps, fills at the next close, reward of {terms}, episodes of {spec.episode_len} "
        f"with their resets; CPU time of one thread, best of {N_ROUNDS} rounds of {N_STEPS * N_PORTFOLIOS} steps; "
        "rewards equal a scalar environment's bit for bit"
    )


if __name__ == "__main__":
    main()
