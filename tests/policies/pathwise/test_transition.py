from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.accounts import environment_legs
from nvtrader_pipelines.envs.actions import LeveredSimplexAction, LongShortAction, SimplexAction
from nvtrader_pipelines.envs.dynamics import hold as hold_in_environment
from nvtrader_pipelines.envs.dynamics import holding_period
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.pathwise.transition import MarketTensors, hold, smooth_abs, soft_drawdown
from nvtrader_pipelines.portfolio.costs import SquareRootImpact, VolatilitySpread, total_cost
from nvtrader_pipelines.portfolio.financing import Financing, GrossFinancing
from tests.envs.two_names import EXPENSIVE, FILLS, FREE, two_names
from tests.panels import GAP, LAST_PRICE, MAX_GAP, eventful_panel

N_SESSIONS, N_ACCOUNTS = 160, 24
LONG, LEVERED, SHORT = (1.0, 0.0), (2.5, 0.0), (2.0, 1.2)  # highest value of long and of short positions
CASES = [(SimplexAction(), LONG), (LeveredSimplexAction(close_cap=4.0), LEVERED),
         (LeveredSimplexAction(close_cap=1.3), LEVERED), (LongShortAction(close_cap=4.0), SHORT),
         (LongShortAction(close_cap=1.1), SHORT)]  # fmt: skip
COSTS = st.lists(
    st.sampled_from([VolatilitySpread(share=0.3), SquareRootImpact(coefficient=80.0, participation=0.5)]), unique=True
)
FINANCING = st.sampled_from([Financing(), EXPENSIVE, GrossFinancing(rate=0.5, borrow_fee=0.2)])


def portfolios(generator, n, n_symbols, sides):
    """Random weights (n, N+1) within the sides' values; every third portfolio is fully invested."""
    values = generator.uniform(0.0, sides, (n, 2))
    values[::3] = sides
    long, short = (generator.dirichlet(np.full(n_symbols, 0.5), n) * value[:, None] for value in values.T)
    names = long - short
    names = names * generator.integers(0, 2, names.shape)
    return np.column_stack([names, 1.0 - names.sum(axis=1)])


def require_equal(panel, environment, weights, target, at, n_sessions):
    """Require equal results of the environment's transition and of the differentiable one; returns the former."""
    period = holding_period(environment_legs(panel, environment), at, n_sessions)
    costs = total_cost(environment.cost_models, panel)
    expected = hold_in_environment(weights, target, np.ones(len(at), np.bool_), period, costs)
    arguments = map(torch.tensor, (weights, target, at))
    holding = hold(MarketTensors.of(panel, environment), *arguments, n_sessions)
    np.testing.assert_allclose(holding.weights, expected.weights, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(holding.growth, expected.session_growth, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(holding.turnover, expected.turnover, rtol=1e-12, atol=1e-12)
    return expected


@pytest.mark.parametrize(("action", "sides"), CASES)
@given(
    seed=st.integers(0, 2**32 - 1),
    fill=st.sampled_from(FILLS),
    n_sessions=st.integers(1, 7),
    bps=st.floats(0.0, 500.0),
    costs=COSTS,
    financing=FINANCING,
)
def test_holding_equals_the_environment(action, sides, seed, fill, n_sessions, bps, costs, financing):
    generator = np.random.default_rng(seed)
    environment = EnvSpec(action=action, fill=fill, turnover_cost_bps=bps, costs=tuple(costs), financing=financing)
    weights, target = (portfolios(generator, N_ACCOUNTS, 6, sides) for _ in range(2))
    at = generator.integers(0, N_SESSIONS - n_sessions, N_ACCOUNTS)
    at[:4] = GAP[0] - 1, GAP[0], LAST_PRICE, LAST_PRICE + MAX_GAP  # frozen and written-off names
    require_equal(eventful_panel(N_SESSIONS, seed % 7), environment, weights, target, at, n_sessions)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(
    ("account", "first"), [([3.0, 0.0, -2.0], -0.40), ([-1.0, 0.0, 2.0], 1.50), ([2.0, 0.0, -1.0], -0.50)]
)
def test_ruined_account_is_cash_without_gradient(account, first, fill):
    panel = two_names([[0.0, 0.0], [first, 0.0], [0.5, 0.5]], [[0.0, 0.0], [first, 0.0], [0.0, 0.0]])
    environment = EnvSpec(action=LongShortAction(close_cap=4.0), fill=fill, financing=EXPENSIVE)
    weights, at = np.array([account]), np.array([0])
    expected = require_equal(panel, environment, weights, weights, at, 2)
    assert expected.session_growth[0].tolist() == [0.0, 1.0]
    target = torch.tensor(weights, requires_grad=True)
    hold(
        MarketTensors.of(panel, environment), torch.tensor(weights), target, torch.tensor(at), 2
    ).growth.sum().backward()
    assert target.grad is not None
    assert target.grad.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "sides"), CASES)
@pytest.mark.parametrize("fill", ["next_open", "same_close"])
def test_gradients_equal_finite_differences(action, sides, fill):
    environment = EnvSpec(
        action=action, fill=fill, costs=(VolatilitySpread(), SquareRootImpact(participation=0.1)), financing=EXPENSIVE
    )
    market, at = MarketTensors.of(eventful_panel(), environment), torch.tensor([GAP[0] - 1, 100])
    generator = np.random.default_rng(5)
    drawn = (
        generator.dirichlet(np.full(6, 3.0), (2, 2)) * sides[0]
        - generator.dirichlet(np.full(6, 3.0), (2, 2)) * sides[1]
    )
    drawn *= np.array([0.7, 0.9])[:, None, None]  # no debt, and no change of cash, are kinks
    names = torch.tensor(drawn, requires_grad=True)

    def holding(names):
        accounts = torch.cat([names, 1.0 - names.sum(dim=2, keepdim=True)], dim=2)  # weights and target
        return tuple(hold(market, *accounts, at, 2))

    assert torch.autograd.gradcheck(holding, (names,))


