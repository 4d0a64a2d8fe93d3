"""Reading of a search: best trial against zero and luck, progress, knobs, and the next thing to try."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

import numpy as np
import scipy  # its parts are imported when they are first used

from nvtrader_pipelines.service.readings.chart_rows import (
    MIN_HALVES,
    N_ERRORS,
    Row,
    format_bounds,
    format_times,
    half_difference,
    label,
    luck_of_best,
    number,
    require_two,
)

NO_RESULT = ("pruned", "infeasible", "failed", "known")  # standings or statuses
MAX_KNOBS = 64
MAX_BUDGET = 10**6  # trials
MIN_THIRD = 5  # trials, for a comparison of knobs
LEVEL = 0.05  # of a knob that splits the trials by chance, over all knobs
SAME = 1e-9  # difference of equal Sharpe ratios
N_MORE = 10  # trials that a session without a budget may add
REACH = 1.96  # standard errors of a 95 % interval


@dataclass(frozen=True)
class Trial:
    """Trial with a Sharpe ratio."""

    name: str
    sharpe: float
    lead: float | None  # over the base
    error: float | None  # standard error of the lead
    standing: str
    drawdown: float | None
    knobs: Mapping[str, float]

    @property
    def t(self) -> float | None:
        """Lead in standard errors."""
        return self.lead / self.error if self.lead is not None and self.error else None


@dataclass(frozen=True)
class Search:
    """Trials of a search session, in order."""

    trials: tuple[Trial, ...]
    best: Trial
    luck: float | None  # lead that the best of so many trials has by luck
    n_trials: int  # with those without a result
    n_since: int  # trials after the best
    n_left: int | None  # of the budget
    is_closed: bool
    outcome: str  # of the closed session, as far as the facts say
    no_result: Mapping[str, int]  # trials by reason

    @property
    def caution(self) -> str:
        """Where the decision is, or was, made."""
        if self.outcome == "nothing found":
            return "The session closed without a look at the sealed window."
        if self.outcome:
            return f"The sealed window has judged: {self.outcome}."
        return "The sealed window decides, not this chart."

    @property
    def progress(self) -> tuple[float, float] | None:
        """Mean Sharpe ratio of the later half less that of the earlier, and its error; None with too few trials."""
        ratios = [trial.sharpe for trial in self.trials]
        return half_difference(ratios) if len(ratios) >= MIN_HALVES else None

    @property
    def is_improving(self) -> bool:
        """Whether the later half is better by more than noise."""
        return self.progress is not None and self.progress[0] > N_ERRORS * self.progress[1]


def trial_sentences(rows: Sequence[Row], facts: Row) -> list[str]:
    """Read the trials of a search.

    Args:
        rows: trials with sharpe, and as far as known trial, sharpe_low, sharpe_high, luck and best as on the page, or
            lead, t and bar as in the journal, standing or status, max_drawdown, and knobs or changed.
        facts: `base`, its Sharpe ratio, `budget`, in trials, and `outcome`, once the session is closed.

    Raises:
        TooFewRowsError: if fewer than two trials have a Sharpe ratio.
    """
    search = _search(rows, facts)
    optional = (_knobs(search.trials), _drawdown(search))
    return [_best(search), _luck(search), _progress(search), *filter(None, optional), _next_step(search)]


def _search(rows: Sequence[Row], facts: Row) -> Search:
    n_known = sum(row.get("status") == "known" for row in rows)
    merged: dict[str, dict[str, object]] = {}
    for position, row in enumerate(rows, start=1):
        if row.get("status") == "known" or row.get("event", "trial") not in ("trial", "rerun"):
            continue
        name = label(row.get("trial")) or f"at row {position}"
        news = {key: value for key, value in row.items() if value is not None and value != {}}  # of a rerun
        merged.setdefault(name, {}).update(news)
    base = number(facts, "base")
    if base is None:
        base = next((number(row, "sharpe") for row in rows if row.get("event") == "base"), None)
    scored = {name: row for name, row in merged.items() if number(row, "sharpe") is not None}
    require_two(len(scored), "autoresearch", "sharpe")
    trials = tuple(_trial(name, row, base) for name, row in scored.items())
    best = _best_trial(trials, scored)
    budget, n_since = number(facts, "budget"), len(merged) - 1 - list(merged).index(best.name)
    reasons = Counter(_reason(row) for name, row in merged.items() if name not in scored)
    return Search(
        trials=trials,
        best=best,
        luck=_luck_lead(best, list(scored.values()), base),
        n_trials=len(merged),
        n_since=n_since,
        n_left=None if budget is None else max(0, int(min(budget, MAX_BUDGET)) - len(merged)),
        outcome=label(facts.get("outcome")),
        is_closed=bool(facts.get("outcome")) or any(row.get("event") == "verdict" for row in rows),
        no_result=reasons | ({"known before": n_known} if n_known else {}),
    )


def _trial(name: str, row: Row, base: float | None) -> Trial:
    sharpe, lead, t = number(row, "sharpe") or 0.0, number(row, "lead"), number(row, "t")
    low, high = number(row, "sharpe_low"), number(row, "sharpe_high")
    if lead is None and base is not None:
        lead = sharpe - base
    if low is not None and high is not None:
        error = abs(high - low) / (2.0 * REACH)
    else:
        error = lead / t if lead and t and lead * t > 0.0 else None
    values = row.get("knobs") or row.get("changed")
    knobs = values if isinstance(values, dict) else {}
    return Trial(
        name=name,
        sharpe=sharpe,
        lead=lead,
        error=error,
        standing=label(row.get("standing")),
        drawdown=number(row, "max_drawdown"),
        knobs={knob: value for knob in list(knobs)[:MAX_KNOBS] if (value := number(knobs, knob)) is not None},
    )


def _reason(row: Row) -> str:
    return next((name for name in NO_RESULT if name in (row.get("status"), row.get("standing"))), "without a result")


def _best_trial(trials: Sequence[Trial], scored: Mapping[str, Row]) -> Trial:
    """Trial that the search counts as best, else the kept one, the highest t, or the highest Sharpe ratio."""
    line = number(list(scored.values())[-1], "best")
    marked = [trial for trial in trials if line is not None and abs(trial.sharpe - line) < SAME]
    kept = [trial for trial in trials if trial.standing == "kept"]
    steady = [trial for trial in trials if trial.standing != "seed noise" and trial.t is not None]
    if marked or kept or not steady:
        return max(marked or kept or trials, key=lambda trial: trial.sharpe)
    return max(steady, key=lambda trial: trial.t or 0.0)


def _luck_lead(best: Trial, rows: Sequence[Row], base: float | None) -> float | None:
    """Lead at the luck bar, as of the last trial."""
    luck = next((value for row in reversed(rows) if (value := number(row, "luck")) is not None), None)
    bar = next((value for row in reversed(rows) if (value := number(row, "bar")) is not None), None)
    if luck is not None and base is not None:
        return luck - base
    return None if bar is None or best.error is None else bar * best.error


def _best(search: Search) -> str:
    best, others = search.best, [trial for trial in search.trials if trial is not search.best]
    highest = max(others, key=lambda trial: trial.sharpe)
    if best.lead is None:
        return (
            f"Trial {best.name} is the best with a net Sharpe ratio of {best.sharpe:.2f}, "
            f"{best.sharpe - highest.sharpe:+.2f} against the next and "
            f"{best.sharpe - median(trial.sharpe for trial in others):+.2f} against the median of the others."
        )
    bounds = ""
    if best.error is not None:
        reach = REACH * best.error
        bounds = f" ({format_bounds(best.lead - reach, best.lead + reach)})"
    higher = ""
    if highest.sharpe > best.sharpe + SAME:
        is_noisier = highest.t is not None and best.t is not None and highest.t < best.t
        reason = "with a less certain lead" if is_noisier else "but was not kept"
        higher = f" Trial {highest.name} has {highest.sharpe:.2f}, {reason}."
    return (
        f"Trial {best.name} is the best: net Sharpe ratio {best.sharpe:.2f}, {abs(best.lead):.2f} "
        f"{'above' if best.lead > 0.0 else 'below'} the base{bounds}.{higher}"
    )


def _luck(search: Search) -> str:
    best, caution = search.best, search.caution
    if search.luck is None or best.lead is None:
        expected = luck_of_best([trial.sharpe for trial in search.trials])
        return (
            f"Random ratios of this mean and spread would have a best of {expected:.2f} among {len(search.trials)}; "
            f"trial {best.name} has {best.sharpe:.2f}. {caution}"
        )
    verdict = "clears" if best.lead > search.luck else "does not clear"
    return (
        f"On validation data searched this often, luck alone gives the best a lead of {search.luck:.2f}; trial "
        f"{best.name} with {best.lead:+.2f} {verdict} that bar. {caution}"
    )


def _progress(search: Search) -> str:
    parts = [f"The newest of {search.n_trials} trials is the best"]
    if search.n_since:
        parts = [f"{search.n_since} of {search.n_trials} trials came after the best and did not beat its t"]
    if search.progress:
        verdict = "proposals improve" if search.is_improving else "proposals are not shown to improve"
        difference, error = search.progress
        parts.append(f"the later half averages {difference:+.2f} ± {error:.2f} against the earlier, so {verdict}")
    if search.no_result:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(search.no_result.items()))
        parts.append(f"no result from {reasons}")
    return f"{'; '.join(parts)}."


def _knobs(trials: Sequence[Trial]) -> str:
    """Knob that splits the best third of the trials from the worst; empty with too few trials."""
    ranked = sorted(trials, key=lambda trial: trial.sharpe)
    third = len(ranked) // 3
    splits = []
    for knob in list(dict.fromkeys(name for trial in trials for name in trial.knobs))[:MAX_KNOBS]:
        worst, best = (
            [trial.knobs[knob] for trial in group if knob in trial.knobs] for group in (ranked[:third], ranked[-third:])
        )
        if min(len(worst), len(best)) >= MIN_THIRD:
            splits.append((_split(worst, best), label(knob), median(worst), median(best)))
    if not splits:
        return ""
    z, knob, worst, best = max(splits, key=lambda split: abs(split[0]))
    chance = min(1.0, 2.0 * len(splits) * float(scipy.special.ndtr(-abs(z))))
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


def _split(worst: Sequence[float], best: Sequence[float]) -> float:
    """Statistic of Mann and Whitney's rank test of two groups, in standard errors."""
    ordered = np.sort(worst)
    wins = sum(float(np.searchsorted(ordered, best, side).sum()) / 2.0 for side in ("left", "right"))
    n_pairs = len(worst) * len(best)
    return (wins - n_pairs / 2.0) / sqrt(n_pairs * (len(worst) + len(best) + 1) / 12.0)


