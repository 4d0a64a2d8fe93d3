"""Search session: propose, train, judge, keep and again, within a budget; its journal is the record."""

import math
import time
from collections.abc import Generator, Iterable, Iterator

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.research.hand_over import hand_over
from nvtrader_pipelines.research.journal import Line, ModelEvent, SessionClosed, TrialJudged, work_seconds
from nvtrader_pipelines.research.looks import Close
from nvtrader_pipelines.research.proposals import Proposals
from nvtrader_pipelines.research.recorded_session import RecordedSession, is_closed, read_session
from nvtrader_pipelines.research.search_journal import SearchJournal, TrialProposal
from nvtrader_pipelines.research.search_settings import MAX_WORKERS
from nvtrader_pipelines.research.session_report import write_report
from nvtrader_pipelines.research.session_spec import require_workers
from nvtrader_pipelines.research.session_store import (
    before_seal,
    earlier_configurations,
    known_results,
    validation_digest,
)
from nvtrader_pipelines.research.session_tables import store_session
from nvtrader_pipelines.research.trial_execution import Base, Task, TrialExecution
from nvtrader_pipelines.research.trial_judgement import TrialResult
from nvtrader_pipelines.research.trial_pool import TrialPool
from nvtrader_pipelines.research.verdict import Standing
from nvtrader_pipelines.runs.interruptions import require_no_halt
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store


def run_session(store: Store, session_id: str, workers: int | None = None) -> Generator[Line, None, None]:
    """Run or resume a session to its verdict, and yield each line of the journal as it is written.

    It ends without a verdict, after the current trials, if a stop is requested; it can then be resumed.

    Raises:
        StorageError: if there is no such session, another process runs it, or its files or the gate's are unusable.
        ValueError: if there are no workers or more than cores, or the market before the seal or the code has changed
            since it began.
        RunHalted: if the kill switch is engaged.
    """
    if workers is not None:
        require_workers(workers)
    folder = SessionFolder.of(store.home, session_id)
    read_session(folder)  # fails before the lock makes a folder
    read_gate(store.home)  # fails before the search
    with folder.lock():
        folder.cut_torn_line()
        folder.stop_request.unlink(missing_ok=True)
        recorded = read_session(folder)
        search = recorded if is_closed(recorded.lines) else Search(store, recorded)
        try:
            if isinstance(search, Search):
                yield from search.run(workers or min(search.session.spec.workers, MAX_WORKERS))
            if is_closed(search.lines):
                hand_over(store, search.session, search.lines)
        finally:
            folder.stop_request.unlink(missing_ok=True)
            store_session(store, search.session, search.lines)
            write_report(folder, search.session, search.lines)


