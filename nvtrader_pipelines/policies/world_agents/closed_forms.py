"""Agents that decide by closed forms."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from nvtrader_pipelines.policies.world_agents.base import ClosedFormAgent, Decide
from nvtrader_pipelines.worlds.avellaneda_stoikov import avellaneda_stoikov_offsets
from nvtrader_pipelines.worlds.market_making import MarketMaking
from nvtrader_pipelines.worlds.world import Simulation

if TYPE_CHECKING:
    from torch import Tensor


class AlmgrenChrissAgent(ClosedFormAgent):
    """Optimal sales in closed form (Almgren & Chriss 2000): a fixed path, whatever the price does."""

    worlds: ClassVar[tuple[str, ...]] = ("tradesim_execution",)

    kind: Literal["almgren_chriss"] = "almgren_chriss"


class CarteaJaimungalAgent(ClosedFormAgent):
    """Optimal quotes in closed form (Cartea & Jaimungal): the reward's own criterion, in continuous time."""

    worlds: ClassVar[tuple[str, ...]] = ("market_making",)

    kind: Literal["cartea_jaimungal"] = "cartea_jaimungal"


class AvellanedaStoikovAgent(ClosedFormAgent):
    """Quotes in closed form (Avellaneda & Stoikov 2008): of one who dislikes risk, nearly, for small inventories."""

    worlds: ClassVar[tuple[str, ...]] = ("market_making",)

    kind: Literal["avellaneda_stoikov"] = "avellaneda_stoikov"

    def start(self, simulation: Simulation, tensors: "Mapping[str, Tensor]") -> Decide:  # noqa: ARG002 - one signature
        """Return the quotes of the formula, as near as the world's action allows."""
        world = simulation.world
        assert isinstance(world, MarketMaking)
        return lambda observations: world.actions_of(
            avellaneda_stoikov_offsets(world, *world.seen(observations)), observations
        )
