"""Results of agents in worlds: the total reward of an episode, beside that of the world's reference."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t as student

from nvtrader_pipelines.envs.observations.builder import observation_hashes
from nvtrader_pipelines.evaluation.account_tables import REWARD_TERM
from nvtrader_pipelines.evaluation.verdict_tables import WORLD_RESULT
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.policies.trajectory import step_info
from nvtrader_pipelines.policies.world_agents.base import Decide
from nvtrader_pipelines.worlds.world import Simulation

EXAMINED = 2**31  # above every seed: separates the random streams of tests from those of trainings
TERM, INFO = "term:", "info:"  # prefixes of the columns of reward terms, and of what a world reports besides
_COLUMNS = ("session", "equity", "turnover")  # of what a world reports


def play(simulation: Simulation, decide: Decide) -> pl.DataFrame:
    """Play the episodes of a test; one row per step, by episode.

    Account i draws from a generator of its own, whatever is decided, so policies meet the same episodes.
    """
    n = simulation.n_accounts
    simulation.reset(range(n), [np.random.default_rng([EXAMINED, i]) for i in range(n)])
    observation, live, parts = simulation.observe(), np.ones(n, np.bool_), []
    while live.any():
        actions = decide(observation)
        step, rows = simulation.step(actions), np.flatnonzero(live)
        columns: dict[str, NDArray[Any]] = {
            "episode": rows,
            "observation_hash": observation_hashes(observation),
            "action": actions.reshape(n, -1).astype(np.float32),
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            **{name if name in _COLUMNS else f"{INFO}{name}": values for name, values in step.info.items()},
            **{f"{TERM}{name}": values for name, values in step.terms.items()},
        }
        parts.append(
            pl.DataFrame({name: values if name == "episode" else values[rows] for name, values in columns.items()})
        )
        live &= ~(step.terminated | step.truncated)
        observation = step.observation
    return pl.concat(parts).sort("episode", maintain_order=True)


def total_rewards(played: pl.DataFrame) -> NDArray[np.float64]:
    """Total reward of each episode, (n,)."""
    return played.group_by("episode", maintain_order=True).agg(pl.col("reward").sum())["reward"].to_numpy()


def trajectory_rows(played: pl.DataFrame, **account: Any) -> pl.DataFrame:
    """Rows of trajectories of one policy: `policy`, `kind` and `seed` are given."""
    peak = pl.max_horizontal(pl.lit(1.0), pl.col("equity").cum_max().over("episode"))
    terms, others = (
        {name.removeprefix(prefix): pl.col(name) for name in played.columns if name.startswith(prefix)}
        for prefix in (TERM, INFO)
    )
    derived = {
        **{name: pl.lit(value) for name, value in account.items()},
        "phase": pl.lit("test"),
        "fold": pl.lit(0),
        "step": pl.int_range(pl.len()),
        "action": pl.col("action").arr.to_list(),
        "drawdown": 1.0 - pl.col("equity") / peak,
        "info": step_info(terms, **others),
    }
    missing = [name for name in TRAJECTORY if name not in {*derived, *played.columns}]
    derived |= {name: pl.lit(None) for name in missing}
    return played.select(derived.get(name, pl.col(name)).cast(dtype).alias(name) for name, dtype in TRAJECTORY.items())


def reward_rows(played: pl.DataFrame, **account: Any) -> pl.DataFrame:
    """Rows of reward terms of one policy: `policy` and `kind` are given."""
    terms = [name for name in played.columns if name.startswith(TERM)]
    numbered = played.with_columns(
        *(pl.lit(value).alias(name) for name, value in account.items()),
        pl.int_range(pl.len()).alias("step"),
        pl.lit(0).alias("fold"),
        *([] if "session" in played.columns else [pl.lit(None).alias("session")]),
    )
    keys = [name for name in REWARD_TERM if name not in {"term", "contribution"}]
    long = numbered.unpivot(terms, index=keys, variable_name="term", value_name="contribution")
    return long.select(
        pl.col(name).str.strip_prefix(TERM) if name == "term" else pl.col(name).cast(dtype)
        for name, dtype in REWARD_TERM.items()
    )


def world_results(played: Mapping[int, pl.DataFrame], reference_played: pl.DataFrame, **named: str) -> pl.DataFrame:
    """Results of the seeds, and their mean, with the schema `WORLD_RESULT`.

    Args:
        played: rows of `play` by seed.
        reference_played: those of the reference on the same episodes.
        named: kinds of world and agent, and the name of the reference.
    """
    reference, rewards = total_rewards(reference_played), {seed: total_rewards(steps) for seed, steps in played.items()}
    means = np.array([totals.mean() for totals in rewards.values()])
    mean_totals = np.mean(list(rewards.values()), axis=0)
    rows = [(None, mean_totals, means, means - reference.mean())]
    rows += [(seed, totals, totals, totals - reference) for seed, totals in rewards.items()]
    frames = [
        {
            "seed": seed,
            "n_episodes": len(reference),
            "mean": totals.mean(),
            **_bounds("mean", sample),
            "deviation": totals.std(ddof=1) if len(totals) > 1 else None,
            "reference_mean": reference.mean(),
            "difference": totals.mean() - reference.mean(),
            **_bounds("difference", differences),
            **named,
        }
        for seed, totals, sample, differences in rows
    ]
    return pl.DataFrame(frames, schema=WORLD_RESULT)


def _bounds(name: str, sample: NDArray[np.float64]) -> dict[str, float | None]:
    """95 % interval of a mean by Student's t; null with fewer than two values."""
    if len(sample) < 2:
        return {f"{name}_low": None, f"{name}_high": None}
    half = student.ppf(0.975, len(sample) - 1) * np.std(sample, ddof=1) / len(sample) ** 0.5
    return {f"{name}_low": np.mean(sample) - half, f"{name}_high": np.mean(sample) + half}
