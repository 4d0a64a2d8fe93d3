"""From what entrants did in a contest to their scorecards: figures with intervals, and how much may be luck."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.account_statistics import execution_latency
from nvtrader_pipelines.evaluation.active import active_returns
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.sharpe.deflation import Deflation
from nvtrader_pipelines.evaluation.sharpe.inference import (
    deflated_sharpe_ratio,
    probabilistic_sharpe_ratio,
    sharpe_moments,
)
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.trials import Trials, sharpe_ratios
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION
from nvtrader_pipelines.evaluation.walk_forward_evaluation import evaluate
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION, Execution
from nvtrader_pipelines.experiments.identity import scoring_code
from nvtrader_pipelines.experiments.plan import SURVIVORSHIP
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.scoreboard.candidates import Candidate
from nvtrader_pipelines.scoreboard.entrants import EntrantKind
from nvtrader_pipelines.scoreboard.harness import Meter, Walked, contenders, walked
from nvtrader_pipelines.scoreboard.scorecard import (
    OUTSIDE,
    Contest,
    Data,
    Inference,
    Measured,
    Metric,
    Scorecard,
    StressResult,
    TrainedOn,
    attempt_of,
)
from nvtrader_pipelines.scoreboard.stress import stress_results
from nvtrader_pipelines.scoreboard.timing_effect import timing_effect

BOUNDS = {"sharpe": "sharpe", "sharpe_difference": "difference"}  # metric to the name of its bounds
METRICS = [
    name for name, kind in EVALUATION.items() if kind in (pl.Float64, pl.Int64) and not name.endswith(("_low", "_high"))
]
WITHOUT = {"n_sessions", "iqm_sharpe"}  # the contest has the first, one account alone has no seeds

FloatArray = NDArray[np.float64]
Stress = Mapping[str, tuple[StressResult, ...]]  # entrant to its results


@dataclass(frozen=True, eq=False)
class Luck:
    """The trials of a market, by which the best of them is discounted: runs, and what was ever judged from outside."""

    run_ids: tuple[str, ...]
    active_sharpe: FloatArray  # per session, over each one's best baseline; of those whose returns are known
    n_trials: int  # runs
    outside: Mapping[str, float | None] = field(default_factory=dict)  # attempt to its information ratio, where known

    @classmethod
    def of(cls, trials: Trials, outside: Mapping[str, float | None]) -> "Luck":
        """From the returns of all trials of a market, and the attempts judged on it before."""
        return cls(trials.names, trials.sharpe("best_baseline"), trials.n_trials, outside)

    def joined_by(self, outside: Mapping[str, float | None]) -> "Luck":
        """With the attempts of this judgement; one that was judged before is the same attempt."""
        return replace(self, outside={**self.outside, **outside})

    def deflation(self, candidate: Candidate, own: float) -> Deflation:
        """For one entrant, which counts as another trial where it is none of them."""
        known = [sharpe for sharpe in self.outside.values() if sharpe is not None]
        sharpes, n_trials = np.append(self.active_sharpe, known), self.n_trials + len(self.outside)
        if candidate.run_id in self.run_ids or attempt_of(candidate.configuration) in self.outside:
            return Deflation.of(sharpes, n_trials)
        return Deflation.of(np.append(sharpes, own), n_trials + 1)


@dataclass(frozen=True, eq=False)
class Market:
    """What the entrants on one source meet on."""

    whole: MarketPanel  # of all names
    panels: Mapping[str, MarketPanel]  # entrant to the panel of the names it may hold
    returns: pl.DataFrame  # rows of gold.returns, of which stress worlds are made
    luck: Callable[[Contest], Luck]


def judge(
    candidates: Sequence[Candidate],
    market: Market,
    meter: Meter,
    judged_at: datetime,
    tell: Callable[[str], None],
    execution: Execution = STANDARD_EXECUTION,
) -> list[Scorecard]:
    """A scorecard for every entrant on one source, the refused included, which are told from the others by a reason.

    Who is refused has no say in the window: where somebody fails in it, it is that of the others alone.
    """
    failed: dict[str, str] = {}
    walked_in, walks = None, []
    while True:
        able = [candidate for candidate in candidates if candidate.name not in failed]
        found = contenders(market.whole, able, market.panels, execution)
        if (walked_in, tuple(walk.candidate for walk in walks)) == (found.contest, found.admitted):
            break
        walked_in = found.contest
        walks, more = _walks(walked_in, found.admitted, market, meter, tell)
        failed |= more
    contest, reasons = found.contest, {**found.refused, **failed}
    cards = []
    if walks:
        stress = stress_results(contest, [walk.candidate for walk in walks], market.returns, tell)
        cards = scorecards(contest, walks, market.luck(contest), stress, judged_at)
    named = {candidate.name: candidate for candidate in candidates}
    return [*cards, *(refusal(name, reason, judged_at, named[name], contest) for name, reason in reasons.items())]


def _walks(
    contest: Contest, admitted: Sequence[Candidate], market: Market, meter: Meter, tell: Callable[[str], None]
) -> tuple[list[Walked], dict[str, str]]:
    """What they did in the contest's window, and why some could not."""
    window = f"{contest.first_session} to {contest.last_session} on {contest.source}"
    walks, failed = [], {}
    for number, candidate in enumerate(admitted, start=1):
        tell(f"{candidate.name} ({number} of {len(admitted)}): {window}")
        try:
            walks.append(walked(candidate, market.panels[candidate.name], contest, meter))
        except ValueError as error:
            failed[candidate.name] = str(error)
            tell(f"{candidate.name} is refused: {error}")
    return walks, failed


