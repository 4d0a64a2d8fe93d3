"""Scorecards from contest runs: metrics with intervals, deflated inference, stress and timing."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.fill_timing import no_opens
from nvtrader_pipelines.evaluation.account_statistics import execution_latency
from nvtrader_pipelines.evaluation.alpha import residual_returns
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.sharpe.deflation import Deflation, deflated_sharpe_ratio
from nvtrader_pipelines.evaluation.sharpe.inference import probabilistic_sharpe_ratio, sharpe_moments
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.trials import Trials, deflation_trials, sharpe_ratios
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION
from nvtrader_pipelines.evaluation.walk_forward_evaluation import evaluate
from nvtrader_pipelines.experiments.code_digest import scoring_code
from nvtrader_pipelines.experiments.plan import SURVIVORSHIP
from nvtrader_pipelines.experiments.progress import Countdown
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.scoreboard.contest_backtest import (
    Admission,
    ContestRun,
    Meter,
    admit_entrants,
    default_contest,
    run_contest_backtest,
)
from nvtrader_pipelines.scoreboard.contest_results import backtest_digest, pack_backtest, unpack_backtest
from nvtrader_pipelines.scoreboard.contests import COMMON, ContestSpec
from nvtrader_pipelines.scoreboard.entrant_stress import stress_results, with_history_of
from nvtrader_pipelines.scoreboard.entrants import Entrant
from nvtrader_pipelines.scoreboard.scorecard import (
    EXTERNAL_KINDS,
    Contest,
    DataProvenance,
    Inference,
    Measurements,
    Metric,
    Scorecard,
    StressResult,
    attempt_id,
)
from nvtrader_pipelines.scoreboard.timing_effect import timing_effect
from nvtrader_pipelines.storage.judgements import Result, ResultStore

METRICS = [
    name for name, kind in EVALUATION.items() if kind in (pl.Float64, pl.Int64) and not name.endswith(("_low", "_high"))
]
OMITTED = {"n_sessions", "iqm_sharpe"}  # a field of the contest; a mean over seeds

FloatArray = NDArray[np.float64]
StressResults = Mapping[str, tuple[StressResult, ...]]  # entrant to its results


@dataclass(frozen=True, eq=False)
class TrialPopulation:
    """Trials of a market that every result is deflated for: runs and external attempts."""

    run_ids: tuple[str, ...]
    information_ratio: FloatArray  # per session, against each run's best baseline; of runs with known returns
    shares: FloatArray  # of the contest's sessions, that each of these runs covers
    n_trials: int  # completed runs
    n_counted: float  # the same, each run counted by its share
    attempts: Mapping[str, float | None] = field(default_factory=dict)  # external: id to information ratio, if known

    @classmethod
    def of(cls, trials: Trials, n_sessions: int, attempts: Mapping[str, float | None]) -> "TrialPopulation":
        """Build from all trials of a market in a contest of so many sessions, and its earlier external attempts."""
        used = deflation_trials(trials.known)
        missing = sum(1.0 - len(trial.sessions) / n_sessions for trial in trials.known if not trial.unranked_reason)
        return cls(
            trials.names,
            np.array([trial.sharpe["best_baseline"] for trial in used]),
            np.array([len(trial.sessions) / n_sessions for trial in used]),
            trials.n_trials,
            trials.n_trials - missing,
            attempts,
        )

    def with_attempts(self, attempts: Mapping[str, float | None]) -> "TrialPopulation":
        """Return a copy that also holds these attempts; a known attempt counts once."""
        return replace(self, attempts={**self.attempts, **attempts})

    def deflation(self, entrant: Entrant, own: float) -> Deflation:
        """Deflation of one entrant, which adds a trial unless it is one already."""
        sharpes, n_more = [sharpe for sharpe in self.attempts.values() if sharpe is not None], len(self.attempts)
        if entrant.run_id not in self.run_ids and attempt_id(entrant.configuration) not in self.attempts:
            sharpes, n_more = [*sharpes, own], n_more + 1
        return Deflation.of(
            np.append(self.information_ratio, sharpes),
            np.append(self.shares, np.ones(len(sharpes))),
            self.n_trials + n_more,
            self.n_counted + n_more,
        )


@dataclass(frozen=True, eq=False)
class SourceMarket:
    """Panels, returns and trials of one source."""

    whole: MarketPanel  # of all names
    panels: Mapping[str, MarketPanel]  # entrant to the panel of its names
    returns: pl.DataFrame  # rows of gold.returns, source of the stress scenarios
    read_population: Callable[[Contest], TrialPopulation]
    contests: Mapping[str, ContestSpec] = field(default_factory=lambda: {COMMON: ContestSpec()})
    results: ResultStore = field(default_factory=dict)  # stored backtests and stress tests
    # starts processes for so many new entrants and gives the number of shards
    start_shards: Callable[[int], AbstractContextManager[int]] = lambda _: nullcontext(1)
    series: pl.DataFrame | None = None  # rows of silver.series that features of the entrants read


def score_entrants(
    entrants: Sequence[Entrant], market: SourceMarket, meter: Meter, judged_at: datetime, report: Callable[[str], None]
) -> list[Scorecard]:
    """Score every entrant on one source; a refused entrant gets a card with the reason.

    The contest is the first one of the market that a run can be scored in. Refused entrants do not affect its window:
    after a failed backtest the window is chosen again without them.
    """
    failed: dict[str, str] = {}
    scored_in, runs = None, []
    named_contest = default_contest(market.whole, entrants, market.panels, market.contests)
    first = admit_entrants(market.whole, entrants, market.panels, named_contest)
    digests = [backtest_digest(entrant, market.panels[entrant.name], first.contest) for entrant in first.admitted]
    with market.start_shards(sum(digest not in market.results for digest in digests)) as n_shards:
        if n_shards > 1:
            run_shard(first, market, meter, report, (0, n_shards))
    while True:
        eligible = [entrant for entrant in entrants if entrant.name not in failed]
        admission = admit_entrants(market.whole, eligible, market.panels, named_contest)
        if (scored_in, tuple(run.entrant for run in runs)) == (admission.contest, admission.admitted):
            break
        scored_in = admission.contest
        runs, more = _run_all(scored_in, admission.admitted, market, meter, report)
        failed |= more
    contest, reasons = admission.contest, {**admission.refused, **failed}
    cards = []
    if runs:
        own = [run.entrant for run in runs]
        stress = stress_results(contest, own, market.returns, report, market.results, series=market.series)
        cards = score_runs(contest, runs, market.read_population(contest), stress, judged_at)
    by_name = {entrant.name: entrant for entrant in entrants}
    return [
        *cards,
        *(refusal_card(name, reason, judged_at, by_name[name], contest) for name, reason in reasons.items()),
    ]


def run_shard(
    found: Admission, market: SourceMarket, meter: Meter, report: Callable[[str], None], shard: tuple[int, int]
) -> None:
    """Backtest and stress the admitted entrants of a shard: every n-th from its number on."""
    own = found.admitted[shard[0] :: shard[1]]
    _run_all(found.contest, own, market, meter, report)
    longer = with_history_of(found.admitted)
    stress_results(found.contest, own, market.returns, report, market.results, longer, market.series)


def _known_backtests(contest: Contest, admitted: Sequence[Entrant], market: SourceMarket) -> dict[str, Result]:
    """Stored backtests of the admitted entrants, by name."""
    digests = {entrant.name: backtest_digest(entrant, market.panels[entrant.name], contest) for entrant in admitted}
    return {name: result for name, digest in digests.items() if (result := market.results.get(digest))}


def _run_all(
    contest: Contest, admitted: Sequence[Entrant], market: SourceMarket, meter: Meter, report: Callable[[str], None]
) -> tuple[list[ContestRun], dict[str, str]]:
    """Backtest the admitted entrants; return their runs and the reasons of failed ones."""
    panels, known = market.panels, _known_backtests(contest, admitted, market)
    new = [entrant for entrant in admitted if entrant.name not in known]
    window = f"{contest.first_session} to {contest.last_session} on {contest.source}"
    if known:
        report(f"{len(known)} entrants were already walked over {window}, {len(new)} are new")
    backtests = {
        entrant.name: unpack_backtest(known[entrant.name], entrant, panels[entrant.name])
        for entrant in admitted
        if entrant not in new
    }
    failed, countdown = {}, Countdown(len(new), meter.clock)
    for entrant in new:
        try:
            run = backtests[entrant.name] = run_contest_backtest(entrant, panels[entrant.name], contest, meter)
            market.results[backtest_digest(entrant, panels[entrant.name], contest)] = pack_backtest(run)
            report(f"{entrant.name}: {window} ({countdown.count()})")
        except ValueError as error:
            failed[entrant.name] = str(error)
            report(f"{entrant.name} is refused: {error} ({countdown.count()})")
    return [backtests[entrant.name] for entrant in admitted if entrant.name in backtests], failed


def score_runs(
    contest: Contest,
    runs: Sequence[ContestRun],
    population: TrialPopulation,
    stress: StressResults,
    judged_at: datetime,
) -> list[Scorecard]:
    """Build a card for each contest run; the best baseline is one of the runs."""
    curves = pl.concat([run.curves for run in runs])
    verdict = evaluate(curves, pl.concat(_pad_weights(runs)), contest.first_session, contest.periods_per_year)
    whole = verdict.filter(pl.col("period") == "all").rows_by_key("policy", named=True, unique=True)
    net = {run.entrant.name: run.curves["net_return"].to_numpy() for run in runs}
    best = {name: baseline for name in net if isinstance(baseline := whole[name]["best_baseline"], str)}
    intervals = _information_ratio_intervals(net, best, contest.periods_per_year)
    attempts = {}
    for run in runs:
        if run.entrant.kind in EXTERNAL_KINDS:
            ratio = _information_ratio(net, run.entrant.name, best)
            attempts[attempt_id(run.entrant.configuration)] = ratio
    population = population.with_attempts(attempts)
    return [
        _build_card(contest, run, whole[run.entrant.name], judged_at).model_copy(
            update={
                "inference": _infer(
                    run.entrant, net, best.get(run.entrant.name), intervals, population, contest.periods_per_year
                ),
                "stress": stress.get(run.entrant.name, ()),
            }
        )
        for run in runs
    ]


def refusal_card(
    name: str, reason: str, judged_at: datetime, entrant: Entrant | None = None, contest: Contest | None = None
) -> Scorecard:
    """Build the card of an entrant that was refused."""
    measured = Measurements(judged_at=judged_at)
    data = DataProvenance(trained=entrant.trained if entrant else ())
    return _card(name, contest, entrant, data=data, refusal=reason, measured=measured)


def _card(name: str, contest: Contest | None, entrant: Entrant | None, **parts: Any) -> Scorecard:
    """Build a card with the facts of an entrant, as far as they are known."""
    return Scorecard(
        entrant=name,
        kind=entrant.kind if entrant else None,
        source=contest.source if contest else None,
        contest=contest,
        rebal_freq=entrant.rebal_freq if entrant else None,
        run_id=entrant.run_id if entrant else None,
        configuration=dict(entrant.configuration) if entrant else {},
        training_seconds=entrant.training_seconds if entrant else None,
        code_version=entrant.code_version if entrant else scoring_code(),
        **parts,
    )


def _build_card(contest: Contest, run: ContestRun, row: Mapping[str, object], judged_at: datetime) -> Scorecard:
    entrant, panel = run.entrant, run.panel
    metrics = {
        name: Metric(value=_float(row[name]), low=_float(row.get(f"{name}_low")), high=_float(row.get(f"{name}_high")))
        for name in METRICS
        if name not in OMITTED
    }
    latency = execution_latency(run.latencies)
    return _card(
        entrant.name,
        contest,
        entrant,
        data=DataProvenance(
            panel_digest=panel_digest(panel),
            snapshot_ids=dict(panel.snapshot_ids),
            n_symbols=len(panel.symbols),
            trained=entrant.trained,
        ),
        metrics=metrics,
        openings=run.openings,
        timing=timing_effect(run),
        warnings=tuple(dict.fromkeys((*_warnings(contest, run), *entrant.warnings))),
        choices=entrant.choices,
        measured=Measurements(
            judged_at=judged_at,
            judging_seconds=run.seconds,
            latency_seconds=latency.median,
            latency_99=latency.p99,
            peak_memory_bytes=run.peak_memory,
        ),
    )


def _warnings(contest: Contest, run: ContestRun) -> list[str]:
    warnings = [SURVIVORSHIP] if contest.source == "sample" else []
    if contest.fill == "next_close":
        warnings.append(f"orders fill at the next_close instead of the next_open: {no_opens(run.panel)}")
    if run.panel.delisted.any():
        warnings.append("a delisted name pays its last price in cash without cost: an optimistic assumption")
    return warnings


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, float | int) else None


def _information_ratio_intervals(
    net: Mapping[str, FloatArray], best: Mapping[str, str], periods_per_year: int
) -> dict[str, tuple[float, float]]:
    """Intervals of the information ratios against the best baselines, from the same draws."""
    if not best:
        return {}
    residual = np.column_stack([residual_returns(net[name], net[best[name]]) for name in best])
    draws = SharpeIntervals().draw(residual, periods_per_year)
    return {name: draws.interval(column) for column, name in enumerate(best)}


def _infer(
    entrant: Entrant,
    net: Mapping[str, FloatArray],
    best: str | None,
    intervals: Mapping[str, tuple[float, float]],
    population: TrialPopulation,
    periods_per_year: int,
) -> Inference:
    """Infer from one entrant's returns; a statistic that cannot be computed is null, with a note."""
    own, notes = net[entrant.name], []
    probabilistic = _try_statistic(lambda: probabilistic_sharpe_ratio(sharpe_moments(own)), notes)
    if best is None:
        note = "it is a baseline" if entrant.kind == "baseline" else "the contest has no baseline"
        return Inference(probabilistic_sharpe=probabilistic, note="; ".join([*notes, note]))
    residual = residual_returns(own, net[best])
    low, high = intervals[entrant.name]
    deflation = population.deflation(entrant, float(sharpe_ratios(residual[:, None])[0]))
    deflated = None
    if deflation.variance is not None:
        variance = deflation.variance
        deflated = _try_statistic(
            lambda: deflated_sharpe_ratio(sharpe_moments(residual), deflation.n_counted, variance), notes
        )
    return Inference(
        probabilistic_sharpe=probabilistic,
        best_baseline=best,
        information_ratio=Metric(value=sharpe_ratio(residual, periods_per_year), low=low, high=high),
        deflated_information_ratio=deflated,
        n_trials=deflation.n_trials,
        note="; ".join([*notes, *deflation.notes]),
    )


def _information_ratio(net: Mapping[str, FloatArray], name: str, best: Mapping[str, str]) -> float | None:
    """Information ratio per session; None without a baseline."""
    if name not in best:
        return None
    return float(sharpe_ratios(residual_returns(net[name], net[best[name]])[:, None])[0])


def _try_statistic(statistic: Callable[[], float], notes: list[str]) -> float | None:
    """Compute a statistic, or add the reason to the notes and return None."""
    try:
        return statistic()
    except ValueError as error:
        notes.append(str(error))
        return None


def _pad_weights(runs: Sequence[ContestRun]) -> list[pl.DataFrame]:
    """Pad the weights of the action logs to equal length, with 0 for absent names."""
    widest = max(len(run.panel.symbols) for run in runs)
    return [
        run.actions.with_columns(
            executed_weights=pl.concat_list(
                pl.lit([0.0] * (widest - len(run.panel.symbols)), dtype=pl.List(pl.Float64)), "executed_weights"
            )
        )
        for run in runs
    ]
