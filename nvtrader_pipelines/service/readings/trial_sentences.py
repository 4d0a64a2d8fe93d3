"""Reading of a search: best trial against zero and luck, progress, knobs, and the next thing to try."""

from collections import Counter
from functools import cached_property
from statistics import median
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.evaluation.chart_statistics import half_difference, luck_of_best, rank_test
from nvtrader_pipelines.research.verdict import Outcome, Standing
from nvtrader_pipelines.service.readings.chart_rows import (
    ROWS,
    ChartRow,
    Count,
    Figure,
    Label,
    ScoredRow,
    UnscoredRow,
    format_bounds,
    format_times,
    require_two,
)

MAX_KNOBS = 64
MIN_THIRD = 5  # trials, for a comparison of knobs
LEVEL = 0.05  # of a knob that splits the trials by chance, over all knobs
SAME = 1e-9  # difference of equal Sharpe ratios
CAUTIONS = {  # by outcome
    None: "The sealed window decides, not this chart.",
    "nothing found": "The session closed without a look at the sealed window.",
}
N_MORE = 10  # trials that a session without a budget may add


class ChartTrial(ScoredRow):
    """Trial with a Sharpe ratio."""

    trial: Count
    standing: Standing | None = None
    luck: Figure | None = None  # Sharpe ratio at the luck bar, as of this trial
    best: Figure | None = None  # Sharpe ratio of the best so far
    knobs: dict[Label, Figure] = Field(default_factory=dict)


class SearchChart(ChartRow):
    """Trials of a search session, in order."""

    rows: Annotated[tuple[ChartTrial | UnscoredRow, ...], ROWS]
    base: Figure | None = None  # its Sharpe ratio
    budget: Count | None = None  # trials
    outcome: Outcome | Literal["nothing found"] | None = None  # of the closed session

    def sentences(self) -> list[str]:
        """Read the trials.

        Raises:
            ValueError: if fewer than two trials have a Sharpe ratio.
        """
        require_two(self.trials, "sharpe")
        return [*filter(None, (read(self) for read in (_best, _luck, _progress, _knobs, _drawdown, _next_step)))]

    @cached_property
    def trials(self) -> list[ChartTrial]:
        """Trials with a Sharpe ratio."""
        return [row for row in self.rows if isinstance(row, ChartTrial)]

    @property
    def ratios(self) -> NDArray[np.float64]:
        """Sharpe ratios of the trials (n,)."""
        return np.array([trial.sharpe for trial in self.trials])

    @cached_property
    def best(self) -> ChartTrial:
        """Trial marked as best so far, else the kept one, that of the highest t, or of the highest Sharpe ratio."""
        mark = self.trials[-1].best
        marked = [trial for trial in self.trials if mark is not None and abs(trial.sharpe - mark) < SAME]
        kept = [trial for trial in self.trials if trial.standing is Standing.KEPT]
        steady = [trial for trial in self.trials if trial.standing is not Standing.SEED_NOISE]
        by_t = [(t, trial) for trial in steady if (t := self.t(trial)) is not None]
        if marked or kept or not by_t:
            return max(marked or kept or self.trials, key=lambda trial: trial.sharpe)
        return max(by_t, key=lambda pair: pair[0])[1]

    def t(self, trial: ChartTrial) -> float | None:
        """Lead of a trial over the base in half widths of its interval, which order trials as their t."""
        return None if self.base is None or not trial.reach else (trial.sharpe - self.base) / trial.reach

    @property
    def lead(self) -> float | None:
        """Lead of the best trial over the base."""
        return None if self.base is None else self.best.sharpe - self.base

    @property
    def luck(self) -> float | None:
        """Lead that the best of so many trials has by luck, as of the last trial."""
        luck = next((trial.luck for trial in reversed(self.trials) if trial.luck is not None), None)
        return None if luck is None or self.base is None else luck - self.base

    @property
    def n_since(self) -> int:
        """Trials after the best."""
        return len(self.rows) - 1 - self.rows.index(self.best)

    @property
    def is_improving(self) -> bool:
        """Whether the later half of the trials is better than the earlier by more than noise."""
        halves = half_difference(self.ratios)
        return halves is not None and halves.sign > 0


def _best(chart: SearchChart) -> str:
    best, lead, others = chart.best, chart.lead, [trial for trial in chart.trials if trial is not chart.best]
    highest = max(others, key=lambda trial: trial.sharpe)
    if lead is None:
        return (
            f"Trial {best.trial} is the best with a net Sharpe ratio of {best.sharpe:.2f}, "
            f"{best.sharpe - highest.sharpe:+.2f} against the next and "
            f"{best.sharpe - median(trial.sharpe for trial in others):+.2f} against the median of the others."
        )
    bounds = "" if best.reach is None else f" ({format_bounds(lead - best.reach, lead + best.reach)})"
    higher = ""
    if highest.sharpe > best.sharpe + SAME:
        t, highest_t = chart.t(best), chart.t(highest)
        is_noisier = t is not None and highest_t is not None and highest_t < t
        reason = "with a less certain lead" if is_noisier else "but was not kept"
        higher = f" Trial {highest.trial} has {highest.sharpe:.2f}, {reason}."
    return (
        f"Trial {best.trial} is the best: net Sharpe ratio {best.sharpe:.2f}, {abs(lead):.2f} "
        f"{'above' if lead > 0.0 else 'below'} the base{bounds}.{higher}"
    )


