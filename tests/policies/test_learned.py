from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.rewards import DpDistillation, Hindsight
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_rows, action_space, observation_space
from nvtrader_pipelines.policies.agents.on_policy import GaussianLearner
from nvtrader_pipelines.policies.archive import PolicyArchiveError, read_archive, write_archive
from nvtrader_pipelines.policies.learned import EnsemblePolicy, open_policy
from tests.markets import synthetic_panel
from tests.panels import cut, with_other_future
from tests.policies.small_learners import AGENT, CASES, CLASSICAL, LEARNERS, SPEC, WINDOW, bits, card_of

PANEL = synthetic_panel(200, 3)
EVERY = pytest.mark.parametrize("kind", CASES)
SESSIONS = range(150, 180, 5)
ACCOUNT = Account(np.array([0.2, 0.3, 0.1, 0.4]), 0.9, 1.0)
WITHOUT_CRITIC = {"grouped_ppo", *(kind for kind, agent in LEARNERS.items() if not agent.has_critic)}
GAUSSIAN = {kind for kind, (_, agent) in CASES.items() if isinstance(agent, GaussianLearner)}
FITS = {}


def trained(kind, seed=0):
    spec, agent = CASES[kind]
    if (kind, seed) not in FITS:
        FITS[kind, seed] = agent.train(PANEL, spec, WINDOW, seed)
    return card_of(PANEL, FITS[kind, seed], spec, agent, seed=seed), FITS[kind, seed].tensors


def opened(kind, panel=PANEL, seed=0):
    return open_policy(*trained(kind, seed), panel)


def decisions(policy, panel=PANEL, sessions=SESSIONS, account=ACCOUNT):
    """All that a policy says at one session after the other."""
    made = [policy.decide(panel, t, account) for t in sessions]
    return [
        (each.target.tobytes(), each.action.tobytes(), each.observation_hash, each.value, each.log_prob)
        for each in made
    ]


@EVERY
def test_decision_holds_target_action_value_and_log_prob(kind):
    decision = opened(kind).decide(PANEL, 170, ACCOUNT)
    assert decision.target is not None
    assert decision.target.sum() == pytest.approx(1.0)
    assert decision.action is not None
    assert (decision.action.shape, decision.action.dtype) == ((CASES[kind][0].action.size(3).length,), np.float32)
    assert isinstance(decision.observation_hash, int)
    assert (decision.value is None) == (kind in WITHOUT_CRITIC)
    assert (decision.log_prob is None) == (kind not in GAUSSIAN)
    assert np.isfinite([said for said in (decision.value, decision.log_prob) if said is not None]).all()


@pytest.mark.slow
@EVERY
def test_decisions_are_the_same_on_every_opening(kind):
    first, second = opened(kind), opened(kind)
    expected = decisions(first)
    torch.rand(10)
    assert decisions(second) == expected


@pytest.mark.slow
@EVERY
def test_archived_policy_decides_as_before(kind):
    card, tensors = read_archive(write_archive(*trained(kind)))
    assert decisions(open_policy(card, tensors, PANEL)) == decisions(opened(kind))


@EVERY
@pytest.mark.parametrize("t", [pytest.param(160, marks=pytest.mark.nightly), 180])
def test_decision_ignores_later_sessions(kind, t):
    known = decisions(opened(kind), sessions=[t - 5, t])
    for other in (with_other_future(PANEL, t), cut(PANEL, t)):
        assert decisions(opened(kind, other), other, [t - 5, t]) == known


@pytest.mark.slow
@EVERY
def test_opened_policy_decides_as_in_its_environment(kind):
    card, tensors = trained(kind)
    policy = opened(kind)
    simulation = PortfolioSimulation(PANEL, card.environment, 1, first=150, scaler=card.scaler)
    simulation.reset([0], [np.random.default_rng(0)])
    network = card.agent.network(simulation.builder.layout, observation_space(simulation), action_space(simulation))
    network.load_state_dict(tensors)
    state = None
    for _ in range(6):
        decision = policy.decide(PANEL, int(simulation.accounts.t[0]), simulation.accounts.account(0))
        action, state = network.predict(simulation.observe(), state, np.array([False]), deterministic=True)
        action = action_rows(action_space(simulation), action)
        if card.agent.is_discrete:
            assert decision.action.argmax() == action.argmax()
        else:
            np.testing.assert_array_equal(decision.action, action[0])  # as the library acts, with its own memory
        assert simulation.step(action).target[0].tobytes() == decision.target.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in {"ppo", "recurrent_ppo", "shared_asset"} else pytest.mark.nightly)
        for kind in CASES
    ],
)
def test_ensemble_averages_targets_computed_from_its_own_account(kind):
    ensemble = EnsemblePolicy([opened(kind, seed=seed) for seed in (0, 1, 2)])
    members = [opened(kind, seed=seed) for seed in (0, 1, 2)]
    for t in SESSIONS:
        decision = ensemble.decide(PANEL, t, ACCOUNT)
        alone = [member.decide(PANEL, t, ACCOUNT) for member in members]
        np.testing.assert_allclose(decision.target, np.mean([each.target for each in alone], axis=0), rtol=1e-15)
        assert {each.observation_hash for each in alone} == {decision.observation_hash}
        assert decision.action is decision.value is decision.log_prob is None


