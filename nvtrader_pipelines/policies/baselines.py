"""Baseline policies, which a learned policy must beat on the same folds, fills and costs."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.features import FEATURES, CrossSectionalRank, Feature
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS, Fit, TrainingHooks
from nvtrader_pipelines.policies.policy import BaseAgent, Decision, Policy
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor
from nvtrader_pipelines.portfolio.cash import cash_beside
from nvtrader_pipelines.portfolio.cufolio import CufolioProgram, NoPortfolioError, Rebalance
from nvtrader_pipelines.portfolio.scenarios import Historical, Scenarios, require_tail

SESSIONS_PER_MONTH = 21
SCENARIO_SEED = 0  # the same for every estimate
Solver = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class ClassicalAgent(BaseAgent):
    """Rule without training: a baseline for learned policies, or the agent of an experiment."""

    is_classical: ClassVar[bool] = True
    is_stateful: ClassVar[bool] = True  # it may re-estimate every few sessions
    total_timesteps: ClassVar[int] = 0  # nothing is trained
    untimed: ClassVar[str] = ""  # why only the constant timing can act on it, and what to do; ends a sentence
    backbones: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def start(self) -> Policy:
        """Return a policy for one account."""

    def rule_policy(self) -> Policy:
        """Return a policy for one account."""
        return self.start()

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require one seed, and a timing that can act, where the rule is the agent.

        Raises:
            ValueError: if the experiment has others.
        """
        if field != "agent":
            return
        kind, timing = kind_of(type(self)), spec.pipeline.timing.kind
        if len(spec.seeds) != 1:
            raise ValueError(
                f"seeds: {kind} draws nothing at random and takes one seed, but they are {list(spec.seeds)}; set seeds "
                "to [0]"
            )
        if self.untimed and timing != "constant":
            raise ValueError(f"pipeline.timing: {timing} acts on each decision, but {kind} {self.untimed}")

    def train(
        self,
        panel: MarketPanel,  # noqa: ARG002 - one signature for all agents
        env: EnvSpec,  # noqa: ARG002
        window: Window | Sequence[Window],  # noqa: ARG002
        seed: int,  # noqa: ARG002
        hooks: TrainingHooks = DEFAULT_HOOKS,  # noqa: ARG002
    ) -> Fit:
        """Return an empty fit: a rule estimates from the panel at each decision."""
        return Fit(tensors={}, scaler=ObservationScaler(), curve=[])


