from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.rewards import DifferentialSharpe, LogGrowth
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import StopProperly
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from tests.contracts.families import FAMILIES, defaults, members
from tests.panels import eventful_panel, with_other_future

RULES = pytest.mark.parametrize("rule", defaults("termination"), ids=lambda rule: rule.kind)
# A limit of each kind that strikes some of the episodes on a nervous market, and not all at once.
TIGHT = {"drawdown": {"limit": 0.2}, "margin_call": {"maintenance": 0.85}, "risk_breach": {"max_cvar": 0.048}}


def nervous_panel():
    """A market that moves four times as much as usual, and a little down."""
    panel = eventful_panel()
    still = np.zeros_like(panel.close_returns)
    return replace(panel, close_returns=np.clip(4.0 * panel.close_returns - 0.002, -0.9, None), overnight_returns=still)


PANEL = nervous_panel()


def tight(kind, **fields):
    (member,) = (member for member in members(FAMILIES["termination"]) if member().kind == kind)
    return member(**TIGHT[kind], **fields)


def spec_with(*rules, **fields):
    return EnvSpec(
        episode_len=20,
        rebal_freq=4,
        action=ResidualAction(anchor=EqualWeightAnchor()),
        rewards=(LogGrowth(), DifferentialSharpe()),
        terminations=rules,
        **fields,
    )


def played(spec, panel=PANEL, n=8, n_steps=25, seed=0, **window):
    """The steps of n episodes side by side, each begun anew where it ended."""
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
def test_what_a_rule_strikes_is_truncated_or_terminated_as_it_says(rule, truncates):
    steps = played(spec_with(tight(rule.kind, truncates=truncates)))
    struck = np.array([step.struck[rule.kind] for step in steps])
    assert 0 < struck.sum() < struck.size
    ended = np.array([step.truncated if truncates else step.terminated for step in steps])
    other = np.array([step.terminated if truncates else step.truncated for step in steps])
    assert ended[struck].all()
    assert not other[struck].any()


@RULES
def test_an_account_that_stays_in_cash_is_never_struck(rule):
    spec = EnvSpec(episode_len=20, rebal_freq=4, terminations=(tight(rule.kind),))
    simulation = PortfolioSimulation(PANEL, spec, 2)
    simulation.reset([0, 1], [np.random.default_rng(i) for i in range(2)])
    cash = np.tile([-5.0] * 6 + [5.0], (2, 1)) * 100.0
    for _ in range(15):
        assert not simulation.step(cash).struck[rule.kind].any()


@RULES
def test_an_episode_until_it_is_struck_is_that_of_an_environment_without_the_rule(rule):
    ruled, free = (played(spec, n_steps=20) for spec in (spec_with(tight(rule.kind)), spec_with()))
    alive = np.ones(8, dtype=bool)
    for step, other in zip(ruled, free, strict=True):
        np.testing.assert_array_equal(step.reward[alive], other.reward[alive])
        alive &= ~step.struck[rule.kind]
    assert not alive.all()


@RULES
@pytest.mark.parametrize("form", ["sign_safe", "literal"])
def test_the_steps_of_many_episodes_are_those_of_each_bit_for_bit(rule, form):
    spec = spec_with(tight(rule.kind), stop_properly=StopProperly(form=form))
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
            assert together.struck[rule.kind][i] == own.struck[rule.kind][0]


@RULES
def test_no_session_after_the_window_decides_an_episodes_end(rule):
    spec, window = spec_with(tight(rule.kind)), {"first": 12, "last": 110}
    steps, others = (played(spec, panel, **window) for panel in (PANEL, with_other_future(PANEL, 110)))
    for step, other in zip(steps, others, strict=True):
        np.testing.assert_array_equal(step.struck[rule.kind], other.struck[rule.kind])