def _drawdown(search: Search) -> str:
    drawdowns = [trial.drawdown for trial in search.trials if trial.drawdown is not None]
    best = search.best.drawdown
    if best is None or len(drawdowns) < 2:
        return ""
    middle = median(drawdowns)
    return (
        f"Trial {search.best.name} lost up to {best:.1%} from its peak, {'more' if best > middle else 'no more'} than "
        f"the median trial with {middle:.1%}; the mildest lost {min(drawdowns):.1%}."
    )


def _next_step(search: Search) -> str:
    best, luck = search.best, search.luck
    if best.lead is not None and best.lead <= 0.0:
        return "Next: no trial leads the base, so change its universe or widen the bounds before more trials."
    if search.is_closed and best.standing == "kept":
        return f"Next: go by the verdict of the session on trial {best.name}, not by this chart."
    if best.standing == "kept" and luck is not None and (best.lead or 0.0) > luck:
        return (
            f"Next: close the session, so that the sealed window judges trial {best.name}; more trials raise the bar."
        )
    is_stale = 2 * search.n_since >= search.n_trials
    change = "widen the bounds or change the proposer" if is_stale else "search closer around the best"
    if luck is not None and best.lead is not None and best.lead <= luck:
        times = format_times((luck / best.lead) ** 2)
        advice = f"This lead would clear the bar on a validation {times}; on the present one, {change}."
    else:
        advice = f"Then {change}, and train the best again with fresh seeds."
    return f"Next: {_hope(search)}. {advice}"


def _hope(search: Search) -> str:
    """Probability that more trials beat the best, by their number alone."""
    if search.is_closed or search.n_left == 0:
        return "the session is closed" if search.is_closed else "the budget is spent"
    more = search.n_left or N_MORE
    reason = "or more, since proposals improve" if search.is_improving else "if they are like those so far"
    return f"{more} more trials beat the best with a probability of {more / (search.n_trials + more):.0%} {reason}"