class Search:
    """Execution of a session from where its journal ends."""

    def __init__(self, store: Store, recorded: RecordedSession) -> None:
        self.session, self._store, self._folder = recorded.session, store, recorded.folder
        self._spec = spec = recorded.session.spec
        self._panel = store.panels.read(spec.base.market)
        self._windows = spec.windows(self._panel)
        if validation_digest(spec, self._panel, self._windows) != self.session.validation_digest:
            raise ValueError(
                f"session {self.session.session_id} must go on with the market and the code it began with, but prices "
                f"before {spec.sealed_from} or the installed code have changed; start another session"
            )
        self._space = spec.space()
        self._base = self._space.propose({})
        periods_per_year = self._panel.calendar.periods_per_year
        self._journal = SearchJournal(recorded, self._base, periods_per_year, self._count_earlier())
        self._proposals = Proposals(store, self.session, self._space, self._journal)
        self._execution = TrialExecution(self._base.spec, self._windows.folds)
        self._elsewhere = known_results(store, self.session)
        waited = sum(line.seconds for line in self.lines if isinstance(line, ModelEvent))
        self._began = time.monotonic() - work_seconds(self.lines) / spec.workers - waited

    @property
    def lines(self) -> list[Line]:
        """Lines of the journal."""
        return self._journal.lines

    def run(self, n_workers: int) -> Iterator[Line]:
        """Run what is left of the session."""
        validated = before_seal(self._panel, self._windows)  # no worker holds a sealed price
        if self._journal.has_base:
            trials = self._journal.state.trials.values()
            self._queue_reruns(trial.key for trial in trials if trial.standing is Standing.RERUN)
        else:
            self._execution.add_base(self._base.spec)
        with TrialPool(validated, panel_digest(validated), self._base.spec, n_workers) as pool:
            yield from self._drain(pool)
            if self._is_stopped or not self._journal.has_base:
                return
            self._journal.count_earlier(self._count_earlier())
            self._queue_reruns(self._journal.state.finalists)
            yield from self._drain(pool)
        if not self._is_stopped:
            yield from self._close(n_workers)

    def _drain(self, pool: TrialPool) -> Iterator[Line]:
        """Train and judge until there is nothing left to do; reruns come before new proposals."""
        while True:
            require_no_halt(self._store)
            while pool.n_idle and not self._is_stopped:
                if self._execution.has_waiting:
                    self._execution.submit_next(pool)
                elif self._may_propose:
                    yield from self._propose()
                else:
                    break
            if self._execution.is_idle:
                return
            if finished := self._execution.wait(pool):
                yield self._judge(*finished)

    @property
    def _is_stopped(self) -> bool:
        return self._folder.stop_request.exists()

    @property
    def _may_propose(self) -> bool:
        if not self._journal.has_base or not self._proposals.may_bring_new or self._seconds_left <= 0.0:
            return False
        n_trials = len(self._journal.state.trials) + len(self._execution.running_trials)
        return self._spec.budget is None or n_trials < self._spec.budget

    @property
    def _seconds_left(self) -> float:
        """Seconds until the session's limit of time."""
        limit = self._spec.max_seconds
        return math.inf if limit is None else limit - (time.monotonic() - self._began)

    def _propose(self) -> Iterator[Line]:
        """Queue the next proposal, or yield its line if no training is needed."""
        proposal = self._proposals.next(self._is_tried, self._seconds_left)
        if proposal is None:
            return
        if proposal.asked and proposal.asked not in self.lines:
            self._journal.write(proposal.asked)
            yield proposal.asked
        if self._is_tried(proposal.key):
            yield self._told(self._journal.add_known(proposal))
        elif proposal.refusal:
            yield self._told(self._journal.add_infeasible(proposal))
        elif proposal.key in self._elsewhere:
            yield self._told(self._journal.add_result(proposal, *self._elsewhere[proposal.key]))
        else:
            best = self._journal.state.best if self._spec.prunes else None
            reference = self._journal.line_of(best.key) if best else None
            self._execution.add_trial(proposal, reference.fold_sharpes if reference else ())

    def _is_tried(self, key: str) -> bool:
        """Whether a configuration was judged, or is being judged."""
        state, running = self._journal.state, self._execution.running_trials
        return key in {state.base.key, *state.trials, *(proposal.key for proposal in running)}

    def _judge(self, task: Task, results: list[TrialResult]) -> Line:
        """Judge a finished task, and return its line."""
        match task:
            case Base():
                return self._journal.add_base(results)
            case TrialProposal():
                return self._told(self._journal.add_trial(task, results[0]))
            case _:
                return self._journal.add_rerun(task.key, results)

    def _told(self, line: TrialJudged) -> TrialJudged:
        """Tell the proposer of a line, and queue the reruns that are due."""
        self._proposals.tell(line)
        if line.standing is Standing.RERUN:
            self._queue_reruns([line.spec_hash])
        return line

    def _queue_reruns(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._execution.add_rerun(key, self._spec_of(key))

    def _spec_of(self, key: str) -> ExperimentSpec:
        """Experiment of a trial."""
        return self._space.propose(next(row.knobs for row in self._journal.trials() if row.spec_hash == key)).spec

    def _count_earlier(self) -> frozenset[str]:
        """Configurations of other sessions and runs."""
        return earlier_configurations(self._store, self.session) - {self._base.trial.trial_hash}

    def _close(self, n_workers: int) -> Iterator[Line]:
        """Look at the sealed window if a trial is above luck, and write the verdict."""
        for line in self._verdict(n_workers):
            if isinstance(line, SessionClosed) and (summary := self._proposals.summarize(line)):
                self._journal.write(summary)
                yield summary
            self._journal.write(line)
            yield line

    def _verdict(self, n_workers: int) -> Iterator[Line]:
        state = self._journal.state
        close = Close(self._store, self._folder, self.session, self._panel, self._windows, state, self.lines)
        kept, is_opened = state.kept, self._store.ledger.find_look(self.session.session_id) is not None
        if kept is None or kept.current_lead is None or not (is_opened or state.is_above_luck):
            yield close.nothing_found()
        else:
            yield from close.look(kept, kept.current_lead, (self._base.spec, self._spec_of(kept.key)), n_workers)
