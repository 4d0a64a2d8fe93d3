"""Reading of the Sharpe ratio curve: newest, best, intervals, baselines, drawdowns, and the next thing to try."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from nvtrader_pipelines.promotion.findings import MIN_DEFLATED, format_probability
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


@dataclass(frozen=True)
class Entry:
    """Run or trial on the curve."""

    name: str
    sharpe: float
    low: float | None  # of the 95 % interval
    high: float | None
    drawdown: float | None
    deflated: float | None  # probability, of the Sharpe ratio against zero
    baseline: str  # the best one; empty if unknown
    information_ratio: float | None  # over it
    over_baseline: float | None  # probability, of the information ratio, deflated

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Bounds of the interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def ratio_sentences(rows: Sequence[Row], _facts: Row) -> list[str]:
    """Read the Sharpe ratio curve.

    Args:
        rows: entries with sharpe, and as far as known experiment, run_id, finished_at, source, period and the figures
            of the table. Those on the market and in the period of the newest are read.

    Raises:
        TooFewRowsError: if fewer than two entries there have a Sharpe ratio.
    """
    ordered = sorted(rows, key=lambda row: label(row.get("finished_at")))
    scored = [row for row in ordered if number(row, "sharpe") is not None]
    peers = [row for row in scored if _window(row) == _window(scored[-1])]
    require_two(len(peers), "ratio_curve", "sharpe")
    entries = [_entry(row, position) for position, row in enumerate(peers, start=1)]
    best = max(entries, key=lambda entry: entry.sharpe)
    optional = (_baseline(entries, best), _drawdown(entries, best))
    return [
        _newest(entries, best),
        _against_zero(entries, best),
        *filter(None, optional),
        _progress(entries, best),
        _next_step(best),
    ]


def _window(row: Row) -> tuple[str, str]:
    return label(row.get("source")), label(row.get("period"))


def _entry(row: Row, position: int) -> Entry:
    return Entry(
        name=label(row.get("experiment")) or label(row.get("run_id")) or f"entry {position}",
        sharpe=number(row, "sharpe") or 0.0,
        low=number(row, "sharpe_low"),
        high=number(row, "sharpe_high"),
        drawdown=number(row, "max_drawdown"),
        deflated=number(row, "deflated_sharpe"),
        baseline=label(row.get("best_baseline")),
        information_ratio=number(row, "information_ratio"),
        over_baseline=number(row, "deflated_information_ratio"),
    )


def _newest(entries: Sequence[Entry], best: Entry) -> str:
    newest = entries[-1]
    rank = 1 + sum(entry.sharpe > newest.sharpe for entry in entries)
    if newest is best:
        second = max(entry.sharpe for entry in entries if entry is not best)
        other, gap = f"the next best has {second:.2f}", newest.sharpe - second
    else:
        other, gap = f"the best, {best.name}, has {best.sharpe:.2f}", best.sharpe - newest.sharpe
    half = (newest.bounds[1] - newest.bounds[0]) / 2.0 if newest.bounds else None
    is_noise = half is not None and gap <= half
    noise = f"; the interval of {newest.name} reaches ± {half:.2f}, so that gap may be noise" if is_noise else ""
    return (
        f"The newest, {newest.name}, ranks {rank} of {len(entries)} with a net Sharpe ratio of {newest.sharpe:.2f}; "
        f"{other}{noise}."
    )


def _against_zero(entries: Sequence[Entry], best: Entry) -> str:
    bounds = [entry.bounds for entry in entries if entry.bounds]
    if not bounds:
        expected = luck_of_best([entry.sharpe for entry in entries])
        verdict = "no evidence by itself" if best.sharpe <= expected else "more than such luck"
        return (
            f"Random ratios of this mean and spread would have a best of {expected:.2f} among {len(entries)}; the best "
            f"here has {best.sharpe:.2f}, {verdict}."
        )
    n_above = sum(low > 0.0 for low, _ in bounds)
    of_best = f"; {best.name}: {format_bounds(*best.bounds)}" if best.bounds else ""
    return f"{n_above} of {len(bounds)} intervals lie above zero, which is not yet above a baseline{of_best}."


def _baseline(entries: Sequence[Entry], best: Entry) -> str:
    values = [entry.over_baseline for entry in entries if entry.over_baseline is not None]
    if values:
        leader = max((e for e in entries if e.over_baseline is not None), key=lambda e: e.over_baseline or 0.0)
        ratio = (
            "" if leader.information_ratio is None else f" with an information ratio of {leader.information_ratio:+.2f}"
        )
        n_shown = sum(value >= MIN_DEFLATED for value in values)
        return (
            f"{n_shown} of {len(values)} add more than luck to their best baseline; the highest probability, "
            f"{format_probability(max(values), MIN_DEFLATED)} of the {MIN_DEFLATED} required, has {leader.name} over "
            f"{leader.baseline or 'its best baseline'}{ratio}."
        )
    if best.deflated is None:
        return ""
    verdict = "reaches" if best.deflated >= MIN_DEFLATED else "misses"
    return (
        f"Deflated for all trials so far, {best.name} has a probability of "
        f"{format_probability(best.deflated, MIN_DEFLATED)} of a ratio above zero, which {verdict} {MIN_DEFLATED}."
    )


def _drawdown(entries: Sequence[Entry], best: Entry) -> str:
    drawdowns = [(entry.drawdown, entry) for entry in entries if entry.drawdown is not None]
    if best.drawdown is None or len(drawdowns) < 2:
        return ""
    middle = median(drawdown for drawdown, _ in drawdowns)
    least, mildest = min(drawdowns, key=lambda pair: pair[0])
    other = (
        "it is the mildest, too"
        if mildest is best
        else f"the mildest, {least:.1%}, is {mildest.name}'s, at a Sharpe ratio of {mildest.sharpe:.2f}"
    )
    return f"{best.name} lost up to {best.drawdown:.1%} from its peak, the median entry {middle:.1%}; {other}."


def _progress(entries: Sequence[Entry], best: Entry) -> str:
    n = len(entries)
    n_since = n - 1 - next(i for i, entry in enumerate(entries) if entry is best)
    since = f"{n_since} of {n} entries came after {best.name} and did not beat it"
    standing = since if n_since else f"{best.name} is the newest of {n} entries"
    if n < MIN_HALVES:
        return (
            f"{standing}; if the next is like those so far, it sets a new best with a probability of {1 / (n + 1):.0%}."
        )
    difference, error = half_difference([entry.sharpe for entry in entries])
    trend = "rises" if difference > N_ERRORS * error else "falls" if -difference > N_ERRORS * error else "has no trend"
    means = f"the later half averages {difference:+.2f} ± {error:.2f} against the earlier"
    return f"{standing}; {means}, so the level {trend}."


def _next_step(best: Entry) -> str:
    if best.sharpe <= 0.0:
        return "Next: change the agent or the universe; no entry has a Sharpe ratio above zero."
    if best.over_baseline is not None and best.over_baseline >= MIN_DEFLATED:
        return f"Next: trade {best.name} on a simulated account; the evidence over its best baseline is there."
    if best.information_ratio is not None and best.information_ratio <= 0.0:
        return (
            f"Next: {best.name} earns no more than its exposure to {best.baseline or 'its best baseline'} "
            f"(information ratio {best.information_ratio:+.2f}): change the agent."
        )
    if best.bounds and best.bounds[0] <= 0.0:
        times = format_times((1.0 - best.bounds[0] / best.sharpe) ** 2)
        return f"Next: test {best.name} longer; its interval would lie above zero over a period {times}."
    if best.over_baseline is not None:
        return (
            f"Next: no further variants, since each raises the hurdle of the next; collect sessions with {best.name} "
            "on a simulated account instead."
        )
    return f"Next: compare {best.name} with its best baseline over the same sessions before you act on its rank."
