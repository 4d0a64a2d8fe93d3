"""Steps per second of a training by each learner."""

from collections.abc import Callable
from functools import partial
from time import process_time

import torch

from benchmarks.claim import Goal, report, time_rounds
from nvtrader_pipelines.components.component import members
from nvtrader_pipelines.envs.actions import ChoiceAction
from nvtrader_pipelines.envs.observations import PerAssetObservation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.policies.agents import Agent, Learner, TrainingHooks

WINDOW = (300, 2560)  # first and last session of the training
GOAL = Goal(value_at_least=500)  # 30,000 steps in a minute
HOOKS = TrainingHooks(checkpoint=lambda _: None)  # as runs have it


def main() -> None:
    """Report steps per CPU second of each learner at its defaults."""
    panel, n_steps = sample_panel(), {}
    trainings: dict[str, Callable[[int], object]] = {}
    for member in members(Agent):
        if issubclass(member, Learner) and not member.is_tuned:
            agent = member()
            n_steps[agent.kind] = agent.total_timesteps
            trainings[agent.kind] = partial(_train, agent, environment_of(agent), panel)
    seconds = time_rounds(trainings, 1, clock=process_time)
    for kind, count in n_steps.items():
        note = (
            f"20 names, {count} steps at the defaults, pretraining of a backbone included; CPU seconds of the whole "
            f"train(), after one that warms up, torch {torch.__version__} on 1 thread"
        )
        report(f"learner_{kind}", count / seconds[kind][0], "steps/s", GOAL, note=note)


def environment_of(agent: Learner) -> EnvSpec:
    """Return the default environment, with the action and the observation that the learner needs."""
    if agent.is_discrete:
        return EnvSpec(action=ChoiceAction())
    return EnvSpec(observation=PerAssetObservation()) if agent.backbone.kind == "shared_asset" else EnvSpec()


def _train(agent: Learner, env: EnvSpec, panel: MarketPanel, _: int) -> None:
    agent.train(panel, env, WINDOW, 0, HOOKS)


if __name__ == "__main__":
    main()
