"""World `market_making`: quote a bid and an ask around a random walk."""

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.worlds.avellaneda_stoikov import FloatArray, QuoteModel, avellaneda_stoikov_offsets
from nvtrader_pipelines.worlds.cartea_jaimungal import Making, cartea_jaimungal_offsets
from nvtrader_pipelines.worlds.world import Arrays, World, WorldStep, require_actions

_STATE = ("steps", "cash", "inventory", "price", "moves", "luck")
N_EXAMINED = 200  # days of a test


class QuoteOffsets(Component):
    """Distances of the bid below and of the ask above the price; negative ones cross it."""

    kind: Literal["quote_offsets"] = "quote_offsets"
    reach: PositiveFloat = 3.0  # distance at an action of 1, price

    def center(self, model: QuoteModel, inventory: FloatArray, days_left: FloatArray) -> FloatArray:  # noqa: ARG002 - one signature
        """Distances (n, 2) at the zero action."""
        return np.zeros((len(inventory), 2))


class AvellanedaStoikovResidual(Component):
    """Changes of the distances that the closed form of Avellaneda and Stoikov quotes, its own at the zero action."""

    kind: Literal["avellaneda_stoikov_residual"] = "avellaneda_stoikov_residual"
    reach: PositiveFloat = 0.5  # change at an action of 1, price

    def center(self, model: QuoteModel, inventory: FloatArray, days_left: FloatArray) -> FloatArray:
        """Distances (n, 2) at the zero action."""
        return avellaneda_stoikov_offsets(model, inventory, days_left)


QuoteAction = Annotated[QuoteOffsets | AvellanedaStoikovResidual, Field(discriminator="kind")]


class ModelArrivals(Component):
    """Orders arrive as the model says."""

    kind: Literal["model"] = "model"

    def rates(self, model: QuoteModel) -> tuple[float, float, float]:
        """Orders a day that hit the bid, and the ask, and the decay with the distance."""
        return model.arrival_rate, model.arrival_rate, model.fill_decay


class OtherArrivals(Component):
    """Orders arrive otherwise than the model says, which closed forms do not know."""

    kind: Literal["other"] = "other"
    sell_rate: PositiveFloat = 140.0  # orders a day that hit the bid
    buy_rate: PositiveFloat = 140.0  # orders a day that hit the ask
    fill_decay: PositiveFloat = 1.5  # per unit of price

    def rates(self, model: QuoteModel) -> tuple[float, float, float]:  # noqa: ARG002 - one signature
        """Orders a day that hit the bid, and the ask, and the decay with the distance."""
        return self.sell_rate, self.buy_rate, self.fill_decay


Arrivals = Annotated[ModelArrivals | OtherArrivals, Field(discriminator="kind")]