def test_ensemble_of_equal_weights_decides_as_the_plain_average():
    members = [opened("ppo", seed=seed) for seed in (0, 1, 2)]
    plain, weighted = (EnsemblePolicy(members, weights) for weights in (None, [2.0] * 3))
    for t in SESSIONS:
        decision = plain.decide(PANEL, t, ACCOUNT)
        np.testing.assert_allclose(weighted.decide(PANEL, t, ACCOUNT).target, decision.target, rtol=0, atol=1e-15)


@EVERY
def test_policy_without_estimates_decides_the_same_targets_alone(kind):
    policy = opened(kind)
    made = [policy.without_estimates.decide(PANEL, SESSIONS[0], ACCOUNT), policy.decide(PANEL, SESSIONS[0], ACCOUNT)]
    assert made[0].target.tobytes() == made[1].target.tobytes()
    assert made[0].observation_hash == made[1].observation_hash
    assert made[0].action is made[0].value is made[0].log_prob is None
    assert made[1].action is not None


def test_recurrent_policies_opened_separately_have_separate_states():
    policy = opened("recurrent_ppo")
    policy.decide(PANEL, 160, ACCOUNT)
    remembered = decisions(policy, sessions=[165])
    assert decisions(opened("recurrent_ppo"), sessions=[165]) != remembered
    assert decisions(opened("ppo"), sessions=[160, 165])[1:] == decisions(opened("ppo"), sessions=[165])


@pytest.mark.slow
@EVERY
def test_copy_of_an_opened_policy_has_its_own_state(kind):
    policy = opened(kind)
    twin = copy(policy)
    expected = decisions(opened(kind))
    assert decisions(policy) == expected
    assert decisions(twin) == expected


@pytest.mark.slow
def test_policies_that_share_an_interface_decide_as_alone():
    shared = {}
    together = [open_policy(*trained(kind), PANEL, shared) for kind in CASES]
    assert len(shared) < len(CASES)
    assert [decisions(policy) for policy in together] == [decisions(opened(kind)) for kind in CASES]


@pytest.mark.parametrize("t", [160, 159])
def test_stateful_policy_raises_for_an_earlier_session(t):
    policy = opened("recurrent_ppo")
    policy.decide(PANEL, 160, ACCOUNT)
    with pytest.raises(ValueError):
        policy.decide(PANEL, t, ACCOUNT)
    assert decisions(opened("ppo"), sessions=[160, t])


@pytest.mark.parametrize("agent", CLASSICAL.values(), ids=CLASSICAL)
def test_classical_policy_opens_and_ignores_later_sessions(agent):
    fit = agent.train(PANEL, SPEC, WINDOW, 0)
    card, tensors = read_archive(write_archive(card_of(PANEL, fit, agent=agent), fit.tensors))
    future = with_other_future(PANEL, SESSIONS[-1])
    expected, account = agent.start(), opening_account(3)
    policies = open_policy(card, tensors, PANEL), open_policy(card, tensors, future)
    for t in SESSIONS:
        target = expected.decide(PANEL, t, account).target
        for policy, panel in zip(policies, (PANEL, future), strict=True):
            np.testing.assert_array_equal(policy.decide(panel, t, account).target, target)


def test_classical_agent_with_tensors_raises():
    agent = CLASSICAL["equal_weight"]
    card = card_of(PANEL, agent.train(PANEL, SPEC, WINDOW, 0), agent=agent)
    with pytest.raises(PolicyArchiveError):
        open_policy(card, {"weight": torch.zeros(1)}, PANEL)


def test_open_policy_raises_for_other_symbols_or_features():
    with pytest.raises(PolicyArchiveError):
        opened("ppo", synthetic_panel(200, 2))
    names = (*PANEL.feature_names[:-1], "another")
    with pytest.raises(PolicyArchiveError):
        opened("ppo", replace(PANEL, feature_names=names))


def test_policy_raises_for_another_panel():
    with pytest.raises(ValueError):
        opened("ppo").decide(synthetic_panel(200, 3), 170, opening_account(3))


@EVERY
def test_open_policy_raises_for_tensors_of_another_network(kind):
    card, tensors = trained(kind)
    name = next(iter(tensors))
    for wrong in ({**tensors, name: torch.zeros(9)}, {name: tensors[name]}, {}):
        with pytest.raises(PolicyArchiveError):
            open_policy(card, wrong, PANEL)


def test_training_by_foresight_depends_on_no_session_outside_its_windows():
    spec = SPEC.model_copy(update={"rewards": (Hindsight(horizon=60), DpDistillation())})
    gap = np.arange(71, 96 - SPEC.lookback)  # later ones are observed in the second window
    closes = PANEL.close_returns.copy()
    closes[gap] = -closes[gap] + 0.05
    markets = (PANEL, with_other_future(PANEL, 150), replace(PANEL, close_returns=closes))
    known, future, between = (bits(AGENT.train(market, spec, ((5, 70), (96, 150)), 0)) for market in markets)
    assert future == known
    assert between == known
    assert bits(AGENT.train(PANEL, SPEC, ((5, 70), (96, 150)), 0)) != known
