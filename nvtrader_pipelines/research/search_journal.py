"""Journal of a running search session: judges results, writes their lines, and keeps the state that follows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nvtrader_pipelines.evaluation.sharpe.lead import Lead, lead_of
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    Knobs,
    Line,
    ModelAsked,
    TrialJudged,
    TrialRerun,
    format_line,
    n_changes,
    returns_name,
)
from nvtrader_pipelines.research.looks import missing_result
from nvtrader_pipelines.research.proposers import LlmProposer, Proposer
from nvtrader_pipelines.research.recorded_session import RecordedSession, recorded_state
from nvtrader_pipelines.research.session_spec import BASE_SEEDS, FRESH_SEEDS
from nvtrader_pipelines.research.space import EffectiveExperiment
from nvtrader_pipelines.research.trial_judgement import Returns, TrialResult
from nvtrader_pipelines.research.verdict import (
    Reruns,
    SearchBase,
    SearchState,
    SearchTrial,
    Standing,
    judge_reruns,
    judge_trial,
)
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.research_files import SessionFolder


@dataclass(frozen=True)
class TrialProposal:
    """Proposed knobs, and the experiment that they give."""

    number: int  # in the session, from 1
    proposed: Knobs
    effective: EffectiveExperiment
    asked: ModelAsked | None = None  # if it was the model's turn
    refusal: str = ""  # why the knobs give no valid experiment

    @property
    def key(self) -> str:
        """Hash of the configuration."""
        return self.effective.trial.trial_hash


class SearchJournal:
    """Lines of a session, to which results are added."""

    def __init__(
        self, recorded: RecordedSession, base: EffectiveExperiment, periods_per_year: int, earlier: frozenset[str]
    ) -> None:
        """Continue the journal of a session; `earlier` are the configurations of other sessions and runs."""
        self.lines, self.base = list(recorded.lines), base
        self._folder, self._periods_per_year, self._earlier = recorded.folder, periods_per_year, earlier
        self._proposer: Proposer = recorded.session.spec.proposer
        state = recorded_state(self.lines)
        self._state = replace(state, earlier=earlier) if state else None

    @property
    def has_base(self) -> bool:
        """Whether the base is judged."""
        return self._state is not None

    @property
    def state(self) -> SearchState:
        """Trials so far; there is none before the base is judged."""
        assert self._state is not None
        return self._state

    def count_earlier(self, earlier: frozenset[str]) -> None:
        """Count the configurations of other sessions and runs anew."""
        self._state = replace(self.state, earlier=earlier)

    def trials(self) -> Iterator[TrialJudged]:
        """Lines of the configurations of the session."""
        return (line for line in self.lines if isinstance(line, TrialJudged) and line.status != "known")

    def line_of(self, key: str | None) -> TrialJudged | None:
        """Line of a configuration; None if it was not judged."""
        return next((line for line in self.trials() if line.spec_hash == key), None)

    def write(self, line: Line) -> None:
        """Append a line, durably."""
        if self.lines and line.finished_at < self.lines[-1].finished_at:  # the clock was set back
            line = line.model_copy(update={"finished_at": self.lines[-1].finished_at})
        self._folder.append(format_line(line))
        self.lines.append(line)

    def add_base(self, results: Sequence[TrialResult]) -> BaseJudged:
        """Judge the base by the results of its seeds."""
        returns = np.array([result.returns for result in results])
        returns = np.broadcast_to(returns, (len(BASE_SEEDS), returns.shape[1]))  # a rule has the same by every seed
        self._folder.write_returns("base", returns)
        line = BaseJudged(
            spec_hash=self.base.trial.trial_hash,
            knobs=self.base.trial.knobs,
            seeds=BASE_SEEDS,
            sharpes=tuple(map(self._sharpe, returns)),
            max_drawdown=max_drawdown(returns.mean(axis=0)),
            **_ending(results),
        )
        self._state = SearchState(SearchBase(line.spec_hash, line.sharpes), self._earlier)
        self.write(line)
        return line

    def add_trial(self, proposal: TrialProposal, result: TrialResult) -> TrialJudged:
        """Judge a trial by the result of its first seed."""
        if result.returns is None:
            status = "pruned" if result.is_pruned else "failed"
            sharpe = float(np.mean(result.fold_sharpes)) if result.is_pruned else None
            fields, lead = {"status": status, "message": result.error, "sharpe": sharpe}, None
        else:
            lead = self._lead(self._write_returns(result.returns[None]))
            sharpe, drawdown = self._sharpe(result.returns), max_drawdown(result.returns)
            fields = {"status": "judged", "sharpe": sharpe, "max_drawdown": drawdown}
        return self._judge(proposal, lead, **fields, fold_sharpes=result.fold_sharpes, **_ending([result]))

    def add_result(self, proposal: TrialProposal, folder: SessionFolder, row: TrialJudged) -> TrialJudged:
        """Judge a trial by the result that another session has."""
        lead = self._lead(self._write_returns(folder.read_returns(returns_name(row.trial))))
        fields = row.model_dump(include={"status", "sharpe", "max_drawdown", "fold_sharpes"})
        message = f"the result is that of session {folder.session_id}"
        return self._judge(proposal, lead, **fields, message=message, **_ending())

    def add_infeasible(self, proposal: TrialProposal) -> TrialJudged:
        """Judge a proposal that gives no valid experiment."""
        return self._judge(proposal, None, status="infeasible", message=proposal.refusal, knobs={}, **_ending())

    def add_known(self, proposal: TrialProposal) -> TrialJudged:
        """Answer a proposal that the session has judged, or is judging."""
        row, state = self.line_of(proposal.key), self.state
        line = _trial_line(
            self._proposer,
            proposal,
            trial=row.trial if row else None,
            status="known",
            standing=Standing.KNOWN,
            sharpe=row.sharpe if row else state.base.sharpe if proposal.key == state.base.key else None,
            lead=row.lead if row else None,
            n_configurations=state.n_configurations,
            bar=state.bar,
            **_ending(),
        )
        self.write(line)
        return line

    def add_rerun(self, key: str, results: Sequence[TrialResult]) -> TrialRerun:
        """Judge a trial again by its fresh seeds and by all; it is not kept if one has no result."""
        trial = list(self.state.trials).index(key) + 1
        message, reruns = missing_result(results), Reruns()
        if not message:
            returns = np.array([result.returns for result in results])
            self._folder.write_returns(f"{returns_name(trial)}-fresh", returns)
            lead = self._lead(np.concatenate([self._folder.read_returns(returns_name(trial)), returns]))
            first, second = map(self._sharpe, returns)
            reruns = Reruns((first, second), lead)
        self._state, decision = judge_reruns(self.state, key, reruns)
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
            **_ending(results),
        )
        self.write(line)
        return line

    def _judge(self, proposal: TrialProposal, lead: Lead | None, **fields: Any) -> TrialJudged:
        changes = n_changes(proposal.effective.trial.knobs, self.base.trial.knobs)
        self._state, decision = judge_trial(self.state, SearchTrial(proposal.key, changes, lead))
        figures = {name: getattr(decision, name) for name in ("standing", "n_configurations", "bar")}
        line = _trial_line(self._proposer, proposal, trial=len(self._state.trials), lead=lead, **figures, **fields)
        self.write(line)
        return line

    def _write_returns(self, returns: Returns) -> Returns:
        """Write and return the returns (1, n) of the next trial."""
        self._folder.write_returns(returns_name(len(self.state.trials) + 1), returns)
        return returns

    def _lead(self, returns: Returns) -> Lead:
        """Lead of returns (n_seeds, n) over the base."""
        return lead_of(returns, self._folder.read_returns("base"), self._periods_per_year)

    def _sharpe(self, returns: Returns) -> float:
        return sharpe_ratio(returns, self._periods_per_year)


def _trial_line(proposer: Proposer, proposal: TrialProposal, **fields: Any) -> TrialJudged:
    asked = proposal.asked
    optimizer = proposer.optimizer if isinstance(proposer, LlmProposer) else proposer
    kind, reason, cites_goal = optimizer.kind, optimizer.reason, False
    if asked and asked.outcome == "proposed":
        kind, reason, cites_goal = proposer.kind, asked.reason, asked.cites_goal
    content = {
        "proposal": proposal.number,
        "spec_hash": proposal.key,
        "proposer": kind,
        "reason": reason,
        "cites_goal": cites_goal,
        "proposed": proposal.proposed,
        "knobs": proposal.effective.trial.knobs,
        "clips": proposal.effective.clips,
        "snaps": proposal.effective.snaps,
    }
    return TrialJudged.model_validate(content | fields)


def _ending(results: Sequence[TrialResult] = ()) -> dict[str, Any]:
    return {"seconds": round(sum(result.seconds for result in results), 3), "finished_at": now()}
