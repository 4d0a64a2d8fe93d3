import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.spec import EnvSpec
from tests.contracts.families import defaults, simplex
from tests.panels import cut, eventful_panel, with_other_future

PANEL = eventful_panel()
TERMS = pytest.mark.parametrize("term", defaults("reward_term"), ids=lambda term: term.kind)


def spec_with(term, fill="next_open"):
    return EnvSpec(rewards=(term,), vol_penalty=0.0, fill=fill)


def contributions(term, panel, *, n=4, t=40, n_steps=8, fill="next_open"):
    accounts, generator = Accounts(panel, spec_with(term, fill), n, t=t), np.random.default_rng(0)
    every = np.ones(n, dtype=bool)
    return np.array(
        [accounts.trade(simplex(generator, n, 6), every, 3).reward_terms[term.kind] for _ in range(n_steps)]
    )


@TERMS
def test_term_returns_one_finite_contribution_per_account(term):
    found = contributions(term, PANEL)
    assert found.shape == (8, 4)
    assert np.isfinite(found).all()


@TERMS
def test_term_is_proportional_to_its_weight(term):
    tripled = type(term)(**{**term.model_dump(), "weight": 3.0 * term.weight})
    np.testing.assert_allclose(contributions(tripled, PANEL), 3.0 * contributions(term, PANEL), rtol=1e-12)


@TERMS
def test_term_of_an_account_in_cash_is_zero(term):
    accounts = Accounts(PANEL, spec_with(term), 1, t=60)
    cash = np.eye(7)[[6]]
    steps = [accounts.trade(cash, np.array([True]), 3) for _ in range(5)]
    own = [step.reward_terms[term.kind][0] for step in steps]
    assert own == [0.0] * 5 or term.kind == "benchmark_relative"


@TERMS
@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_contributions_do_not_look_ahead(term, fill):
    known = contributions(term, PANEL, fill=fill)
    for other in (with_other_future(PANEL, 64), cut(PANEL, 64)):
        np.testing.assert_array_equal(contributions(term, other, fill=fill), known)


@TERMS
def test_contributions_of_many_accounts_equal_single_ones(term):
    n, generator = 7, np.random.default_rng(3)
    targets = [simplex(generator, n, 6) for _ in range(6)]
    together = Accounts(PANEL, spec_with(term), n, t=40)
    alone = [Accounts(PANEL, spec_with(term), 1, t=40) for _ in range(n)]
    for target in targets:
        both = together.trade(target, np.ones(n, dtype=bool), 9).reward_terms[term.kind]
        own = [one.trade(target[[i]], np.ones(1, dtype=bool), 9).reward_terms[term.kind] for i, one in enumerate(alone)]
        np.testing.assert_array_equal(both, np.concatenate(own))


@TERMS
def test_reset_account_is_rewarded_as_new_and_others_are_unaffected(term):
    generator = np.random.default_rng(4)
    targets = [simplex(generator, 3, 6) for _ in range(8)]
    every, one = np.ones(3, dtype=bool), np.ones(1, dtype=bool)
    accounts, fresh, undisturbed = (Accounts(PANEL, spec_with(term), n, t=30) for n in (3, 1, 3))
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


@TERMS
def test_terms_restored_from_a_state_continue_bit_for_bit(term):
    generator = np.random.default_rng(5)
    targets = [simplex(generator, 3, 6) for _ in range(8)]
    every = np.ones(3, dtype=bool)
    accounts, restored = (Accounts(PANEL, spec_with(term), 3, t=30) for _ in range(2))
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


@TERMS
def test_contribution_at_ruin_is_finite(term):
    panel = eventful_panel()
    panel.close_returns[50:60, 0] = -1.0
    accounts = Accounts(panel, spec_with(term, "same_close"), 1, t=45)
    for _ in range(3):
        step = accounts.trade(np.eye(7)[[0]], np.array([True]), 5)
        assert np.isfinite(step.reward).all()
