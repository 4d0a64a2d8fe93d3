"""Allocators: weights of the selected names from a policy's proposal; its cash stays."""

from collections.abc import Callable
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.portfolio.pipeline.estimation import EstimationWindow, Past
from nvtrader_pipelines.portfolio.pipeline.stage import Allocate, BoolArray, FloatArray, Selection, Situation, add_cash
from nvtrader_pipelines.portfolio.scenarios import Historical, Scenarios, require_tail

SCENARIO_SEED = 0  # of every draw, so that weights change only with the past
History = Annotated[int, Field(ge=2)]


class PolicyAction(Component):
    """Policy's own weights; the weight of names that were not selected is cash."""

    kind: Literal["policy_action"] = "policy_action"

    def start(self, panel: MarketPanel) -> Allocate:  # noqa: ARG002 - one signature for the family
        """Return the stage for one panel."""

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            return selection.weights, ""

        return allocate


class EqualWeightAllocator(Component):
    """1/N of the selected names, scaled to the policy's exposure."""

    kind: Literal["equal_weight"] = "equal_weight"

    def start(self, panel: MarketPanel) -> Allocate:  # noqa: ARG002
        """Return the stage for one panel."""

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            return _invest(selection, _equal_weights(selection.names), "equal weights of {n} names")

        return allocate


class MinimumVarianceAllocator(Component):
    """Minimum variance of the selected names at the policy's exposure; 1/N without history.

    Source: Markowitz (1952) under the shrunk covariance of Ledoit & Wolf (2004).
    """

    kind: Literal["minimum_variance"] = "minimum_variance"
    history: History = 252  # sessions of returns
    estimate_every: PositiveInt = 21  # sessions from an estimate's end to the next; 20 or 25 if decisions are every 5

    @property
    def lookback(self) -> int:
        """Sessions of the history, and those since the estimate."""
        return self.history + self.estimate_every - 1

    def start(self, panel: MarketPanel) -> Allocate:
        """Return the stage for one panel."""
        window = EstimationWindow(panel, self.history, self.estimate_every)

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:
            past = window.past(selection.names, situation.t)
            if past is None:
                return _invest(selection, _equal_weights(selection.names), _no_history_reason(self.history))
            from nvtrader_pipelines.portfolio.mean_risk import minimum_variance_weights  # skfolio: seconds to import

            portfolio = _expand(past.names, minimum_variance_weights(past.returns))
            return _invest(selection, portfolio, f"minimum variance of {{n}} names over {self.history} sessions")

        return allocate


class MeanCvarTilt(Component):
    """Mean-CVaR weights tilted by the policy: w_i in proportion to c_i * exp(strength * s_i).

    c are the Mean-CVaR weights of the selected names, and s_i = log(n * p_i) the policy's score of a name: its share
    p_i of the names' weights relative to 1/n, within +-max_score, so that a name without weight is cut and not
    excluded. Strength 0 is Mean-CVaR alone; strength 1 with equal c gives the policy's weights. Without history, c is
    1/N.

    Source: exponential tilts as the entropy-regularized response to scores (Kivinen & Warmuth, 1997); alpha as a tilt
    of a benchmark's weights (Grinold & Kahn, 1999); the combination is our choice.
    """

    history: History = 504  # sessions of returns from which scenarios are drawn
    estimate_every: PositiveInt = 21  # sessions from an estimate's end to the next; 20 or 25 if decisions are every 5
    confidence_level: float = Field(default=0.95, gt=0.0, lt=1.0)  # of the CVaR
    scenarios: Scenarios = Historical()  # drawn with the same random numbers each time
    kind: Literal["mean_cvar_tilt"] = "mean_cvar_tilt"
    strength: NonNegativeFloat = 1.0  # of the policy's scores
    max_score: PositiveFloat = 2.0  # natural logarithm of a weight over 1/n

    @property
    def lookback(self) -> int:
        """Sessions of the history, and those since the estimate."""
        return self.history + self.estimate_every - 1

    @model_validator(mode="after")
    def _require_tail(self) -> Self:
        require_tail(self.scenarios, self.history, self.confidence_level)
        return self

    def start(self, panel: MarketPanel) -> Allocate:
        """Return the stage for one panel."""
        window = EstimationWindow(panel, self.history, self.estimate_every)
        solved = _cache_last(self._solve)

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:
            past = window.past(selection.names, situation.t)
            if past is None:
                equal = self._tilt(_equal_weights(selection.names), selection)
                return _invest(selection, equal, f"{_no_history_reason(self.history)}, tilted by the policy")
            tilted = self._tilt(_expand(past.names, solved(past)), selection)
            return _invest(selection, tilted, "Mean-CVaR of {n} names, tilted by the policy")

        return allocate

    def _solve(self, past: Past) -> FloatArray:
        from nvtrader_pipelines.portfolio.mean_risk import mean_cvar_weights  # skfolio: seconds to import

        scenarios = self.scenarios.draw(past.returns, np.random.default_rng(SCENARIO_SEED))
        return mean_cvar_weights(scenarios, self.confidence_level)

    def _tilt(self, base: FloatArray, selection: Selection) -> FloatArray:
        """Tilt the base (N,) by the policy's scores; the sum stays 1, or 0."""
        proposed, n_names = selection.weights[:-1], int(selection.names.sum())
        total = proposed.sum()
        if not total > 0.0:  # the policy has none of the selected names
            return base
        with np.errstate(divide="ignore", over="ignore"):  # log 0 is the lowest score; low weights underflow to 0
            scores = np.clip(np.log(n_names * proposed / total), -self.max_score, self.max_score)
            below = np.minimum(0.0, scores - scores[base > 0.0].max())  # so the exponential never overflows
            tilted = base * np.exp(self.strength * below)
        return tilted / tilted.sum()


def _cache_last(compute: Callable[[Past], FloatArray]) -> Callable[[Past], FloatArray]:
    """Cache the last result, which decisions between two estimates share."""
    known: dict[tuple[int, bytes], FloatArray] = {}

    def cached(past: Past) -> FloatArray:
        key = past.at, past.names.tobytes()
        if key not in known:
            known.clear()
            known[key] = compute(past)
        return known[key]

    return cached


def _invest(selection: Selection, portfolio: FloatArray, reason: str) -> tuple[FloatArray, str]:
    """Scale a portfolio (N,) to the policy's exposure and add cash."""
    if not selection.names.any() or selection.exposure == 0.0:
        return selection.weights, ""
    held = int((portfolio > 0.0).sum())
    return add_cash(portfolio * (selection.exposure / portfolio.sum())), reason.format(n=held)


def _no_history_reason(history: int) -> str:
    return f"equal weights of {{n}} names, as none has {history} sessions of history"


def _equal_weights(names: BoolArray) -> FloatArray:
    return names / max(1, int(names.sum()))


def _expand(names: BoolArray, weights: FloatArray) -> FloatArray:
    """Expand weights (M,) of some names to all names, (N,)."""
    portfolio = np.zeros(len(names))
    portfolio[names] = weights
    return portfolio


Allocator = Annotated[
    PolicyAction | EqualWeightAllocator | MinimumVarianceAllocator | MeanCvarTilt | CufolioAllocator,
    Field(discriminator="kind"),
    Family("allocators"),
]
