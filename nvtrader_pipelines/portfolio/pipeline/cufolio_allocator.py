"""cuFOLIO as an allocator: Mean-CVaR near the policy's weights, held between rebalances."""

from typing import ClassVar, Literal

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cufolio import CufolioProgram, NoPortfolioError, Rebalance
from nvtrader_pipelines.portfolio.pipeline.estimation import EstimationWindow
from nvtrader_pipelines.portfolio.pipeline.risk_limits import Share
from nvtrader_pipelines.portfolio.pipeline.stage import (
    ROUNDING,
    Allocate,
    BoolArray,
    FloatArray,
    Selection,
    Situation,
    add_cash,
    restrict_to,
)


class CufolioAllocator(CufolioProgram):
    """Best mean less CVaR on kernel-density scenarios within a distance of the policy's weights.

    The center is the policy's weights of the selected names, scaled to the sum that the allocator's own cash bounds
    allow; a policy in cash stays in cash. A name without history keeps its weight in the center, up to the cap. If
    cap, cash and turnover budget leave no portfolio within the distance, the nearest they leave counts. It rebalances
    at the first decision of each period of `cufolio_hold_days` sessions, counted from the market's first, while the
    account holds no name, and when a held name is no longer selected; a period whose decision is not traded is left
    out. In between, and if no portfolio meets `max_cvar`, it holds. Beside a timing it then holds the proportions, at
    the sum that the cash bounds allow and up to the cap, so that the timing scales them only once.
    """

    kind: Literal["cufolio"] = "cufolio"
    aliases: ClassVar[tuple[str, ...]] = ("cuFOLIO",)
    max_distance: Share = 0.2  # one-way, from the center; half the sum of absolute differences

    def start(self, panel: MarketPanel) -> Allocate:
        """Return the stage for one panel.

        Raises:
            ValueError: if the caps of all names leave more cash than the ceiling.
        """
        self.require_reachable(len(panel.symbols))
        window = EstimationWindow(panel, self.history, every=1)

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:
            names, held = selection.names, situation.held[:-1]
            if not names.any() or selection.exposure == 0.0:
                return selection.weights, ""
            is_held = bool(held.any()) and not held[~names].any()  # a name that must be sold makes a rebalance due
            if is_held and situation.t % self.cufolio_hold_days >= situation.rebal_freq:
                return self._hold(
                    situation.held, selection
                ), f"held, rebalanced every {self.cufolio_hold_days} sessions"
            try:
                portfolio = self._rebalance(selection, situation, window)
            except NoPortfolioError as failure:
                return self._hold(restrict_to(situation.held, names), selection), f"held: {failure}"
            return add_cash(portfolio), f"Mean-CVaR within {self.max_distance:.0%} of the policy's weights"

        return allocate

    def _rebalance(self, selection: Selection, situation: Situation, window: EstimationWindow) -> FloatArray:
        """Optimize the weights (N,) near the policy's."""
        from nvtrader_pipelines.portfolio.cufolio_solver import solve_rebalance  # cvxpy takes a second to import

        proposed = selection.weights[:-1] if selection.weights[:-1].any() else selection.names.astype(np.float64)
        center = self._scale(proposed, selection.names)
        past = window.past(selection.names, situation.t)
        if past is None:
            return np.minimum(center, self.max_position_pct)
        names, held = past.names, self._scale(situation.held[:-1], selection.names)
        portfolio = np.where(names, 0.0, np.minimum(center, self.max_position_pct))
        rebalance = Rebalance(
            past.returns,
            held[names],
            other_held=float(held[~names].sum()),
            other_kept=float(portfolio.sum()),
            center=center[names],
            max_distance=self.max_distance,
        )
        portfolio[names] = solve_rebalance(self, rebalance)
        return portfolio

    def _hold(self, held: FloatArray, selection: Selection) -> FloatArray:
        """Return the held weights (N+1,), without what a timing has taken from them."""
        if not selection.is_timed:
            return held
        before = held[:-1]
        scaled = self._scale(before, before > 0.0)
        return held if scaled is before else add_cash(np.minimum(scaled, np.maximum(before, self.max_position_pct)))

    def _scale(self, weights: FloatArray, names: BoolArray) -> FloatArray:
        """Scale weights (N,) to a sum that the cash bounds allow; a sum of 0 stays 0."""
        total = float(weights.sum())
        least, most = self.invested_range(int(names.sum()) * self.max_position_pct)
        inside = min(max(total, least), most)
        return weights if total == 0.0 or abs(inside - total) <= ROUNDING else weights * (inside / total)
