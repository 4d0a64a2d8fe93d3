"""An agent."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from nvtrader_pipelines.policies.agents import PpoAgent


class WarmUpPpo(PpoAgent):
    """PPO whose learning rate rises in a warm-up before it falls."""

    kind: Literal["warm_up_ppo"] = "warm_up_ppo"
    warm_up: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1  # share of the training

    def schedule(self) -> Callable[[float], float]:
        """Return the learning rate as a function of the remaining share of the training."""
        falling = super().schedule()
        return lambda remaining: falling(remaining) * min(1.0, 0.1 + 0.9 * (1.0 - remaining) / self.warm_up)
