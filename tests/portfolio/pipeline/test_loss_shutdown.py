import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.portfolio.losses import NEVER
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown
from nvtrader_pipelines.portfolio.pipeline.stage import Guards, gross_exposure
from tests.envs.two_names import two_names
from tests.execution.desks import Wants
from tests.markets import synthetic_panel
from tests.portfolio.pipeline.situations import situation

PANEL = synthetic_panel(120, 3)
PROPOSAL = [0.4, 0.3, 0.02, 0.28]
QUIET = np.zeros(63)


def decide(timing, proposal=PROPOSAL, **account):
    """Weights, reason and guards of a timing."""
    at = situation(PANEL, **{"held": proposal, **account})
    return timing.start(PANEL)(np.array(proposal), at)


def returns_of(*latest):
    """Recent returns that end with the latest."""
    return np.append(QUIET[: 63 - len(latest)], latest)


def test_names_in_their_shutdown_are_cut_to_the_probe():
    weights, reason, guards = decide(LossShutdown(), since_loss=[0, NEVER, 2])
    np.testing.assert_allclose(weights, [0.05, 0.3, 0.02, 0.63])  # a smaller weight is not enlarged
    assert reason.endswith("lost within 3 decisions: cut to 5.00%")
    assert guards == Guards(n_shutdown=1, probe=0.05)


def test_short_positions_in_their_shutdown_are_cut_to_the_probe():
    weights, _, guards = decide(LossShutdown(probe=0.1), [0.4, -0.3, -0.05, 0.95], since_loss=[NEVER, 1, 1])
    np.testing.assert_allclose(weights, [0.4, -0.1, -0.05, 0.75])
    assert guards.n_shutdown == 1


@pytest.mark.parametrize("cooldown", [3, 12])
def test_shutdown_lasts_exactly_its_cooldown(cooldown):
    timing = LossShutdown(cooldown=cooldown)
    cut = [n for n in range(NEVER + 1) if decide(timing, since_loss=[n, NEVER, NEVER])[0][0] == timing.probe]
    assert cut == list(range(cooldown))


@pytest.mark.parametrize("cooldown", [3, 12])
def test_account_returns_to_its_weights_after_the_cooldown(cooldown):
    returns = np.zeros((20, 2))
    returns[1, 0] = -0.01
    panel, spec = two_names(returns), EnvSpec(fill="same_close", turnover_cost_bps=0.0, vol_penalty=0.0)
    pipeline = WeightPipeline(timing=LossShutdown(cooldown=cooldown), risk_limits=RiskLimits(max_position=0.5))
    policy = PipelinedPolicy(Wants(0.4, 0.4, 0.2), pipeline, Thresholds(), 1)
    accounts, held = Accounts(panel, spec, 1, tracks_positions=True), []
    for t in range(cooldown + 3):
        target = policy.decide(panel, t, accounts.account(0)).target
        target = accounts.weights[0] if target is None else target
        held.append(target[0])
        accounts.trade(target[None], np.array([True]), 1)
    np.testing.assert_allclose(held, [0.4, *[0.05] * cooldown, 0.4, 0.4])


def test_account_without_known_losses_is_not_cut():
    weights, reason, guards = decide(LossShutdown(), since_loss=None)
    assert (weights.tolist(), reason, guards.n_shutdown) == (PROPOSAL, "", 0)


def test_cooldown_beyond_what_is_counted_is_refused():
    with pytest.raises(ValidationError):
        LossShutdown(cooldown=NEVER + 1)
    assert not LossShutdown().needs_fit


@pytest.mark.parametrize(("drawdown", "scale"), [(0.179, 1.0), (0.18, 0.5), (0.19, 0.5)])
def test_drawdown_at_its_threshold_scales_the_weights(drawdown, scale):
    weights, reason, guards = decide(GymrlGuard(), drawdown=drawdown)
    np.testing.assert_allclose(weights[:-1], scale * np.array(PROPOSAL[:-1]))
    assert (guards.drawdown, guards.scale, bool(reason)) == (scale < 1.0, scale, scale < 1.0)