def scorecards(
    contest: Contest, walks: Sequence[Walked], luck: Luck, stress: Stress, judged_at: datetime
) -> list[Scorecard]:
    """A card for each entrant that was walked through the contest's window; their best baseline is one of them."""
    curves = pl.concat([each.curves for each in walks])
    verdict = evaluate(curves, pl.concat(_of_one_width(walks)), contest.first_session)
    whole = verdict.filter(pl.col("period") == "all").rows_by_key("policy", named=True, unique=True)
    net = {each.candidate.name: each.curves["net_return"].to_numpy() for each in walks}
    attempts = {}
    for each in walks:
        if each.candidate.kind in OUTSIDE:
            best = whole[each.candidate.name]["best_baseline"]
            attempts[attempt_of(each.candidate.configuration)] = _active_sharpe(net, each.candidate.name, best)
    luck = luck.joined_by(attempts)
    return [
        _card(contest, each, whole[each.candidate.name], judged_at).model_copy(
            update={
                "inference": _inference(each.candidate, net, whole[each.candidate.name]["best_baseline"], luck),
                "stress": stress.get(each.candidate.name, ()),
            }
        )
        for each in walks
    ]


def refusal(
    name: str,
    reason: str,
    judged_at: datetime,
    candidate: Candidate | None = None,
    contest: Contest | None = None,
) -> Scorecard:
    """The card of an entrant that was not judged."""
    kind: EntrantKind | None = candidate.kind if candidate else None
    return Scorecard(
        entrant=name,
        kind=kind,
        source=contest.source if contest else None,
        contest=contest,
        rebal_freq=candidate.rebal_freq if candidate else None,
        run_id=candidate.run_id if candidate else None,
        configuration=dict(candidate.configuration) if candidate else {},
        data=Data(panel_digest=None, snapshot_ids={}, n_symbols=None, trained=_trained(candidate)),
        training_seconds=candidate.training_seconds if candidate else None,
        refusal=reason,
        code_version=scoring_code(),
        measured=Measured(
            judged_at=judged_at, judging_seconds=None, latency_seconds=None, latency_99=None, peak_memory_bytes=None
        ),
    )


