"""Training through the weight pipeline: what f_R cuts reaches the episode's end and its reward."""

import numpy as np
import pytest

from nvtrader_pipelines.envs.account import situation_of
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.rewards import LogGrowth, TurnoverPenalty
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import DrawdownTermination, StopProperly
from nvtrader_pipelines.portfolio.losses import NEVER
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming
from tests.panels import eventful_panel

PANEL = eventful_panel()
SPEC = EnvSpec(pipeline=True, rebal_freq=5, episode_len=20)
PIPELINE = WeightPipeline(timing=ConstantTiming(exposure=0.8), risk_limits=RiskLimits(max_position=0.3))
ONE_NAME = np.array([5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0])  # the cap cuts it


def simulation_of(spec=SPEC, pipeline=PIPELINE, n=5, **window):
    simulation = PortfolioSimulation(PANEL, spec, n, pipeline=pipeline, **window)
    simulation.accounts.open(list(range(n)), [40 + 3 * i for i in range(n)])
    return simulation


def test_targets_are_those_of_the_pipeline_from_the_same_account():
    simulation, generator = simulation_of(), np.random.default_rng(0)
    propose, run = SPEC.action.start(PANEL), PIPELINE.start(PANEL)
    for _ in range(4):
        actions, t = generator.normal(0.0, 2.0, (5, 7)), simulation.accounts.t.copy()
        results = [
            run(propose(actions[[i]], t[[i]])[0],
                situation_of(simulation.accounts.account(i), PANEL, int(t[i]), Thresholds(), 5))
            for i in range(5)
        ]  # fmt: skip
        step = simulation.step(actions)
        np.testing.assert_array_equal(step.target, [each.weights for each in results])
        assert step.cut.tolist() == [each.truncated for each in results]


def test_cut_is_in_the_info_and_ends_no_episode_without_stop_properly():
    env = PortfolioEnv(PANEL, SPEC, pipeline=PIPELINE)
    env.reset(seed=0)
    *_, truncated, info = env.step(ONE_NAME)
    assert (truncated, info["truncated"]) == (False, True)
    assert info["target_weights"][0] == 0.3
    *_, info = env.step(np.zeros(7))
    assert info["truncated"] is False


@pytest.mark.parametrize("form", ["sign_safe", "literal"])
def test_cut_truncates_the_episode_and_stop_properly_changes_its_reward(form):
    spec = EnvSpec(pipeline=True, rebal_freq=5, episode_len=20, stop_properly=StopProperly(form=form))
    shaped, plain = (PortfolioEnv(PANEL, each, pipeline=PIPELINE) for each in (spec, SPEC))
    total = 0.0
    for env in (shaped, plain):
        env.reset(seed=0)
    for action in (np.zeros(7), np.zeros(7), ONE_NAME):
        _, reward, terminated, truncated, info = shaped.step(action)
        total += plain.step(action)[1]
        if not truncated:
            assert info["reward_terms"]["stop_properly"] == 0.0
    assert (terminated, truncated, info["truncated"]) == (False, True, True)
    changed = float(StopProperly(form=form).shape_rewards(np.array([total]))[0])
    np.testing.assert_allclose(info["reward_terms"]["stop_properly"], changed - total, rtol=1e-12)
    assert reward == pytest.approx(sum(info["reward_terms"].values()), rel=1e-12)


def test_limit_that_does_not_mark_ends_no_episode():
    limits = (PositionCap(mark_truncated=False), GrossExposure())
    pipeline = PIPELINE.model_copy(update={"limits": limits})
    spec = EnvSpec(pipeline=True, episode_len=20, stop_properly=StopProperly())
    step = simulation_of(spec, pipeline).step(np.tile(ONE_NAME, (5, 1)))
    assert not step.cut.any()
    assert not step.truncated.any()


def test_thresholds_are_fitted_to_the_training_alone():
    pipeline = PIPELINE.model_copy(update={"timing": TurbulenceTiming(threshold=None, history=30)})
    fitted, run = pipeline.timing.fit(PANEL, ((40, 90),), ()), pipeline.start(PANEL)
    simulation = simulation_of(pipeline=pipeline, first=40, last=90)
    account = simulation.accounts.account(0)
    step = simulation.step(np.zeros((5, 7)))
    expected = run(SPEC.action.start(PANEL)(np.zeros((1, 7)), np.array([40]))[0],
                   situation_of(account, PANEL, 40, fitted, 5))  # fmt: skip
    np.testing.assert_array_equal(step.target[0], expected.weights)


def test_environment_without_its_pipeline_is_refused():
    with pytest.raises(ValueError):
        PortfolioSimulation(PANEL, SPEC, 1)


def test_steps_of_many_portfolios_equal_single_ones():
    together, alone = simulation_of(), [simulation_of(n=1) for _ in range(5)]
    for i, one in enumerate(alone):
        one.accounts.open([0], [40 + 3 * i])
    for actions in np.random.default_rng(1).normal(0.0, 2.0, (4, 5, 7)):
        step = together.step(actions)
        for i, one in enumerate(alone):
            single = one.step(actions[[i]])
            assert single.reward[0] == step.reward[i]
            assert single.account.path[0].tolist() == step.account.path[i].tolist()


def test_names_are_shut_down_in_training_through_the_pipeline():
    shutdown = WeightPipeline(timing=LossShutdown(probe=0.02, cooldown=2), risk_limits=RiskLimits(max_position=0.5))
    simulation, spec = simulation_of(pipeline=shutdown), EnvSpec(rebal_freq=5, episode_len=20)
    seen, generator = 0, np.random.default_rng(1)
    for _ in range(8):
        is_shut = simulation.accounts.since_loss < 2
        step = simulation.step(generator.normal(0.0, 0.3, (5, 7)))
        assert (step.target[:, :-1][is_shut] <= 0.02).all()
        seen += int(is_shut.sum())
    assert seen > 0
    untracked = PortfolioSimulation(PANEL, spec, 2)
    untracked.step(np.zeros((2, 7)))
    assert (untracked.accounts.since_loss == NEVER).all()


def test_guard_on_negative_returns_replaces_the_turnover_penalty():
    guard = GymrlGuard(min_trailing_return=1.0, max_drawdown=0.99, max_turnover=100.0, shutdown=None)
    rewards = (LogGrowth(), TurnoverPenalty(weight=0.001))
    spec = EnvSpec(pipeline=True, rebal_freq=5, rewards=rewards)
    simulation = simulation_of(spec, WeightPipeline(timing=guard), n=2)
    generator = np.random.default_rng(2)
    first, second = (simulation.step(generator.normal(0.0, 2.0, (2, 7))) for _ in range(2))
    for step, weight in ((first, 0.001), (second, 2.0 * 0.0075)):  # no return yet at the first
        expected = -weight * step.account.transition.turnover
        np.testing.assert_allclose(step.account.reward_terms["turnover_penalty"], expected, rtol=1e-15)


def test_termination_is_no_cut_of_a_limit():
    spec = EnvSpec(pipeline=True, rebal_freq=5, terminations=(DrawdownTermination(limit=1e-6),),
                   stop_properly=StopProperly())  # fmt: skip
    step = simulation_of(spec).step(np.zeros((5, 7)))
    assert step.triggered["drawdown"].any()
    assert step.truncated.any()
    assert not step.cut.any()
