"""Search session: propose, train, judge, keep and again, within a budget; its journal is the record."""

import math
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nvtrader_pipelines.evaluation.sharpe.lead import Lead, lead_of
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.research.config_delta import DeltaRefused
from nvtrader_pipelines.research.hand_over import hand_over
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    Knobs,
    Line,
    ModelAsked,
    ModelEvent,
    SessionClosed,
    SessionSummarized,
    TrialJudged,
    TrialRerun,
    format_line,
    n_changes,
    returns_name,
    work_seconds,
)
from nvtrader_pipelines.research.looks import N_ATTEMPTS, POLL_SECONDS, Close, missing_result, require_base
from nvtrader_pipelines.research.model_turns import ModelTurns
from nvtrader_pipelines.research.proposers import LlmProposer, SpaceExhausted
from nvtrader_pipelines.research.recorded_session import RecordedSession, is_closed, read_session, recorded_state
from nvtrader_pipelines.research.search_settings import MAX_WORKERS
from nvtrader_pipelines.research.session_report import session_report, write_report
from nvtrader_pipelines.research.session_spec import (
    BASE_SEEDS,
    FIRST_SEED,
    FRESH_SEEDS,
    is_random,
    require_workers,
)
from nvtrader_pipelines.research.session_store import (
    before_seal,
    earlier_configurations,
    known_results,
    validation_digest,
)
from nvtrader_pipelines.research.session_tables import store_session
from nvtrader_pipelines.research.space import EffectiveExperiment, TrialSpec, configuration_hash
from nvtrader_pipelines.research.study import Study, objective
from nvtrader_pipelines.research.trial_judgement import Returns, TrialJob, TrialResult
from nvtrader_pipelines.research.trial_pool import TrialPool
from nvtrader_pipelines.research.verdict import (
    Reruns,
    SearchBase,
    SearchState,
    SearchTrial,
    Standing,
    judge_reruns,
    judge_trial,
)
from nvtrader_pipelines.runs.interruptions import require_no_halt
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store

MAX_KNOWN = 100  # known proposals in a row, after which nothing new is expected


@dataclass(frozen=True)
class _Base:
    """Training of the base by one seed."""


@dataclass(frozen=True)
class _Trial:
    """Training of a trial by its first seed."""

    proposal: int
    proposed: Knobs
    effective: EffectiveExperiment
    asked: ModelAsked | None = None  # if it was the model's turn

    @property
    def key(self) -> str:
        """Hash of the configuration."""
        return self.effective.trial.trial_hash


@dataclass(frozen=True)
class _Rerun:
    """Training of a trial by one fresh seed."""

    key: str


