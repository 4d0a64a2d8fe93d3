from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.actions import ChoiceAction, LongShortAction
from nvtrader_pipelines.envs.choice import CHOICES, descriptors
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv
from tests.markets import synthetic_panel
from tests.panels import eventful_panel

PANEL = synthetic_panel(120, 3)
SPEC = EnvSpec(lookback=5, episode_len=20, action=ChoiceAction(window=5))
NONE_HELD = 60  # a session at which no name may be held


def without_names():
    eligible = PANEL.eligible.copy()
    eligible[NONE_HELD] = False
    return replace(PANEL, eligible=eligible)


def describe(past):
    """The five descriptors of one name's returns, one by one."""
    wealth = np.cumprod(np.concatenate([[1.0], 1.0 + past]))
    drawdown = max(1.0 - wealth[j] / wealth[: j + 1].max() for j in range(len(wealth)))
    efficiency = abs(past.sum()) / np.abs(past).sum()
    return past.mean(), past.mean() / past.std(), np.mean(past > 0.0), -drawdown, efficiency


def test_descriptors_are_those_of_each_window_alone():
    returns = PANEL.close_returns.copy()
    returns[40, 1] = np.nan
    scores = descriptors(returns, 7)
    for t, name in [(6, 0), (39, 1), (47, 1), (119, 2)]:
        np.testing.assert_allclose(scores[:, t, name], describe(returns[t - 6 : t + 1, name]), rtol=1e-9)
    assert np.isnan(scores[:, :6]).all()
    assert np.isnan(scores[:, 40:47, 1]).all()


def test_choice_holds_the_portfolio_of_the_highest_score():
    weights = ChoiceAction(window=7).start(PANEL)(np.eye(7), np.full(7, 80))
    scores = descriptors(PANEL.close_returns, 7)[:, 80]
    factors = np.exp((scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True))
    np.testing.assert_array_equal(weights[0], [0.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(weights[1], [1 / 3, 1 / 3, 1 / 3, 0.0], atol=1e-15)
    np.testing.assert_allclose(weights[2:, :-1], factors / factors.sum(axis=1, keepdims=True), rtol=1e-12)


def test_choice_that_is_not_allowed_gives_way_to_the_best_that_is():
    target = ChoiceAction(window=5).start(without_names())
    assert target.allowed[NONE_HELD].tolist() == [True] + [False] * 6
    assert target(np.arange(7.0)[None], np.array([NONE_HELD]))[0, -1] == 1.0
    early = target(np.arange(7.0)[None], np.array([2]))  # descriptors are not known yet
    np.testing.assert_allclose(early[0, :-1], 1 / 3)
    without_cash = ChoiceAction(window=5, choices=("ar", "sr")).start(without_names())
    assert without_cash(np.ones((1, 2)), np.array([NONE_HELD]))[0].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_history_shorter_than_the_window_has_no_descriptor():
    target = ChoiceAction(window=252).start(PANEL)
    assert target.allowed[:, 2:].sum() == 0
    assert target(np.arange(7.0)[None], np.array([100]))[0, -1] == 0.0  # 1/N


def test_sessions_before_a_listing_are_no_returns():
    tradable = PANEL.tradable.copy()
    tradable[:100, 0] = False
    listed = replace(PANEL, tradable=tradable, close_returns=PANEL.close_returns * tradable)
    weights = ChoiceAction(window=20).start(listed)(np.eye(7), np.full(7, 118))
    assert weights[2:, 0].tolist() == [0.0] * 5  # 19 returns after its first price
    assert (ChoiceAction(window=20).start(listed)(np.eye(7)[2:], np.full(5, 119))[:, 0] == 0.0).all()
    assert (ChoiceAction(window=19).start(listed)(np.eye(7)[2:], np.full(5, 119))[:, 0] > 0.0).all()


def test_scores_that_are_not_numbers_give_no_weights():
    assert np.isnan(ChoiceAction().start(PANEL)(np.array([[np.nan] * 7]), np.array([50]))).all()


def test_training_on_a_session_without_a_choice_is_refused():
    action = ChoiceAction(window=5, choices=("equal_weight", "ar"))
    with pytest.raises(ValueError):
        action.require_training(without_names(), [(20, 50), (55, 90)])
    action.require_training(without_names(), [(20, NONE_HELD - 1), (NONE_HELD + 1, 90)])
    ChoiceAction(window=5).require_training(without_names(), [(0, 90)])


@pytest.mark.parametrize("choices", [["cash"], ["cash", "cash"], ["cash", "momentum"]])
def test_choices_must_be_several_that_are_known_and_differ(choices):
    with pytest.raises(ValidationError):
        ChoiceAction.model_validate({"choices": choices})


def test_shared_network_takes_actions_with_a_value_for_each_name_and_one_more():
    parts = {"observation": {"kind": "per_asset"}, "action": {"kind": "long_short"}}
    with pytest.raises(ValidationError) as refusal:
        ExperimentSpec.model_validate({"name": "x", "environment": parts, "agent": {"kind": "cma_es"}})
    assert "agent.backbone" in str(refusal.value)
    with pytest.raises(ValueError):
        LongShortAction().start(PANEL)(np.zeros((1, 4)), np.array([50]))


@pytest.mark.parametrize(
    ("agent", "action"), [("dqn", "simplex"), ("maskable_ppo", "residual"), ("ppo", "choice"), ("a2c", "choice")]
)
def test_agent_of_another_kind_of_action_is_refused(agent, action):
    with pytest.raises(ValidationError):
        ExperimentSpec.model_validate({"name": "x", "agent": {"kind": agent}, "environment": {"action": action}})


def test_environment_takes_the_number_of_a_choice():
    env = PortfolioEnv(PANEL, SPEC, first=20)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * 7
    *_, info = env.step(CHOICES.index("equal_weight"))
    np.testing.assert_allclose(info["target_weights"], [1 / 3, 1 / 3, 1 / 3, 0.0], atol=1e-15)
    for number in (-1, 7):
        with pytest.raises(ValueError):
            env.step(number)


def test_vector_environment_plays_choices_and_gives_their_masks():
    panel = eventful_panel()
    env = PortfolioVecEnv(PortfolioSimulation(panel, SPEC, 4), 0)
    env.reset()
    t = env.simulation.accounts.t
    np.testing.assert_array_equal(env.env_method("action_masks"), SPEC.action.start(panel).allowed[t])
    env.step(np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(env.last_step.action, np.eye(7, dtype=np.float32)[[0, 1, 0, 1]])
    np.testing.assert_array_equal(env.last_step.step.target[[0, 2], -1], 1.0)
