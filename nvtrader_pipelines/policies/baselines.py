"""Honest baselines as policies: what a learned policy must beat on the same folds, fills and costs."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS, Fit, TrainingHooks
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor
from nvtrader_pipelines.portfolio.scenarios import Historical, Scenarios

SESSIONS_PER_MONTH = 21
SCENARIO_SEED = 0  # of every estimate
Solver = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class ClassicalAgent(Component):
    """A rule that needs no training: a baseline beside learned policies, or an experiment's agent itself."""

    classical: ClassVar[bool] = True
    resumable: ClassVar[bool] = False
    backbones: ClassVar[frozenset[str]] = frozenset()

    @property
    def lookback(self) -> int:
        """Sessions of the panel that a decision is estimated on, the decision's own included."""
        return 1

    @abstractmethod
    def start(self) -> Policy:
        """A worker for one account."""

    def train(
        self,
        panel: MarketPanel,  # noqa: ARG002 - one signature for all agents
        env: EnvSpec,  # noqa: ARG002
        window: Window | Sequence[Window],  # noqa: ARG002
        seed: int,  # noqa: ARG002
        hooks: TrainingHooks = DEFAULT_HOOKS,  # noqa: ARG002
    ) -> Fit:
        """Nothing, at once: what a rule knows it reads from the panel at each decision."""
        return Fit(tensors={}, scaler=ObservationScaler(), curve=[])


