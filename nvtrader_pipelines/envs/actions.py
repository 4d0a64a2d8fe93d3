"""Actions: maps from raw actions to target weights of the names and cash."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.envs.account import AccountMap
from nvtrader_pipelines.envs.choice import CHOICES, Choice, ChoiceMap
from nvtrader_pipelines.envs.observations.builder import beyond_panel_error
from nvtrader_pipelines.market.panel import MarketPanel, Window, window_mask
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor
from nvtrader_pipelines.portfolio.pipeline.risk_limits import MAX_GROSS, Gross

FloatArray = NDArray[np.float64]
LOWEST_LOGIT = -5.0  # of a name without weight
NOT_INVERTED = "preferences tune policies of the simplex and the residual action only; choose one of them"
UNHELD = 1e-6  # of equity: smaller weights are rounding


class ActionMap(Protocol):
    """Map from raw actions (n, A) and sessions (n,) to target weights (n, N+1), cash last."""

    def __call__(self, actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
        """Return rows that sum to 1, with weight on eligible names only."""
        ...


@dataclass(frozen=True)
class ActionSize:
    """Box of raw actions: length, and bound on absolute values."""

    length: int
    bound: float


@dataclass(frozen=True)
class Logits:
    """Logits (n, A) of target weights: what the softmax or the tilt takes, of which weights are a function."""

    values: FloatArray  # NaN where no weight depends on one
    is_reachable: NDArray[np.bool_]  # (n,) whether an action has these weights


class SimplexAction(Component):
    """Softmax of logits of the N names and cash; the weight of ineligible names is cash."""

    kind: Literal["simplex"] = "simplex"
    bound: PositiveFloat = 5.0  # logits are in [-bound, bound]

    def size(self, n_symbols: int) -> ActionSize:
        """Box with one logit per name and one for cash."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """Return the map for one panel."""
        from nvtrader_pipelines.envs.action_loops import normalize_simplex, shift_logits

        eligible = panel.eligible.copy()

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            weights = np.array(actions, dtype=np.float64, order="C")
            shift_logits(weights, self.bound)
            np.exp(weights, out=weights)
            if not normalize_simplex(weights, eligible, t):
                raise beyond_panel_error(t, len(eligible))
            return weights

        return target_weights

    def logits(self, panel: MarketPanel, weights: FloatArray, t: NDArray[np.int64]) -> Logits:
        """Invert the map: log weights (n, N+1) less their mean over held names, within the lowest logit and the bound.

        A shift of all logits changes no weight. Ineligible names have the lowest logit, since their share becomes cash.
        """
        eligible = np.hstack([panel.eligible[t], np.ones((len(t), 1), np.bool_)])
        is_held = weights > UNHELD
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(is_held, np.log(weights), np.nan)
        values = np.where(is_held, logs - np.nanmean(logs, axis=1, keepdims=True), LOWEST_LOGIT)
        values = np.clip(values, LOWEST_LOGIT, self.bound)
        return Logits(values, np.count_nonzero(is_held & ~eligible, axis=1) == 0)


class ResidualAction(Component):
    """Tilt of an anchor's names and exposure; the zero action is the anchor itself.

    Names: softmax(log anchor + tilt * tanh(a)). Exposure: anchor's * exp(exposure_tilt * tanh(a_cash)), at most 1.
    """

    kind: Literal["residual"] = "residual"
    anchor: Anchor = VolatilityTargetAnchor()
    tilt: PositiveFloat = 1.0  # maximum change of a name's log weight
    exposure_tilt: NonNegativeFloat = 0.25  # maximum change of log exposure; 0 fixes the anchor's
    bound: PositiveFloat = 3.0

    def size(self, n_symbols: int) -> ActionSize:
        """Box with one score per name and one for the exposure."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """Return the map for one panel; computes the anchor once."""
        from nvtrader_pipelines.envs.action_loops import tilt_anchor

        anchor = self.anchor.weights(panel)
        tilts = np.append(np.full(len(panel.symbols), self.tilt), self.exposure_tilt)

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            weights = np.array(actions, dtype=np.float64, order="C")
            np.minimum(np.maximum(weights, -self.bound, out=weights), self.bound, out=weights)
            np.tanh(weights, out=weights)
            weights *= tilts
            np.exp(weights, out=weights)
            if not tilt_anchor(weights, anchor, t):
                raise beyond_panel_error(t, len(anchor))
            return weights

        return target_weights

    def logits(self, panel: MarketPanel, weights: FloatArray, t: NDArray[np.int64]) -> Logits:
        """Invert the map: log weights of names over the anchor's, centered, and the log of exposure over the anchor's.

        A shift of all names' logits changes no weight. Weights are reachable if the anchor holds the same names, and
        the logits are within the tilts.
        """
        anchor = self.anchor.weights(panel)[t]
        is_held = anchor[:, :-1] > UNHELD
        exposures = weights[:, :-1].sum(axis=1), anchor[:, :-1].sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(is_held, np.log(weights[:, :-1] / anchor[:, :-1]), np.nan)
            exposure = np.log(exposures[0] / exposures[1])
            lowest, highest = np.nanmin(ratios, axis=1, initial=np.inf), np.nanmax(ratios, axis=1, initial=-np.inf)
            names = ratios - (lowest + highest)[:, None] / 2.0  # not finite where unreachable
        reach = np.tanh(self.bound)
        is_reachable = ((weights[:, :-1] > UNHELD) == is_held).all(axis=1) & is_held.any(axis=1)
        is_reachable &= highest - lowest <= 2.0 * reach * self.tilt
        is_reachable &= np.abs(exposure) <= reach * self.exposure_tilt + UNHELD
        return Logits(np.column_stack([names, exposure]), is_reachable)


class _UninvertedAction(Component):
    """Action whose map is not inverted."""

    def logits(self, panel: MarketPanel, weights: FloatArray, t: NDArray[np.int64]) -> Logits:  # noqa: ARG002
        """Raise: these maps are not inverted."""
        raise ValueError(NOT_INVERTED)


class _LeveredAction(_UninvertedAction):
    """Action of an account that may borrow or sell short."""

    is_levered: ClassVar[bool] = True

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require an allocator and limits that leave leverage and short positions to the action.

        Raises:
            ValueError: if the experiment has others.
        """
        kind, allocator, limits = kind_of(type(self)), spec.pipeline.allocator.kind, spec.pipeline.risk_limits
        if getattr(self, "max_short", 0.0) > 0.0 and allocator != "policy_action":
            raise ValueError(
                f"pipeline.allocator: {allocator} makes long portfolios of the proposals, but the action {kind} "
                "sells short; use policy_action"
            )
        for limit, least in (("max_gross", 1.0), ("max_short", 0.0)):
            most = getattr(self, limit, least)
            if most > least and getattr(limits, limit) <= least:
                raise ValueError(
                    f"{field}: {kind} has a {limit} of {most:g}, but pipeline.risk_limits.{limit} is "
                    f"{getattr(limits, limit):g} and would cut it away; raise the limit"
                )


