"""Gymnasium spaces of a simulation."""

import numpy as np
from gymnasium import spaces

from nvtrader_pipelines.envs.simulation import PortfolioSimulation


def observation_space(simulation: PortfolioSimulation) -> spaces.Box:
    """Unbounded float32 box of the observation's length."""
    return spaces.Box(-np.inf, np.inf, (simulation.builder.length,), np.float32)


def action_space(simulation: PortfolioSimulation) -> spaces.Box:
    """Box of raw actions."""
    size = simulation.spec.action.size(len(simulation.panel.symbols))
    return spaces.Box(-size.bound, size.bound, (size.length,), np.float32)
