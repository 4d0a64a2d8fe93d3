"""Checks of agents and baselines: weights on the simplex, reproducible, without look-ahead."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.actions import ChoiceAction
from nvtrader_pipelines.envs.observations import PerAssetObservation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import cut_after, with_other_future
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.agents import Agent, Fit, Learner
from nvtrader_pipelines.policies.archive import PolicyCard, read_archive, write_archive
from nvtrader_pipelines.policies.baselines import ClassicalAgent
from nvtrader_pipelines.policies.learned import open_policy
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.testing.synthetic_panels import eventful_panel, simplex

WINDOW: Window = (5, 99)
FIRST, LAST = 100, 140  # sessions decided
MAX_TIMESTEPS = 2048  # of a learner's checks


def _environment(agent: Agent) -> EnvSpec:
    spec = EnvSpec(lookback=5, episode_len=20)
    if not isinstance(agent, Learner):
        return spec
    action = {"action": ChoiceAction()} if agent.is_discrete else {}
    observation = {"observation": PerAssetObservation()} if agent.backbone.kind == "shared_asset" else {}
    return spec.model_copy(update={**action, **observation})


def _train(agent: Agent, panel: MarketPanel, seed: int = 3) -> Fit:
    return agent.shorten(MAX_TIMESTEPS).train(panel, _environment(agent), WINDOW, seed)


def _open(agent: Agent, fit: Fit, panel: MarketPanel) -> Policy:
    """Start a rule, or open a fit as the policy that its file gives."""
    if isinstance(agent, ClassicalAgent):
        return agent.start()
    days = panel.sessions.astype(str)
    card = PolicyCard(
        experiment="check",
        spec_hash="",
        fold=0,
        seed=3,
        environment=_environment(agent),
        agent=agent,
        symbols=panel.symbols,
        feature_names=panel.feature_names,
        scaler=fit.scaler,
        train_first=days[WINDOW[0]],
        train_last=days[WINDOW[1]],
        panel_digest="",
    )
    return open_policy(*read_archive(write_archive(card, fit.tensors)), panel)


def _decide(policy: Policy, panel: MarketPanel, last: int) -> list[NDArray[np.float64] | None]:
    """Targets of every fifth session; the account's holdings are random after the first."""
    generator, account, decisions = np.random.default_rng(0), opening_account(len(panel.symbols)), []
    for t in range(FIRST, last + 1, 5):
        decisions.append(policy.decide(panel, t, account).target)
        account = Account(simplex(generator, 1, len(panel.symbols))[0])
    return decisions


def _bits(arrays: Any) -> list[bytes | None]:
    return [None if array is None else np.asarray(array).tobytes() for array in arrays]


def _tensors(fit: Fit) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in fit.tensors.items()}


def check_targets_are_on_the_simplex_of_eligible_names(agent: Agent) -> None:
    """Require no trade, or non-negative weights of eligible names and cash that sum to 1."""
    panel = eventful_panel()
    targets = _decide(_open(agent, _train(agent, panel), panel), panel, LAST)
    for t, target in zip(range(FIRST, LAST + 1, 5), targets, strict=True):
        if target is None:
            continue
        assert target.shape == (len(panel.symbols) + 1,)
        assert (target >= 0.0).all(), "weights must not be negative"
        np.testing.assert_allclose(target.sum(), 1.0, atol=1e-9)
        assert not target[:-1][~panel.eligible[t]].any(), "ineligible names must have no weight"


def check_training_is_reproducible_by_seed(agent: Agent) -> None:
    """Require equal bytes for one seed and, of a learner, different ones for another seed."""
    panel = eventful_panel()
    first, again, other = (_train(agent, panel, seed) for seed in (3, 3, 4))
    assert _tensors(first) == _tensors(again), "two trainings of one seed must give the same bytes"
    if not agent.is_classical:
        assert _tensors(first) != _tensors(other), "another seed must give a different policy"


def check_training_does_not_look_beyond_its_window(agent: Agent) -> None:
    """Require the same bytes when later sessions are removed or replaced."""
    panel = eventful_panel()
    known = _train(agent, panel)
    for other in (with_other_future(panel, WINDOW[1]), cut_after(panel, WINDOW[1])):
        fit = _train(agent, other)
        assert fit.scaler == known.scaler
        assert _tensors(fit) == _tensors(known), "training must not depend on sessions after its window"


def check_decisions_do_not_look_ahead(agent: Agent) -> None:
    """Require bit-equal decisions when the future is removed or replaced."""
    panel = eventful_panel()
    fit = _train(agent, panel)
    for t in (115, 130):
        known = _bits(_decide(_open(agent, fit, panel), panel, t))
        for other in (with_other_future(panel, t), cut_after(panel, t)):
            assert _bits(_decide(_open(agent, fit, other), other, t)) == known, f"decisions up to {t} must not change"


AGENTS = (
    check_targets_are_on_the_simplex_of_eligible_names,
    check_training_is_reproducible_by_seed,
    check_training_does_not_look_beyond_its_window,
    check_decisions_do_not_look_ahead,
)