def _over_eligible(panel: MarketPanel, t: int, scores: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Weights (N+1,) in proportion to `scores` (N,) over the names eligible at `t`; 1/N if they say nothing."""
    eligible = panel.eligible[t].astype(np.float64)
    wanted = eligible if scores is None or not (scores * eligible).any() else scores * eligible
    weights = np.zeros(len(eligible) + 1)
    if eligible.any():
        weights[:-1] = wanted / wanted.sum()
    else:
        weights[-1] = 1.0
    return weights


class EqualWeight(ClassicalAgent):
    """1/N of the eligible names, restored at every decision."""

    kind: Literal["equal_weight"] = "equal_weight"

    def start(self) -> Policy:
        """A worker for one account."""
        return _EqualWeightPolicy()


class _EqualWeightPolicy:
    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """1/N, whatever is held."""
        return Decision(target=_over_eligible(panel, t))


class BuyAndHold(ClassicalAgent):
    """1/N of the first eligible names, bought once and never traded again."""

    kind: Literal["buy_and_hold"] = "buy_and_hold"

    def start(self) -> Policy:
        """A worker for one account."""
        return _BuyAndHoldPolicy()


class _BuyAndHoldPolicy:
    def __init__(self) -> None:
        self._bought = False

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """1/N at the first decision with an eligible name, then no trade."""
        if self._bought or not panel.eligible[t].any():
            return Decision(target=None)
        self._bought = True
        return Decision(target=_over_eligible(panel, t))


class AnchorPortfolio(ClassicalAgent):
    """The anchor itself, restored at every decision: what a residual policy adds is its difference to this."""

    kind: Literal["anchor"] = "anchor"
    anchor: Anchor = VolatilityTargetAnchor()

    def start(self) -> Policy:
        """A worker for one account."""
        return _AnchorPolicy(self.anchor)


class _AnchorPolicy:
    def __init__(self, anchor: Anchor) -> None:
        self._anchor = anchor
        self._weights: tuple[MarketPanel, NDArray[np.float64]] | None = None

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """The anchor's weights, whatever is held."""
        if self._weights is None or self._weights[0] is not panel:
            self._weights = panel, self._anchor.weights(panel)
        return Decision(target=self._weights[1][t])


class Momentum(ClassicalAgent):
    """The names that rose most over the past year without its last month, equally weighted; 1/N until then.

    Source: Jegadeesh & Titman (1993). They hold the top tenth of thousands of names; the share, and choosing anew
    every month, are our choice.
    """

    kind: Literal["momentum"] = "momentum"
    months: PositiveInt = 12  # of 21 sessions, from which on the price change counts
    skip: NonNegativeInt = 1  # last months that do not count
    top_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2  # share of the names held, at least one
    estimate_every: PositiveInt = 21  # least sessions between estimates; 25 where decisions are every 5

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Self:
        if self.skip >= self.months:
            raise ValueError(f"momentum needs skip < months, but skip is {self.skip} and months {self.months}")
        return self

    @property
    def lookback(self) -> int:
        """The first close is the one that is compared with."""
        return self.months * SESSIONS_PER_MONTH + 1

    def start(self) -> Policy:
        """A worker for one account."""
        return _EstimatedPolicy(self.lookback, self.estimate_every, self._winners)

    def _winners(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        counted = returns[1 : len(returns) - self.skip * SESSIONS_PER_MONTH]
        growth = np.prod(1.0 + counted, axis=0)
        n_winners = max(1, round(self.top_fraction * len(growth)))
        winners = np.argsort(-growth, kind="stable")[:n_winners]
        scores = np.zeros(len(growth))
        scores[winners] = 1.0
        return scores


class MinimumVariance(ClassicalAgent):
    """Least variance under a Ledoit-Wolf covariance; 1/N until the history is long enough."""

    kind: Literal["minimum_variance"] = "minimum_variance"
    history: Annotated[int, Field(ge=2)] = 252  # sessions of returns, up to and including the decision's
    estimate_every: PositiveInt = 21  # least sessions between estimates; 25 where decisions are every 5

    @property
    def lookback(self) -> int:
        """The history."""
        return self.history

    def start(self) -> Policy:
        """A worker for one account."""
        return _EstimatedPolicy(self.history, self.estimate_every, _minimum_variance)


class MeanCvar(ClassicalAgent):
    """Highest mean less CVaR on scenarios from past returns; 1/N until the history is long enough.

    Every estimate draws its scenarios with the same random numbers, so weights change with the past and not by luck.
    """

    kind: Literal["mean_cvar"] = "mean_cvar"
    history: Annotated[int, Field(ge=2)] = 504  # sessions of returns, up to and including the decision's
    estimate_every: PositiveInt = 21  # least sessions between estimates; 25 where decisions are every 5
    confidence_level: float = Field(default=0.95, gt=0.0, lt=1.0)
    scenarios: Scenarios = Historical()  # drawn from the history at every estimate

    @model_validator(mode="after")
    def _tail_holds_a_return(self) -> Self:
        if isinstance(self.scenarios, Historical):
            n_scenarios, what, more = max(0, self.history - self.scenarios.horizon + 1), "sessions", "lengthen history"
        else:
            n_scenarios, what, more = self.scenarios.n_scenarios, "scenarios", "draw more"
        tail = (1.0 - self.confidence_level) * n_scenarios
        if tail < 1.0 - 1e-9:
            raise ValueError(
                f"mean_cvar needs a tail of at least one return, but {n_scenarios} {what} at "
                f"{self.confidence_level:.1%} leave {tail:.2f}; lower confidence_level or {more}"
            )
        return self

    @property
    def lookback(self) -> int:
        """The history."""
        return self.history

    def start(self) -> Policy:
        """A worker for one account."""
        return _EstimatedPolicy(self.history, self.estimate_every, self._weights)

    def _weights(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        from nvtrader_pipelines.portfolio.mean_risk import mean_cvar_weights  # skfolio takes seconds to import

        drawn = self.scenarios.draw(returns, np.random.default_rng(SCENARIO_SEED))
        return mean_cvar_weights(drawn, self.confidence_level)


def _minimum_variance(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    from nvtrader_pipelines.portfolio.mean_risk import minimum_variance_weights  # skfolio takes seconds to import

    return minimum_variance_weights(returns)


class _EstimatedPolicy:
    """Solves now and then, and trades back to the last solution in between.

    A name counts when it is eligible and has a price from the first session of the history on; a name that
    loses its eligibility leaves its weight to the others.
    """

    def __init__(self, history: int, estimate_every: int, solve: Solver) -> None:
        self._history, self._estimate_every, self._solve = history, estimate_every, solve
        self._estimated_at: int | None = None
        self._scores: NDArray[np.float64] | None = None

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """The last solution over the names eligible now."""
        if t + 1 >= self._history and self._is_due(t):
            self._scores = self._estimate(panel, t)
            self._estimated_at = t
        return Decision(target=_over_eligible(panel, t, self._scores))

    def _is_due(self, t: int) -> bool:
        return self._estimated_at is None or t - self._estimated_at >= self._estimate_every

    def _estimate(self, panel: MarketPanel, t: int) -> NDArray[np.float64] | None:
        first = t + 1 - self._history
        names = panel.eligible[t] & panel.tradable[: first + 1].any(axis=0)
        if not names.any():
            return None
        scores = np.zeros(len(names))
        scores[names] = self._solve(panel.close_returns[first : t + 1, names])
        return scores


Baseline = Annotated[
    EqualWeight | BuyAndHold | Momentum | MinimumVariance | MeanCvar | AnchorPortfolio, Field(discriminator="kind")
]