Task = _Base | _Trial | _Rerun


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
        self.session, self.lines = recorded.session, list(recorded.lines)
        self._store, self._folder, session = store, recorded.folder, recorded.session
        self._panel = store.panels.read(session.spec.base.market)
        self._windows = session.spec.windows(self._panel)
        if validation_digest(session.spec, self._panel, self._windows) != session.validation_digest:
            raise ValueError(
                f"session {session.session_id} must go on with the market and the code it began with, but prices "
                f"before {session.spec.sealed_from} or the installed code have changed; start another session"
            )
        self._space = session.spec.space()
        self._base = self._space.propose({})
        self._earlier = self._count_earlier()
        self._elsewhere = known_results(store, session)
        state = recorded_state(self.lines)
        self._state = replace(state, earlier=self._earlier) if state else None
        self._study = Study(session.spec.proposer, self._space.knobs, session.spec.seed)
        self._model = ModelTurns(store.home, session.spec, self._space, self._study)
        trials = [line for line in self.lines if isinstance(line, TrialJudged)]
        self._study.restore(trials)
        self._proposals = {line.proposal for line in trials}
        self._n_known = _count_last_known(trials)
        self._is_exhausted = False
        self._queue: deque[tuple[Task, TrialJob]] = deque()
        self._in_flight: dict[int, Task] = {}  # by number of the job
        self._parts: defaultdict[str, list[TrialResult]] = defaultdict(list)  # of the base and reruns, by key
        self._n_jobs = 0
        waited = sum(line.seconds for line in self.lines if isinstance(line, ModelEvent))
        self._began = time.monotonic() - work_seconds(self.lines) / session.spec.workers - waited

    def run(self, n_workers: int) -> Iterator[Line]:
        """Run what is left of the session."""
        validated = before_seal(self._panel, self._windows)  # no worker holds a sealed price
        self._queue_unfinished()
        with TrialPool(validated, panel_digest(validated), self._base.spec, n_workers) as pool:
            yield from self._drain(pool)
            if self._is_stopped or self._state is None:
                return
            self._state = replace(self._state, earlier=self._count_earlier())
            self._queue_reruns(self._state.finalists)
            yield from self._drain(pool)
        if not self._is_stopped:
            for line in self._close(self._state, n_workers):
                if isinstance(line, SessionClosed):
                    yield from self._summarize(line)
                self._write(line)
                yield line

    def _drain(self, pool: TrialPool) -> Iterator[Line]:
        """Submit and finish jobs until there is none left."""
        while True:
            require_no_halt(self._store)
            yield from self._fill(pool)
            if not self._in_flight:
                return
            result = pool.wait(POLL_SECONDS)
            if result is not None:
                yield from self._finish(self._in_flight.pop(result.number), result)

    def _fill(self, pool: TrialPool) -> Iterator[Line]:
        """Give every idle worker a job; reruns come before new proposals."""
        while pool.n_idle and not self._is_stopped:
            if self._queue:
                task, job = self._queue.popleft()
                self._in_flight[job.number] = task
                pool.submit(job if isinstance(task, _Trial) else replace(job, n_attempts=N_ATTEMPTS))
            elif self._state is not None and self._may_propose(self._state):
                yield from self._propose(self._state)
            else:
                return

    @property
    def _is_stopped(self) -> bool:
        return self._folder.stop_request.exists()

    def _may_propose(self, state: SearchState) -> bool:
        spec = self.session.spec
        n_trials = len(state.trials) + sum(isinstance(task, _Trial) for task in self._in_flight.values())
        is_spent = spec.budget is not None and n_trials >= spec.budget
        return not (is_spent or self._seconds_left <= 0.0 or self._is_exhausted or self._n_known >= MAX_KNOWN)

    @property
    def _seconds_left(self) -> float:
        """Seconds until the session's limit of time."""
        limit = self.session.spec.max_seconds
        return math.inf if limit is None else limit - (time.monotonic() - self._began)

    def _propose(self, state: SearchState) -> Iterator[Line]:
        """Queue the next proposal, or yield its line if no training is needed."""
        number = next(i for i in range(1, len(self._proposals) + 2) if i not in self._proposals)
        try:
            proposed = self._study.ask(number)
        except SpaceExhausted:
            self._is_exhausted = True
            return
        self._proposals.add(number)
        is_tried, left = partial(self._is_tried, state), self._seconds_left
        asked = self._model.propose(number, proposed, self.lines, is_tried, left)
        if asked and asked not in self.lines:
            self._write(asked)
            yield asked
        if asked and asked.outcome == "proposed":
            proposed = asked.proposed
            self._study.replace(number, proposed)
        refusal = None
        try:
            trial = _Trial(number, proposed, self._space.propose(proposed), asked)
        except DeltaRefused as error:
            refusal, trial = error, self._infeasible(number, proposed)
        self._n_known = self._n_known + 1 if self._is_tried(state, trial.key) else 0
        if self._n_known:
            yield self._add_known(state, trial)
        elif refusal:
            yield self._judge(state, trial, None, 0.0, status="infeasible", message=refusal.problem, knobs={})
        elif trial.key in self._elsewhere:
            yield self._answer(state, trial)
        else:
            self._queue.append((trial, self._job(trial.effective.spec, FIRST_SEED, self._reference(state))))

    def _is_tried(self, state: SearchState, key: str) -> bool:
        """Whether a configuration was judged, or is being judged."""
        running = {task.key for task in self._in_flight.values() if isinstance(task, _Trial)}
        return key in {state.base.key, *state.trials, *running}

    def _job(self, spec: ExperimentSpec, seed: int, reference: tuple[float, ...] = ()) -> TrialJob:
        self._n_jobs += 1
        seed = seed if self._is_random else 0
        return TrialJob(self._n_jobs, spec, seed, self._windows.folds, reference, scenario_seed=seed)

    @property
    def _is_random(self) -> bool:
        return is_random(self._base.spec)

    @property
    def _base_seeds(self) -> tuple[int, ...]:
        return BASE_SEEDS if self._is_random else (0,)

    def _reference(self, state: SearchState) -> tuple[float, ...]:
        """Sharpe ratios by fold of the best trial, which pruned ones are compared with."""
        best = state.best.key if state.best and self.session.spec.prunes else None
        return next((row.fold_sharpes for row in self._trials() if row.spec_hash == best), ())

    def _trials(self) -> Iterator[TrialJudged]:
        return (line for line in self.lines if isinstance(line, TrialJudged) and line.status != "known")

    def _queue_unfinished(self) -> None:
        """Queue the base if it is not judged yet, and the reruns that are due."""
        if self._state is None:
            self._queue.extend((_Base(), self._job(self._base.spec, seed)) for seed in self._base_seeds)
            return
        due = (trial.key for trial in self._state.trials.values() if trial.standing is Standing.RERUN)
        self._queue_reruns(due)

    def _queue_reruns(self, keys: Iterator[str] | list[str]) -> None:
        knobs = {row.spec_hash: row.knobs for row in self._trials()}
        for key in keys:
            spec = self._space.propose(knobs[key]).spec
            self._queue.extend((_Rerun(key), self._job(spec, seed)) for seed in FRESH_SEEDS)

    def _finish(self, task: Task, result: TrialResult) -> Iterator[Line]:
        """Yield the line of a trial, or of the base or a rerun once all its seeds are there."""
        if isinstance(task, _Trial):
            if self._state is not None:
                yield self._add_trial(self._state, task, result)
            return
        if isinstance(task, _Base):
            require_base([result])
        key = task.key if isinstance(task, _Rerun) else self._base.trial.trial_hash
        parts = self._parts[key]
        parts.append(result)
        n_seeds = len(FRESH_SEEDS) if isinstance(task, _Rerun) else len(self._base_seeds)
        if len(parts) < n_seeds:
            return
        del self._parts[key]
        parts.sort(key=lambda part: part.seed)
        seconds = sum(part.seconds for part in parts)
        if isinstance(task, _Base):
            yield self._add_base(parts, seconds)
        elif self._state is not None:
            yield self._add_rerun(self._state, key, parts, seconds)

    def _add_base(self, parts: list[TrialResult], seconds: float) -> Line:
        returns = np.array([part.returns for part in parts])
        returns = np.broadcast_to(returns, (len(BASE_SEEDS), returns.shape[1]))  # a rule has the same by every seed
        self._folder.write_returns("base", returns)
        line = BaseJudged(
            spec_hash=self._base.trial.trial_hash,
            knobs=self._base.trial.knobs,
            seeds=BASE_SEEDS,
            sharpes=tuple(map(self._sharpe, returns)),
            max_drawdown=max_drawdown(returns.mean(axis=0)),
            **_ending(seconds),
        )
        self._state = SearchState(SearchBase(line.spec_hash, line.sharpes), self._earlier)
        self._write(line)
        return line

    def _add_trial(self, state: SearchState, task: _Trial, result: TrialResult) -> Line:
        """Judge a trial by the result of its first seed."""
        if result.returns is None:
            status = "pruned" if result.is_pruned else "failed"
            sharpe = float(np.mean(result.fold_sharpes)) if result.is_pruned else None
            fields = {"status": status, "message": result.error, "sharpe": sharpe}
            return self._judge(state, task, None, result.seconds, **fields, fold_sharpes=result.fold_sharpes)
        returns = result.returns[None]
        self._folder.write_returns(returns_name(len(state.trials) + 1), returns)
        return self._judge(
            state,
            task,
            self._lead(returns),
            result.seconds,
            status="judged",
            sharpe=self._sharpe(result.returns),
            max_drawdown=max_drawdown(result.returns),
            fold_sharpes=result.fold_sharpes,
        )

    def _answer(self, state: SearchState, task: _Trial) -> Line:
        """Judge a trial by the result that another session has."""
        folder, row = self._elsewhere[task.key]
        returns = folder.read_returns(returns_name(row.trial))
        self._folder.write_returns(returns_name(len(state.trials) + 1), returns)
        fields = row.model_dump(include={"status", "sharpe", "max_drawdown", "fold_sharpes"})
        message = f"the result is that of session {folder.session_id}"
        return self._judge(state, task, self._lead(returns), 0.0, **fields, message=message)

    def _infeasible(self, number: int, proposed: Knobs) -> _Trial:
        """Task of a proposal that gives no valid experiment, identified by its own values."""
        trial = TrialSpec(proposed, configuration_hash(self._base.spec, proposed))
        return _Trial(number, proposed, replace(self._base, trial=trial, clips=(), snaps=()))

    def _judge(self, state: SearchState, task: _Trial, lead: Lead | None, seconds: float, **fields: Any) -> TrialJudged:
        """Write the line of a trial, tell the proposer, and queue the reruns that are due."""
        trial = SearchTrial(task.key, n_changes(task.effective.trial.knobs, self._base.trial.knobs), lead)
        self._state, decision = judge_trial(state, trial)
        line = self._row(
            task,
            trial=len(self._state.trials),
            standing=decision.standing,
            lead=lead,
            n_configurations=decision.n_configurations,
            bar=decision.bar,
            **_ending(seconds),
            **fields,
        )
        self._write(line)
        self._study.tell(task.proposal, objective(line))
        if decision.standing is Standing.RERUN:
            self._queue_reruns([task.key])
        return line

    def _add_known(self, state: SearchState, task: _Trial) -> Line:
        """Answer a proposal that the session has judged, or is judging, from its journal."""
        row = next((row for row in self._trials() if row.spec_hash == task.key), None)
        line = self._row(
            task,
            trial=row.trial if row else None,
            status="known",
            standing=Standing.KNOWN,
            sharpe=row.sharpe if row else state.base.sharpe if task.key == state.base.key else None,
            lead=row.lead if row else None,
            n_configurations=state.n_configurations,
            bar=state.bar,
            **_ending(0.0),
        )
        self._study.tell(task.proposal, objective(line))
        self._write(line)
        return line

    def _row(self, task: _Trial, **fields: Any) -> TrialJudged:
        proposer, asked = self.session.spec.proposer, task.asked
        optimizer = proposer.optimizer if isinstance(proposer, LlmProposer) else proposer
        kind, reason = optimizer.kind, optimizer.reason
        if asked and asked.outcome == "proposed":
            kind, reason = proposer.kind, asked.reason
        content = {
            "proposal": task.proposal,
            "spec_hash": task.key,
            "proposer": kind,
            "reason": reason,
            "proposed": task.proposed,
            "knobs": task.effective.trial.knobs,
            "clips": task.effective.clips,
            "snaps": task.effective.snaps,
        }
        return TrialJudged.model_validate(content | fields)

    def _add_rerun(self, state: SearchState, key: str, parts: list[TrialResult], seconds: float) -> Line:
        """Judge a trial again by its fresh seeds and by all; it is not kept if one has no result."""
        trial = list(state.trials).index(key) + 1
        message, reruns = missing_result(parts), Reruns()
        if not message:
            returns = np.array([part.returns for part in parts])
            self._folder.write_returns(f"{returns_name(trial)}-fresh", returns)
            lead = self._lead(np.concatenate([self._folder.read_returns(returns_name(trial)), returns]))
            first, second = map(self._sharpe, returns)
            reruns = Reruns((first, second), lead)
        self._state, decision = judge_reruns(state, key, reruns)
        figures = {name: getattr(decision, name) for name in ("bar", "seed_deviation", "fresh_lead", "required_lead")}
        line = TrialRerun(
            trial=trial,
            spec_hash=key,
            seeds=FRESH_SEEDS,
            sharpes=reruns.sharpes,
            lead=reruns.lead,
            message=message,
            standing=decision.standing,
            **figures,
            **_ending(seconds),
        )
        self._write(line)
        return line

    def _lead(self, returns: Returns) -> Lead:
        """Lead of returns (n_seeds, n) over the base."""
        return lead_of(returns, self._folder.read_returns("base"), self._panel.calendar.periods_per_year)

    def _sharpe(self, returns: Returns) -> float:
        return sharpe_ratio(returns, self._panel.calendar.periods_per_year)

    def _count_earlier(self) -> frozenset[str]:
        """Configurations of other sessions and runs."""
        return earlier_configurations(self._store, self.session) - {self._base.trial.trial_hash}

    def _close(self, state: SearchState, n_workers: int) -> Iterator[Line]:
        close = Close(self._store, self._folder, self.session, self._panel, self._windows, state, self.lines)
        kept, is_opened = state.kept, self._store.ledger.find_look(self.session.session_id) is not None
        if kept is None or kept.current_lead is None or not (is_opened or state.is_above_luck):
            yield close.nothing_found()
            return
        knobs = next(row.knobs for row in self._trials() if row.spec_hash == kept.key)
        sides = self._base.spec, self._space.propose(knobs).spec
        yield from close.look(kept, kept.current_lead, sides, n_workers)

    def _summarize(self, verdict: SessionClosed) -> Iterator[Line]:
        """Let the model write on the session, unless it did on the same report before a kill."""
        computed = [line for line in self.lines if not isinstance(line, SessionSummarized)]
        report = session_report(self.session, [*computed, verdict], with_goal=False)
        summary = self._model.summarize(report.replace(self.session.session_id, "SESSION"), self.lines)
        if summary:
            self._write(summary)
            yield summary

    def _write(self, line: Line) -> None:
        if self.lines and line.finished_at < self.lines[-1].finished_at:  # the clock was set back
            line = line.model_copy(update={"finished_at": self.lines[-1].finished_at})
        self._folder.append(format_line(line))
        self.lines.append(line)


def _ending(seconds: float) -> dict[str, Any]:
    return {"seconds": round(seconds, 3), "finished_at": now()}


def _count_last_known(trials: list[TrialJudged]) -> int:
    """Known proposals at the end of a journal, in a row."""
    return next((i for i, row in enumerate(reversed(trials)) if row.status != "known"), len(trials))
