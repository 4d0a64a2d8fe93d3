"""Training of many policies, folds by seeds, in parallel processes of one thread each."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

import torch
from safetensors.torch import load, save

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


def _begin(panel: MarketPanel, leash: Any) -> None:
    """Set a worker up; it ends when the other end of its leash, a pipe, is closed: by `train_all` or by a death."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the caller's to handle
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()
    _panels["panel"] = panel
    torch.set_num_threads(1)


def _end_with(leash: Any) -> None:
    leash.poll(None)  # nothing is ever sent, so this returns when the leash is closed
    os._exit(1)


def _train(task: TrainingTask) -> tuple[Fit, bytes]:
    """The fit without its tensors, and those as bytes: torch would send each as an open file of shared memory."""
    fit = task.agent.train(_panels["panel"], task.environment, task.window, task.seed)
    return replace(fit, tensors={}), save(fit.tensors)


def train_all(
    panel: MarketPanel, tasks: Sequence[TrainingTask], n_processes: int | None = None
) -> Generator[tuple[TrainingTask, Fit], None, None]:
    """Train the tasks side by side and hand each out as it is done, in no fixed order.

    Every task is seeded by itself, so the results do not depend on the order or the number of processes. When the
    caller stops early (an interrupt, an error, a kill), the workers end at once and what they were at is lost.
    """
    n_processes = min(len(tasks), n_processes or os.cpu_count() or 1)
    if n_processes == 0:
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    held, leash = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=_begin, initargs=(panel, held))
    pending = {}
    try:
        pending = {pool.submit(_train, task): task for task in tasks}
        while pending:
            # importing polars makes a signal restart a blocking wait, so without a timeout Ctrl-C would not be heard
            done, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                task = pending.pop(future)
                fit, tensors = future.result()
                yield task, replace(fit, tensors=load(tensors))
    finally:
        if pending:
            leash.close()
        pool.shutdown(wait=True, cancel_futures=True)
        leash.close()
        held.close()