def _over_eligible(panel: MarketPanel, t: int, scores: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Weights (N+1,) proportional to `scores` (N,) among names eligible at `t`; 1/N without positive scores."""
    eligible = panel.eligible[t].astype(np.float64)
    shares = eligible if scores is None or not (scores * eligible).any() else scores * eligible
    weights = np.zeros(len(eligible) + 1)
    if eligible.any():
        weights[:-1] = shares / shares.sum()
    else:
        weights[-1] = 1.0
    return weights


class EqualWeight(ClassicalAgent):
    """Equal weights over the eligible names, restored at every decision."""

    kind: Literal["equal_weight"] = "equal_weight"

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _EqualWeightPolicy()


class _EqualWeightPolicy:
    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return 1/N in every eligible name."""
        return Decision(target=_over_eligible(panel, t))


class BuyAndHold(ClassicalAgent):
    """Equal weights over the first eligible names, bought once and never traded again."""

    untimed: ClassVar[str] = (
        "decides once and then never trades; choose the constant timing, or an agent that restores its weights, such "
        "as equal_weight"
    )

    kind: Literal["buy_and_hold"] = "buy_and_hold"

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _BuyAndHoldPolicy()


class _BuyAndHoldPolicy:
    def __init__(self) -> None:
        self._bought = False

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return 1/N at the first decision with an eligible name, then no trade."""
        if self._bought or not panel.eligible[t].any():
            return Decision(target=None)
        self._bought = True
        return Decision(target=_over_eligible(panel, t))


class AnchorPortfolio(ClassicalAgent):
    """Anchor portfolio, restored at every decision: the reference of a residual policy."""

    kind: Literal["anchor"] = "anchor"
    anchor: Anchor = VolatilityTargetAnchor()

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _AnchorPolicy(self.anchor)


class _AnchorPolicy:
    def __init__(self, anchor: Anchor) -> None:
        self._anchor = anchor
        self._weights: tuple[MarketPanel, NDArray[np.float64]] | None = None

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return the anchor's weights."""
        if self._weights is None or self._weights[0] is not panel:
            self._weights = panel, self._anchor.weights(panel)
        return Decision(target=self._weights[1][t])


class Momentum(ClassicalAgent):
    """Equally weighted winners of the past year without its last month; 1/N until a year is known.

    Source: Jegadeesh & Titman (1993), who hold the top tenth of thousands of names; the larger share and the monthly
    re-estimate are our choice.
    """

    kind: Literal["momentum"] = "momentum"
    months: PositiveInt = 12  # of 21 sessions: the length of the ranking period, with the skipped months
    skip: NonNegativeInt = 1  # latest months left out of the ranking period
    top_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2  # share of the names held, at least one
    estimate_every: PositiveInt = 21  # least sessions between estimates; 25 where decisions are every 5

    @model_validator(mode="after")
    def _require_ranking_period(self) -> Self:
        if self.skip >= self.months:
            raise ValueError(f"momentum needs skip < months, but skip is {self.skip} and months {self.months}")
        return self

    @property
    def lookback(self) -> int:
        """Sessions of the ranking period, and the close before it that returns start from."""
        return self.months * SESSIONS_PER_MONTH + 1

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _EstimatedPolicy(self.lookback, self.estimate_every, self._winners)

    def _winners(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        ranked = returns[1 : len(returns) - self.skip * SESSIONS_PER_MONTH]
        growth = np.prod(1.0 + ranked, axis=0)
        n_winners = max(1, round(self.top_fraction * len(growth)))
        winners = np.argsort(-growth, kind="stable")[:n_winners]
        scores = np.zeros(len(growth))
        scores[winners] = 1.0
        return scores


class TimeSeriesMomentum(ClassicalAgent):
    """1/N in every eligible name whose price rose over the window, and cash for the others.

    Source: Moskowitz, Ooi & Pedersen (2012), long positions only and without their scaling by volatility.
    """

    kind: Literal["time_series_momentum"] = "time_series_momentum"
    window: PositiveInt = 252  # sessions; before so many are known, 1/N

    @property
    def lookback(self) -> int:
        """Sessions of the window, and the close before it that returns start from."""
        return self.window + 1

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _TimeSeriesMomentumPolicy(self.window)


class _TimeSeriesMomentumPolicy:
    def __init__(self, window: int) -> None:
        self._window = window

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return 1/N of the names that rose, the rest in cash."""
        target = _over_eligible(panel, t)
        if t >= self._window:
            growth = np.prod(1.0 + panel.close_returns[t + 1 - self._window : t + 1], axis=0)
            target[:-1] *= growth > 1.0
            target[-1] = cash_beside(target[:-1])
        return Decision(target=target)


class FactorRank(ClassicalAgent):
    """Equal weights over the eligible names with the highest values of a feature, at least one; ties go by symbol."""

    kind: Literal["factor_rank"] = "factor_rank"
    aliases: ClassVar[tuple[str, ...]] = ("alpha_backtest",)
    feature: Feature = CrossSectionalRank()  # of gold.features or market.features
    top_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2  # share of the eligible names held

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require a market with the feature, too.

        Raises:
            ValueError: if it lacks the feature.
        """
        super().require_experiment(spec, field)
        if self.feature.name not in {feature.name for feature in (*FEATURES, *spec.market.features)}:
            raise ValueError(
                f"{field}.feature: factor_rank needs a feature of the market, but {self.feature.name} is none; add the "
                "feature to market.features"
            )

    def require_market(self, panel: MarketPanel) -> None:
        """Raise if the panel lacks the feature, such as one of volume.

        Raises:
            ValueError: with those that it has.
        """
        if self.feature.name not in panel.feature_names:
            raise ValueError(
                f"factor_rank needs the feature {self.feature.name}, but the market of {panel.source!r} has "
                f"{', '.join(panel.feature_names)}; choose one of these, or a source with the data of the feature"
            )

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _FactorRankPolicy(self.feature.name, self.top_fraction)


class _FactorRankPolicy:
    def __init__(self, feature: str, top_fraction: float) -> None:
        self._feature, self._top_fraction = feature, top_fraction

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return equal weights of the eligible names with the highest values."""
        eligible, values = panel.eligible[t], panel.feature(self._feature)[t]
        n_held = max(1, round(self._top_fraction * eligible.sum()))
        held = np.zeros(len(eligible))
        held[np.argsort(np.where(eligible, -values, np.inf), kind="stable")[:n_held]] = 1.0
        return Decision(target=_over_eligible(panel, t, held))


class MinimumVariance(ClassicalAgent):
    """Minimum variance under a Ledoit-Wolf covariance; 1/N until the history is long enough."""

    kind: Literal["minimum_variance"] = "minimum_variance"
    history: Annotated[int, Field(ge=2)] = 252  # sessions of returns, including that of the decision
    estimate_every: PositiveInt = 21  # fewest sessions between estimates; 25 if decisions are every 5

    @property
    def lookback(self) -> int:
        """Length of the estimation history."""
        return self.history

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _EstimatedPolicy(self.history, self.estimate_every, _minimum_variance)


class MeanCvar(ClassicalAgent):
    """Maximum of mean return less CVaR on scenarios; 1/N until the history is long enough.

    Every estimate draws its scenarios with the same random numbers, so weights change with the data only.
    """

    kind: Literal["mean_cvar"] = "mean_cvar"
    history: Annotated[int, Field(ge=2)] = 504  # sessions of returns, including that of the decision
    estimate_every: PositiveInt = 21  # fewest sessions between estimates; 25 if decisions are every 5
    confidence_level: float = Field(default=0.95, gt=0.0, lt=1.0)
    scenarios: Scenarios = Historical()  # drawn from the history at every estimate

    @model_validator(mode="after")
    def _require_tail(self) -> Self:
        require_tail(self.scenarios, self.history, self.confidence_level)
        return self

    @property
    def lookback(self) -> int:
        """Length of the estimation history."""
        return self.history

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _EstimatedPolicy(self.history, self.estimate_every, self._weights)

    def _weights(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        from nvtrader_pipelines.portfolio.mean_risk import mean_cvar_weights  # skfolio takes seconds to import

        scenarios = self.scenarios.draw(returns, np.random.default_rng(SCENARIO_SEED))
        return mean_cvar_weights(scenarios, self.confidence_level)


class Cufolio(CufolioProgram, ClassicalAgent):
    """Best mean less CVaR on kernel-density scenarios, held between rebalances.

    It rebalances at the first decision of each period of `cufolio_hold_days` sessions, counted from the market's
    first, and does not trade between. Names need the whole history; until one has it, weights are equal up to the cap.
    If no portfolio meets `max_cvar`, the account is held until the next rebalance.
    """

    kind: Literal["cufolio"] = "cufolio"
    aliases: ClassVar[tuple[str, ...]] = ("cuFOLIO",)

    @property
    def untimed(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - its own days are in it
        """Why only the constant timing can act on it."""
        return (
            f"decides every {self.cufolio_hold_days} sessions only; choose the constant timing, or cufolio as "
            "allocator of an agent that decides each time, such as equal_weight"
        )

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require a cap within the desk's, too.

        Raises:
            ValueError: if the cap is above it.
        """
        super().require_experiment(spec, field)
        self.require_cap_within(field, spec.pipeline.risk_limits.max_position)

    def require_market(self, panel: MarketPanel) -> None:
        """Raise if the caps of all names leave more cash than the ceiling.

        Raises:
            ValueError: with the numbers.
        """
        self.require_reachable(len(panel.symbols))

    def start(self) -> Policy:
        """Return a policy for one account."""
        return _CufolioPolicy(self)


class _CufolioPolicy:
    def __init__(self, program: Cufolio) -> None:
        self._program = program
        self._period: int | None = None  # of the last rebalance

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Return the optimal weights at the first decision of a period, and no trade at others."""
        from nvtrader_pipelines.portfolio.cufolio_solver import solve_rebalance  # cvxpy takes a second to import

        period = t // self._program.cufolio_hold_days
        if period == self._period or not panel.eligible[t].any():
            return Decision(target=None)
        self._period = period
        names = _listed_throughout(panel, t, self._program.history)
        if not names.any():
            return Decision(target=self._equal_weights(panel, t))
        held, past = account.weights[:-1], panel.close_returns[t + 1 - self._program.history : t + 1, names]
        try:
            weights = solve_rebalance(self._program, Rebalance(past, held[names], float(held[~names].sum())))
        except NoPortfolioError as failure:
            return Decision(target=None, reason=f"holds: {failure}")
        target = np.zeros(len(account.weights))
        target[:-1][names] = weights
        target[-1] = cash_beside(weights)
        return Decision(target=target)

    def _equal_weights(self, panel: MarketPanel, t: int) -> NDArray[np.float64]:
        target, program = _over_eligible(panel, t), self._program
        target[:-1] = np.minimum(target[:-1] * (1.0 - program.cash_floor), program.max_position_pct)
        target[-1] = cash_beside(target[:-1])
        return target


def _listed_throughout(panel: MarketPanel, t: int, history: int) -> NDArray[np.bool_]:
    """Names (N,) eligible at `t` that have had a price since the first session of the history."""
    first = t + 1 - history
    return panel.eligible[t] & panel.tradable[: max(0, first + 1)].any(axis=0)


def _minimum_variance(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    from nvtrader_pipelines.portfolio.mean_risk import minimum_variance_weights  # skfolio takes seconds to import

    return minimum_variance_weights(returns)


class _EstimatedPolicy:
    """Rule that re-estimates every few sessions and trades back to the last estimate in between.

    The estimate covers names that are eligible and have had a price since the first session of the history; the
    weight of a name that loses its eligibility goes to the others.
    """

    def __init__(self, history: int, estimate_every: int, solve: Solver) -> None:
        self._history, self._estimate_every, self._solve = history, estimate_every, solve
        self._estimated_at: int | None = None
        self._scores: NDArray[np.float64] | None = None

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return the last estimate over the names eligible now."""
        is_due = self._estimated_at is None or t - self._estimated_at >= self._estimate_every
        if t + 1 >= self._history and is_due:
            self._scores = self._estimate(panel, t)
            self._estimated_at = t
        return Decision(target=_over_eligible(panel, t, self._scores))

    def _estimate(self, panel: MarketPanel, t: int) -> NDArray[np.float64] | None:
        names = _listed_throughout(panel, t, self._history)
        if not names.any():
            return None
        scores = np.zeros(len(names))
        scores[names] = self._solve(panel.close_returns[t + 1 - self._history : t + 1, names])
        return scores


Baseline = Annotated[
    EqualWeight
    | BuyAndHold
    | Momentum
    | TimeSeriesMomentum
    | FactorRank
    | MinimumVariance
    | MeanCvar
    | Cufolio
    | AnchorPortfolio,
    Field(discriminator="kind"),
    Family("baselines"),
]
