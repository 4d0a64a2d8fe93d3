"""Results as Markdown: a table, and sentences that its intervals support."""

import textwrap

from nvtrader_pipelines.evaluation.findings import MAX_OVERFITTING, MIN_DEFLATED, describe_period, format_probability
from nvtrader_pipelines.evaluation.formats import UNKNOWN, format_number
from nvtrader_pipelines.evaluation.intervals import Interval
from nvtrader_pipelines.evaluation.timing_luck import Range, opening_range
from scripts.readme_results.results import TRAINED, AccountRow, ComparisonRow, Results

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
WIDTH = 120
ZERO = "+−0."  # characters of a figure that is shown as zero  # noqa: RUF001
LABELS = {
    "equal_weight": "1/N",
    "anchor": "anchor: 1/N at a volatility target",
    "mean_cvar": "Mean-CVaR",
}
HEAD = (
    "| | net Sharpe [95 %] | openings | CAGR | max drawdown | turnover/y | cost/y | Sharpe less best baseline [95 %] |",
    "|---|---|---|---|---|---|---|---|",
)
SUMMARY = (
    "Intervals are 95 % by stationary bootstrap; the page of results has the differences to the anchors, the period "
    "before, what luck explains, and how to read the columns."
)
READING = (
    "Intervals are 95 % by stationary bootstrap of the sessions, paired for differences; they take the trained "
    "policies as given. The best baseline of a period is picked with hindsight, in its favor. Alpha is the intercept "
    "on the other account's returns, its t statistic by Newey and West. The information ratio is the Sharpe ratio of "
    "the residual return (less beta times the other's), not the difference of Sharpe ratios. Turnover is "
    "one-way. Openings: by the session on which decisions start."
)


def render_summary(results: Results) -> str:
    """Render the block of the README: the table, and whether a policy differs from its best baseline."""
    return "\n\n".join(
        [*_table(results), _wrap(f"{_baseline_sentence(results)} {SUMMARY} {_processor_sentence(results)}")]
    )


def render_results(results: Results) -> str:
    """Render the block of the page of results."""
    paragraphs = [
        *_table(results),
        "\n".join(_wrap(f"- {describe_comparison(row)}", "  ") for row in results.comparisons),
        _wrap(" ".join([_baseline_sentence(results), *_earlier_sentence(results), _luck_sentence(results)])),
        _wrap(f"{READING} {_processor_sentence(results)}"),
    ]
    return "\n\n".join(part for part in paragraphs if part)


def _table(results: Results) -> list[str]:
    seeds = f"{results.n_seeds} seeds averaged" if results.n_seeds > 1 else "one seed"
    period = describe_period(results.period)
    return [
        f"{period[0].upper()}{period[1:]} ({results.first_session} to {results.last_session}; {seeds}):",
        "\n".join([*HEAD, *map(_account_line, results.accounts)]),
    ]