def _luck(chart: SearchChart) -> str:
    best, lead, luck = chart.best, chart.lead, chart.luck
    caution = CAUTIONS.get(chart.outcome, f"The sealed window has judged: {chart.outcome}.")
    if luck is None or lead is None:
        return (
            f"Random ratios of this mean and spread would have a best of {luck_of_best(chart.ratios):.2f} among "
            f"{len(chart.trials)}; trial {best.trial} has {best.sharpe:.2f}. {caution}"
        )
    verdict = "clears" if lead > luck else "does not clear"
    return (
        f"On validation data searched this often, luck alone gives the best a lead of {luck:.2f}; trial "
        f"{best.trial} with {lead:+.2f} {verdict} that bar. {caution}"
    )


def _progress(chart: SearchChart) -> str:
    n_trials = len(chart.rows)
    parts = [f"The newest of {n_trials} trials is the best"]
    if chart.n_since:
        parts = [f"{chart.n_since} of {n_trials} trials came after the best and did not beat its t"]
    if halves := half_difference(chart.ratios):
        verdict = "proposals improve" if chart.is_improving else "proposals are not shown to improve"
        means = f"the later half averages {halves.value:+.2f} ± {halves.error:.2f} against the earlier"
        parts.append(f"{means}, so {verdict}")
    reasons = Counter(row.standing or "without a result" for row in chart.rows if isinstance(row, UnscoredRow))
    if reasons:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        parts.append(f"no result from {counts}")
    return f"{'; '.join(parts)}."


def _knobs(chart: SearchChart) -> str:
    """Knob that splits the best third of the trials from the worst; empty with too few trials."""
    ranked = sorted(chart.trials, key=lambda trial: trial.sharpe)
    third = len(ranked) // 3
    splits = []
    for knob in list(dict.fromkeys(name for trial in chart.trials for name in trial.knobs))[:MAX_KNOBS]:
        worst, best = (
            [trial.knobs[knob] for trial in group if knob in trial.knobs] for group in (ranked[:third], ranked[-third:])
        )
        if min(len(worst), len(best)) >= MIN_THIRD:
            splits.append((*rank_test(np.array(best), np.array(worst)), knob, median(worst), median(best)))
    if not splits:
        return ""
    z, p_value, knob, worst, best = max(splits, key=lambda split: abs(split[0]))
    chance = min(1.0, len(splits) * p_value)
    of_knobs = f"of {len(splits)} knobs" if len(splits) > 1 else "of the one knob"
    if chance > LEVEL:
        return (
            f"None {of_knobs} splits the best third of the trials from the worst beyond chance; nearest is {knob}, "
            f"median {best:.3g} against {worst:.3g} (probability by chance {chance:.2g})."
        )
    side = "high" if z > 0.0 else "low"
    return (
        f"The best third of the trials have a {side} {knob}, median {best:.3g} against {worst:.3g} in the worst third "
        f"(probability by chance {chance:.2g}, for all {len(splits)} knobs): search further on that side."
    )


def _drawdown(chart: SearchChart) -> str:
    drawdowns = [trial.max_drawdown for trial in chart.trials if trial.max_drawdown is not None]
    best = chart.best.max_drawdown
    if best is None or len(drawdowns) < 2:
        return ""
    middle = median(drawdowns)
    return (
        f"Trial {chart.best.trial} lost up to {best:.1%} from its peak, {'more' if best > middle else 'no more'} than "
        f"the median trial with {middle:.1%}; the mildest lost {min(drawdowns):.1%}."
    )


def _next_step(chart: SearchChart) -> str:
    best, lead, luck = chart.best, chart.lead, chart.luck
    if lead is not None and lead <= 0.0:
        return "Next: no trial leads the base, so change its universe or widen the bounds before more trials."
    if chart.outcome and best.standing is Standing.KEPT:
        return f"Next: go by the verdict of the session on trial {best.trial}, not by this chart."
    if best.standing is Standing.KEPT and luck is not None and (lead or 0.0) > luck:
        return (
            f"Next: close the session, so that the sealed window judges trial {best.trial}; more trials raise the bar."
        )
    is_stale = 2 * chart.n_since >= len(chart.rows)
    change = "widen the bounds or change the proposer" if is_stale else "search closer around the best"
    if luck is None or lead is None or lead > luck:
        return f"Next: {_hope(chart)}. Then {change}, and train the best again with fresh seeds."
    clears = f"This lead would clear the bar on a validation {format_times((luck / lead) ** 2)}"
    return f"Next: {_hope(chart)}. {clears}; on the present one, {change}."


def _hope(chart: SearchChart) -> str:
    """Probability that more trials beat the best, by their number alone."""
    n_trials = len(chart.rows)
    n_more = N_MORE if chart.budget is None else chart.budget - n_trials
    if chart.outcome or n_more <= 0:
        return "the session is closed" if chart.outcome else "the budget is spent"
    reason = "or more, since proposals improve" if chart.is_improving else "if they are like those so far"
    return f"{n_more} more trials beat the best with a probability of {n_more / (n_trials + n_more):.0%} {reason}"
