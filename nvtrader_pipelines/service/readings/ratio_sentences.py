"""Reading of the Sharpe ratio curve: newest, best, intervals, baselines, drawdowns, and the next thing to try."""

from collections.abc import Sequence
from statistics import median
from typing import Annotated

import numpy as np

from nvtrader_pipelines.evaluation.chart_statistics import half_difference, luck_of_best
from nvtrader_pipelines.evaluation.findings import MIN_DEFLATED, format_probability
from nvtrader_pipelines.service.readings.chart_rows import (
    ROWS,
    ChartRow,
    Figure,
    Label,
    ScoredRow,
    UnscoredRow,
    format_bounds,
    format_times,
    require_two,
)


class ChartEntry(ScoredRow):
    """Run or trial on the curve."""

    experiment: Label
    finished_at: str = ""  # ISO
    source: str = ""
    period: str = ""
    deflated_sharpe: Figure | None = None  # probability, of the Sharpe ratio against zero
    best_baseline: Label | None = None
    information_ratio: Figure | None = None  # over it
    deflated_information_ratio: Figure | None = None  # probability


class RatioChart(ChartRow):
    """Sharpe ratio curve."""

    rows: Annotated[tuple[ChartEntry | UnscoredRow, ...], ROWS]

    def sentences(self) -> list[str]:
        """Read the entries on the market and in the period of the newest.

        Raises:
            ValueError: if fewer than two of them have a Sharpe ratio.
        """
        scored = sorted((row for row in self.rows if isinstance(row, ChartEntry)), key=lambda row: row.finished_at)
        entries = [entry for entry in scored if (entry.source, entry.period) == (scored[-1].source, scored[-1].period)]
        require_two(entries, "sharpe")
        best = max(entries, key=lambda entry: entry.sharpe)
        readers = (_newest, _against_zero, _baseline, _drawdown, _progress)
        return [*filter(None, (read(entries, best) for read in readers)), _next_step(best)]


def _newest(entries: Sequence[ChartEntry], best: ChartEntry) -> str:
    newest = entries[-1]
    rank = 1 + sum(entry.sharpe > newest.sharpe for entry in entries)
    if newest is best:
        second = max(entry.sharpe for entry in entries if entry is not best)
        other, gap = f"the next best has {second:.2f}", newest.sharpe - second
    else:
        other, gap = f"the best, {best.experiment}, has {best.sharpe:.2f}", best.sharpe - newest.sharpe
    reach, noise = newest.reach, ""
    if reach is not None and gap <= reach:
        noise = f"; the interval of {newest.experiment} reaches ± {reach:.2f}, so that gap may be noise"
    return (
        f"The newest, {newest.experiment}, ranks {rank} of {len(entries)} with a net Sharpe ratio of "
        f"{newest.sharpe:.2f}; {other}{noise}."
    )


def _against_zero(entries: Sequence[ChartEntry], best: ChartEntry) -> str:
    bounds = [entry.bounds for entry in entries if entry.bounds]
    if not bounds:
        expected = luck_of_best(np.array([entry.sharpe for entry in entries]))
        verdict = "no evidence by itself" if best.sharpe <= expected else "more than such luck"
        return (
            f"Random ratios of this mean and spread would have a best of {expected:.2f} among {len(entries)}; the best "
            f"here has {best.sharpe:.2f}, {verdict}."
        )
    n_above = sum(low > 0.0 for low, _ in bounds)
    of_best = f"; {best.experiment}: {format_bounds(*best.bounds)}" if best.bounds else ""
    return f"{n_above} of {len(bounds)} intervals lie above zero, which is not yet above a baseline{of_best}."


def _baseline(entries: Sequence[ChartEntry], best: ChartEntry) -> str:
    values = [(value, entry) for entry in entries if (value := entry.deflated_information_ratio) is not None]
    if values:
        highest, leader = max(values, key=lambda pair: pair[0])
        value, n_shown = leader.information_ratio, sum(value >= MIN_DEFLATED for value, _ in values)
        ratio = "" if value is None else f" with an information ratio of {value:+.2f}"
        return (
            f"{n_shown} of {len(values)} add more than luck to their best baseline; the highest probability, "
            f"{format_probability(highest, MIN_DEFLATED)} of the {MIN_DEFLATED} required, has {leader.experiment} over "
            f"{leader.best_baseline or 'its best baseline'}{ratio}."
        )
    if best.deflated_sharpe is None:
        return ""
    verdict = "reaches" if best.deflated_sharpe >= MIN_DEFLATED else "misses"
    return (
        f"Deflated for all trials so far, {best.experiment} has a probability of "
        f"{format_probability(best.deflated_sharpe, MIN_DEFLATED)} of a ratio above zero, which {verdict} "
        f"{MIN_DEFLATED}."
    )


def _drawdown(entries: Sequence[ChartEntry], best: ChartEntry) -> str:
    drawdowns = [(entry.max_drawdown, entry) for entry in entries if entry.max_drawdown is not None]
    if best.max_drawdown is None or len(drawdowns) < 2:
        return ""
    middle = median(drawdown for drawdown, _ in drawdowns)
    least, mildest = min(drawdowns, key=lambda pair: pair[0])
    other = "it is the mildest, too"
    if mildest is not best:
        other = f"the mildest, {least:.1%}, is {mildest.experiment}'s, at a Sharpe ratio of {mildest.sharpe:.2f}"
    return (
        f"{best.experiment} lost up to {best.max_drawdown:.1%} from its peak, the median entry {middle:.1%}; {other}."
    )


def _progress(entries: Sequence[ChartEntry], best: ChartEntry) -> str:
    n, halves = len(entries), half_difference(np.array([entry.sharpe for entry in entries]))
    n_since = n - 1 - entries.index(best)
    since = f"{n_since} of {n} entries came after {best.experiment} and did not beat it"
    standing = since if n_since else f"{best.experiment} is the newest of {n} entries"
    if halves is None:
        return (
            f"{standing}; if the next is like those so far, it sets a new best with a probability of {1 / (n + 1):.0%}."
        )
    means = f"the later half averages {halves.value:+.2f} ± {halves.error:.2f} against the earlier"
    return f"{standing}; {means}, so the level {('has no trend', 'rises', 'falls')[halves.sign]}."


def _next_step(best: ChartEntry) -> str:
    if best.sharpe <= 0.0:
        return "Next: change the agent or the universe; no entry has a Sharpe ratio above zero."
    if best.deflated_information_ratio is not None and best.deflated_information_ratio >= MIN_DEFLATED:
        return f"Next: trade {best.experiment} on a simulated account; the evidence over its best baseline is there."
    if best.information_ratio is not None and best.information_ratio <= 0.0:
        return (
            f"Next: {best.experiment} earns no more than its exposure to {best.best_baseline or 'its best baseline'} "
            f"(information ratio {best.information_ratio:+.2f}): change the agent."
        )
    if best.bounds and best.bounds[0] <= 0.0:
        times = format_times((1.0 - best.bounds[0] / best.sharpe) ** 2)
        return f"Next: test {best.experiment} longer; its interval would lie above zero over a period {times}."
    if best.deflated_information_ratio is not None:
        return (
            f"Next: no further variants, since each raises the hurdle of the next; collect sessions with "
            f"{best.experiment} on a simulated account instead."
        )
    return f"Next: compare {best.experiment} with its best baseline over the same sessions before you act on its rank."
