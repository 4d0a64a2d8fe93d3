from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.actions import LeveredSimplexAction, ResidualAction
from nvtrader_pipelines.envs.rewards import DifferentialSharpe, LogGrowth
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import StopProperly
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from tests.contracts.families import FAMILIES, defaults, members
from tests.panels import eventful_panel, with_other_future

RULES = pytest.mark.parametrize("rule", defaults("termination"), ids=lambda rule: rule.kind)
# Limits that end some of the episodes on a nervous market, and not all at once.
TIGHT = {
    "drawdown": {"limit": 0.2},
    "margin_call": {"maintenance": 0.85},
    "maintenance_margin": {"margin": 0.4},
    "risk_breach": {"max_cvar": 0.048},
}


def nervous_panel():
    """Build a market with four times the usual moves and a small downward drift."""
    panel = eventful_panel()
    still = np.zeros_like(panel.close_returns)
    return replace(panel, close_returns=np.clip(4.0 * panel.close_returns - 0.002, -0.9, None), overnight_returns=still)


PANEL = nervous_panel()


def tighten(kind, **fields):
    (member,) = (member for member in members(FAMILIES["termination"]) if member().kind == kind)
    return member(**TIGHT[kind], **fields)


def spec_with(*rules, **fields):
    is_levered = any(rule.kind == "maintenance_margin" for rule in rules)
    return EnvSpec(
        episode_len=20,
        rebal_freq=4,
        action=LeveredSimplexAction() if is_levered else ResidualAction(anchor=EqualWeightAnchor()),
        rewards=(LogGrowth(), DifferentialSharpe()),
        terminations=rules,
        **fields,
    )


def play(spec, panel=PANEL, n=8, n_steps=25, seed=0, **window):
    """Play n episodes side by side, each reset when it ends; returns the steps."""
    simulation = PortfolioSimulation(panel, spec, n, **window)
    generators = [np.random.default_rng([seed, i]) for i in range(n)]
    simulation.reset(range(n), generators)
    actions, steps = np.random.default_rng(1).normal(0.0, 2.0, (n_steps, n, 7)), []
    for action in actions:
        steps.append(simulation.step(action))
        done = np.flatnonzero(steps[-1].terminated | steps[-1].truncated)
        simulation.reset(done.tolist(), [generators[i] for i in done])
    return steps


@RULES
@pytest.mark.parametrize("truncates", [True, False])
def test_rule_truncates_or_terminates_as_specified(rule, truncates):
    steps = play(spec_with(tighten(rule.kind, truncates=truncates)))
    triggered = np.array([step.triggered[rule.kind] for step in steps])
    assert 0 < triggered.sum() < triggered.size
    ended = np.array([step.truncated if truncates else step.terminated for step in steps])
    other = np.array([step.terminated if truncates else step.truncated for step in steps])
    assert ended[triggered].all()
    assert not other[triggered].any()


@RULES
def test_account_in_cash_is_never_ended(rule):
    spec = EnvSpec(episode_len=20, rebal_freq=4, terminations=(tighten(rule.kind),))
    simulation = PortfolioSimulation(PANEL, spec, 2)
    simulation.reset([0, 1], [np.random.default_rng(i) for i in range(2)])
    cash = np.tile([-5.0] * 6 + [5.0], (2, 1)) * 100.0
    for _ in range(15):
        assert not simulation.step(cash).triggered[rule.kind].any()


@RULES
def test_episode_is_unchanged_until_the_rule_ends_it(rule):
    spec = spec_with(tighten(rule.kind))
    ruled, free = (play(each, n_steps=20) for each in (spec, spec.model_copy(update={"terminations": ()})))
    alive = np.ones(8, dtype=bool)
    for step, other in zip(ruled, free, strict=True):
        np.testing.assert_array_equal(step.reward[alive], other.reward[alive])
        alive &= ~step.triggered[rule.kind]
    assert not alive.all()


@RULES
@pytest.mark.parametrize("form", ["sign_safe", "literal"])
def test_steps_of_many_episodes_equal_single_ones_bit_for_bit(rule, form):
    spec = spec_with(tighten(rule.kind), stop_properly=StopProperly(form=form))
    simulation, starts = PortfolioSimulation(PANEL, spec, 7), np.random.default_rng(0).integers(0, 60, 7)
    alone = [PortfolioSimulation(PANEL, spec, 1) for _ in range(7)]
    simulation.accounts.open(list(range(7)), starts.tolist())
    for one, t in zip(alone, starts.tolist(), strict=True):
        one.accounts.open([0], [t])
    for action in np.random.default_rng(1).normal(0.0, 2.0, (20, 7, 7)):
        together = simulation.step(action)
        for i, one in enumerate(alone):
            own = one.step(action[[i]])
            for name in ("observation", "reward", "terminated", "truncated"):
                np.testing.assert_array_equal(getattr(together, name)[[i]], getattr(own, name))
            for name, values in together.account.reward_terms.items():
                assert values[i] == own.account.reward_terms[name][0]
            assert together.triggered[rule.kind][i] == own.triggered[rule.kind][0]


@RULES
def test_end_of_an_episode_does_not_look_beyond_the_window(rule):
    spec, window = spec_with(tighten(rule.kind)), {"first": 12, "last": 110}
    steps, others = (play(spec, panel, **window) for panel in (PANEL, with_other_future(PANEL, 110)))
    for step, other in zip(steps, others, strict=True):
        np.testing.assert_array_equal(step.triggered[rule.kind], other.triggered[rule.kind])