def _card(contest: Contest, walk: Walked, row: Mapping[str, object], judged_at: datetime) -> Scorecard:
    candidate, panel = walk.candidate, walk.panel
    metrics = {
        name: Metric(
            value=_float(row[name]),
            low=_float(row.get(f"{BOUNDS.get(name, name)}_low")),
            high=_float(row.get(f"{BOUNDS.get(name, name)}_high")),
        )
        for name in METRICS
        if name not in WITHOUT
    }
    latency = execution_latency(walk.latencies)
    return Scorecard(
        entrant=candidate.name,
        kind=candidate.kind,
        source=contest.source,
        contest=contest,
        rebal_freq=candidate.rebal_freq,
        run_id=candidate.run_id,
        configuration=dict(candidate.configuration),
        data=Data(
            panel_digest=panel_digest(panel),
            snapshot_ids=dict(panel.snapshot_ids),
            n_symbols=len(panel.symbols),
            trained=_trained(candidate),
        ),
        training_seconds=candidate.training_seconds,
        metrics=metrics,
        timing=timing_effect(walk),
        warnings=tuple(dict.fromkeys((*_warnings(contest, walk), *candidate.warnings))),
        code_version=scoring_code(),
        measured=Measured(
            judged_at=judged_at,
            judging_seconds=walk.seconds,
            latency_seconds=latency.median,
            latency_99=latency.p99,
            peak_memory_bytes=walk.peak_memory,
        ),
    )


def _warnings(contest: Contest, walk: Walked) -> list[str]:
    found = [SURVIVORSHIP] if contest.source == "sample" else []
    if contest.fill == "next_close":
        found.append("orders fill at the next_close, not the next_open asked for: the market has no opens")
    if walk.panel.delisted.any():
        found.append("a delisted name is paid out in cash at its last price without cost: an optimistic assumption")
    return found


def _trained(candidate: Candidate | None) -> tuple[TrainedOn, ...]:
    trained = candidate.trained if candidate else ()
    return tuple(TrainedOn(first=each.first, last=each.last, used_from=each.used_from) for each in trained)


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, float | int) else None


def _inference(candidate: Candidate, net: Mapping[str, FloatArray], best: object, luck: Luck) -> Inference:
    """What may be luck; what cannot be computed is null, with the reason."""
    own, notes = net[candidate.name], []
    probabilistic = _or_note(lambda: probabilistic_sharpe_ratio(sharpe_moments(own)), notes)
    if not isinstance(best, str):
        said = "a baseline itself" if candidate.kind == "baseline" else "no baseline in the contest to compare with"
        return Inference(
            probabilistic_sharpe=probabilistic,
            best_baseline=None,
            active_sharpe=Metric(value=None),
            active_deflated_sharpe=None,
            n_trials=None,
            note="; ".join([*notes, said]),
        )
    active = active_returns(own, net[best])
    low, high = SharpeIntervals().draw(active[:, None]).interval(0)
    deflation = luck.deflation(candidate, float(sharpe_ratios(active[:, None])[0]))
    deflated = None
    if deflation.variance is not None:
        variance = deflation.variance
        deflated = _or_note(lambda: deflated_sharpe_ratio(sharpe_moments(active), deflation.n_trials, variance), notes)
    return Inference(
        probabilistic_sharpe=probabilistic,
        best_baseline=best,
        active_sharpe=Metric(value=sharpe_ratio(active), low=low, high=high),
        active_deflated_sharpe=deflated,
        n_trials=deflation.n_trials,
        note="; ".join([*notes, *deflation.notes]),
    )


def _active_sharpe(net: Mapping[str, FloatArray], name: str, best: object) -> float | None:
    """Per session; nothing where there is no baseline."""
    if not isinstance(best, str):
        return None
    return float(sharpe_ratios(active_returns(net[name], net[best])[:, None])[0])


def _or_note(statistic: Callable[[], float], notes: list[str]) -> float | None:
    """The statistic, or a note of why these returns have none."""
    try:
        return statistic()
    except ValueError as error:
        notes.append(str(error))
        return None


def _of_one_width(walks: Sequence[Walked]) -> list[pl.DataFrame]:
    """The action logs with as many weights in each row: names that an entrant may not hold have none."""
    widest = max(len(each.panel.symbols) for each in walks)
    return [
        each.actions.with_columns(
            executed_weights=pl.concat_list(
                pl.lit([0.0] * (widest - len(each.panel.symbols)), dtype=pl.List(pl.Float64)), "executed_weights"
            )
        )
        for each in walks
    ]
