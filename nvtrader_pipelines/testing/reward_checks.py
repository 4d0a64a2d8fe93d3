"""Checks of reward terms: finite, proportional to the weight, resumable, without look-ahead."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.fill_timing import FillTiming
from nvtrader_pipelines.envs.rewards import RewardTerm
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import cut_after, with_other_future
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.testing.synthetic_panels import eventful_panel, simplex

N_NAMES = 6
TRAINING = ((0, 64),)  # window that terms which look ahead may see
FILLS: tuple[FillTiming, ...] = ("next_open", "next_close", "same_close")


def spec_with(term: RewardTerm, fill: FillTiming = "next_open") -> EnvSpec:
    """Return an environment whose only reward is the term."""
    return EnvSpec.model_construct(**{**dict(EnvSpec(vol_penalty=0.0, fill=fill)), "rewards": (term,)})


def _open(term: RewardTerm, panel: MarketPanel, n: int, *, t: int, fill: FillTiming = "next_open") -> Accounts:
    """Open n accounts in training, at session `t`."""
    return Accounts(panel, spec_with(term, fill), n, t=t, training=TRAINING)


def contributions(term: RewardTerm, panel: MarketPanel, *, fill: FillTiming = "next_open") -> NDArray[np.float64]:
    """Contributions (8, 4) of eight steps of four accounts, from session 40 to session 64."""
    accounts, generator = _open(term, panel, 4, t=40, fill=fill), np.random.default_rng(0)
    every = np.ones(4, dtype=bool)
    steps = [accounts.trade(simplex(generator, 4, N_NAMES), every, 3) for _ in range(8)]
    return np.array([step.reward_terms[term.kind] for step in steps])


def check_term_returns_one_finite_contribution_per_account(term: RewardTerm) -> None:
    """Require finite contributions (n,)."""
    found = contributions(term, eventful_panel())
    assert found.shape == (8, 4), f"a step of 4 accounts must give 4 contributions, but gave {found.shape[1:]}"
    assert np.isfinite(found).all(), "contributions must be finite"


def check_term_is_proportional_to_its_weight(term: RewardTerm) -> None:
    """Require three times the contribution at three times the weight."""
    tripled = type(term).model_validate({**term.model_dump(), "weight": 3.0 * term.weight})
    panel = eventful_panel()
    np.testing.assert_allclose(contributions(tripled, panel), 3.0 * contributions(term, panel), rtol=1e-12)


def check_contributions_do_not_look_ahead(term: RewardTerm) -> None:
    """Require bit-equal contributions when the future after the training window is removed or replaced."""
    panel = eventful_panel()
    for fill in FILLS:
        known = contributions(term, panel, fill=fill)
        for other in (with_other_future(panel, 64), cut_after(panel, 64)):
            np.testing.assert_array_equal(contributions(term, other, fill=fill), known)


def check_contributions_of_many_accounts_equal_single_ones(term: RewardTerm) -> None:
    """Require bit-equal contributions of an account alone and among others."""
    panel, n, generator = eventful_panel(), 7, np.random.default_rng(3)
    targets = [simplex(generator, n, N_NAMES) for _ in range(6)]
    together = _open(term, panel, n, t=40)
    alone = [_open(term, panel, 1, t=40) for _ in range(n)]
    for target in targets:
        both = together.trade(target, np.ones(n, dtype=bool), 9).reward_terms[term.kind]
        own = [one.trade(target[[i]], np.ones(1, dtype=bool), 9).reward_terms[term.kind] for i, one in enumerate(alone)]
        np.testing.assert_array_equal(both, np.concatenate(own))


def check_reset_account_is_rewarded_as_new(term: RewardTerm) -> None:
    """Require that a new episode forgets the last one, and leaves other accounts as they are."""
    panel, generator = eventful_panel(), np.random.default_rng(4)
    targets = [simplex(generator, 3, N_NAMES) for _ in range(8)]
    every, one = np.ones(3, dtype=bool), np.ones(1, dtype=bool)
    accounts, fresh, undisturbed = (_open(term, panel, n, t=30) for n in (3, 1, 3))
    for target in targets[:4]:
        accounts.trade(target, every, 3)
        undisturbed.trade(target, every, 3)
    accounts.open([1], [60])
    fresh.open([0], [60])
    for target in targets[4:]:
        found = accounts.trade(target, every, 3).reward_terms[term.kind]
        assert found[1] == fresh.trade(target[[1]], one, 3).reward_terms[term.kind][0]
        expected = undisturbed.trade(target, every, 3).reward_terms[term.kind]
        np.testing.assert_array_equal(found[[0, 2]], expected[[0, 2]])


def check_term_restored_from_a_state_continues_bit_for_bit(term: RewardTerm) -> None:
    """Require equal contributions after a restored state, and that the state is a copy."""
    panel, generator = eventful_panel(), np.random.default_rng(5)
    targets = [simplex(generator, 3, N_NAMES) for _ in range(8)]
    every = np.ones(3, dtype=bool)
    accounts, restored = (_open(term, panel, 3, t=30) for _ in range(2))
    for target in targets[:4]:
        accounts.trade(target, every, 3)
    state = accounts.state()
    before = {name: array.copy() for name, array in state.items()}
    restored.restore(state)
    for target in targets[4:]:
        found, expected = (one.trade(target, every, 3).reward_terms[term.kind] for one in (restored, accounts))
        np.testing.assert_array_equal(found, expected)
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])  # a state is a copy, which later steps do not change


def check_contribution_at_ruin_is_finite(term: RewardTerm) -> None:
    """Require a finite reward when a name loses everything."""
    panel = eventful_panel()
    returns = panel.close_returns.copy()
    returns[50:60, 0] = -1.0
    panel = replace(panel, close_returns=returns)
    accounts = _open(term, panel, 1, t=45, fill="same_close")
    for _ in range(3):
        step = accounts.trade(np.eye(N_NAMES + 1)[[0]], np.array([True]), 5)
        assert np.isfinite(step.reward).all(), "the reward at ruin must be finite"


REWARDS = (
    check_term_returns_one_finite_contribution_per_account,
    check_term_is_proportional_to_its_weight,
    check_contributions_do_not_look_ahead,
    check_contributions_of_many_accounts_equal_single_ones,
    check_reset_account_is_rewarded_as_new,
    check_term_restored_from_a_state_continues_bit_for_bit,
    check_contribution_at_ruin_is_finite,
)
