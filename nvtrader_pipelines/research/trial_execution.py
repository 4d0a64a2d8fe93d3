"""Trainings of a search session: those that wait, those that processes judge, and results that lack seeds."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.research.looks import N_ATTEMPTS, POLL_SECONDS, require_base
from nvtrader_pipelines.research.search_journal import TrialProposal
from nvtrader_pipelines.research.session_spec import BASE_SEEDS, FIRST_SEED, FRESH_SEEDS, is_random
from nvtrader_pipelines.research.trial_judgement import TrialJob, TrialResult
from nvtrader_pipelines.research.trial_pool import TrialPool


@dataclass(frozen=True)
class Base:
    """Training of the base."""


@dataclass(frozen=True)
class Rerun:
    """Training of a trial by fresh seeds."""

    key: str


Task = Base | TrialProposal | Rerun


class TrialExecution:
    """Queue of trainings, each by one seed; a task is finished once all its seeds are."""

    def __init__(self, base: ExperimentSpec, folds: tuple[Fold, ...]) -> None:
        self._folds, self._is_random = folds, is_random(base)
        self._queue: deque[tuple[Task, TrialJob]] = deque()
        self._running: dict[int, Task] = {}  # by number of the job
        self._results: list[tuple[Task, TrialResult]] = []  # of tasks that lack other seeds
        self._n_jobs = 0

    @property
    def has_waiting(self) -> bool:
        """Whether a training waits for a worker."""
        return bool(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is trained."""
        return not self._running

    @property
    def running_trials(self) -> list[TrialProposal]:
        """Proposals that are trained by their first seed."""
        return [task for task in self._running.values() if isinstance(task, TrialProposal)]

    def add_base(self, spec: ExperimentSpec) -> None:
        """Queue the base by each of its seeds."""
        self._add(Base(), spec, BASE_SEEDS if self._is_random else (0,))

    def add_trial(self, proposal: TrialProposal, reference: tuple[float, ...]) -> None:
        """Queue a trial by its first seed; it is pruned where its folds are below the reference's."""
        self._add(proposal, proposal.effective.spec, (FIRST_SEED,), reference)

    def add_rerun(self, key: str, spec: ExperimentSpec) -> None:
        """Queue a trial by its fresh seeds."""
        self._add(Rerun(key), spec, FRESH_SEEDS)

    def _add(self, task: Task, spec: ExperimentSpec, seeds: Iterable[int], reference: tuple[float, ...] = ()) -> None:
        n_attempts = 1 if isinstance(task, TrialProposal) else N_ATTEMPTS
        for own_seed in seeds:
            self._n_jobs += 1
            seed = own_seed if self._is_random else 0
            job = TrialJob(self._n_jobs, spec, seed, self._folds, reference, scenario_seed=seed, n_attempts=n_attempts)
            self._queue.append((task, job))

    def submit_next(self, pool: TrialPool) -> None:
        """Give the first training that waits to an idle worker; there must be one of both."""
        task, job = self._queue.popleft()
        self._running[job.number] = task
        pool.submit(job)

    def wait(self, pool: TrialPool) -> tuple[Task, list[TrialResult]] | None:
        """Wait a moment for a task to be finished, and return it with its results by seed.

        Raises:
            ValueError: if a seed of the base has no result.
        """
        result = pool.wait(POLL_SECONDS)
        if result is None:
            return None
        task = self._running.pop(result.number)
        if isinstance(task, Base):
            require_base([result])
        self._results.append((task, result))
        if any(task is other for other in (*self._running.values(), *(waiting for waiting, _ in self._queue))):
            return None
        results = [own for of_task, own in self._results if of_task is task]
        self._results = [(other, own) for other, own in self._results if other is not task]
        return task, sorted(results, key=lambda own: own.seed)
