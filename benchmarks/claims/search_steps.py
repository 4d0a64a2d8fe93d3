"""Proposal, journal and verdict of a search, without its trainings."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks.claim import Goal, report
from benchmarks.sample_store import store_with
from nvtrader_pipelines.evaluation.sharpe.lead import lead_of
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.research.journal import TrialJudged, format_line, n_changes
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.looks import Close
from nvtrader_pipelines.research.session_spec import BASE_SEEDS, Session
from nvtrader_pipelines.research.session_store import create_session, session_base
from nvtrader_pipelines.research.study import Study
from nvtrader_pipelines.research.verdict import SearchBase, SearchState, SearchTrial, judge_trial
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.research_files import SessionFolder

N_TRIALS, N_ROUNDS = 40, 20  # results before the first timed proposal, and timed proposals
N_JUDGED = 500
YEAR = NEW_YORK.periods_per_year
DRIFT, NOISE, DIFFERENCE = 0.0005, 0.01, 0.002  # of returns a session, and deviation of a trial's from the base's
Returns = NDArray[np.float64]


class Course:
    """Session whose trials have random returns in place of trainings."""

    def __init__(self, folder: SessionFolder, session: Session, n_sessions: int) -> None:
        self.folder, self.session, self._space = folder, session, session.spec.space()
        self._study = Study(session.spec.proposer, self._space.knobs, session.spec.seed)
        self._rng = np.random.default_rng(0)
        self._market = self._rng.normal(DRIFT, NOISE, n_sessions)
        self._base = self.returns(len(BASE_SEEDS))
        self.state = SearchState(SearchBase("base", tuple(sharpe_ratio(seed, YEAR) for seed in self._base)))
        self.lines: list[TrialJudged] = []

    def returns(self, n_seeds: int = 1) -> Returns:
        """Return net returns (n_seeds, n) of an account without skill."""
        return self._market + self._rng.normal(0.0, DIFFERENCE, (n_seeds, len(self._market)))

    def judge_all(self, results: Sequence[Returns]) -> None:
        """Judge trials by their returns, without proposals and files."""
        for number, returns in enumerate(results, start=1):
            self.state, _ = judge_trial(self.state, SearchTrial(str(number), 1, lead_of(returns, self._base, YEAR)))

    def advance(self, returns: Returns) -> None:
        """Propose, judge and write the next trial, as a session does around a training."""
        number = len(self.lines) + 1
        proposed = self._study.ask(number)
        effective = self._space.propose(proposed)
        self.folder.write_returns(f"trial-{number}", returns)
        lead = lead_of(returns, self._base, YEAR)
        changes = n_changes(effective.trial.knobs, dict(self._space.base_values))
        self.state, decision = judge_trial(self.state, SearchTrial(effective.trial.trial_hash, changes, lead))
        line = TrialJudged(
            proposal=number,
            trial=number,
            spec_hash=effective.trial.trial_hash,
            proposer=self.session.spec.proposer.kind,
            reason=self.session.spec.proposer.reason,
            proposed=proposed,
            knobs=effective.trial.knobs,
            clips=effective.clips,
            snaps=effective.snaps,
            status="judged",
            standing=decision.standing,
            sharpe=sharpe_ratio(returns[0], YEAR),
            max_drawdown=max_drawdown(returns[0]),
            fold_sharpes=(sharpe_ratio(returns[0], YEAR),),
            lead=lead,
            n_configurations=decision.n_configurations,
            bar=decision.bar,
            seconds=0.0,
            finished_at=datetime.now(UTC),
        )
        self.folder.append(format_line(line))
        self.lines.append(line)
        self._study.tell(number, line.sharpe)


def main() -> None:
    """Report the time of a trial's steps, and of the verdict over 500 trials."""
    with TemporaryDirectory(prefix="search-steps-", dir="/var/tmp") as folder:
        panel = sample_panel()
        store = store_with(Home(Path(folder)), panel)
        session = create_session(store, session_base(SearchMode.PPO_ONLY))
        windows = session.spec.windows(panel)
        n_sessions = windows.validation[1] - windows.validation[0] + 1
        course = Course(SessionFolder.of(store.home, session.session_id), session, n_sessions)
        cpu, wall = [], []
        for _ in range(N_TRIALS + N_ROUNDS):
            returns, at, used = course.returns(), perf_counter(), process_time()
            course.advance(returns)
            cpu.append(process_time() - used)
            wall.append(perf_counter() - at)
        note = (
            f"CPU time of one trial less its training, median of trials {N_TRIALS + 1} to {N_TRIALS + N_ROUNDS}: the "
            "proposal of TPE over 12 knobs and its result, settings, lead and decision, returns and a line of the "
            f"journal; {1000.0 * median(wall[-N_ROUNDS:]):.0f} ms by wall clock, as both are synced to disk"
        )
        report("search_proposal_50", 1000.0 * median(cpu[-N_ROUNDS:]), "ms", Goal(value_at_most=15.0), note=note)
        while len(course.lines) < N_JUDGED:
            course.advance(course.returns())
        results = [course.folder.read_returns(f"trial-{line.trial}") for line in course.lines]
        verdict = Course(course.folder, session, n_sessions)
        start = process_time()
        verdict.judge_all(results)
        judged = process_time() - start
        start = process_time()
        close = Close(store, course.folder, session, panel, windows, course.state, course.lines).nothing_found()
        closed = process_time() - start
    if close.deflated_sharpe is None or close.pbo is None or len(verdict.state.trials) != N_JUDGED:
        raise AssertionError("every trial must be judged, and the verdict have both probabilities")
    note = (
        f"CPU time over {N_JUDGED} trials of {n_sessions:,} sessions: leads and decisions {judged:.2f} s; deflated "
        f"Sharpe ratio, probability of overfitting and sentence, from the files, {closed:.2f} s"
    )
    report("search_verdict_500", judged + closed, "s", Goal(value_at_most=0.5), note=note)


if __name__ == "__main__":
    main()
