"""Training of many policies, folds by seeds, in parallel processes of one thread each."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass

import torch

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import Agent, Fit

_panels: dict[str, MarketPanel] = {}  # a worker's own copy, sent once


@dataclass(frozen=True)
class TrainingTask:
    """One policy to train."""

    fold: int
    seed: int
    window: tuple[int, int]  # first and last session index, inclusive
    environment: EnvSpec
    agent: Agent


def _receive(panel: MarketPanel) -> None:
    _panels["panel"] = panel
    torch.set_num_threads(1)


def _train(task: TrainingTask) -> Fit:
    return task.agent.train(_panels["panel"], task.environment, task.window, task.seed)


def train_all(
    panel: MarketPanel, tasks: Sequence[TrainingTask], n_processes: int | None = None
) -> Iterator[tuple[TrainingTask, Fit]]:
    """Train the tasks side by side and hand each out as it is done, in no fixed order.

    Every task is seeded by itself, so the results do not depend on the order or the number of processes. When the
    caller stops early (an interrupt, an error), what has not begun is dropped and the workers end.
    """
    n_processes = min(len(tasks), n_processes or os.cpu_count() or 1)
    if n_processes == 0:
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=_receive, initargs=(panel,))
    try:
        pending = {pool.submit(_train, task): task for task in tasks}
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield pending.pop(future), future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
