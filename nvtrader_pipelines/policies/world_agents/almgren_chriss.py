"""Almgren and Chriss's closed form as an agent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS, Fit, TrainingHooks
from nvtrader_pipelines.policies.world_agents.base import BaseWorldAgent, Decide
from nvtrader_pipelines.worlds.world import Simulation, World

if TYPE_CHECKING:
    from torch import Tensor


class AlmgrenChrissAgent(BaseWorldAgent):
    """Optimal sales in closed form (Almgren & Chriss 2000): a fixed path, whatever the price does."""

    is_classical: ClassVar[bool] = True
    min_seeds: ClassVar[int] = 1
    worlds: ClassVar[tuple[str, ...]] = ("tradesim_execution",)

    kind: Literal["almgren_chriss"] = "almgren_chriss"
    total_timesteps: Annotated[int, Field(ge=0, le=0)] = 0  # nothing is trained

    def train(
        self,
        world: World,  # noqa: ARG002 - one signature
        panel: MarketPanel | None,  # noqa: ARG002
        window: Window | None,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        hooks: TrainingHooks = DEFAULT_HOOKS,  # noqa: ARG002
    ) -> Fit:
        """Return a fit without tensors."""
        return Fit(tensors={}, scaler=ObservationScaler(), curve=[])

    def start(self, simulation: Simulation, tensors: "Mapping[str, Tensor]") -> Decide:  # noqa: ARG002 - one signature
        """Return the closed form's decisions."""
        return simulation.world.reference_actions
