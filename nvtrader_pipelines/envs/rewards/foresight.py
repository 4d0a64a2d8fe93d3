"""Rewards from later prices, in training only: hindsight, and distance to an optimal path."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.rewards.term import RewardFunction, Stateless, StepOutcome
from nvtrader_pipelines.market.panel import MarketPanel, Window

FloatArray = NDArray[np.float64]


def forward_returns(returns: FloatArray, horizon: int) -> FloatArray:
    """Compound returns (T, N) from each close to that `horizon` sessions later; 0 beyond the last session."""
    growth = 1.0 + np.pad(returns[1:], ((0, horizon), (0, 0)))
    return sliding_window_view(growth, horizon, axis=0).prod(axis=-1) - 1.0


def optimal_positions(returns: FloatArray, cost: float, n_levels: int) -> FloatArray:
    """Positions (T, N) of each name alone that maximize the sum of p * r - cost * |change of p|.

    They take `n_levels` values in [0, 1], begin at 0, and those of `t` are held over (t, t+1]. Source: Viterbi (1967).
    """
    grid = np.linspace(0.0, 1.0, n_levels)
    costs = cost * np.abs(grid[:, None] - grid)  # by level before and after
    earned = np.pad(returns[1:], ((0, 1), (0, 0)))
    choices = np.empty((*returns.shape, n_levels), np.uint8)
    value = np.zeros((returns.shape[1], n_levels))  # of each name and level, from t on
    for t in reversed(range(len(returns))):
        outcomes = (earned[t, :, None] * grid + value)[:, None, :] - costs
        choices[t], value = outcomes.argmax(axis=2), outcomes.max(axis=2)
    level, names, positions = np.zeros(returns.shape[1], np.uint8), np.arange(returns.shape[1]), np.empty(returns.shape)
    for t in range(len(returns)):
        level = choices[t, names, level]
        positions[t] = grid[level]
    return positions


class Hindsight(Component):
    """Return of the target weights at the next close, and over a horizon from the decision's close.

    Sum over names of w * (r(t, t+1) + long_term_weight * r(t, t+horizon)), without costs, from the close of the
    decision, or from the next one where orders fill there; sessions outside training return 0. Counts in training only.
    Source: Sun et al. (2022), DeepScalper; TradeMaster.
    """

    looks_ahead: ClassVar[bool] = True
    kind: Literal["hindsight"] = "hindsight"
    weight: PositiveFloat = 1.0  # reward per unit of return
    horizon: PositiveInt = 5  # sessions
    long_term_weight: NonNegativeFloat = 0.2  # of the return over the horizon, beside the next session's

    def require_training(self, panel: MarketPanel, windows: Sequence[Window]) -> None:  # noqa: ARG002 - one signature
        """Raise a ValueError if the horizon is not shorter than a training's longest window."""
        n_sessions = max(last - first + 1 for first, last in windows)
        if self.horizon >= n_sessions:
            raise ValueError(
                f"the horizon of hindsight must be shorter than every fold's training, but it is {self.horizon} "
                f"sessions and a training has {n_sessions}; lower the horizon, or train on more sessions"
            )

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel; computes the returns once."""
        returns = panel.close_returns
        later = forward_returns(returns, 1) + self.long_term_weight * forward_returns(returns, self.horizon)
        return Stateless(lambda outcome: self.weight * (_weights_after(outcome)[:, :-1] * later[outcome.t]).sum(axis=1))


class DpDistillation(Component):
    """Distance of the target weights from those of a dynamic program that knows the training window.

    Half the sum of |w - w*| over names and cash: w* has the positions that earn most after costs, of each name alone,
    0 where a name is not eligible, scaled to a sum of at most 1. Counts in training only. The weights and the distance
    are ours; TradeMaster distills such a program in a loss.
    """

    looks_ahead: ClassVar[bool] = True
    kind: Literal["dp_distillation"] = "dp_distillation"
    weight: PositiveFloat = 1.0  # reward per unit of distance, which is at most 1 without debt or short positions
    cost_bps: NonNegativeFloat = 10.0  # of the program's changes of position
    levels: Annotated[int, Field(ge=2, le=101)] = 11  # of a position, from 0 to 1

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel; runs the program once."""
        positions = optimal_positions(panel.close_returns, self.cost_bps * 1e-4, self.levels) * panel.eligible
        names = positions / np.maximum(positions.sum(axis=1, keepdims=True), 1.0)
        optimum = np.append(names, 1.0 - names.sum(axis=1, keepdims=True), axis=1)

        def penalty(outcome: StepOutcome) -> FloatArray:
            return -0.5 * self.weight * np.abs(_weights_after(outcome) - optimum[outcome.t]).sum(axis=1)

        return Stateless(penalty)


def _weights_after(outcome: StepOutcome) -> FloatArray:
    """Weights (n, N+1) that a decision wants: the target, or those held without a trade."""
    return np.where(outcome.is_trading[:, None], outcome.target, outcome.weights)