@pytest.mark.slow
@pytest.mark.parametrize("action", [SimplexAction(), LeveredSimplexAction(close_cap=1.3)])
@pytest.mark.parametrize("smoothing", [0.0, 1e-6])
def test_gradient_through_twenty_decisions_equals_finite_differences(action, smoothing):
    market = MarketTensors.of(eventful_panel(), EnvSpec(action=action, costs=(SquareRootImpact(),)))
    generator = torch.Generator().manual_seed(1)
    logits, direction = torch.randn((2, 20, 3, 7), generator=generator, dtype=torch.float64)
    gross = 1.5 if action.kind == "levered_simplex" else 1.0

    def log_wealth(logits):
        weights, wealth = torch.eye(7, dtype=torch.float64)[-1].expand(3, 7), torch.zeros(3, dtype=torch.float64)
        for decision, scores in enumerate(logits):
            names = gross * scores.softmax(dim=1)[:, :-1]
            target = torch.cat([names, 1.0 - names.sum(dim=1, keepdim=True)], dim=1)
            at = torch.tensor([0, 10, 40]) + 5 * decision
            holding = hold(market, weights, target, at, 5, smoothing)
            weights, wealth = holding.weights, wealth + holding.growth.log().sum(dim=1)
        return wealth.sum()

    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(log_wealth(logits), logits)
    with torch.no_grad():
        difference = (log_wealth(logits + 1e-5 * direction) - log_wealth(logits - 1e-5 * direction)) / 2e-5
    assert (gradient * direction).sum().item() == pytest.approx(difference.item(), rel=1e-6)
    assert gradient[0].abs().min() > 0.0


def test_gradient_of_a_fully_invested_account_is_the_returns():
    panel, at = eventful_panel(), torch.tensor([100])
    market = MarketTensors.of(panel, EnvSpec(fill="same_close", turnover_cost_bps=0.0))
    target = torch.tensor([[0.3, 0.1, 0.2, 0.0, 0.4, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    hold(market, torch.eye(7, dtype=torch.float64)[-1:], target, at, 1).growth.sum().backward()
    assert target.grad is not None
    tradable = panel.tradable[100]
    np.testing.assert_allclose(target.grad.numpy()[0, :-1][tradable], panel.close_returns[101][tradable], atol=1e-15)


@pytest.mark.parametrize("smoothing", [0.0, 1e-6])
def test_holding_without_trade_has_no_cost_and_finite_gradients(smoothing):
    environment = EnvSpec(fill="same_close", costs=(SquareRootImpact(),))
    weights = torch.tensor([[0.2, 0.0, 0.3, 0.1, 0.1, 0.0, 0.3]], dtype=torch.float64, requires_grad=True)
    market, at = MarketTensors.of(eventful_panel(), environment), torch.tensor([20])
    holding = hold(market, weights.detach(), weights, at, 2, smoothing)
    free = hold(replace(market, root_cost=0.0 * market.root_cost), weights, weights, at, 2, smoothing)
    assert holding.turnover.item() == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(holding.growth.detach(), free.growth.detach(), rtol=1e-15)
    holding.growth.sum().backward()
    assert weights.grad is not None
    assert weights.grad.isfinite().all()


def test_period_beyond_the_panel_is_refused():
    market, cash = MarketTensors.of(eventful_panel(), EnvSpec()), torch.eye(7, dtype=torch.float64)[-1:]
    for decided_at, n_sessions in ((N_SESSIONS - 5, 5), (-1, 5), (3, 0)):
        with pytest.raises(IndexError):
            hold(market, cash, cash, torch.tensor([decided_at]), n_sessions)


def test_smooth_absolute_value_is_zero_at_zero():
    values = torch.tensor([0.0, 1e-3, -0.5], dtype=torch.float64)
    expected = [0.0, np.sqrt(2e-6) - 1e-3, np.sqrt(0.25 + 1e-6) - 1e-3]
    np.testing.assert_allclose(smooth_abs(values, 1e-6), expected, rtol=1e-14)
    assert smooth_abs(values, 0.0).tolist() == [0.0, 1e-3, 0.5]


def test_soft_drawdown_is_the_mean_below_the_soft_maximum():
    path = np.array([[0.0, 0.1, -0.2], [0.0, 0.0, 0.0]])
    peaks = np.log(np.cumsum(np.exp(10.0 * path), axis=1)) / 10.0
    np.testing.assert_allclose(soft_drawdown(torch.tensor(path)), (peaks - path).mean(axis=1), rtol=1e-12)
    sharp = soft_drawdown(torch.tensor(path), temperature=1e6)
    np.testing.assert_allclose(sharp, [0.3 / 3, 0.0], atol=1e-5)


def test_short_that_cannot_be_sold_leaves_a_debt_and_no_money():
    panel = two_names(np.zeros((3, 2)), np.zeros((3, 2)), tradable=[[1, 1], [0, 1], [0, 1]])
    panel = replace(panel, tradable=panel.tradable.astype(bool))
    action = LongShortAction(close_cap=2.0)
    environment = EnvSpec(action=action, fill="next_close", turnover_cost_bps=0.0, financing=FREE)
    cash, target = np.array([[0.0, 0.0, 1.0]]), np.array([[-0.5, 1.5, 0.0]])
    expected = require_equal(panel, environment, cash, target, np.array([0]), 1)
    np.testing.assert_allclose(expected.executed, [[0.0, 1.5, -0.5]], atol=1e-12)
    np.testing.assert_allclose(expected.session_growth, [[1.0]], atol=1e-12)
