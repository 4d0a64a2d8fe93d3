"""Compliance: eight rules for plans; a hard finding blocks, a soft one waits for a person, a warning is recorded.

Source: names, levels and defaults of all rules but `limits_hold` are those of NVTrader's compliance agent.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from nvtrader_pipelines.components.text import name_symbols
from nvtrader_pipelines.execution.plan import Finding, Level, RebalancePlan, Rule
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.stage import ROUNDING

SMALLER_IS_TIGHTER = (
    "max_position", "max_short", "max_gross", "max_net", "max_sector", "max_turnover", "max_volatility",
)  # fmt: skip
LARGER_IS_TIGHTER = ("min_net", "min_names", "wash_sale_days")


@dataclass(frozen=True)
class ComplianceData:
    """Sectors and sales at a loss, by name."""

    sectors: Mapping[str, str] = field(default_factory=dict)  # by symbol
    loss_sales: Sequence[tuple[str, date]] = ()  # symbol and day of a sale at a loss


def compliance_findings(
    plan: RebalancePlan, limits: RiskLimits, data: ComplianceData, volatility: float | None
) -> tuple[Finding, ...]:
    """Findings of a plan, rule by rule; empty if it may be traded as it is.

    The limits are the tightest of the spec's and the desk's. The volatility is annualized, of the target weights over
    the trailing sessions; None or not finite if unknown.
    """
    sold = _days_since_loss(limits, data.loss_sales, plan.session)
    return (
        *_positions(plan, limits),
        *_exposures(plan, limits),
        *_restricted_purchases(plan, limits.restricted),
        *_unknown_names(plan, "restricted_list", limits.restricted, "restricted"),
        *_wash_sales(plan, limits, sold),
        *_unknown_names(plan, "wash_sale_window_days", sold, "sold at a loss"),
        *_turnover(plan, limits),
        *_sectors(plan, limits, data.sectors),
        *_diversification(plan, limits),
        *_volatility(limits, volatility),
    )


def allow_first_plan(findings: Iterable[Finding], turnover: float) -> tuple[Finding, ...]:
    """Findings of a policy's first plan: its turnover is only a warning up to what its account allows."""
    allowed = f"; the account lets a policy's first plan turn over {turnover:.2%} (first_plan_turnover)"
    return tuple(
        finding.model_copy(update={"level": "warn", "sentence": finding.sentence + allowed})
        if finding.rule == "turnover_pct_warn" and (finding.figure or 0.0) <= turnover + ROUNDING
        else finding
        for finding in findings
    )


def purchase_bans(limits: RiskLimits, data: ComplianceData, session: date) -> dict[str, str]:
    """Names that may not be bought in a session, with the reason.

    The session is that of the fill or, for a live venue, the one whose close sizes the orders.
    """
    wash_sales = {
        name: f"it was sold at a loss {days} calendar days before; it may not be bought within {limits.wash_sale_days}"
        for name, days in _days_since_loss(limits, data.loss_sales, session).items()
    }
    return wash_sales | dict.fromkeys(limits.restricted, "it is restricted: it may be held or sold, but not bought")


def tightest_limits(a: RiskLimits, b: RiskLimits) -> RiskLimits:
    """Combine two sets of limits, the tighter per field; restricted names of either are restricted.

    Raises:
        pydantic.ValidationError: if no portfolio satisfies both (min_net above max_net).
    """
    maxima = {name: min(getattr(a, name), getattr(b, name)) for name in SMALLER_IS_TIGHTER}
    minima = {name: max(getattr(a, name), getattr(b, name)) for name in LARGER_IS_TIGHTER}
    return RiskLimits(**maxima, **minima, restricted=tuple(sorted({*a.restricted, *b.restricted})))


def _names(plan: RebalancePlan) -> list[tuple[str, float, float]]:
    """Name, held weight and target weight, without cash."""
    return list(zip(plan.symbols, plan.held, plan.target, strict=True))[:-1]


def _purchases(plan: RebalancePlan) -> list[tuple[str, float]]:
    """Names whose long position increases, and the increase; covering a short position is no purchase."""
    changes = [(name, max(0.0, target) - max(0.0, held)) for name, held, target in _names(plan)]
    return [(name, more) for name, more in changes if more > ROUNDING]


def _positions(plan: RebalancePlan, limits: RiskLimits) -> list[Finding]:
    bound, sentence = limits.max_position, "{} would weigh {:.2%}, above the {:.2%} that one name may weigh"
    most_short, short = limits.max_short, "{} would be sold short at {:.2%}, above the {:.2%} that one name may be"
    return [
        _finding("max_position_pct", "hard", wanted, bound, sentence.format(name, wanted, bound), name)
        for name, _, wanted in _names(plan)
        if abs(wanted) > bound + ROUNDING
    ] + [
        _finding("max_position_pct", "hard", wanted, -most_short, short.format(name, -wanted, most_short), name)
        for name, _, wanted in _names(plan)
        if -bound - ROUNDING <= wanted < -most_short - ROUNDING
    ]


