"""Processes that judge the trials of a search session, one trial at a time each."""

from contextlib import AbstractContextManager
from dataclasses import replace

from nvtrader_pipelines.components.executor import WorkerEndedError
from nvtrader_pipelines.components.executor_choice import make_executor
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.training import PRELOADED
from nvtrader_pipelines.research.trial_judgement import TrialJob, TrialResult, judge

SOLVER = (  # modules of a rebalance by cufolio; cvxpy alone takes a second to import
    "nvtrader_pipelines.components.ready_numba",
    "nvtrader_pipelines.portfolio.cufolio_solver",
    "nvtrader_pipelines.portfolio.scenario_loop",
)


class TrialPool(AbstractContextManager["TrialPool"]):
    """Processes that judge trials on one market; a context manager that ends them at once."""

    def __init__(self, panel: MarketPanel, digest: str, base: ExperimentSpec, n_workers: int) -> None:
        """Prepare the workers.

        Args:
            panel: market of the folds, sent once to each worker.
            digest: of the market that the cards of the policies name.
            base: experiment that the trials vary.
            n_workers: processes.
        """
        solves = "cufolio" in (base.agent.kind, base.pipeline.allocator.kind)
        learning = () if base.agent.is_classical else PRELOADED  # PyTorch only where something learns
        self._executor = make_executor(n_workers, [__name__, *learning, *(SOLVER if solves else ())], panel, digest)
        self.n_idle = n_workers  # workers without a job

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        self._executor.end()

    def submit(self, job: TrialJob) -> None:
        """Give a job to an idle worker; there must be one."""
        self._executor.submit(judge, job)
        self.n_idle -= 1

    def wait(self, timeout: float) -> TrialResult | None:
        """Wait for the next result, at most `timeout` seconds; None if there is none.

        The job of a worker that ends by itself begins again; after the last attempt it has failed.

        Raises:
            Exception: what a judgement raises by an error in the code.
        """
        if (received := self._executor.receive(timeout)) is None:
            return None
        call, _ = received
        (job,) = call.arguments
        self.n_idle += 1
        try:
            return call.result()
        except WorkerEndedError as error:
            if job.n_attempts > 1:
                self.submit(replace(job, n_attempts=job.n_attempts - 1))
                return None
            return TrialResult(job.number, job.seed, returns=None, fold_sharpes=(), seconds=0.0, error=str(error))
