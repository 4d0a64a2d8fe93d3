"""Training of many policies, folds by seeds, in parallel processes of one thread each."""

import gc
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.synchronize import Lock
from types import ModuleType
from typing import Any

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.market.panel import MarketPanel, Window, normalize_windows
from nvtrader_pipelines.policies.agents import Agent, Fit, TrainingHooks, TrainingPoint
from nvtrader_pipelines.policies.preference_data import Tuning
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline


@dataclass(frozen=True)
class TrainingTask:
    """Training of one policy."""

    fold: int
    seed: int
    window: Window | tuple[Window, ...]  # sessions to train on; several if sessions between them are left out
    environment: EnvSpec
    agent: Agent
    sample_rate: float = 0.0  # share of training episodes whose steps are recorded
    resume_from: bytes | None = None  # a checkpoint; an unusable one is ignored
    tuning: Tuning | None = None  # of an agent that tunes a policy
    pipeline: WeightPipeline | None = None  # of an environment that asks for one


@dataclass(frozen=True, eq=False)
class Stepped:
    """Progress of a training."""

    task: TrainingTask
    timesteps: int
    mean_reward: float  # per step, since the previous event
    scalars: Mapping[str, float]  # of the algorithm, by Stable-Baselines3's names


@dataclass(frozen=True, eq=False)
class Checkpointed:
    """Checkpoint of a training, to resume from."""

    task: TrainingTask
    content: bytes


@dataclass(frozen=True, eq=False)
class Finished:
    """Result of a training."""

    task: TrainingTask
    fit: Fit


PRELOADED = (  # modules of the process that workers are forked from; `torch._dynamo` alone takes 1.5 s to import
    __name__,
    "torch._dynamo",
    "sb3_contrib",
    "safetensors.torch",
    "nvtrader_pipelines.policies.agents.checkpoints",
    "nvtrader_pipelines.policies.agents.dpo_training",
    "nvtrader_pipelines.policies.agents.grouped_training",
    "nvtrader_pipelines.policies.agents.rollouts",
    "nvtrader_pipelines.policies.networks.gaussian_policy",
)
TrainingEvent = Stepped | Checkpointed | Finished


class TrainingProcessError(RuntimeError):
    """Training process that ended before its task was finished."""


@dataclass(frozen=True, eq=False)
class _FitMessage:
    """Fit with its tensors as bytes; torch would send each tensor as an open file of shared memory."""

    fit: Fit  # without tensors
    tensors: bytes


_Message = TrainingPoint | bytes | _FitMessage  # bytes: a checkpoint


@dataclass(frozen=True, eq=False)
class _Worker:
    """Worker side: the shared inputs, and the pipe to the caller, which all workers write to."""

    panel: MarketPanel
    tasks: Sequence[TrainingTask]
    pipe: Any  # write end
    lock: Lock

    def send(self, number: int, message: _Message) -> None:
        """Send a message of task `number` to the caller."""
        try:
            with self.lock:
                self.pipe.send((number, message))
        except BrokenPipeError:  # the caller has died; the watcher thread would end this process a moment later
            os._exit(1)


_workers: list[_Worker] = []  # empty in the caller, one in a worker process