@pytest.mark.parametrize(("latest", "fires"), [(-0.0301, True), (-0.03, True), (-0.0299, False)])
def test_low_return_replaces_the_penalty_and_changes_no_weight(latest, fires):
    weights, reason, guards = decide(GymrlGuard(min_trailing_return=-0.03), recent_returns=returns_of(latest))
    assert (weights.tolist(), reason) == (PROPOSAL, "")
    assert (guards.negative_return, guards.turnover_penalty) == (fires, 0.0075 if fires else None)


def test_trailing_return_covers_the_window_and_needs_a_return():
    guard = GymrlGuard(window=2)
    assert not decide(guard, recent_returns=QUIET)[2].negative_return
    assert decide(guard, recent_returns=returns_of(0.5, 0.01, -0.01))[2].negative_return
    assert not decide(guard, recent_returns=returns_of(-0.5, 0.01, 0.01))[2].negative_return


@pytest.mark.parametrize(("most", "fires"), [(0.49, True), (0.5, True), (0.51, False)])
def test_turnover_at_its_threshold_cuts_to_the_smaller_probe(most, fires):
    guard = GymrlGuard(max_turnover=most, shutdown=LossShutdown(probe=0.0625))
    account = {"held": [0.25, 0.25, 0.125, 0.375], "since_loss": [9, 9, 1]}
    weights, _, guards = decide(guard, [0.5, 0.125, 0.25, 0.125], **account)
    probe = 0.0015 if fires else 0.0625  # turnover after the shutdown: .25 + .125 + .0625, and .0625 of cash
    assert weights[2] == probe
    assert guards == Guards(turnover=fires, n_shutdown=1, probe=probe)


def test_turnover_without_a_shutdown_fires_no_guard():
    weights, reason, guards = decide(
        GymrlGuard(max_turnover=0.01, shutdown=None), held=[0, 0, 0, 1], since_loss=[0] * 3
    )
    assert (weights.tolist(), reason, guards) == (PROPOSAL, "", Guards())


def test_shutdown_and_drawdown_cut_and_then_scale():
    weights, reason, guards = decide(GymrlGuard(max_turnover=1.0), drawdown=0.2, since_loss=[0, NEVER, NEVER])
    np.testing.assert_allclose(weights[:-1], [0.025, 0.15, 0.01])
    assert reason == (
        "drawdown of 20.0%, at least 18.0%: 50% of the weights; "
        f"{PANEL.symbols[0]} lost within 3 decisions: cut to 5.00%"
    )
    assert guards == Guards(drawdown=True, scale=0.5, n_shutdown=1, probe=0.05)


@given(seed=st.integers(0, 2**32 - 1), probe=st.floats(0.0, 1.0), wide=st.floats(0.0, 1.0), scale=st.floats(0.01, 1.0))
def test_guards_raise_no_weight(seed, probe, wide, scale):
    generator = np.random.default_rng(seed)
    names = generator.uniform(-0.6, 0.6, 3)
    proposal = np.append(names, 1.0 - names.sum())
    guard = GymrlGuard(shutdown=LossShutdown(probe=probe), probe=wide, leverage_scale=scale, max_turnover=0.3)
    account = {
        "drawdown": generator.uniform(0.0, 0.4),
        "since_loss": generator.choice([0, 2, 3, NEVER], 3),
        "held": [0, 0, 0, 1],
        "recent_returns": generator.normal(0.0, 0.01, 63),
    }
    weights, _, guards = decide(guard, proposal, **account)
    assert (np.abs(weights[:-1]) <= np.abs(names) + 1e-15).all()
    assert (np.sign(weights[:-1]) * np.sign(names) >= 0.0).all()
    assert gross_exposure(weights) <= guards.scale * gross_exposure(proposal) + 1e-12
    assert weights.sum() == pytest.approx(1.0)


def test_pipeline_records_the_guards_of_its_timing():
    limits = (PositionCap(), GrossExposure())
    at = situation(PANEL, held=PROPOSAL, since_loss=[0, NEVER, NEVER])
    guard = GymrlGuard(max_turnover=1.0)
    pipeline = WeightPipeline(timing=guard, limits=limits, risk_limits=RiskLimits(max_position=1.0))
    result = pipeline.start(PANEL)(np.array(PROPOSAL), at)
    assert result.guards == Guards(n_shutdown=1, probe=0.05)
    assert result.weights[0] == 0.05
    assert WeightPipeline().start(PANEL)(np.array(PROPOSAL), at).guards is None
