"""Progress of a search session in words, with the time that the rest may take."""

import time
from datetime import timedelta
from statistics import fmean

from nvtrader_pipelines.research.journal import Line, LookOpened, ModelAsked, SessionSummarized, TrialJudged, TrialRerun
from nvtrader_pipelines.research.recorded_session import RecordedSession, recorded_state
from nvtrader_pipelines.research.sentences import format_progress, format_trials


class SessionProgress:
    """Trials of a session so far."""

    def __init__(self, recorded: RecordedSession) -> None:
        """Begin with the lines of the journal."""
        self.spec, self.lines = recorded.session.spec, list(recorded.lines)
        self.state = recorded_state(self.lines)
        self._n_before, self._began = self.n_trials, time.monotonic()

    def add(self, line: Line) -> None:
        """Add a line."""
        self.lines.append(line)
        self.state = recorded_state(self.lines)

    def sentence(self, line: Line) -> str:
        """Describe a line, and the best trial so far after a trial."""
        if isinstance(line, TrialJudged):
            figure = "" if line.sharpe is None else f"Sharpe {line.sharpe:.2f}, "
            done = f"trial {line.trial}" if line.trial else "the base"
            again = f" again (proposal {line.proposal})" if line.status == "known" else self._of_budget
            return f"{done}{again}: {figure}{line.message or line.standing}. {self.best}"
        if isinstance(line, ModelAsked):
            if line.outcome == "proposed":
                goal = f" for the goal {self.spec.goal!r}" if line.cites_goal else ""
                return f"the model makes proposal {line.proposal}{goal}: {line.reason}"
            return f"the model leaves proposal {line.proposal} to the optimizer ({line.outcome}): {line.message}"
        if isinstance(line, SessionSummarized):
            return f"the model writes: {line.paragraph}" if line.paragraph else f"no summary: {line.message}"
        if isinstance(line, TrialRerun):
            return f"trial {line.trial} with two other seeds: {line.message or line.standing}. {self.best}"
        if isinstance(line, LookOpened):
            return (
                f"look {line.look} at the sealed window confirms a true lead of {line.smallest_lead:.2f} 4 times in 5, "
                "by the error on validation"
            )
        return line.sentence if line.event == "verdict" else f"the base is judged: Sharpe {fmean(line.sharpes):.2f}"

    @property
    def n_trials(self) -> int:
        """Trials judged, known ones left out."""
        return len(self.state.trials) if self.state else 0

    @property
    def best(self) -> str:
        """Best trial so far, in words."""
        return format_progress(self.state) if self.state else "The base is being judged."

    @property
    def remaining(self) -> str:
        """Trials done, and the time that the others may take."""
        budget = self.spec.budget
        done = format_trials(self.n_trials, budget)
        n_new = self.n_trials - self._n_before
        if not n_new or budget is None or budget <= self.n_trials:
            return done
        seconds = (time.monotonic() - self._began) / n_new * (budget - self.n_trials)
        return f"{done}, {timedelta(seconds=round(seconds))} left"

    @property
    def _of_budget(self) -> str:
        return "" if self.spec.budget is None else f" of {self.spec.budget}"
