"""Learners on the differentiable market, and those that follow the gradient of what their weights earn."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.policies.agents.pathwise_settings import PathwiseSettings, WindowSettings
from nvtrader_pipelines.policies.backbones import Backbone, EiieConvBackbone
from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from stable_baselines3.common.policies import BasePolicy

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.training_log import TrainingLog
    from nvtrader_pipelines.policies.pathwise.training import PathwiseTraining, WindowTraining

DIFFERENTIABLE = ("simplex", "residual", "levered_simplex", "long_short")  # actions


class WindowLearner(WindowSettings):
    """Learner on windows of training sessions that the differentiable market plays.

    Costs, drift and financing are those of the environment; its reward terms, `gamma` and terminations have no effect,
    and no episode of the training is recorded, since no environment is stepped.
    """

    actions: ClassVar[tuple[str, ...]] = DIFFERENTIABLE  # supported kinds

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require an action and costs with a gradient, and no pipeline within the training.

        Raises:
            ValueError: if the experiment has others.
        """
        super().require_experiment(spec, field)
        kind, environment = kind_of(type(self)), spec.environment
        if environment.action.kind not in self.actions:
            raise ValueError(
                f"environment.action: found {environment.action.kind}, but {kind} needs one of "
                f"{', '.join(self.actions)}; change it or the agent"
            )
        if self.objective == "sharpe" and self.n_steps * environment.rebal_freq < 2:
            raise ValueError(
                f"{field}.objective: a Sharpe ratio needs windows of at least 2 sessions, but n_steps and "
                "environment.rebal_freq are 1; raise one or choose log_growth"
            )
        unknown = [model.kind for model in environment.cost_models if not hasattr(model, "coefficients")]
        if environment.pipeline or unknown:
            found = "environment.pipeline is true" if environment.pipeline else f"{unknown[0]} has none"
            raise ValueError(
                f"{field}: {kind} needs costs with `coefficients` and a training without pipeline, but {found}; "
                "change it or the agent"
            )

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[BasePolicy, TrainingLog]":
        """Train a network on the simulation's market and return it with the log.

        Raises:
            CheckpointError: if the checkpoint to resume from is damaged or of another training.
            ValueError: if a window is longer than every stretch of the training.
        """
        import torch

        with torch.random.fork_rng(devices=[]):
            training = self.new_training(simulation, seed, hooks)
            if hooks.resume_from is not None:
                training.restore(hooks.resume_from)
            while training.timesteps < self.total_timesteps:
                training.update()
        return training.policy.cpu(), training.log

    @abstractmethod
    def new_training(self, *arguments: Any) -> "WindowTraining[Any]":
        """Begin a training on a simulation, with a seed and hooks."""


class PathwiseLearner(PathwiseSettings, WindowLearner):
    """Learner that differentiates the net growth of windows in the actor's weights.

    The reward of a portfolio is a known function of weights, so its gradient needs neither a critic nor noise.
    """

    def new_training(self, *arguments: Any) -> "PathwiseTraining":
        """Begin a training on a simulation, with a seed and hooks."""
        from nvtrader_pipelines.policies.pathwise.training import PathwiseTraining

        return PathwiseTraining(self, *arguments)


class PathwiseAgent(PathwiseLearner):
    """Gradient ascent on net log growth, or on the Sharpe ratio, through the differentiable market.

    Source: Moody & Saffell (2001) for trading by the gradient of performance; lee101/stock-prediction
    (differentiable_market) for the market; the rest is our choice.
    """

    kind: Literal["pathwise"] = "pathwise"


class EiieAgent(PathwiseLearner):
    """Ensemble of identical independent evaluators: one convolutional network for all names, trained on log growth.

    The held weights that it observes are the paper's memory of portfolio vectors. Windows are of 50 decisions, as the
    paper's batches.

    Source: Jiang, Xu & Liang (2017).
    """

    kind: Literal["eiie"] = "eiie"
    n_envs: PositiveInt = 16  # windows per update
    n_steps: Annotated[int, Field(ge=1, le=256)] = 50  # decisions of a window
    backbone: Backbone = EiieConvBackbone()
