"""Close of a session: nothing found, or one look at the sealed window and its verdict."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.evaluation.overfitting import backtest_overfitting
from nvtrader_pipelines.evaluation.sharpe.deflation import deflated_sharpe_ratio
from nvtrader_pipelines.evaluation.sharpe.inference import sharpe_moments
from nvtrader_pipelines.evaluation.sharpe.lead import Lead, lead_of
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from nvtrader_pipelines.research.hand_over import write_policies
from nvtrader_pipelines.research.journal import Line, LookOpened, SessionClosed, TrialJudged, returns_name
from nvtrader_pipelines.research.recorded_session import WINNER
from nvtrader_pipelines.research.sentences import format_look, format_nothing_found, format_unjudged_look
from nvtrader_pipelines.research.session_spec import SearchWindows, Session
from nvtrader_pipelines.research.session_store import configurations_in, sealed_experiment
from nvtrader_pipelines.research.trial_judgement import TrialJob, TrialResult, walk_policy
from nvtrader_pipelines.research.trial_pool import TrialPool
from nvtrader_pipelines.research.verdict import (
    LookVerdict,
    Outcome,
    SearchState,
    SearchTrial,
    look_level,
    smallest_visible_lead,
)
from nvtrader_pipelines.runs.interruptions import require_no_halt
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.ledger.look_rows import SealedWindow
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.specs import spec_yaml
from nvtrader_pipelines.storage.store import Store

NOTHING_FOUND = "nothing found"
PLAIN = {"equal weight": EqualWeight(), "buy and hold": BuyAndHold()}  # baselines that a winner must beat
N_BLOCKS = 10  # of the probability of backtest overfitting: 252 combinations
POLL_SECONDS = 0.5
MIN_FRESH_YEARS = 2  # of a window with an allowance of its own after one that was looked at
N_ATTEMPTS = 2  # of a training of the base, a rerun or a look, whose process may be killed


@dataclass(frozen=True, eq=False)
class Close:
    """Session after its trials."""

    store: Store
    folder: SessionFolder
    session: Session
    panel: MarketPanel
    windows: SearchWindows
    state: SearchState
    lines: Sequence[Line]

    def nothing_found(self) -> SessionClosed:
        """Return the verdict that no trial is above luck; no look is spent."""
        sentence = format_nothing_found(self.state, self._count_looks(self.store.ledger.sealed_windows()))
        return self._closed(outcome=NOTHING_FOUND, sentence=sentence, seconds=0.0)

    def look(
        self, trial: SearchTrial, validated: Lead, sides: tuple[ExperimentSpec, ExperimentSpec], n_workers: int
    ) -> Iterator[Line]:
        """Open the look, then train base and kept trial anew before the sealed window and compare them there.

        The look is in the ledger and in the journal before the window is read. A resumed session keeps its number.

        Args:
            trial: the kept one.
            validated: its lead on validation.
            sides: experiments of the base and of the kept trial.
            n_workers: processes.
        """
        look = self.store.ledger.open_look(self.sealed_window, self.session.session_id, trial.key, self._count_looks)
        if not any(isinstance(line, LookOpened) for line in self.lines):
            yield LookOpened(
                trial=self.number(trial.key),
                look=look,
                level=look_level(look),
                smallest_lead=smallest_visible_lead(validated, self.session.n_sealed, look),
                seconds=0.0,
                finished_at=now(),
            )
        data = self.session.symbols, self.session.spec.sealed_from
        base = sealed_experiment(sides[0], *data, "base")
        winner = sealed_experiment(sides[1], *data, f"{self.session.session_id}-{WINNER}")
        specs = {"kept": winner, "base": base}
        results = self._judge(specs, n_workers)
        require_base(results["base"])
        if missing := missing_result(results["kept"]):
            sentence = format_unjudged_look(self.number(trial.key), missing, look)
            fields = {"outcome": Outcome.NOT_CONFIRMED, "sentence": sentence}
        else:
            fields = self._compare(look, specs, results)
        seconds = sum(result.seconds for of_side in results.values() for result in of_side)
        yield self._closed(trial=self.number(trial.key), look=look, seconds=seconds, **fields)

    @property
    def sealed_window(self) -> SealedWindow:
        """Data of the sealed window."""
        days = self.panel.sessions
        first, last = (days[t].item() for t in (self.windows.sealed.test_first, self.windows.sealed.test_last))
        return SealedWindow(self.session.spec.base.market.source, frozenset(self.session.symbols), first, last)

    def _count_looks(self, windows: Iterable[SealedWindow]) -> int:
        sealed = self.windows.sealed
        n_years = (sealed.test_last - sealed.test_first + 1) / self.panel.calendar.periods_per_year
        return count_looks(self.sealed_window, n_years, windows)

    @property
    def _is_fresh(self) -> bool:
        """Whether nothing else in the home was judged on sealed sessions."""
        window = self.sealed_window
        end = window.last + timedelta(days=1)
        return not configurations_in(self.store, self.session, window.first, end)

    def number(self, key: str) -> int:
        """Number of a trial in the session, from 1."""
        return list(self.state.trials).index(key) + 1

    def _compare(
        self, look: int, sides: dict[str, ExperimentSpec], results: dict[str, list[TrialResult]]
    ) -> dict[str, Any]:
        """Compare the kept trial with the base and the plain baselines, and write the files that are handed on."""
        winner = sides["kept"]
        returns = {side: _mean_returns(of_side) for side, of_side in results.items()}
        for name, rule in PLAIN.items():
            rebal_freq = sides["base"].environment.rebal_freq
            returns[name] = walk_policy(self.panel, self.windows.sealed, rule.start(), rebal_freq)[None]
        years = self.panel.calendar.periods_per_year
        leads = {side: lead_of(returns["kept"], returns[side], years) for side in ("base", *PLAIN)}
        verdict = LookVerdict(look, leads.pop("base"), leads, years)
        if verdict.outcome is Outcome.WINNER:
            archives = {
                (fold, result.seed): content for result in results["kept"] for fold, content in result.archives.items()
            }
            write_policies(self.store, self.session.session_id, winner, archives)
        if verdict.outcome is not Outcome.NOT_CONFIRMED:
            name = f"{self.session.session_id}-{WINNER if verdict.outcome is Outcome.WINNER else 'base'}"
            write_atomically(self.folder.path / "best.yaml", spec_yaml(winner.model_copy(update={"name": name})))
        return {
            "outcome": verdict.outcome,
            "sentence": format_look(self.state, verdict, is_fresh=self._is_fresh),
            "over_base": verdict.over_base,
            "over_plain": dict(verdict.over_plain),
        }

    def _judge(self, sides: dict[str, ExperimentSpec], n_workers: int) -> dict[str, list[TrialResult]]:
        """Train and walk every side with its seeds; only the policies of the kept one are returned."""
        jobs = [(side, spec, seed) for side, spec in sides.items() for seed in spec.seeds]
        waiting = [
            TrialJob(number, spec, seed, (self.windows.sealed,), keeps_policy=side == "kept", n_attempts=N_ATTEMPTS)
            for number, (side, spec, seed) in enumerate(jobs)
        ]
        results: dict[int, TrialResult] = {}
        with TrialPool(self.panel, panel_digest(self.panel), sides["base"], min(n_workers, len(waiting))) as pool:
            while len(results) < len(jobs):
                require_no_halt(self.store)
                while waiting and pool.n_idle:
                    pool.submit(waiting.pop(0))
                result = pool.wait(POLL_SECONDS)
                if result is not None:
                    results[result.number] = result
        return {side: [results[i] for i, job in enumerate(jobs) if job[0] == side] for side in sides}

    def _closed(self, **fields: Any) -> SessionClosed:
        return SessionClosed(**fields, **self._reported(), finished_at=now())

    def _reported(self) -> dict[str, Any]:
        """Deflated Sharpe ratio of the best trial and probability of backtest overfitting, which decide nothing."""
        judged = [
            line for line in self.lines if isinstance(line, TrialJudged) and line.lead and line.status == "judged"
        ]
        best_trial = self.state.best  # ranks all trials
        best = next((line for line in judged if best_trial and line.spec_hash == best_trial.key), None)
        if best is None or len(judged) < 2:
            return {}
        returns = np.array([self.folder.read_returns(returns_name(line.trial))[0] for line in judged])
        sharpes = returns.mean(axis=1) / returns.std(axis=1, ddof=1)
        variance = float(sharpes.var(ddof=1))
        moments = sharpe_moments(returns[judged.index(best)])
        overfitting = None if variance == 0.0 else backtest_overfitting(returns.T, N_BLOCKS).probability
        return {
            "deflated_sharpe": deflated_sharpe_ratio(moments, self.state.n_configurations, variance),
            "pbo": overfitting,
        }


def count_looks(window: SealedWindow, n_years: float, windows: Iterable[SealedWindow]) -> int:
    """Number of earlier looks that have spent a part of a window's allowance for false claims.

    These are the looks at data of the window. A window of less than two years has no allowance of its own: it
    continues the count of all looks at its names before it.

    Args:
        window: to look at.
        n_years: its length.
        windows: those of earlier looks.
    """
    has_own = n_years >= MIN_FRESH_YEARS
    return sum(
        earlier.source == window.source
        and not earlier.symbols.isdisjoint(window.symbols)
        and earlier.first <= window.last
        and not (has_own and earlier.last < window.first)
        for earlier in windows
    )


def missing_result(results: Iterable[TrialResult]) -> str:
    """State which seed has no result, and why; empty if all have one."""
    return next(
        (f"seed {result.seed} has no result: {result.error}" for result in results if result.returns is None), ""
    )


def require_base(results: Iterable[TrialResult]) -> None:
    """Raise a ValueError if a seed of the base has no result."""
    if missing := missing_result(results):
        raise ValueError(
            f"the base must be judged, but its {missing}; resume the session, or start another around a base that "
            "can be trained"
        )


def _mean_returns(results: Sequence[TrialResult]) -> FloatArray:
    """Mean over seeds of the returns, as those of one account (1, n)."""
    return np.mean([result.returns for result in results if result.returns is not None], axis=0)[None]
