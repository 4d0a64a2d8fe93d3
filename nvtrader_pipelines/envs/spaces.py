"""Gymnasium spaces of a simulation."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from nvtrader_pipelines.envs.actions import Action
from nvtrader_pipelines.envs.simulation import PortfolioSimulation


def observation_space(simulation: PortfolioSimulation) -> spaces.Box:
    """Unbounded float32 box of the observation's length."""
    return spaces.Box(-np.inf, np.inf, (simulation.builder.length,), np.float32)


def action_space(simulation: PortfolioSimulation) -> spaces.Box | spaces.Discrete:
    """Box of raw actions, or the numbers of the choices."""
    return space_of(simulation.spec.action, len(simulation.panel.symbols))


def space_of(action: Action, n_symbols: int) -> spaces.Box | spaces.Discrete:
    """Space of an action on a panel of N names."""
    size = action.size(n_symbols)
    if getattr(action, "is_discrete", False):
        return spaces.Discrete(size.length)
    return spaces.Box(-size.bound, size.bound, (size.length,), np.float32)


def action_rows(space: spaces.Space[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """Raw actions (n, A): as they are, or with a 1 at the number of each choice.

    Raises:
        ValueError: if a number is not of a choice.
    """
    if not isinstance(space, spaces.Discrete):
        return actions
    rows = actions[:, None] == np.arange(space.n)
    if not rows.any(axis=1).all():
        raise ValueError(f"a choice must be a number from 0 to {space.n - 1}, but found {actions.tolist()}")
    return rows.astype(np.float32)