def _exposures(plan: RebalancePlan, limits: RiskLimits) -> list[Finding]:
    """Gross above its limit, and net outside its range."""
    wanted = [weight for _, _, weight in _names(plan)]
    gross, net = sum(map(abs, wanted)), sum(wanted)
    findings = []
    for what, figure, bound in (("gross", gross, limits.max_gross), ("net", net, limits.max_net)):
        if figure > bound + ROUNDING:
            sentence = f"the names would weigh {figure:.2%} {what}, above the {bound:.2%} that they may"
            findings.append(_finding("limits_hold", "hard", figure, bound, sentence))
    if net < limits.min_net - ROUNDING:
        sentence = f"the names would weigh {net:.2%} net, below the {limits.min_net:.2%} that they must"
        findings.append(_finding("limits_hold", "hard", net, limits.min_net, sentence))
    return findings


def _restricted_purchases(plan: RebalancePlan, restricted: Sequence[str]) -> list[Finding]:
    sentence = "{} is restricted: it may be held or sold, but {:.2%} of equity would be bought"
    short = "{} is restricted: a position may only be closed, but {:.2%} of equity would be sold short"
    return [
        _finding("restricted_list", "hard", more, 0.0, sentence.format(name, more), name)
        for name, more in _purchases(plan)
        if name in restricted
    ] + [
        _finding("restricted_list", "hard", more, 0.0, short.format(name, more), name)
        for name, held, target in _names(plan)
        if name in restricted and (more := max(0.0, -target) - max(0.0, -held)) > ROUNDING
    ]


def _unknown_names(plan: RebalancePlan, rule: Rule, names: Iterable[str], what: str) -> list[Finding]:
    """Warn of names that the market lacks: they may be misspelled, and a rule on them then has no effect."""
    unknown = sorted(set(names) - set(plan.symbols[:-1]))
    if not unknown:
        return []
    sentence = f"{', '.join(unknown)} {what}, but not a symbol of the plan's market; check the spelling"
    return [_finding(rule, "warn", len(unknown), 0.0, sentence)]


def _wash_sales(plan: RebalancePlan, limits: RiskLimits, days_since: Mapping[str, int]) -> list[Finding]:
    bound = limits.wash_sale_days
    sentence = "{} would be bought {} calendar days after it was sold at a loss; it may not be bought within {}"
    return [
        _finding("wash_sale_window_days", "hard", days, bound, sentence.format(name, days, bound), name)
        for name, _ in _purchases(plan)
        if (days := days_since.get(name)) is not None
    ]


def _days_since_loss(limits: RiskLimits, sales: Sequence[tuple[str, date]], session: date) -> dict[str, int]:
    """Calendar days since the last sale at a loss, by name within the wash-sale window; a window of 0 is empty."""
    since = dict[str, int]()
    for name, day in sales:
        days = (session - day).days
        if 0 <= days <= limits.wash_sale_days and limits.wash_sale_days > 0:
            since[name] = min(days, since.get(name, days))
    return since


def _turnover(plan: RebalancePlan, limits: RiskLimits) -> list[Finding]:
    turnover, bound = plan.turnover, limits.max_turnover
    if turnover <= bound + ROUNDING:
        return []
    sentence = f"one-way turnover would be {turnover:.2%} of equity, above {bound:.2%}"
    return [_finding("turnover_pct_warn", "soft", turnover, bound, sentence)]


def _sectors(plan: RebalancePlan, limits: RiskLimits, sectors: Mapping[str, str]) -> list[Finding]:
    bound, sums, findings = limits.max_sector, dict[str, float](), list[Finding]()
    without = [name for name, _, wanted in _names(plan) if name not in sectors and abs(wanted) > ROUNDING]
    if without:
        sentence = f"{name_symbols(without)}: no sector is known; add a row per symbol to data/compliance/sectors.csv"
        symbol = without[0] if len(without) == 1 else None
        findings.append(_finding("sector_concentration_max", "soft", None, bound, sentence, symbol))
    for name, _, wanted in _names(plan):
        if name in sectors:
            sums[sectors[name]] = sums.get(sectors[name], 0.0) + abs(wanted)
    for sector in sorted(sums):
        if sums[sector] > bound + ROUNDING:
            sentence = f"sector {sector} would weigh {sums[sector]:.2%}, above the {bound:.2%} that one may weigh"
            findings.append(_finding("sector_concentration_max", "soft", sums[sector], bound, sentence))
    return findings


def _diversification(plan: RebalancePlan, limits: RiskLimits) -> list[Finding]:
    n_names, bound = sum(abs(wanted) > ROUNDING for _, _, wanted in _names(plan)), limits.min_names
    if n_names >= bound:
        return []
    sentence = f"{n_names} names would have weight, fewer than {bound}"
    return [_finding("min_diversification", "warn", n_names, bound, sentence)]


def _volatility(limits: RiskLimits, volatility: float | None) -> list[Finding]:
    bound = limits.max_volatility
    if volatility is None or not math.isfinite(volatility):
        volatility = None
        sentence = f"the volatility of the target weights is unknown, so it cannot be checked against {bound:.2%}"
    elif volatility <= bound + ROUNDING:
        return []
    else:
        sentence = f"the target weights had a realized volatility of {volatility:.2%} per year, above {bound:.2%}"
    return [_finding("realized_vol_target", "warn", volatility, bound, sentence)]


def _finding(
    rule: Rule, level: Level, figure: float | None, bound: float, sentence: str, symbol: str | None = None
) -> Finding:
    return Finding(rule=rule, level=level, symbol=symbol, figure=figure, bound=bound, sentence=sentence)
