"""Processes that judge the trials of a search session, one trial at a time each."""

import gc
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self, cast

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import Learner
from nvtrader_pipelines.policies.training import PRELOADED, hide_main_module
from nvtrader_pipelines.research.trial_judgement import TrialJob, TrialResult, judge

SOLVER = "nvtrader_pipelines.portfolio.cufolio_solver"  # cvxpy takes a second to import


class JudgementError(RuntimeError):
    """Error in a judgement that is not due to the trial's settings, with the worker's traceback."""


@dataclass(eq=False)
class _Worker:
    """Caller side of a process: its pipe, and the job that it is judging."""

    process: Any
    pipe: Any
    job: TrialJob | None = None


class TrialPool:
    """Processes that judge trials on one market; a context manager that ends them at once."""

    def __init__(self, panel: MarketPanel, digest: str, base: ExperimentSpec, n_workers: int) -> None:
        """Start the workers.

        Args:
            panel: market of the folds, sent once to each worker.
            digest: of the market that the cards of the policies name.
            base: experiment that the trials vary.
            n_workers: processes.
        """
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_preloaded(base))
        self._market = panel, digest
        self._workers = [self._start() for _ in range(n_workers)]

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers."""
        self.close()

    @property
    def n_idle(self) -> int:
        """Workers without a job."""
        return sum(worker.job is None for worker in self._workers)

    def submit(self, job: TrialJob) -> None:
        """Give a job to an idle worker; there must be one."""
        worker = next(worker for worker in self._workers if worker.job is None)
        worker.job = job
        with suppress(OSError):  # a worker that has died: `wait` finds out
            worker.pipe.send(job)

    def wait(self, timeout: float) -> TrialResult | None:
        """Wait for the next result, at most `timeout` seconds; None if there is none.

        A worker that ends by itself is replaced, and its job begins again; after the last attempt it has failed.

        Raises:
            JudgementError: if a judgement fails by an error in the code.
        """
        ready = wait([worker.pipe for worker in self._workers if worker.job], timeout)
        if not ready:
            return None
        worker = next(worker for worker in self._workers if worker.pipe is ready[0])
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):  # OSError: a worker was killed in the middle of a message
            return self._replace(worker)
        worker.job = None
        if isinstance(answer, str):
            raise JudgementError(answer)
        return answer

    def close(self) -> None:
        """End the workers at once."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()

    def _start(self) -> _Worker:
        pipe, far_end = self._context.Pipe()
        process = self._context.Process(target=_work, args=(far_end, *self._market), daemon=True)
        with hide_main_module():
            process.start()
        far_end.close()  # so that the pipe ends with the worker
        return _Worker(process, pipe)

    def _replace(self, worker: _Worker) -> TrialResult | None:
        """Replace a worker that ended by itself, and return the result of its job after the last attempt."""
        job = cast("TrialJob", worker.job)
        worker.process.join()
        worker.pipe.close()
        self._workers[self._workers.index(worker)] = self._start()
        if job.n_attempts > 1:
            self.submit(replace(job, n_attempts=job.n_attempts - 1))
            return None
        return TrialResult(
            number=job.number,
            seed=job.seed,
            returns=None,
            fold_sharpes=(),
            seconds=0.0,
            error="the process of the trial ended by itself: it was killed, or the machine is out of memory; free "
            "some, or judge in fewer processes",
        )


def _preloaded(base: ExperimentSpec) -> list[str]:
    """Modules of the process that workers are forked from; PyTorch only where something learns."""
    learns = isinstance(base.agent, Learner)
    solves = "cufolio" in (base.agent.kind, base.pipeline.allocator.kind)
    return [__name__, *(PRELOADED if learns else ()), *((SOLVER,) if solves else ())]


def _work(pipe: Any, panel: MarketPanel, digest: str) -> None:
    """Judge jobs from a pipe until the caller closes its end or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    jobs: queue.SimpleQueue[TrialJob] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    gc.freeze()  # a garbage collection would copy every page that workers share
    while True:
        job = jobs.get()
        try:
            answer: TrialResult | str = judge(job, panel, digest)
        except Exception:  # noqa: BLE001 - the caller raises it
            answer = traceback.format_exc()
        pipe.send(answer)


def _receive(pipe: Any, jobs: "queue.SimpleQueue[TrialJob]") -> None:
    """Queue the jobs, and end the process with the pipe, even in the middle of a judgement."""
    with suppress(EOFError, OSError):
        while True:
            jobs.put(pipe.recv())
    os._exit(1)
