"""Allocators: from a policy's proposal to weights over the selected names; what it wanted in cash stays in cash."""

from collections.abc import Callable
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.bounds import RiskAversion
from nvtrader_pipelines.portfolio.pipeline.estimation import EstimationWindow, Past
from nvtrader_pipelines.portfolio.pipeline.risk_limits import Share
from nvtrader_pipelines.portfolio.pipeline.stage import Allocate, BoolArray, FloatArray, Selection, Situation, with_cash
from nvtrader_pipelines.portfolio.scenarios import BlockBootstrap, Historical, Scenarios

SCENARIO_SEED = 0  # of every draw, so that weights change with the past and not by luck
History = Annotated[int, Field(ge=2)]


class PolicyAction(Component):
    """The policy's own weights; what it gave to names that were not selected stays in cash."""

    kind: Literal["policy_action"] = "policy_action"

    def start(self, panel: MarketPanel) -> Allocate:  # noqa: ARG002 - one signature for the family
        """The stage on one panel."""

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            return selection.weights, ""

        return allocate


class EqualWeightAllocator(Component):
    """1/N of the selected names, of what the policy wanted in names."""

    kind: Literal["equal_weight"] = "equal_weight"

    def start(self, panel: MarketPanel) -> Allocate:  # noqa: ARG002
        """The stage on one panel."""

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            return _invested(selection, _equal(selection.names), "equal weights of {n} names")

        return allocate


class MinimumVarianceAllocator(Component):
    """Least variance over the selected names, of what the policy wanted in names; 1/N until there is a history.

    Source: Markowitz (1952) under the shrunk covariance of Ledoit & Wolf (2004).
    """

    kind: Literal["minimum_variance"] = "minimum_variance"
    history: History = 252  # sessions of returns
    estimate_every: PositiveInt = 21  # sessions from an estimate's end to the next; 20 or 25 if decisions are every 5

    @property
    def lookback(self) -> int:
        """The history of an estimate, and the sessions since."""
        return self.history + self.estimate_every - 1

    def start(self, panel: MarketPanel) -> Allocate:
        """The stage on one panel."""
        window = EstimationWindow(panel, self.history, self.estimate_every)

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:
            past = window.past(selection.names, situation.t)
            if past is None:
                return _without_history(selection, self.history)
            from nvtrader_pipelines.portfolio.mean_risk import minimum_variance_weights  # skfolio: seconds to import

            portfolio = _spread(past.names, minimum_variance_weights(past.returns))
            return _invested(selection, portfolio, f"minimum variance of {{n}} names over {self.history} sessions")

        return allocate


class _OnScenarios(Component):
    """What both allocators of Mean-CVaR are estimated on."""

    history: History = 504  # sessions of returns that scenarios are drawn from
    estimate_every: PositiveInt = 21  # sessions from an estimate's end to the next; 20 or 25 if decisions are every 5
    confidence_level: float = Field(default=0.95, gt=0.0, lt=1.0)  # of the CVaR
    scenarios: Scenarios = Historical()  # drawn with the same random numbers each time

    @property
    def lookback(self) -> int:
        """The history of an estimate, and the sessions since."""
        return self.history + self.estimate_every - 1

    @model_validator(mode="after")
    def _tail_holds_a_return(self) -> Self:
        n_stretches = max(0, self.history - self.scenarios.horizon + 1)
        n_scenarios = n_stretches if isinstance(self.scenarios, Historical) else self.scenarios.n_scenarios
        if isinstance(self.scenarios, BlockBootstrap) and not n_stretches:
            n_scenarios = 0  # there is none to draw
        tail = (1.0 - self.confidence_level) * n_scenarios
        if tail < 1.0 - 1e-9:
            raise ValueError(
                f"Mean-CVaR needs a tail of at least one return, but {n_scenarios} scenarios at "
                f"{self.confidence_level:.1%} leave {tail:.2f}; lower confidence_level, lengthen history or draw more"
            )
        return self

    def _drawn(self, past: Past) -> FloatArray:
        return self.scenarios.draw(past.returns, np.random.default_rng(SCENARIO_SEED))


class MeanCvarAround(_OnScenarios):
    """Highest mean less CVaR among the portfolios near the policy's.

    The policy's weights of the selected names, scaled to what it wanted in names, are the center. What is maximised is
    mean - risk_aversion * CVaR, over the horizon of the scenarios, within a one-way distance of the center and with
    the same cash. A name without history keeps its weight.

    Source: Rockafellar & Uryasev (2000); the budget is the tracking constraint of enhanced indexing, in weights.
    """

    kind: Literal["mean_cvar_around"] = "mean_cvar_around"
    max_distance: Share = 0.2  # one-way, from the center; half the sum of absolute differences
    max_weight: Share = 0.25  # of one name, unless the center has more of it
    risk_aversion: RiskAversion = 1.0  # units of expected return per unit of CVaR

    def start(self, panel: MarketPanel) -> Allocate:
        """The stage on one panel."""
        window = EstimationWindow(panel, self.history, self.estimate_every)
        scenarios = _remembered(self._drawn)

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:
            center = _center(selection)
            past = window.past(selection.names, situation.t)
            if past is None or center[past.names].sum() <= 0.0:
                return _invested(selection, center, "the policy's weights of {n} names without history")
            portfolio = center.copy()
            portfolio[past.names] = self._near(center[past.names], scenarios(past), situation)
            return _invested(selection, portfolio, f"Mean-CVaR within {self.max_distance:.0%} of the policy's weights")

        return allocate

    def _near(self, center: FloatArray, scenarios: FloatArray, situation: Situation) -> FloatArray:
        """The best portfolio (M,) of the sum of the center (M,)."""
        from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, MeanCvarError, Objective  # cvxpy: too

        if len(center) == 1:
            return center
        total = center.sum()  # cash earns and loses nothing, so the program is solved for shares of the total
        constraints = Constraints(
            cap=np.minimum(1.0, np.maximum(center, self.max_weight) / total),
            turnover=min(1.0, self.max_distance / total),
        )
        objective = Objective(confidence_level=self.confidence_level, risk_aversion=self.risk_aversion)
        names = [str(i) for i in range(len(center))]
        try:
            optimizer = MeanCvar(names, constraints, objective)
            shares = optimizer.solve(scenarios, current=center / total, expected_returns=scenarios.mean(axis=0)).weights
        except MeanCvarError as failure:
            session = situation.panel.sessions[situation.t]
            raise ValueError(
                f"mean_cvar_around found no portfolio of {len(center)} names at the close of {session}: {failure}; "
                "lengthen history or choose other scenarios"
            ) from failure
        kept = np.maximum(shares, 0.0)
        return kept * (total / kept.sum())