def replace_block(text: str, block: str) -> str:
    """Replace the block between the markers of a text.

    Raises:
        ValueError: if the text does not have each marker once, in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"the text must have {BEGIN} and {END} once, in this order; put them around the results")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def describe_comparison(row: ComparisonRow) -> str:
    """Describe a comparison in a sentence; only an interval without zero is called a difference."""
    parts = [
        _describe_difference("Sharpe ratio", row.sharpe, "", 1.0, ".2f", row.over_openings),
        _describe_difference("volatility", row.volatility, " points", 100.0, ".1f"),
        _describe_difference("CVaR of a session", row.cvar, " points", 100.0, ".2f"),
        _describe_difference("exposure", row.exposure, " points", 100.0, ".1f"),
    ]
    t = "" if row.alpha_t is None else f" (t {format_number(row.alpha_t)})"
    other = "the anchor" if row.other == "anchor" else label(row.other, is_learned=row.is_other_learned)
    return (
        f"{label(row.policy, is_learned=True)} against {other}: {', '.join(parts[:-1])} and {parts[-1]}; alpha "
        f"{format_number(100.0 * row.alpha_per_year, '+.1f')} % a year{t}, information ratio "
        f"{format_number(row.information_ratio, '+.2f')}."
    )


def _describe_difference(
    statistic: str, found: Interval, unit: str, scale: float, form: str, openings: Range | None = None
) -> str:
    """Describe the difference of a statistic with its interval, and its range over the openings."""
    point, low, high = (format_number(scale * value, f"+{form}") for value in (found.point, found.low, found.high))
    spread = f", openings {_format_range(openings, f'+{form}')}" if openings else ""
    figures = f"({point}{unit} [{low}, {high}]{spread})"
    if not is_difference(found, openings) or not point.strip(ZERO):
        return f"no measurable difference in {statistic} {figures}"
    return f"{'higher' if found.low > 0.0 else 'lower'} {statistic} {figures}"


def is_difference(interval: Interval, openings: Range | None) -> bool:
    """Whether an interval excludes zero, and the sign is the same with every opening."""
    low, high = openings or (interval.low, interval.high)
    return (interval.low > 0.0 and low > 0.0) or (interval.high < 0.0 and high < 0.0)


def _format_range(found: Range | None, form: str) -> str:
    return "" if found is None else f"{format_number(found[0], form)} to {format_number(found[1], form)}"


def label(policy: str, *, is_learned: bool) -> str:
    """Label of an account in the README."""
    return f"`{policy}`" if is_learned else LABELS.get(policy, policy.replace("_", " "))


def _account_line(row: AccountRow) -> str:
    difference = "" if row.difference is None else _format_interval(row.difference, "+.2f")
    cells = [
        label(row.policy, is_learned=row.is_learned),
        _format_interval(row.sharpe, ".2f"),
        _format_range(opening_range(row.openings), ".2f"),
        f"{format_number(100.0 * row.cagr, '.1f')} %",
        f"{100.0 * row.max_drawdown:.0f} %",
        f"{row.turnover_per_year:.1f}",
        f"{100.0 * row.cost_per_year:.2f} %",
        difference,
    ]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _format_interval(found: Interval, form: str) -> str:
    return f"{format_number(found.point, form)} [{format_number(found.low, form)}, {format_number(found.high, form)}]"


def _baseline_sentence(results: Results) -> str:
    """State which policies differ from their best baselines."""
    compared = [(row, row.difference) for row in results.accounts if row.difference is not None]
    apart = [
        f"{label(row.policy, is_learned=True)} ends {'above' if found.low > 0.0 else 'below'} its best baseline: the "
        "interval of the difference excludes zero, with every opening."
        for row, found in compared
        if is_difference(found, row.over_openings)
    ]
    if apart:
        return " ".join(apart)
    return (
        "No interval of the difference to the best baseline excludes zero with every opening, so none of these "
        "policies is shown to be better or worse than its best baseline."
    )


def _processor_sentence(results: Results) -> str:
    """State the processor, and how far the figures of a run on another may be from these."""
    return (
        f"Made on {results.processor}; another kind of processor rounds differently and gives other bytes, so far with "
        f"Sharpe ratios less than {TRAINED.sharpe:g} away."
    )


def _earlier_sentence(results: Results) -> list[str]:
    """Describe the Sharpe ratios on the folds that were tuned on."""
    if not results.earlier:
        return []
    year = results.period.removeprefix("from_")
    policies = [f"{label(row.policy, is_learned=True)} {format_number(row.sharpe)}" for row in results.earlier]
    has_one = len({row.best_baseline for row in results.earlier}) == 1
    best = {
        f"{label(row.best_baseline, is_learned=False)}, the best baseline"
        f"{'' if has_one else f' of {_policies_with(row.best_baseline, results)}'}, "
        f"{format_number(row.best_baseline_sharpe)}"
        for row in results.earlier
    }
    anchors = {
        f"{'the anchor' if row.anchor == 'anchor' else label(row.anchor, is_learned=False)} "
        f"{format_number(row.anchor_sharpe)}"
        for row in results.earlier
    }
    ratios = [*policies, *sorted(best), *sorted(anchors)]
    listed = f"{', '.join(ratios[:-1])} and {ratios[-1]}"
    return [f"Before {year}, on the folds that were tuned on, the Sharpe ratios were: {listed}."]


def _policies_with(best_baseline: str, results: Results) -> str:
    """List the policies that had the same best baseline before the reported period."""
    names = [label(row.policy, is_learned=True) for row in results.earlier if row.best_baseline == best_baseline]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _luck_sentence(results: Results) -> str:
    """State the deflated probability and the PBO with their thresholds."""
    deflated = UNKNOWN if results.deflated is None else format_probability(results.deflated, MIN_DEFLATED)
    overfitting = UNKNOWN if results.overfitting is None else format_probability(results.overfitting, MAX_OVERFITTING)
    return (
        f"The deflated information ratio of the best ranked against its best baseline is {deflated} (the check "
        f"asks for {MIN_DEFLATED}): the probability that the true ratio exceeds the expected best of "
        f"{results.n_trials} trials without skill. The probability of backtest overfitting is {overfitting} (at most "
        f"{MAX_OVERFITTING} allowed): how often the best in sample is in the worse half out of sample."
    )


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
