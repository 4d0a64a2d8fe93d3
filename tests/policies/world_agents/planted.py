"""Markets of one name with a planted sign, and rewards of an agent in a test."""

from dataclasses import replace

import numpy as np

from tests.markets import synthetic_panel


def planted_panel(n_sessions, seed, *, lag=1, keep=0.8, deviation=0.015, opens=True):
    """Build a market whose return keeps the sign of that `lag` sessions before with a probability."""
    generator = np.random.default_rng(seed)
    signs = np.where(generator.random(n_sessions) < keep, 1.0, -1.0)
    for t in range(lag, n_sessions):
        signs[t] *= signs[t - lag]
    return panel_with(signs * np.abs(generator.normal(0.0, deviation, n_sessions)), opens=opens)


def shuffled(panel, seed):
    """Panel with the same returns in a random order."""
    returns = np.random.default_rng(seed).permutation(panel.close_returns[:, 0])
    return panel_with(returns, opens=panel.overnight_returns is not None)


def panel_with(returns, *, opens=True):
    """Build a market of one name with given returns (T,), which are all earned after the open."""
    nights = np.zeros((len(returns), 1)) if opens else None
    arrays = {"overnight_returns": nights, "high_returns": None, "low_returns": None}
    return replace(synthetic_panel(len(returns), 1, opens=opens), close_returns=returns[:, None], **arrays)


def rewards(world, decide, panel=None, window=None):
    """Rewards (k, n) of a test's accounts, 0 after an episode's end."""
    simulation = world.examine(panel, window)
    n = simulation.n_accounts
    simulation.reset(range(n), [np.random.default_rng([7, i]) for i in range(n)])
    running, rows = np.ones(n, bool), []
    while running.any():
        step = simulation.step(decide(simulation.observe()))
        rows.append(step.reward * running)
        running &= ~(step.terminated | step.truncated)
    return np.array(rows)


def trained_rewards(agent, world, panel=None, train=None, test=None, seed=0):
    """Rewards (k, n) of an agent in a test after its training."""
    fit = agent.train(world, panel, train, seed)
    return rewards(world, agent.start(world.examine(panel, test), fit.tensors), panel, test)