class MeanCvarTilt(_OnScenarios):
    """Mean-CVaR weights tilted by the policy: w_i in proportion to c_i * exp(strength * s_i).

    c are the Mean-CVaR weights of the selected names, and s_i = log(n * p_i) the policy's score of a name: its share
    p_i of the names' weights relative to 1/n, within +-max_score, so that a name the policy leaves out is cut and not
    forbidden. Strength 0 is Mean-CVaR alone; with 1 and equal c, it is the policy's weights. 1/N takes the place of c
    until there is a history.

    Source: exponential tilts as the entropy-regularised answer to scores (Kivinen & Warmuth, 1997); that a manager's
    alpha tilts a benchmark's weights is Grinold & Kahn (1999); the combination is our choice.
    """

    kind: Literal["mean_cvar_tilt"] = "mean_cvar_tilt"
    strength: NonNegativeFloat = 1.0  # of the policy's scores
    max_score: PositiveFloat = 2.0  # natural logarithm of a weight over 1/n

    def start(self, panel: MarketPanel) -> Allocate:
        """The stage on one panel."""
        window = EstimationWindow(panel, self.history, self.estimate_every)
        solved = _remembered(self._solution)

        def allocate(selection: Selection, situation: Situation) -> tuple[FloatArray, str]:
            past = window.past(selection.names, situation.t)
            if past is None:
                equal = self._tilted(_equal(selection.names), selection)
                return _invested(selection, equal, f"{_lacks(self.history)}, tilted by the policy")
            tilted = self._tilted(_spread(past.names, solved(past)), selection)
            return _invested(selection, tilted, "Mean-CVaR of {n} names, tilted by the policy")

        return allocate

    def _solution(self, past: Past) -> FloatArray:
        from nvtrader_pipelines.portfolio.mean_risk import mean_cvar_weights  # skfolio: seconds to import

        return mean_cvar_weights(self._drawn(past), self.confidence_level)

    def _tilted(self, base: FloatArray, selection: Selection) -> FloatArray:
        """The tilted base (N,), of sum 1, or 0 where it is."""
        proposed, n_names = selection.weights[:-1], int(selection.names.sum())
        total = proposed.sum()
        if not total > 0.0:  # the policy says nothing of the selected names
            return base
        with np.errstate(divide="ignore", over="ignore"):  # log 0 is the lowest score; what is far below the best goes
            scores = np.clip(np.log(n_names * proposed / total), -self.max_score, self.max_score)
            below = np.minimum(0.0, scores - scores[base > 0.0].max())  # of it the exponential never overflows
            tilted = base * np.exp(self.strength * below)
        return tilted / tilted.sum()


def _remembered(compute: Callable[[Past], FloatArray]) -> Callable[[Past], FloatArray]:
    """The function of past returns, which keeps its last answer: decisions between two estimates share it."""
    known: dict[tuple[int, bytes], FloatArray] = {}

    def remembered(past: Past) -> FloatArray:
        key = past.at, past.names.tobytes()
        if key not in known:
            known.clear()
            known[key] = compute(past)
        return known[key]

    return remembered


def _invested(selection: Selection, portfolio: FloatArray, reason: str) -> tuple[FloatArray, str]:
    """What the policy wanted in names, in a portfolio (N,) of sum 1; all cash where no name is selected."""
    if not selection.names.any() or selection.exposure == 0.0:
        return selection.weights, ""
    held = int((portfolio > 0.0).sum())
    return with_cash(portfolio * (selection.exposure / portfolio.sum())), reason.format(n=held)


def _without_history(selection: Selection, history: int) -> tuple[FloatArray, str]:
    return _invested(selection, _equal(selection.names), _lacks(history))


def _lacks(history: int) -> str:
    return f"equal weights of {{n}} names, as none has {history} sessions of history"


def _equal(names: BoolArray) -> FloatArray:
    return names / max(1, int(names.sum()))


def _center(selection: Selection) -> FloatArray:
    """The policy's weights (N,) of the selected names, scaled to its exposure; 1/N where it has none of them."""
    kept = selection.weights[:-1]
    total = kept.sum()
    return kept * (selection.exposure / total) if total > 0.0 else _equal(selection.names) * selection.exposure


def _spread(names: BoolArray, weights: FloatArray) -> FloatArray:
    """Weights (M,) of the names at their places among all, (N,)."""
    portfolio = np.zeros(len(names))
    portfolio[names] = weights
    return portfolio


Allocator = Annotated[
    PolicyAction | EqualWeightAllocator | MinimumVarianceAllocator | MeanCvarAround | MeanCvarTilt,
    Field(discriminator="kind"),
]
