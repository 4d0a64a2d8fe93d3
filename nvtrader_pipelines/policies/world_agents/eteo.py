"""PPO on orders, and ETEO."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.agents.learner import no_optimizer
from nvtrader_pipelines.policies.agents.on_policy import require_whole_batches
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER
from nvtrader_pipelines.policies.world_agents.base import WorldLearner
from nvtrader_pipelines.policies.world_agents.execution_backbones import EteoDualHead, ExecutionBackbone, PdDualRnn
from nvtrader_pipelines.worlds.order_execution import OrderExecution
from nvtrader_pipelines.worlds.world import Simulation, World

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3 import PPO
    from stable_baselines3.common.policies import BasePolicy

    from nvtrader_pipelines.policies.networks.execution_policy import DualHeadPolicy


class ExecutionLearner(WorldLearner):
    """PPO on orders; gamma is 1 by default, since costs do not shrink by waiting, where the sources have 0.9."""

    worlds: ClassVar[tuple[str, ...]] = ("tradesim_execution",)

    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 3e-3
    backbone: ExecutionBackbone = EteoDualHead()
    n_steps: PositiveInt = 20  # per account and update
    batch_size: PositiveInt = 320  # steps per minibatch
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    clip_range: PositiveFloat = 0.2
    gae_lambda: Annotated[float, Field(ge=0.0, le=1.0)] = 0.95
    vf_coef: NonNegativeFloat = 0.5  # weight of the critic's loss
    max_grad_norm: PositiveFloat = 0.5

    @model_validator(mode="after")
    def _require_whole_batches(self) -> Self:
        require_whole_batches(self.n_envs * self.n_steps, self.batch_size)
        return self

    def model(self, world: World, panel: MarketPanel | None, window: Window | None, seed: int) -> "PPO":
        """Return PPO on accounts of the world."""
        from nvtrader_pipelines.policies.networks.execution_policy import DualHeadPolicy

        return self.ppo(world.simulate(self.n_envs, panel, window), DualHeadPolicy, seed)

    def ppo(self, simulation: Simulation, policy: "type[DualHeadPolicy]", seed: int, **settings: Any) -> "PPO":
        """Return PPO with a network of the backbone; settings are those of the policy, and `ent_coef`."""
        from stable_baselines3 import PPO

        from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer
        from nvtrader_pipelines.policies.world_vec_env import WorldVecEnv

        return PPO(
            policy,
            WorldVecEnv(simulation, seed),
            learning_rate=self.schedule,
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            clip_range=self.clip_range,
            ent_coef=settings.pop("ent_coef", 0.0),
            vf_coef=self.vf_coef,
            max_grad_norm=self.max_grad_norm,
            rollout_buffer_class=InPlaceRolloutBuffer,
            policy_kwargs={**self.backbone.settings(), "optimizer_kwargs": OPTIMIZER, **settings},
            seed=seed,
            device="cpu",
        )

    def schedule(self, remaining: float) -> float:
        """Learning rate by the remaining share of the training; it falls linearly to a twentieth."""
        return self.learning_rate * (0.05 + 0.95 * max(0.0, remaining))  # the last rollout may overshoot

    def network(self, observation_space: "spaces.Box", action_space: "spaces.Space[Any]") -> "BasePolicy":
        """Build the actor-critic."""
        from nvtrader_pipelines.policies.networks.execution_policy import DualHeadPolicy

        return DualHeadPolicy(
            observation_space, action_space, lambda _: 0.0, **self.backbone.settings(), optimizer_class=no_optimizer
        )


class EteoAgent(ExecutionLearner):
    """PPO with an actor whose mean and deviation depend on the state; its world has no limit orders.

    Source: Lin & Beling (2020), An End-to-End Optimal Trade Execution Framework based on PPO, as in TradeMaster.
    """

    worlds: ClassVar[tuple[str, ...]] = ("tradesim_execution", "market_making")

    kind: Literal["eteo"] = "eteo"

    def require_world(self, world: World) -> None:
        """Require a world that agent and backbone can read.

        Raises:
            ValueError: as every agent, and if the backbone reads moves of prices that observations lack.
        """
        super().require_world(world)
        if isinstance(self.backbone, PdDualRnn) and not isinstance(world, OrderExecution):
            raise ValueError("agent.backbone: pd_dual_rnn reads the moves of an order's price; choose eteo_dual_head")
