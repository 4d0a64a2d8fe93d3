import json

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_1samp

from nvtrader_pipelines.evaluation.account_tables import REWARD_TERM
from nvtrader_pipelines.evaluation.world_results import (
    play,
    reward_rows,
    total_rewards,
    trajectory_rows,
    world_results,
)
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.worlds.order_execution import ExecutionSimulation, OrderExecution
from nvtrader_pipelines.worlds.single_asset import LONG, SingleAsset
from tests.panels import eventful_panel

WORLD = OrderExecution(penalizes_risk=True, n_steps=3)
NAMES = {"world": "w", "agent": "a", "reference": "r"}


def of_rewards(*totals):
    return pl.DataFrame({"episode": range(len(totals)), "reward": totals})


def test_episodes_of_a_test_are_played_to_their_own_ends():
    played = play(ExecutionSimulation(WORLD, 4), lambda observation: np.array([[1.0], [0.0], [0.5], [1.0]]))
    lengths = played.group_by("episode", maintain_order=True).len()["len"].to_list()
    assert lengths == [1, 3, 3, 1]
    assert played.filter(pl.col("terminated"))["episode"].to_list() == [0, 1, 2, 3]


def test_policies_meet_the_same_episodes_again():
    simulation = ExecutionSimulation(WORLD, 50)
    first, _, again = (play(simulation, decide) for decide in (WORLD.reference_actions, slow, WORLD.reference_actions))
    assert first.equals(again)


def slow(observation):
    return np.zeros((len(observation), 1))


def test_rows_of_trajectories_and_rewards_hold_every_step():
    panel = eventful_panel()
    simulation = SingleAsset(symbol="BBB", lookback=3).examine(panel, (20, 60))
    played = play(simulation, lambda observation: np.full(len(observation), LONG))
    steps = trajectory_rows(played, policy="p/seed-1", kind="policy", seed=1)
    terms = reward_rows(played, policy="p/seed-1", kind="policy")
    assert (steps.schema, terms.schema) == (pl.Schema(TRAJECTORY), pl.Schema(REWARD_TERM))
    assert steps["session"].to_list() == [day.item() for day in panel.sessions[20:60]]
    assert steps["step"].to_list() == terms["step"].to_list() == list(range(40))
    assert steps["equity"][-1] == pytest.approx(np.exp(steps["reward"].sum()))
    assert steps["drawdown"].max() == pytest.approx((1.0 - steps["equity"] / steps["equity"].cum_max()).max())
    info = json.loads(steps["info"][3])
    assert (info["reward_terms"], info["position"]) == ({"log_growth": steps["reward"][3]}, 1.0)
    assert info.keys() == {"reward_terms", "termination", "position", "cost"}


def test_terms_of_an_order_sum_to_its_rewards():
    played = play(ExecutionSimulation(WORLD, 5), slow)
    terms = reward_rows(played, policy="p", kind="policy")
    assert set(terms["term"]) == {"execution", "opportunity", "risk"}
    sums = terms.group_by("step").agg(pl.col("contribution").sum()).sort("step")["contribution"]
    np.testing.assert_allclose(sums, played["reward"], rtol=1e-12)


def test_results_have_the_intervals_of_student():
    generator = np.random.default_rng(0)
    seeds = {seed: generator.normal(seed, 1.0, 40) for seed in range(3)}
    reference = generator.normal(0.0, 1.0, 40)
    rows = world_results(
        {seed: of_rewards(*totals) for seed, totals in seeds.items()}, of_rewards(*reference), **NAMES
    ).rows(named=True)
    assert [row["seed"] for row in rows] == [None, 0, 1, 2]
    means = [totals.mean() for totals in seeds.values()]
    whole = ttest_1samp(means, 0.0).confidence_interval()
    assert (rows[0]["mean_low"], rows[0]["mean_high"]) == pytest.approx(tuple(whole))
    assert rows[0]["difference"] == pytest.approx(np.mean(means) - reference.mean())
    paired = ttest_1samp(seeds[2] - reference, 0.0).confidence_interval()
    assert (rows[3]["difference_low"], rows[3]["difference_high"]) == pytest.approx(tuple(paired))


def test_one_episode_of_one_seed_has_no_interval():
    row = world_results({0: of_rewards(1.0)}, of_rewards(3.0), **NAMES).row(1, named=True)
    assert (row["mean"], row["difference"]) == (1.0, -2.0)
    assert (row["mean_low"], row["difference_high"], row["deviation"]) == (None, None, None)
    assert total_rewards(of_rewards(1.0)).tolist() == [1.0]