class MarketMaking(QuoteModel, World):
    """Market maker over a day, who fills at most a share a step on each side.

    The reward is the gain of cash and inventory at the price, less penalties on the square of the inventory: that of
    Cartea and Jaimungal's closed form. A quote fills with the probability rate * dt, at most 1.

    Source: Avellaneda & Stoikov (2008), section 3.3; Cartea, Jaimungal & Penalva (2015), section 10.2.
    """

    reference: ClassVar[str] = "cartea_jaimungal"

    kind: Literal["market_making"] = "market_making"
    inventory_penalty: NonNegativeFloat = 0.2  # phi, of the square of the inventory a day
    terminal_penalty: NonNegativeFloat = 0.01  # alpha, of the square of the inventory at the end
    max_inventory: Annotated[int, Field(ge=1, le=200)] = 20  # either way; the side that would exceed it does not fill
    action: QuoteAction = QuoteOffsets()
    arrivals: Arrivals = ModelArrivals()

    @model_validator(mode="after")
    def _require_fills_of_a_step(self) -> Self:
        highest = max(self.arrivals.rates(self)[:2])
        if highest * self.step_days > 1.0:
            raise ValueError(
                f"arrivals: a step sees one order at most on each side, so {self.n_steps} steps see at most "
                f"{self.n_steps / self.horizon:g} a day, but {highest:g} arrive; lower them, or raise n_steps"
            )
        return self

    @property
    def needs_market(self) -> bool:
        """Never: prices are a random walk."""
        return False

    def simulate(self, n_accounts: int, panel: MarketPanel | None, window: Window | None) -> "MarketMakingSimulation":  # noqa: ARG002 - one signature
        """Return a simulation of n market makers."""
        return MarketMakingSimulation(self, n_accounts)

    def examine(self, panel: MarketPanel | None, window: Window | None) -> "MarketMakingSimulation":
        """Return the simulation of many days."""
        return self.simulate(N_EXAMINED, panel, window)

    def reference_actions(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the actions of Cartea and Jaimungal's closed form, for the model's arrivals."""
        inventory, days_left = self.seen(observations)
        place = np.rint(days_left / self.step_days).astype(np.int64)
        penalties = (self.inventory_penalty, self.terminal_penalty)
        model = Making(self.arrival_rate, self.arrival_rate, self.fill_decay, *penalties, self.max_inventory)
        table = _offset_table(model, self.n_steps, self.step_days)
        return self.actions_of(table[place, inventory.astype(np.int64) + self.max_inventory], observations)

    def actions_of(self, offsets: FloatArray, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the actions (n, 2) that quote these distances (n, 2), as near as the action allows."""
        center = self.action.center(self, *self.seen(observations))
        return np.clip((offsets - center) / self.action.reach, -1.0, 1.0).astype(np.float32)

    def seen(self, observations: NDArray[np.float32]) -> tuple[FloatArray, FloatArray]:
        """Inventory and days left by observations (n, 2), (n,) each."""
        inventory = np.rint(observations[:, 1].astype(np.float64) * self.max_inventory)
        return inventory, np.rint(observations[:, 0].astype(np.float64) * self.n_steps) * self.step_days


@cache
def _offset_table(model: Making, n_steps: int, step_days: float) -> FloatArray:
    """Cartea and Jaimungal's distances by steps left and inventory, (n_steps + 1, 2 max_inventory + 1, 2)."""
    return np.stack([cartea_jaimungal_offsets(model, step_days * n_left) for n_left in range(n_steps + 1)])


class MarketMakingSimulation:
    """n market makers, with moves and arrivals of a day drawn at its start."""

    def __init__(self, world: MarketMaking, n_accounts: int) -> None:
        from gymnasium import spaces

        self.world, self.n_accounts, self.episode_len = world, n_accounts, world.n_steps
        self.observation_space: spaces.Space[Any] = spaces.Box(
            np.array([0.0, -1.0], np.float32), np.ones(2, np.float32)
        )
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.steps = np.zeros(n_accounts, np.int64)
        self.cash, self.inventory = np.zeros(n_accounts), np.zeros(n_accounts)
        self.price = np.full(n_accounts, world.price)
        self.moves = np.zeros((n_accounts, world.n_steps))  # of the price, 1 or -1 times sigma sqrt(dt)
        self.luck = np.zeros((n_accounts, world.n_steps, 2))  # uniform in [0, 1); a quote fills below its probability
        self._rows = np.arange(n_accounts)
        *rates, self._decay = world.arrivals.rates(world)
        self._rates = np.array(rates) * world.step_days

    def reset(self, rows: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Begin days without inventory, with moves and arrivals drawn by each account's generator."""
        rows, world = list(rows), self.world
        for row, generator in zip(rows, generators, strict=True):
            draws = generator.random((world.n_steps, 3))
            self.moves[row], self.luck[row] = np.where(draws[:, 0] < 0.5, -1.0, 1.0), draws[:, 1:]
        self.moves[rows] *= world.volatility * world.step_days**0.5
        self.steps[rows], self.cash[rows], self.inventory[rows], self.price[rows] = 0, 0.0, 0.0, world.price

    def observe(self) -> NDArray[np.float32]:
        """Time left, and inventory as a share of the limit, (n, 2)."""
        world = self.world
        left = 1.0 - np.minimum(self.steps, world.n_steps) / world.n_steps
        return np.stack([left, self.inventory / world.max_inventory], axis=1).astype(np.float32)

    def step(self, actions: NDArray[Any]) -> WorldStep:
        """Quote, fill and move; a day that is over stays as it is."""
        world, place = self.world, np.minimum(self.steps, self.world.n_steps - 1)
        running = self.steps < world.n_steps
        days_left = (world.n_steps - place) * world.step_days
        tilts = require_actions(actions, self.action_space, self.n_accounts)
        offsets = world.action.center(world, self.inventory, days_left) + world.action.reach * tilts
        chances = self._rates * np.exp(np.minimum(-self._decay * offsets, 700.0))  # above 1 is certain
        room = np.stack([self.inventory < world.max_inventory, self.inventory > -world.max_inventory], axis=1)
        fills = (self.luck[self._rows, place] < chances) & room & running[:, None]
        bought, sold = fills.T.astype(np.float64)
        spread = (fills * offsets).sum(axis=1)
        move = np.where(running, self.moves[self._rows, place], 0.0)
        self.cash += sold * (self.price + offsets[:, 1]) - bought * (self.price - offsets[:, 0])
        self.inventory, self.price = self.inventory + bought - sold, self.price + move
        self.steps = self.steps + 1
        square, ends = self.inventory**2, self.steps == world.n_steps
        penalty = world.inventory_penalty * world.step_days * running + world.terminal_penalty * ends
        wealth = self.cash + self.inventory * self.price
        return WorldStep(
            observation=self.observe(),
            terms={"spread": spread, "inventory": self.inventory * move, "penalty": -penalty * square},
            terminated=self.steps >= world.n_steps,
            truncated=np.zeros(self.n_accounts, np.bool_),
            info={
                "wealth": wealth,
                "inventory": self.inventory.copy(),
                "bid_distance": offsets[:, 0],
                "ask_distance": offsets[:, 1],
                "equity": 1.0 + wealth / world.price,
                "turnover": bought + sold,
            },
        )

    def state(self) -> Arrays:
        """Copies of all arrays that the next step depends on."""
        return {name: getattr(self, name).copy() for name in _STATE}

    def restore(self, state: Arrays) -> None:
        """Continue from a `state`."""
        for name in _STATE:
            setattr(self, name, state[name].copy())
