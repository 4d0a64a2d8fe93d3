"""Trading cost models."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family, optional
from nvtrader_pipelines.market.panel import MarketPanel

FloatArray = NDArray[np.float64]
VolatilityWindow = Annotated[int, Field(ge=2, le=252)]  # sessions


class CostFunction(Protocol):
    """Costs (n,) of trades (n, N), changes of the names' weights, filled at sessions (n,)."""

    def __call__(self, trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:
        """Return fractions of equity, never negative, known before the session of the fill."""
        ...


class CostCoefficients(NamedTuple):
    """Coefficients of a cost that is `linear` * |dw| + `root` * |dw|^1.5, summed over names, (T, N) each.

    Rows are sessions of the fill; a row is known before its session.
    """

    linear: FloatArray
    root: FloatArray


def no_cost(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:  # noqa: ARG001 - one signature
    """Zero cost for every trade, (n,)."""
    return np.zeros(len(trades))


def proportional_cost(rate: float) -> CostFunction:
    """Cost of `rate` times the traded value: the sum of absolute changes of weight without cash."""
    from nvtrader_pipelines.portfolio.cost_loop import write_proportional_costs

    def proportional(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:  # noqa: ARG001 - one signature
        costs = np.empty(len(trades))
        write_proportional_costs(trades, rate, costs)
        return costs

    return proportional


class ProportionalCost(Component):
    """Basis points of the traded value, equal for all names and sessions."""

    kind: Literal["proportional"] = "proportional"
    bps: Annotated[float, Field(ge=0.0, le=500.0)] = 10.0  # of the sum of absolute changes from drifted weights

    def start(self, panel: MarketPanel) -> CostFunction:  # noqa: ARG002 - one signature for the family
        """Return the cost function for one panel."""
        return proportional_cost(self.bps * 1e-4)

    @optional
    def coefficients(self, panel: MarketPanel) -> CostCoefficients:
        """Return the coefficients of the cost on one panel."""
        linear = np.full(panel.close_returns.shape, self.bps * 1e-4)
        return CostCoefficients(linear, np.zeros_like(linear))


class VolatilitySpread(Component):
    """Half the bid-ask spread of each name, proportional to its trailing volatility.

    Source: Wyart, Bouchaud, Kockelkoren, Potters & Vettorazzo (2008), spread proportional to volatility.
    """

    kind: Literal["volatility_spread"] = "volatility_spread"
    share: NonNegativeFloat = 0.02  # half-spread over session volatility: 3 basis points at 1.5 % a session
    window: VolatilityWindow = 21
    unknown_volatility: PositiveFloat = 0.02  # per session, for names with fewer than two returns in the window

    def start(self, panel: MarketPanel) -> CostFunction:
        """Return the cost function for one panel; computes the spreads once."""
        volatility = trailing_volatility(panel, self.window, self.unknown_volatility)

        def half_spreads(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:
            return self.share * (volatility[filled_at] * np.abs(trades)).sum(axis=1)

        return half_spreads

    @optional
    def coefficients(self, panel: MarketPanel) -> CostCoefficients:
        """Return the coefficients of the cost on one panel."""
        linear = self.share * trailing_volatility(panel, self.window, self.unknown_volatility)
        return CostCoefficients(linear, np.zeros_like(linear))


class SquareRootImpact(Component):
    """Square-root market impact: coefficient * volatility * sqrt(order / volume).

    The price of each name moves by `coefficient * sigma * sqrt(participation * |dw|)` against the whole order.
    Source: Almgren, Thum, Hauptmann & Li (2005); Toth et al. (2011), with a coefficient near 1.
    """

    kind: Literal["square_root_impact"] = "square_root_impact"
    coefficient: NonNegativeFloat = 1.0
    participation: NonNegativeFloat = 0.01  # share of a name's average daily volume that the whole equity amounts to
    window: VolatilityWindow = 21
    unknown_volatility: PositiveFloat = 0.02  # per session, for names with fewer than two returns in the window

    def start(self, panel: MarketPanel) -> CostFunction:
        """Return the cost function for one panel; computes the volatilities once."""
        volatility = trailing_volatility(panel, self.window, self.unknown_volatility)

        def impact(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:
            size = np.abs(trades)
            move = self.coefficient * volatility[filled_at] * np.sqrt(self.participation * size)
            return (size * move).sum(axis=1)

        return impact

    @optional
    def coefficients(self, panel: MarketPanel) -> CostCoefficients:
        """Return the coefficients of the cost on one panel."""
        volatility = trailing_volatility(panel, self.window, self.unknown_volatility)
        root = self.coefficient * np.sqrt(self.participation) * volatility
        return CostCoefficients(np.zeros_like(root), root)


CostModel = Annotated[
    ProportionalCost | VolatilitySpread | SquareRootImpact, Field(discriminator="kind"), Family("costs")
]


def total_cost(models: Sequence[CostModel], panel: MarketPanel) -> CostFunction:
    """Return the sum of the models' costs for one panel."""
    functions = [model.start(panel) for model in models]

    def total(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:
        costs = no_cost(trades, filled_at)
        for function in functions:
            costs = costs + function(trades, filled_at)
        return costs

    return functions[0] if len(functions) == 1 else total


def total_coefficients(models: Sequence[CostModel], panel: MarketPanel) -> CostCoefficients:
    """Return the sum of the models' coefficients for one panel.

    Raises:
        ValueError: if a model, of an installed package, has none.
    """
    lacking = sorted(model.kind for model in models if not hasattr(model, "coefficients"))
    if lacking:
        raise ValueError(
            f"gradients of a cost need its coefficients, but {' and '.join(lacking)} has no method `coefficients`; "
            "add it to the model, or choose other costs"
        )
    parts = [model.coefficients(panel) for model in models]
    none = np.zeros(panel.close_returns.shape)
    linear = sum((part.linear for part in parts), start=none)
    return CostCoefficients(linear, sum((part.root for part in parts), start=none))


def trailing_volatility(panel: MarketPanel, window: int, unknown: float) -> FloatArray:
    """Volatility (ddof 1) of each name over the `window` sessions before each, (T, N).

    Only sessions with a price count; `unknown` if there are fewer than two.
    """
    n_sessions = len(panel.sessions)
    before = np.zeros((window, len(panel.symbols)))
    known = np.concatenate([before, panel.tradable])
    returns = np.concatenate([before, panel.close_returns]) * known
    pasts = [slice(lag, lag + n_sessions) for lag in range(window)]  # each session's past, oldest first
    n_known = sum((known[past] for past in pasts), start=np.zeros((n_sessions, 1)))
    mean = sum((returns[past] for past in pasts), start=np.zeros((n_sessions, 1))) / np.maximum(n_known, 1.0)
    squares = sum((known[past] * (returns[past] - mean) ** 2 for past in pasts), start=np.zeros((n_sessions, 1)))
    deviation = np.sqrt(squares / np.maximum(n_known - 1.0, 1.0))
    return np.where(n_known >= 2.0, deviation, unknown)
