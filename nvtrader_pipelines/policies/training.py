"""Training of many policies, folds by seeds, in parallel processes of one thread each."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from nvtrader_pipelines.components.executor import send
from nvtrader_pipelines.components.executor_choice import make_executor
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.market.panel import MarketPanel, Window, normalize_windows
from nvtrader_pipelines.policies.agents import Agent, Fit, TrainingHooks, TrainingPoint
from nvtrader_pipelines.policies.fit import CurvePoint, Start
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline


class Trainable(Protocol):
    """Training of one policy, which a worker can receive; a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def resume_from(self) -> bytes | None:
        """Checkpoint; an unusable one is ignored."""
        ...

    @property
    def is_classical(self) -> bool:
        """Whether there is nothing to train."""
        ...

    def fit(self, panel: Any, send: Callable[[TrainingPoint | bytes], None]) -> Fit:
        """Train on a market; points and checkpoints are sent."""
        ...


Task = TypeVar("Task", bound=Trainable)


@dataclass(frozen=True)
class TrainingTask:
    """Training of one policy of a portfolio."""

    fold: int
    seed: int
    window: Window | tuple[Window, ...]  # sessions to train on; several if sessions between them are left out
    environment: EnvSpec
    agent: Agent  # of an ensemble, the member of this seed
    sample_rate: float = 0.0  # share of training episodes whose steps are recorded
    resume_from: bytes | None = None  # a checkpoint; an unusable one is ignored
    start: Start | None = None  # instead of random weights; with pairs, of an agent that tunes a policy
    pipeline: WeightPipeline | None = None  # of an environment that asks for one
    stages: tuple[tuple[EnvSpec, Agent], ...] = ()  # trained before, each from the tensors of the one before

    @property
    def total_timesteps(self) -> int:
        """Steps of the training and of its stages."""
        return sum(agent.total_timesteps for _, agent in self.stages) + self.agent.total_timesteps

    @property
    def is_classical(self) -> bool:
        """Whether there is nothing to train."""
        return self.agent.is_classical

    def fit(self, panel: MarketPanel, send: Callable[[TrainingPoint | bytes], None]) -> Fit:
        """Train on the market until the end of the window, the stages first; points and checkpoints are sent."""
        from safetensors.torch import save

        market = cut_after(panel, normalize_windows(self.window)[-1][1])  # no agent sees sessions after its training
        n_before, curve, start = 0, list[CurvePoint](), self.start

        def report(point: TrainingPoint) -> None:
            send(point._replace(timesteps=n_before + point.timesteps))

        for environment, agent in self.stages:  # without checkpoints: what resumes trains them again, to equal bytes
            hooks = TrainingHooks(report, start=start, pipeline=self.pipeline)
            stage = agent.train(market, environment, self.window, self.seed, hooks)
            curve += [(n_before + timesteps, reward) for timesteps, reward in stage.curve]
            start, n_before = Start(stage.scaler, save(stage.tensors), ""), n_before + agent.total_timesteps
        hooks = TrainingHooks(report, send, self.resume_from, self.sample_rate, start, self.pipeline)
        fit = self.agent.train(market, self.environment, self.window, self.seed, hooks)
        curve += [(n_before + timesteps, reward) for timesteps, reward in fit.curve]
        return replace(fit, curve=curve)


@dataclass(frozen=True, eq=False)
class Stepped(Generic[Task]):
    """Progress of a training."""

    task: Task
    timesteps: int
    mean_reward: float  # per step, since the previous event
    scalars: Mapping[str, float]  # of the algorithm, by Stable-Baselines3's names


@dataclass(frozen=True, eq=False)
class Checkpointed(Generic[Task]):
    """Checkpoint of a training, to resume from."""

    task: Task
    content: bytes


@dataclass(frozen=True, eq=False)
class Finished(Generic[Task]):
    """Result of a training."""

    task: Task
    fit: Fit


PRELOADED = (  # modules of the process that workers are forked from; `torch._dynamo` alone takes 1.5 s to import
    __name__,
    "nvtrader_pipelines.components.ready_numba",
    "torch._dynamo",
    "sb3_contrib",
    "safetensors.torch",
    "nvtrader_pipelines.policies.agents.checkpoints",
    "nvtrader_pipelines.policies.agents.dpo_training",
    "nvtrader_pipelines.policies.agents.evolution_training",
    "nvtrader_pipelines.policies.agents.grouped_training",
    "nvtrader_pipelines.policies.agents.rollouts",
    "nvtrader_pipelines.policies.networks.execution_policy",
    "nvtrader_pipelines.policies.networks.gaussian_policy",
    "nvtrader_pipelines.policies.pathwise.grpo",
)


def _train(task: Trainable, panel: Any) -> tuple[Fit, bytes]:
    """Train a task in a worker; return the fit without its tensors, and the tensors as bytes.

    PyTorch would send each tensor as an open file of shared memory.
    """
    from safetensors.torch import save

    from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError

    try:
        fit = task.fit(panel, send)
    except CheckpointError:  # from its start, the training gives the same policy, only later
        fit = replace(task, resume_from=None).fit(panel, send)
    return replace(fit, tensors={}), save(fit.tensors)


def train_all(
    panel: Any, tasks: Sequence[Task], n_processes: int | None = None
) -> Generator[Stepped[Task] | Checkpointed[Task] | Finished[Task], None, None]:
    """Train tasks in parallel processes and yield their events, in order per task and `Finished` last.

    Every task is seeded by itself, so the results do not depend on the order or the number of processes. When the
    caller stops early (an interrupt, an error, a kill), the workers end at once and what they did after their last
    checkpoint is lost.

    Raises:
        WorkerEndedError: if a worker ends by itself: killed, or out of memory.
        Exception: what a training raises; the workers then end at once.
    """
    if all(task.is_classical for task in tasks):  # nothing to train
        yield from (Finished(task, task.fit(panel, lambda _: None)) for task in tasks)
        return
    from safetensors.torch import load

    n_unfinished = len(tasks)
    with make_executor(n_processes, PRELOADED, panel) as executor:
        for task in tasks:
            executor.submit(_train, task)
        while n_unfinished:
            # importing polars makes a signal restart a blocking wait, so without a timeout Ctrl-C would have no effect
            if (received := executor.receive(0.5)) is None:
                continue
            call, message = received
            (task,) = call.arguments
            if isinstance(message, bytes):
                yield Checkpointed(task, message)
            elif message:
                yield Stepped(task, *message)
            else:
                fit, tensors = call.result()
                n_unfinished -= 1
                yield Finished(task, replace(fit, tensors=load(tensors)))