def _start_worker(worker: _Worker, leash: Any) -> None:
    """Set up a worker, which ends when the caller closes the other end of the pipe `leash` or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()
    import torch

    _workers.append(worker)
    gc.freeze()  # a garbage collection would copy every page that workers share
    torch.set_num_threads(1)


def _end_with(leash: Any) -> None:
    leash.poll(None)  # nothing is ever sent, so this returns when the leash is closed
    os._exit(1)


def _train(number: int) -> None:
    """Train task `number` and send its events to the caller."""
    from safetensors.torch import save

    from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError

    (worker,) = _workers
    task = worker.tasks[number]
    send = partial(worker.send, number)
    try:
        fit = _fit(worker.panel, task, send)
    except CheckpointError:  # from its start, the training gives the same policy, only later
        fit = _fit(worker.panel, replace(task, resume_from=None), send)
    send(_FitMessage(replace(fit, tensors={}), save(fit.tensors)))


def _fit(panel: MarketPanel, task: TrainingTask, send: Callable[[_Message], None]) -> Fit:
    hooks = TrainingHooks(send, send, task.resume_from, task.sample_rate, task.tuning, task.pipeline)
    known = cut_after(panel, normalize_windows(task.window)[-1][1])  # no agent sees sessions after its training
    return task.agent.train(known, task.environment, task.window, task.seed, hooks)


def train_all(
    panel: MarketPanel, tasks: Sequence[TrainingTask], n_processes: int | None = None
) -> Generator[TrainingEvent, None, None]:
    """Train tasks in parallel processes and yield their events, in order per task and `Finished` last.

    Every task is seeded by itself, so the results do not depend on the order or the number of processes. When the
    caller stops early (an interrupt, an error, a kill), the workers end at once and what they did after their last
    checkpoint is lost.

    Raises:
        TrainingProcessError: if a worker ends by itself: killed, or out of memory.
        Exception: what a training raises; the workers then end at once.
    """
    if all(task.agent.is_classical for task in tasks):  # nothing to train
        yield from (Finished(task, _fit(panel, task, lambda _: None)) for task in tasks)
        return
    n_processes = min(len(tasks), n_processes or os.cpu_count() or 1)
    pool = _WorkerPool(panel, tasks, n_processes)
    try:
        yield from pool.events()
    except BrokenProcessPool as error:
        raise TrainingProcessError(
            "a training must run to its end, but its process ended by itself: it was killed, or the machine is out of "
            "memory; free some or train in fewer processes, and start the run again"
        ) from error
    finally:
        pool.end()


@contextmanager
def hide_main_module() -> Iterator[None]:
    """Hide the caller's script from processes that start in this context: they would run it.

    A script without `if __name__ == "__main__":` would train once more in each of them; they do not need it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _WorkerPool:
    """Caller side: worker processes, and a thread that reads their messages, so that no worker blocks."""

    def __init__(self, panel: MarketPanel, tasks: Sequence[TrainingTask], n_processes: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        self._tasks, self._unfinished = tasks, len(tasks)
        self._watched, self._leash = context.Pipe(duplex=False)
        self._reader, self._writer = context.Pipe(duplex=False)
        worker = _Worker(panel, tasks, self._writer, context.Lock())
        self._pool = ProcessPoolExecutor(
            n_processes, mp_context=context, initializer=_start_worker, initargs=(worker, self._watched)
        )
        self._messages: queue.SimpleQueue[tuple[int, _Message]] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def events(self) -> Generator[TrainingEvent, None, None]:
        """Start the workers and yield their events until every task is finished."""
        self._listener.start()
        with hide_main_module():
            futures = [self._pool.submit(_train, number) for number in range(len(self._tasks))]
        while self._unfinished:
            if self._messages.empty():
                _raise_errors(futures)
            event = self._next()
            if event is not None:
                self._unfinished -= isinstance(event, Finished)
                yield event

    def end(self) -> None:
        """End the workers, at once if they have work left, and then the listener."""
        if self._unfinished:
            self._leash.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._writer.close()  # the last of its writers, so the listener reads its end
        self._listener.join()
        for pipe in (self._reader, self._leash, self._watched):
            pipe.close()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):  # OSError: a worker was killed in the middle of a message
            while True:
                self._messages.put(self._reader.recv())

    def _next(self) -> TrainingEvent | None:
        """Return the next event, or None if there is none for half a second."""
        from safetensors.torch import load

        try:
            # importing polars makes a signal restart a blocking wait, so without a timeout Ctrl-C would have no effect
            number, message = self._messages.get(timeout=0.5)
        except queue.Empty:
            return None
        task = self._tasks[number]
        if isinstance(message, bytes):
            return Checkpointed(task, message)
        if isinstance(message, _FitMessage):
            return Finished(task, replace(message.fit, tensors=load(message.tensors)))
        return Stepped(task, *message)


def _raise_errors(futures: Sequence[Future[None]]) -> None:
    for future in futures:
        if future.done():
            future.result()
