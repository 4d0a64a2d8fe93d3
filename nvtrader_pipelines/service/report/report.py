"""Everything judged on one page of HTML that needs nothing else."""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nvtrader_pipelines.promotion.findings import (
    DEFLATED,
    MAX_OVERFITTING,
    MIN_DEFLATED,
    PromotionFinding,
    format_probability,
)
from nvtrader_pipelines.service.report.report_parts import (
    MINUS,
    UNKNOWN,
    Evidence,
    Part,
    counted,
    findings,
    headline,
    pictured,
    portfolio,
    prudex,
    scoreboard,
    stress,
    warnings,
    what_was_judged,
)
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.store import Store

TEMPLATES = Path(__file__).with_name("templates")
TITLE = "What the policies are worth"
OVER = {"best_baseline": "over the best baseline", "anchor": "over the anchor"}
FOOTER = "Written by nvtrader report. Nothing here is financial advice."

PARTS: Sequence[Callable[[Evidence], Part]] = (
    headline,
    what_was_judged,
    pictured("equity", "Equity", "One unit at the first test session, net of costs.", "equity_curves"),
    pictured("time", "Over time", "Every completed run in the order they finished.", "sharpe_ratio_curve"),
    pictured("validation", "Validation", "How much of the best is luck.", "validation", "overfitting"),
    pictured("regimes", "Regimes", "By what the market did; labelled with hindsight.", "regime_evaluation"),
    prudex,
    stress,
    scoreboard,
    portfolio,
    warnings,
)
READING = (
    ("net Sharpe", "Mean over standard deviation of net session returns, times the root of 252; risk-free rate 0. The "
     "interval is 95 % by stationary bootstrap: it takes the trained policies as given."),
    ("information ratio", "Sharpe ratio of the active return: session by session the return less that of a reference. "
     "Even 1/N has a high Sharpe ratio against nothing; only what is left over a reference is the policy's own."),
    ("difference of Sharpe ratios", "The Sharpe ratio less that of a reference: another number, which leverage "
     "alone does not raise. The promotion gate and the column beside the best baseline go by it."),
    ("trial", "Every walk-forward run ever completed on a market, of any version. The more there are, the better the "
     "best looks by luck alone."),
    ("deflated", f"Probability that the ratio is above what the best of so many trials without skill would show "
     f"(Bailey and López de Prado 2014). Below {MIN_DEFLATED} the best may be the luckiest."),
    ("probability of overfitting", f"How often the best trial in one half of the sessions is in the worse half of the "
     f"trials in the other (PBO, by CSCV). Above {MAX_OVERFITTING} choosing the best is no better than chance."),
    ("alpha, beta", "Of the net returns on those of the best baseline; alpha per year."),
    ("stress", "Made-up or historic sessions, the same for every account. They say what breaks, not how likely it is."),
    ("scoreboard", "Ranks hold within one contest only: the same market, sessions, costs and fills."),
)  # fmt: skip


def write_report(store: Store, path: Path) -> tuple[Path, dict[str, Any]]:
    """Write the page.

    Returns:
        Where it is, and its facts: bytes, runs, findings, the parts it has, and those it lacks with what to run.
    """
    evidence = Evidence.of(store)
    parts, found = [part(evidence) for part in PARTS], findings(evidence)
    page = rendered(evidence, parts, found).encode()
    path = path.expanduser().resolve()
    write_atomically(path, page)
    return path, {
        "bytes": len(page),
        "runs": len(evidence.runs),
        "findings": [asdict(each) for each in found],
        "parts": [part.name for part in parts if not part.is_missing],
        "missing": {part.title: part.command for part in parts if part.is_missing},
    }


def rendered(evidence: Evidence, parts: Sequence[Part], found: Sequence[PromotionFinding]) -> str:
    """The page as HTML."""
    pages = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    pages.filters["base64"] = lambda path: base64.b64encode(path.read_bytes()).decode()
    shown = [
        {**asdict(each), "shown": shown_value(each), "over": OVER[each.against], "sentence": with_minus(each.sentence)}
        for each in found
    ]
    reading = [*READING, ("promotion", evidence.gate.rule)]
    texts = {"title": TITLE, "lead": lead(evidence, found), "footer": FOOTER, "reading": reading}
    return pages.get_template("report.html.j2").render(parts=parts, findings=shown, **texts)


def with_minus(sentence: str) -> str:
    """The sentence with the sign of negative numbers that the tables have."""
    return re.sub(r"(?<!\S)-(?=\d)", MINUS, sentence)


def shown_value(finding: PromotionFinding) -> str:
    """The figure, with as many digits as tell it from its limit."""
    if finding.value is None:
        return UNKNOWN
    return format_probability(finding.value, MIN_DEFLATED if finding.figure == DEFLATED else MAX_OVERFITTING)


def lead(evidence: Evidence, found: Sequence[PromotionFinding]) -> str:
    """What came out, in a sentence or two."""
    if evidence.runs.is_empty():
        return "No run is complete yet: nvtrader materialize."
    until = f"{evidence.runs['finished_at'].max():%Y-%m-%d}"
    runs, experiments = (
        counted(len(evidence.runs), "completed run"),
        counted(evidence.latest["experiment"].n_unique(), "experiment"),
    )
    judged = f"{runs} of {experiments}, the last of {until}."
    if not found:
        return f"{judged} They are not yet judged beside one another: nvtrader materialize."
    if all(each.passed for each in found):
        return (
            f"{judged} The best ranked passes both limits: a probability of at least {MIN_DEFLATED} of more than the "
            f"luck of so many trials, and one of overfitting of not more than {MAX_OVERFITTING}."
        )
    return f"{judged} Something speaks against the best ranked; it stands below."