class LeveredSimplexAction(_LeveredAction):
    """Softmax of logits of the N names, scaled to a gross of base + sigmoid(l) * (intraday_cap - base).

    Cash is 1 less the gross, a debt above 1; the weight of ineligible names is cash. At every close, names above
    `close_cap` together are scaled down to it, at the cost of these trades.

    Source: lee101/stock-prediction (gymrl), whose base is never below 1 and whose cash is one of the names.
    """

    kind: Literal["levered_simplex"] = "levered_simplex"
    base: Annotated[float, Field(ge=0.0, le=MAX_GROSS)] = 1.0  # gross at the lowest leverage logit
    close_cap: Gross = 2.0  # of gross at a close
    intraday_cap: Gross = 4.0  # of gross at a fill
    bound: PositiveFloat = 5.0  # logits are in [-bound, bound]

    @model_validator(mode="after")
    def _require_ascending_caps(self) -> Self:
        if not self.base <= self.close_cap <= self.intraday_cap:
            raise ValueError(
                f"base, close_cap and intraday_cap must ascend, but are {self.base:g}, {self.close_cap:g} and "
                f"{self.intraday_cap:g}; change their order"
            )
        return self

    @property
    def max_gross(self) -> float:
        """Highest gross of a target."""
        return self.intraday_cap

    def size(self, n_symbols: int) -> ActionSize:
        """Box with one logit per name and one for the leverage."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """Return the map for one panel."""
        from nvtrader_pipelines.envs.action_loops import scale_simplex, shift_levered

        eligible, base, cap = panel.eligible.copy(), self.base, self.intraday_cap

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            weights = np.array(actions, dtype=np.float64, order="C")
            shift_levered(weights, self.bound)
            np.exp(weights, out=weights)
            if not scale_simplex(weights, eligible, t, base, cap):
                raise beyond_panel_error(t, len(eligible))
            return weights

        return target_weights


class LongShortAction(_LeveredAction):
    """Softmax of N long and N short logits, scaled to `gross`; a name's weight is long less short.

    What a name has on both sides cancels, so the gross is at most `gross`, and equal logits are all cash. The weight of
    ineligible names is cash. At every close, names above `close_cap` together are scaled down to it.

    Source: lee101/stock-prediction (gymrl), the 2N logits of accounts that may sell short; the split is our choice.
    """

    kind: Literal["long_short"] = "long_short"
    gross: Gross = 1.0  # highest sum of absolute weights of a target
    close_cap: Gross = 2.0  # of gross at a close
    bound: PositiveFloat = 5.0  # logits are in [-bound, bound]

    @property
    def max_gross(self) -> float:
        """Highest gross of a target."""
        return self.gross

    @property
    def max_short(self) -> float:
        """Highest weight of one short position, as a positive fraction."""
        return self.gross

    def size(self, n_symbols: int) -> ActionSize:
        """Box with two logits per name: long ones, then short ones."""
        return ActionSize(length=2 * n_symbols, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """Return the map for one panel."""
        from nvtrader_pipelines.envs.action_loops import net_long_short, shift_logits

        eligible = panel.eligible.copy()

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            sides = np.array(actions, dtype=np.float64, order="C")
            if sides.shape[1] != 2 * eligible.shape[1]:
                raise ValueError(f"long_short takes {2 * eligible.shape[1]} values, but got {sides.shape[1]}")
            shift_logits(sides, self.bound)
            np.exp(sides, out=sides)
            weights = np.empty((len(sides), eligible.shape[1] + 1))
            if not net_long_short(sides, eligible, t, self.gross, weights):
                raise beyond_panel_error(t, len(eligible))
            return weights

        return target_weights


class ChoiceAction(_UninvertedAction):
    """Choice of one portfolio: cash, 1/N, or one tilted to the names that a descriptor of the past window favors.

    Descriptors: mean return (`ar`), Sharpe ratio (`sr`), share of gains (`wr`), maximum drawdown, the smaller the
    better (`mdd`), and efficiency ratio |sum of r| / sum of |r| (`er`). Weights are the softmax of a descriptor over
    the eligible names, standardized across them. An action has a score per choice: of those that the session allows,
    the highest is held. Where none is allowed, all is cash.

    Source: Ding et al. (2018) for the five descriptors; the rest is our choice.
    """

    is_discrete: ClassVar[bool] = True

    kind: Literal["choice"] = "choice"
    window: Annotated[int, Field(ge=2, le=252)] = 20  # sessions of a descriptor, up to that of the decision
    choices: Annotated[tuple[Choice, ...], Field(min_length=2)] = CHOICES

    @model_validator(mode="after")
    def _require_distinct_choices(self) -> Self:
        if len(set(self.choices)) != len(self.choices):
            raise ValueError(f"choices must differ, but they are {list(self.choices)}; name each once")
        return self

    def require_training(self, panel: MarketPanel, windows: Sequence[Window]) -> None:
        """Raise a ValueError if a session of the training windows allows no choice."""
        if "cash" in self.choices:
            return
        is_stuck = window_mask(windows, len(panel.sessions)) & ~self.start(panel).allowed.any(axis=1)
        if is_stuck.any():
            raise ValueError(
                f"every session of a training must allow one of environment.action's choices, but "
                f"{panel.sessions[is_stuck.argmax()]} allows none of {', '.join(self.choices)}, since no eligible "
                f"name has {self.window} sessions there; add cash, or train on later sessions"
            )

    def size(self, n_symbols: int) -> ActionSize:  # noqa: ARG002 - one signature for the family
        """Unbounded box with one score per choice."""
        return ActionSize(length=len(self.choices), bound=np.inf)

    def start(self, panel: MarketPanel) -> ChoiceMap:
        """Return the map for one panel; computes the portfolios once."""
        return ChoiceMap(panel, self.choices, self.window)


class ShareTradesAction(_UninvertedAction):
    """Whole shares of each name to buy or sell at the observed close: `hmax` times the action, cut to an integer.

    Sales come first, then purchases while cash lasts, the largest order first; a name that is not eligible is not
    traded. Shares are of adjusted closes. A name without a price pays its part of a cost in shares, and limits or an
    average of seeds change targets; the name's next order rounds such a fraction off.

    Source: FinRL's StockTrading (Liu et al. 2020). Its cost leaves the cash; here, all positions pay that of the trade
    to weights after costs, which is more by at most the square of the rate times the traded value.
    """

    needs_account: ClassVar[bool] = True
    aliases: ClassVar[tuple[str, ...]] = ("StockTradingEnv",)

    kind: Literal["share_trades"] = "share_trades"
    hmax: Annotated[int, Field(ge=1, le=1_000_000)] = 100  # most shares of one name in one decision
    capital: PositiveFloat = 1_000_000.0  # of an account at its opening, in the currency of the prices

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require the price of a share, a fill at it, one rate of cost, and an allocator that keeps the weights.

        Raises:
            ValueError: if the experiment has others.
        """
        self._require_environment(spec.environment)
        allocator, features = spec.pipeline.allocator.kind, [feature.kind for feature in spec.market.features]
        if "adjusted_close" not in features or allocator != "policy_action":
            raise ValueError(
                f"{field}: share_trades needs adjusted_close, the price of a share, among market.features and the "
                f"pipeline.allocator policy_action, which keeps shares whole, but they are {features} and {allocator}; "
                "change them"
            )

    def require_training(self, panel: MarketPanel, windows: Sequence[Window]) -> None:
        """Raise a ValueError if the capital buys no share at a session of the training windows."""
        cheapest = np.where(panel.eligible, panel.feature("adjusted_close"), np.inf).min(axis=1)
        is_stuck = window_mask(windows, len(cheapest)) & np.isfinite(cheapest) & (cheapest > self.capital)
        if is_stuck.any():
            raise ValueError(
                f"environment.action.capital must buy a share at every session of a training, but is {self.capital:g}, "
                f"and the cheapest of {panel.sessions[is_stuck.argmax()]} costs {cheapest[is_stuck.argmax()]:g}; "
                "raise it"
            )

    def size(self, n_symbols: int) -> ActionSize:
        """Box with one share of `hmax` per name."""
        return ActionSize(length=n_symbols, bound=1.0)

    def start(self, panel: MarketPanel, environment: Any) -> AccountMap:
        """Return the map for one panel, at the costs of the environment, an `EnvSpec`."""
        from nvtrader_pipelines.envs.share_trades import start_share_trades

        self._require_environment(environment)
        return start_share_trades(panel, self.hmax, self.capital, environment.turnover_cost_bps * 1e-4)

    def _require_environment(self, environment: Any) -> None:
        if environment.fill != "same_close" or environment.costs:
            raise ValueError(
                "environment.action: share_trades fills at the close that it observes, since another price makes "
                f"fractions of shares, and pays turnover_cost_bps alone, but environment.fill is {environment.fill} "
                f"and environment.costs are {[model.kind for model in environment.costs]}; use same_close without costs"
            )


Action = Annotated[
    SimplexAction | ResidualAction | LeveredSimplexAction | LongShortAction | ChoiceAction | ShareTradesAction,
    Field(discriminator="kind"),
    Family("actions"),
]
