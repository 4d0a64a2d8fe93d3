"""Training of many policies, folds by seeds, in parallel processes of one thread each."""

import gc
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.synchronize import Lock
from typing import Any

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.agents import Agent, CurvePoint, Fit, TrainingHooks


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


@dataclass(frozen=True, eq=False)
class Stepped:
    """Progress of a training."""

    task: TrainingTask
    timesteps: int
    mean_reward: float  # per step, since the previous event


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


PRELOADED = (  # what workers are forks of: their first optimizer would import `torch._dynamo`, for 1.5 s
    __name__,
    "torch._dynamo",
    "sb3_contrib",
    "safetensors.torch",
    "nvtrader_pipelines.policies.agents.checkpoints",
    "nvtrader_pipelines.policies.agents.grouped_training",
    "nvtrader_pipelines.policies.agents.rollouts",
    "nvtrader_pipelines.policies.networks.gaussian_policy",
)
TrainingEvent = Stepped | Checkpointed | Finished


class TrainingProcessError(RuntimeError):
    """Training process that ended before its task was finished."""


@dataclass(frozen=True, eq=False)
class _Trained:
    """A fit on its way; torch would send each tensor as an open file of shared memory."""

    fit: Fit  # without tensors
    tensors: bytes


_Told = CurvePoint | bytes | _Trained  # bytes: a checkpoint


@dataclass(frozen=True, eq=False)
class _Worker:
    """A worker process's own side: what it was sent once, and the line to the caller, which all workers share."""

    panel: MarketPanel
    tasks: Sequence[TrainingTask]
    line: Any  # a pipe's end
    lock: Lock

    def tell(self, number: int, told: _Told) -> None:
        """Send the caller something of a task."""
        try:
            with self.lock:
                self.line.send((number, told))
        except BrokenPipeError:  # the caller is dead, and the leash about to say so
            os._exit(1)


_workers: list[_Worker] = []  # of this process: none in the caller, one in a worker


def _begin(worker: _Worker, leash: Any) -> None:
    """Set a worker up; it ends when the other end of its leash, a pipe, is closed: by `train_all` or by a death."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the caller's to handle
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()
    import torch

    _workers.append(worker)
    gc.freeze()  # a search for garbage would copy every page that is shared with the other workers
    torch.set_num_threads(1)


def _end_with(leash: Any) -> None:
    leash.poll(None)  # nothing is ever sent, so this returns when the leash is closed
    os._exit(1)


def _train(number: int) -> None:
    """Train one of the tasks, telling the caller of it on the way."""
    from safetensors.torch import save

    from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError

    (worker,) = _workers
    task = worker.tasks[number]
    tell = partial(worker.tell, number)
    try:
        fit = _fit(worker.panel, task, tell)
    except CheckpointError:  # from its start the training gives the same policy, later
        fit = _fit(worker.panel, replace(task, resume_from=None), tell)
    tell(_Trained(replace(fit, tensors={}), save(fit.tensors)))


def _fit(panel: MarketPanel, task: TrainingTask, tell: Callable[[_Told], None]) -> Fit:
    hooks = TrainingHooks(tell, tell, task.resume_from, task.sample_rate)
    return task.agent.train(panel, task.environment, task.window, task.seed, hooks)


def train_all(
    panel: MarketPanel, tasks: Sequence[TrainingTask], n_processes: int | None = None
) -> Generator[TrainingEvent, None, None]:
    """Train the tasks side by side and tell how each goes on; the events of one task come in order, `Finished` last.

    Every task is seeded by itself, so the results do not depend on the order or the number of processes. When the
    caller stops early (an interrupt, an error, a kill), the workers end at once and what they did after their last
    checkpoint is lost.

    Raises:
        TrainingProcessError: if a worker ends by itself: killed, or out of memory.
        Exception: what a training raises; the workers then end at once.
    """
    n_processes = min(len(tasks), n_processes or os.cpu_count() or 1)
    if n_processes == 0:
        return
    crew = _Crew(panel, tasks, n_processes)
    try:
        yield from crew.events()
    except BrokenProcessPool as error:
        raise TrainingProcessError(
            "a training must run to its end, but its process ended by itself: it was killed, or the machine is out of "
            "memory; free some or train in fewer processes, and start the run again"
        ) from error
    finally:
        crew.end()


class _Crew:
    """The caller's side: a pool of workers, and a thread that hears them, so that none of them waits for the caller."""

    def __init__(self, panel: MarketPanel, tasks: Sequence[TrainingTask], n_processes: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        self._tasks, self._unfinished = tasks, len(tasks)
        self._held, self._leash = context.Pipe(duplex=False)
        self._ear, self._line = context.Pipe(duplex=False)
        worker = _Worker(panel, tasks, self._line, context.Lock())
        self._pool = ProcessPoolExecutor(
            n_processes, mp_context=context, initializer=_begin, initargs=(worker, self._held)
        )
        self._told: queue.SimpleQueue[tuple[int, _Told]] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def events(self) -> Generator[TrainingEvent, None, None]:
        """Begin, and give what the workers tell until every task is finished."""
        self._listener.start()
        futures = [self._pool.submit(_train, number) for number in range(len(self._tasks))]
        while self._unfinished:
            if self._told.empty():
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
        self._line.close()  # the last of its writers, so the listener reads its end
        self._listener.join()
        for pipe in (self._ear, self._leash, self._held):
            pipe.close()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):  # OSError: a worker was killed in the middle of a message
            while True:
                self._told.put(self._ear.recv())

    def _next(self) -> TrainingEvent | None:
        """The next event, or None if there is none for a while."""
        from safetensors.torch import load

        try:
            # importing polars makes a signal restart a blocking wait, so without a timeout Ctrl-C would not be heard
            number, told = self._told.get(timeout=0.5)
        except queue.Empty:
            return None
        task = self._tasks[number]
        if isinstance(told, bytes):
            return Checkpointed(task, told)
        if isinstance(told, _Trained):
            return Finished(task, replace(told.fit, tensors=load(told.tensors)))
        return Stepped(task, *told)


def _raise_errors(futures: Sequence[Future[None]]) -> None:
    for future in futures:
        if future.done():
            future.result()
