"""World `tradesim_execution`: sell an order in steps, at little cost and risk."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.worlds.almgren_chriss import FloatArray, ImpactModel, sale_fractions
from nvtrader_pipelines.worlds.price_moves import DrawMoves, PriceMoves, RandomWalk
from nvtrader_pipelines.worlds.world import Arrays, World, WorldStep, require_actions

if TYPE_CHECKING:
    from gymnasium import spaces

FractionMap = Callable[[FloatArray, NDArray[np.int64]], FloatArray]  # actions and steps (n,) to fractions (n,)
_STATE = ("steps", "left", "price", "shortfall", "moves", "arrivals")


class FractionAction(Component):
    """Fraction of the shares left, sold in the step."""

    kind: Literal["fraction"] = "fraction"

    def space(self) -> "spaces.Box":
        """Return the box of fractions, (1,)."""
        from gymnasium import spaces

        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def start(self, model: ImpactModel) -> FractionMap:  # noqa: ARG002 - one signature
        """Return the map, which does not depend on the model."""
        return lambda actions, _: actions


class AlmgrenChrissResidual(Component):
    """Tilt of the closed form's trade; the zero action is the closed form itself.

    The odds of the fraction sold, f / (1 - f), are those of the closed form times exp(tilt * a).
    """

    kind: Literal["almgren_chriss_residual"] = "almgren_chriss_residual"
    tilt: PositiveFloat = 2.0  # maximum change of the log odds

    def space(self) -> "spaces.Box":
        """Return the box of tilts, (1,)."""
        from gymnasium import spaces

        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def start(self, model: ImpactModel) -> FractionMap:
        """Return the map for one model; computes the closed form once."""
        fractions = sale_fractions(model)

        def tilted(actions: FloatArray, steps: NDArray[np.int64]) -> FloatArray:
            fraction, factor = fractions[steps], np.exp(self.tilt * actions)
            return fraction * factor / (1.0 + fraction * (factor - 1.0))  # exact at a factor of 1

        return tilted


ExecutionAction = Annotated[FractionAction | AlmgrenChrissResidual, Field(discriminator="kind")]


class OrderExecution(ImpactModel, World):
    """Order to sell against linear impact, all of it by the last step.

    The reward of a step is minus its implementation shortfall as a fraction of the order's value at arrival: the cost
    of the shares sold against the price before the step, and the loss of the price on the shares left. Over an episode
    it sums to minus the order's shortfall.

    Source: Almgren & Chriss (2000); Perold (1988), for execution and opportunity cost.
    """

    reference: ClassVar[str] = "almgren_chriss"
    reward_unit: ClassVar[str] = "fraction of the order's value"

    kind: Literal["tradesim_execution"] = "tradesim_execution"
    daily_volume: PositiveFloat = 5e6  # shares traded by the market
    max_participation: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # of the volume of a step; None: no limit
    penalizes_risk: bool = False  # reward less risk_aversion times the variance that the shares left add
    action: ExecutionAction = FractionAction()
    moves: PriceMoves = RandomWalk()
    lookback: Annotated[int, Field(ge=0, le=250)] = 10  # latest moves of the price observed, without the own impact

    @model_validator(mode="after")
    def _require_feasible_order(self) -> Self:
        sellable = self.n_steps * self.max_sale
        if sellable < self.shares:
            raise ValueError(
                f"shares must be at most {sellable:,.0f}, what {self.n_steps} steps sell at a max_participation of "
                f"{self.max_participation:g}, but are {self.shares:,.0f}; lower them, raise the limit or the horizon"
            )
        last = self.shares - min(self.max_sale, self.shares)  # sold before a largest trade
        fall = self.half_spread + self.temporary_impact * (self.shares - last) / self.step_days
        lowest = self.price - max(
            self.permanent_impact * self.shares + self.half_spread, self.permanent_impact * last + fall
        )
        if lowest <= 0.0:
            raise ValueError(
                f"the price must stay positive, but impact alone can take it from {self.price:g} to {lowest:.4g}; "
                "lower shares or impacts, or set max_participation"
            )
        return self

    @model_validator(mode="after")
    def _require_sessions(self) -> Self:
        if self.needs_market and self.step_days != 1.0:
            raise ValueError(
                f"n_steps must be the horizon of {self.horizon:g} days where moves are a market's, as a step is a "
                f"session, but is {self.n_steps}; change one of them"
            )
        return self

    @property
    def needs_market(self) -> bool:
        """Whether prices move as those of a market."""
        return not isinstance(self.moves, RandomWalk)

    def simulate(self, n_accounts: int, panel: MarketPanel | None, window: Window | None) -> "ExecutionSimulation":
        """Return a simulation of n orders."""
        return ExecutionSimulation(self, n_accounts, panel, window)

    def examine(self, panel: MarketPanel | None, window: Window | None) -> "ExecutionSimulation":
        """Return the simulation of many orders; on a market they share no session."""
        draw, n_orders = self.moves.examine(self, self.lookback, panel, window)
        return ExecutionSimulation(self, n_orders, panel, window, draw)

    def reference_actions(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the closed form's actions."""
        return closed_form_actions(self, observations)

    @property
    def max_sale(self) -> float:
        """Most shares of a step, but for rounding in the last."""
        if self.max_participation is None:
            return self.shares
        return self.max_participation * self.daily_volume * self.step_days


