"""Report of all results as one self-contained HTML page."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nvtrader_pipelines.promotion.findings import (
    ASKED,
    DEFLATED,
    MAX_OVERFITTING,
    MIN_DEFLATED,
    PromotionFinding,
    deflated_findings,
    describe_period,
    format_probability,
    overfitting_findings,
)
from nvtrader_pipelines.service.account_cells import UNKNOWN
from nvtrader_pipelines.service.documents.home_facts import HomeReport
from nvtrader_pipelines.service.report.cell_formats import MINUS, pluralize
from nvtrader_pipelines.service.report.contents import Part, Plot
from nvtrader_pipelines.service.report.evidence import Evidence
from nvtrader_pipelines.service.report.report_parts import (
    headline,
    picture_part,
    portfolio,
    prudex,
    run_picture_part,
    runs_and_markets,
    scoreboard,
    stress,
    warnings,
)
from nvtrader_pipelines.service.report.tear_sheet_part import tear_sheets
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.store import Store

TEMPLATES = Path(__file__).with_name("templates")
TITLE = "What the policies are worth"
OVER = {"best_baseline": "over the best baseline", "anchor": "over the anchor or 1/N"}
PLAIN = " /:;=,.!?()*+-_~@$"  # characters of a data URL that need no escape in an attribute
FOOTER = "Written by nvtrader report. Nothing here is financial advice."

PARTS: Sequence[Callable[[Evidence], Part]] = (
    headline,
    runs_and_markets,
    run_picture_part("equity", "Equity", "One unit at the first test session, net of costs.", "equity_curves"),
    tear_sheets,
    picture_part("time", "Over time", "All completed runs in the order in which they finished.", "sharpe_ratio_curve"),
    picture_part("validation", "Validation", "How much of the best result may be luck.", "validation"),
    run_picture_part("regimes", "Regimes", "Results by market state, labeled with hindsight.", "regime_evaluation"),
    prudex,
    stress,
    scoreboard,
    portfolio,
    warnings,
)
READING = (
    ("net Sharpe", "Mean over standard deviation of net session returns, times the root of the sessions a year; "
     "risk-free rate 0. The interval is 95 % by stationary bootstrap: it takes the trained policies as given."),
    ("information ratio", "Sharpe ratio of the residual return: the return of each session less beta times that of a "
     "reference, so its mean is alpha. Even 1/N has a high Sharpe ratio on its own, and exposure to it is no merit."),
    ("difference of Sharpe ratios", "The Sharpe ratio less that of a reference; whether the policy is the better "
     "portfolio on its own. The promotion gate uses it."),
    ("trial", "Any walk-forward run ever completed on a market, of any version. The more trials, the better the best "
     "one looks by luck alone."),
    ("deflated", f"Probability that the ratio exceeds what the best of all trials reaches by luck "
     f"(Bailey and López de Prado 2014); {ASKED}."),
    ("probability of overfitting", f"How often the best trial in one half of the sessions is in the worse half of the "
     f"trials in the other (PBO, by CSCV). Above {MAX_OVERFITTING} choosing the best is no better than chance."),
    ("alpha, beta", "Of the net returns on those of the best baseline; alpha per year."),
    ("stress", "Artificial or historic shocks, the same for every account. They show what breaks, not how likely."),
    ("scoreboard", "Ranks hold within one contest only: the same market, sessions, costs and fills."),
)  # fmt: skip


def write_report(store: Store, path: Path) -> HomeReport:
    """Write the page and describe it."""
    evidence = Evidence.of(store)
    parts = [part(evidence) for part in PARTS]
    findings = deflated_findings(evidence.curve, evidence.validation) + overfitting_findings(evidence.overfitting)
    page = render_page(evidence, parts, findings).encode()
    path = path.expanduser().resolve()
    write_atomically(path, page)
    return HomeReport(
        path=path,
        bytes=len(page),
        runs=len(evidence.runs),
        findings=tuple(findings),
        parts=tuple(part.name for part in parts if not part.is_missing),
        missing={part.title: part.command for part in parts if part.is_missing},
    )


def render_page(evidence: Evidence, parts: Sequence[Part], findings: Sequence[PromotionFinding]) -> str:
    """Render the page as HTML."""
    pages = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    pages.filters |= {"data_url": data_url, "color": shade_color}
    shown = [
        {
            **asdict(each),
            "shown": format_finding_value(each),
            "over": OVER[each.against],
            "period": describe_span(evidence, each),
            "sentence": with_minus_sign(each.sentence),
        }
        for each in findings
    ]
    reading = [*READING, ("promotion", evidence.gate.requirement)]
    texts = {"title": TITLE, "lead": summarize_verdict(evidence, findings), "footer": FOOTER, "reading": reading}
    return pages.get_template("report.html.j2").render(parts=parts, findings=shown, **texts)


def data_url(plot: Plot) -> str:
    """URL that holds a picture; a third shorter than in base64."""
    return f"data:image/svg+xml,{quote(plot.read_svg(), safe=PLAIN)}"


def shade_color(shade: float) -> str:
    """Color of a cell, from -1 (loss, red) to 1 (gain, blue); light enough for text on any page."""
    red, green, blue = (0, 114, 178) if shade > 0.0 else (213, 94, 0)
    return f"rgb({red} {green} {blue} / {0.55 * min(abs(shade), 1.0):.2f})"


def describe_span(evidence: Evidence, finding: PromotionFinding) -> str:
    """Describe the market, the period and its sessions on a finding's card."""
    rows = evidence.validation.filter(source=finding.source, period=finding.period)
    first, last = rows.select(pl.col("first_session").min(), pl.col("last_session").max()).row(0)
    sessions = f" ({first} to {last})" if first else ""
    return f"{finding.source}, {describe_period(finding.period)}{sessions}"


def with_minus_sign(sentence: str) -> str:
    """Replace hyphens before digits by minus signs, as in the tables."""
    return re.sub(r"(?<!\S)-(?=\d)", MINUS, sentence)


def format_finding_value(finding: PromotionFinding) -> str:
    """Format the value of a finding with enough digits to differ from its threshold."""
    if finding.value is None:
        return UNKNOWN
    return format_probability(finding.value, MIN_DEFLATED if finding.figure == DEFLATED else MAX_OVERFITTING)


def summarize_verdict(evidence: Evidence, findings: Sequence[PromotionFinding]) -> str:
    """Summarize the runs and the verdict on the best ranked in two sentences."""
    if evidence.runs.is_empty():
        return "No completed run yet: nvtrader materialize."
    until = f"{evidence.runs['finished_at'].max():%Y-%m-%d}"
    runs, experiments = (
        pluralize(len(evidence.runs), "completed run"),
        pluralize(evidence.latest["experiment"].n_unique(), "experiment"),
    )
    completed = f"{runs} of {experiments}, the last of {until}."
    if not findings:
        return f"{completed} They have not been compared yet: nvtrader materialize."
    if all(each.passed for each in findings):
        return (
            f"{completed} The best ranked passes both thresholds: deflated probability at least {MIN_DEFLATED}, "
            f"probability of overfitting at most {MAX_OVERFITTING}."
        )
    return f"{completed} The best ranked misses a threshold; see below."
