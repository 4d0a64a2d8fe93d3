"""Kinds of replay: single steps drawn uniformly or by priority, and returns over several steps."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component


class GeneralReplay(Component):
    """Single steps, each with the same probability."""

    is_prioritized: ClassVar[bool] = False

    kind: Literal["general"] = "general"
    aliases: ClassVar[tuple[str, ...]] = ("GeneralReplayBuffer",)

    def settings(self) -> dict[str, Any]:
        """Arguments of SB3's algorithms that choose the buffer."""
        return {"replay_buffer_class": None, "replay_buffer_kwargs": None, "n_steps": 1}


class PrioritizedReplay(Component):
    """Single steps, more often those with a large error of the critic (Schaul et al. 2016, proportional).

    Steps that are drawn too often count less in an update. New steps have the largest priority so far. The agents
    `td3`, `ddpg`, `sarl`, `dqn` and `qr_dqn` can learn from it.
    """

    is_prioritized: ClassVar[bool] = True

    kind: Literal["prioritized"] = "prioritized"
    aliases: ClassVar[tuple[str, ...]] = ("PrioritizedReplayBuffer",)
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.6  # exponent of the priorities; 0 draws uniformly
    beta: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4  # exponent of the weights at the start; 1 at the end

    def settings(self) -> dict[str, Any]:
        """Arguments of SB3's algorithms that choose the buffer."""
        from nvtrader_pipelines.policies.replay.priority_buffer import PriorityBuffer

        exponents = {"alpha": self.alpha, "beta": self.beta}
        return {"replay_buffer_class": PriorityBuffer, "replay_buffer_kwargs": exponents, "n_steps": 1}


class NStepReplay(Component):
    """Returns over several steps of an episode, each start with the same probability.

    The discounted rewards of the next n steps, and the value after them. Fewer where the episode ends: a termination
    adds no value, a truncation the value of the last observation. Source: Sutton & Barto (2018), chapter 7, as SB3
    has it, without a correction for the older policy.
    """

    is_prioritized: ClassVar[bool] = False

    kind: Literal["n_step"] = "n_step"
    aliases: ClassVar[tuple[str, ...]] = ("NStepInfoReplayBuffer",)
    n_steps: PositiveInt = 3  # of a portfolio

    def settings(self) -> dict[str, Any]:
        """Arguments of SB3's algorithms that choose the buffer."""
        return {"replay_buffer_class": None, "replay_buffer_kwargs": None, "n_steps": self.n_steps}