class ExecutionSimulation:
    """n orders of one world, with the moves of an episode drawn at its start.

    Raises:
        ValueError: if moves are a market's, and it lacks the symbol or has too few sessions.
    """

    def __init__(
        self,
        world: OrderExecution,
        n_accounts: int,
        panel: MarketPanel | None = None,
        window: Window | None = None,
        draw: DrawMoves | None = None,
    ) -> None:
        from gymnasium import spaces

        self.world, self.n_accounts, self.episode_len = world, n_accounts, world.n_steps
        low, high = [0.0, 0.0, *[-np.inf] * (world.lookback + 1)], [1.0, 1.0, *[np.inf] * (world.lookback + 1)]
        self.observation_space: spaces.Space[Any] = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        self.action_space: spaces.Space[Any] = world.action.space()
        self._fractions = world.action.start(world)
        self._draw = draw or world.moves.start(world, world.lookback, panel, window)
        self._sessions = panel.sessions if panel is not None and world.needs_market else None
        self.arrivals = np.zeros(n_accounts, np.int64)  # positions of the sessions of arrival, on a market
        self.steps = np.zeros(n_accounts, np.int64)
        self.left = np.full(n_accounts, world.shares)
        self.price = np.full(n_accounts, world.price)
        self.shortfall = np.zeros(n_accounts)  # so far, a fraction of the order's value
        self.moves = np.zeros((n_accounts, world.lookback + world.n_steps))  # of the price, without impact
        self._rows = np.arange(n_accounts)

    def reset(self, rows: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Begin orders, with moves drawn by each account's generator."""
        rows, world = list(rows), self.world
        self.moves[rows], arrivals = self._draw(rows, generators)
        self.arrivals[rows] = 0 if arrivals is None else arrivals
        self.steps[rows], self.left[rows], self.price[rows], self.shortfall[rows] = 0, world.shares, world.price, 0.0

    def observe(self) -> NDArray[np.float32]:
        """Time left, shares left, move of the price since arrival, and the latest moves, (n, 3 + lookback).

        The first three are fractions; moves are without the own impact, oldest first, in the model's deviations.
        """
        world = self.world
        place = np.minimum(self.steps, world.n_steps)
        observation = np.empty((self.n_accounts, 3 + world.lookback), np.float32)
        observation[:, 0] = 1.0 - place / world.n_steps
        observation[:, 1] = self.left / world.shares
        observation[:, 2] = self.price / world.price - 1.0
        observation[:, 3:] = self.moves_from(place, world.lookback)
        return observation

    def moves_from(self, first: NDArray[np.int64], n_moves: int) -> FloatArray:
        """Moves in the model's deviations from a place of each order's path on, (n, n_moves); 0 beyond its end."""
        places = first[:, None] + np.arange(n_moves)
        inside = np.minimum(places, self.moves.shape[1] - 1)
        moves = self.moves[self._rows[:, None], inside] / (self.world.move_deviation or 1.0)
        return np.where(places < self.moves.shape[1], moves, 0.0)

    def step(self, actions: NDArray[Any]) -> WorldStep:
        """Sell in every order; an order that is done sells nothing more."""
        world, tau = self.world, self.world.step_days
        place = np.minimum(self.steps, world.n_steps - 1)
        fractions = self._fractions(require_actions(actions, self.action_space, self.n_accounts)[:, 0], place)
        forced = self.left - world.max_sale * (world.n_steps - 1 - place)  # what later steps cannot sell
        sold = np.minimum(np.maximum(np.minimum(fractions * self.left, world.max_sale), forced), self.left)
        fill_discount = world.half_spread + world.temporary_impact * sold / tau
        fill_price = self.price - fill_discount
        move = self.moves[self._rows, world.lookback + place] - world.permanent_impact * sold
        self.left, self.steps = self.left - sold, self.steps + 1
        terms = {"execution": -sold * fill_discount / world.value, "opportunity": self.left * move / world.value}
        cost = -(terms["execution"] + terms["opportunity"])
        if world.penalizes_risk:
            terms["risk"] = -world.risk_aversion * world.volatility**2 * tau * self.left**2 / world.value
        self.price, self.shortfall = self.price + move, self.shortfall + cost
        return WorldStep(
            observation=self.observe(),
            terms=terms,
            terminated=self.left <= 0.0,
            truncated=np.zeros(self.n_accounts, np.bool_),
            info={
                **({} if self._sessions is None else {"session": self._sessions[self.arrivals + place]}),
                "shares_sold": sold,
                "shares_left": self.left.copy(),
                "fill_price": fill_price,
                "shortfall": self.shortfall.copy(),
                "equity": 1.0 - self.shortfall,
                "turnover": sold / world.shares,
            },
        )

    def state(self) -> Arrays:
        """Copies of all arrays that the next step depends on."""
        return {name: getattr(self, name).copy() for name in _STATE}

    def restore(self, state: Arrays) -> None:
        """Continue from a `state`."""
        for name in _STATE:
            setattr(self, name, state[name].copy())


def closed_form_actions(world: OrderExecution, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """Actions (n, 1) that follow the closed form from observations (n, 3 + lookback)."""
    if isinstance(world.action, AlmgrenChrissResidual):
        return np.zeros((len(observations), 1), np.float32)
    place = np.rint((1.0 - observations[:, 0]) * world.n_steps).astype(np.int64)
    return sale_fractions(world)[np.minimum(place, world.n_steps - 1), None].astype(np.float32)
