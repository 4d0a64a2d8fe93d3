from dataclasses import replace

import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.dynamics import Account, opening_account
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.policies.learned import EnsemblePolicy, open_policy
from tests.markets import synthetic_panel
from tests.panels import cut, with_other_future
from tests.policies.small import AGENT, RESIDUAL_AGENT, RESIDUAL_SPEC, SPEC, WINDOW, card_of

PANEL = synthetic_panel(200, 3)
KINDS = {"flat": (SPEC, AGENT), "shared": (RESIDUAL_SPEC, RESIDUAL_AGENT)}
BOTH = pytest.mark.parametrize("kind", KINDS)
FITS = {}


def trained(kind, seed=0):
    spec, agent = KINDS[kind]
    if (kind, seed) not in FITS:
        FITS[kind, seed] = agent.train(PANEL, spec, WINDOW, seed)
    return card_of(PANEL, FITS[kind, seed], spec, agent, seed=seed), FITS[kind, seed].tensors


def opened(kind, panel=PANEL, seed=0):
    return open_policy(*trained(kind, seed), panel)


@BOTH
def test_a_decision_names_target_weights_and_what_the_network_said(kind):
    decision = opened(kind).decide(PANEL, 170, Account(np.array([0.2, 0.3, 0.1, 0.4]), 0.9, 1.0))
    assert decision.target is not None
    assert decision.target.sum() == pytest.approx(1.0)
    assert decision.action is not None
    assert (decision.action.shape, decision.action.dtype) == ((4,), np.float32)
    assert isinstance(decision.observation_hash, int)
    assert np.isfinite([decision.value, decision.log_prob]).all()


@BOTH
def test_decisions_are_the_same_every_time_and_on_every_opening(kind):
    account = opening_account(3)
    first, second = opened(kind), opened(kind)
    torch.rand(10)
    decisions = [policy.decide(PANEL, 180, account) for policy in (first, first, second)]
    assert len({decision.target.tobytes() for decision in decisions}) == 1
    assert len({decision.observation_hash for decision in decisions}) == 1


@BOTH
@pytest.mark.parametrize("t", [160, 180])
def test_a_decision_is_bit_equal_whatever_comes_after_it(kind, t):
    account = opening_account(3)
    known = opened(kind).decide(PANEL, t, account)
    for other in (with_other_future(PANEL, t), cut(PANEL, t)):
        decision = opened(kind, other).decide(other, t, account)
        assert decision.target.tobytes() == known.target.tobytes()
        assert decision.observation_hash == known.observation_hash
        assert (decision.value, decision.log_prob) == (known.value, known.log_prob)


@BOTH
def test_a_policy_decides_in_use_exactly_what_it_would_do_in_its_environment(kind):
    card, _ = trained(kind)
    policy = opened(kind)
    simulation = PortfolioSimulation(PANEL, card.environment, 1, first=150, scaler=card.scaler)
    simulation.reset([0], [np.random.default_rng(0)])
    for _ in range(6):
        decision = policy.decide(PANEL, int(simulation.accounts.t[0]), simulation.accounts.account(0))
        step = simulation.step(decision.action[None, :])
        assert step.target[0].tobytes() == decision.target.tobytes()


@BOTH
def test_an_ensemble_wants_the_mean_of_its_members_weights_from_its_own_account(kind):
    members = [opened(kind, seed=seed) for seed in (0, 1, 2)]
    account = Account(np.array([0.2, 0.3, 0.1, 0.4]), 0.9, 1.0)
    decision = EnsemblePolicy(members).decide(PANEL, 170, account)
    targets = [member.decide(PANEL, 170, account).target for member in members]
    np.testing.assert_allclose(decision.target, np.mean(targets, axis=0), rtol=1e-15)
    assert decision.action is decision.value is decision.log_prob is decision.observation_hash is None


def test_a_policy_refuses_other_symbols_or_features_than_it_was_trained_on():
    with pytest.raises(PolicyArchiveError, match=r"on 3 symbols \(AAA, BBB, CCC\), but.* has 2 symbols \(AAA, BBB\)"):
        opened("flat", synthetic_panel(200, 2))
    names = (*PANEL.feature_names[:-1], "another")
    with pytest.raises(PolicyArchiveError, match="features"):
        opened("flat", replace(PANEL, feature_names=names))


def test_a_policy_refuses_a_panel_it_was_not_opened_on():
    with pytest.raises(ValueError, match="open it again on this one"):
        opened("flat").decide(synthetic_panel(200, 3), 170, opening_account(3))


def test_tensors_that_do_not_fit_the_card_are_refused_with_a_sentence():
    card, tensors = trained("flat")
    for wrong in ({**tensors, "log_std": torch.zeros(9)}, {"log_std": tensors["log_std"]}):
        with pytest.raises(PolicyArchiveError, match="tensors do not fit the network its card names"):
            open_policy(card, wrong, PANEL)
