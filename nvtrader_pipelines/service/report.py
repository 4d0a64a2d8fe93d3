"""Report: scoreboard and tear sheets as in the Lab, with verdict and warnings, as one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import polars as pl

from nvtrader_pipelines.evaluation.findings import (
    MAX_OVERFITTING,
    MIN_DEFLATED,
    PromotionFinding,
    deflated_findings,
    overfitting_findings,
)
from nvtrader_pipelines.evaluation.formats import pluralize
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.runs.run_pictures import tear_sheet_picture
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.scoreboard.board import read_ranking
from nvtrader_pipelines.service.documents.home_facts import HomeReport
from nvtrader_pipelines.service.page_templates import PAGE, render_template
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, OVERFITTING, RATIO_CURVE, SCOREBOARD, VALIDATION

N_SHEETS = 8  # a tear sheet is some hundred kilobytes
TITLES = {"verdict": "Verdict", "scoreboard": "Scoreboard", "tear-sheets": "Tear sheets", "warnings": "Warnings"}
COMMAND = "nvtrader materialize"  # fills every part
PLAIN = " /:;=,.!?()*+-_~@$"  # characters of a data URL that need no escape in an attribute


@dataclass(frozen=True)
class Report:
    """Content of the report, and what it has."""

    body: str  # HTML without head and style
    facts: Mapping[str, Any]  # fields of `HomeReport`
    sheets: Mapping[str, Mapping[str, str]]  # tear sheets by run

    @classmethod
    def read(cls, store: Store) -> Self:
        """Read verdict, scoreboard and warnings, and draw the tear sheets."""
        runs, ranking = walk_forward_runs(store), _read_ranking(store)
        findings = deflated_findings(store.tables.read(RATIO_CURVE), store.tables.read(VALIDATION))
        findings += overfitting_findings(store.tables.read(OVERFITTING))
        sheets = {row["run_id"]: _draw_sheet(store, row) for row in best_ranked(store, ranking).iter_rows(named=True)}
        body = render_template(
            "lab/report_body",
            titles=TITLES,
            command=COMMAND,
            summary=summarize_verdict(runs, findings),
            findings=findings,
            contests=[rows.to_dicts() for rows in ranking.partition_by("contest", maintain_order=True)],
            sheets=sheets,
            warnings=dict.fromkeys(chain.from_iterable(runs.sort("finished_at", "run_id")["warnings"])),
        )
        filled = {"verdict": findings, "scoreboard": len(ranking), "tear-sheets": sheets, "warnings": True}
        facts = {
            "runs": len(runs),
            "findings": tuple(findings),
            "parts": tuple(name for name in TITLES if filled[name]),
            "missing": {title: COMMAND for name, title in TITLES.items() if not filled[name]},
        }
        return cls(body, facts, sheets)


def write_report(store: Store, path: Path) -> HomeReport:
    """Write the report as a file and describe it."""
    report, release = Report.read(store), version("nvtrader-pipelines")
    css = "".join((PAGE / "static" / name).read_text() for name in ("continuous-rl.css", "lab.css"))
    values = {"css": css, "titles": TITLES, "sheets": report.sheets, "release": release, "body": report.body}
    page = render_template("lab/report", **values).encode()
    path = path.expanduser().resolve()
    write_atomically(path, page)
    return HomeReport(path=path, bytes=len(page), **report.facts)


def best_ranked(store: Store, ranking: pl.DataFrame) -> pl.DataFrame:
    """Select the best ranked experiments that have sessions, with their policies, the best first."""
    ranked = ranking.filter(pl.col("rank").is_not_null(), kind="run").sort("rank", maintain_order=True)
    runs = ranked.unique("run_id", keep="first", maintain_order=True).select("run_id", "entrant")
    where = {"run_id": runs["run_id"].to_list(), "kind": ["ensemble"]}
    walked = store.tables.read(EQUITY_CURVES, where, ["run_id", "policy"]).unique()
    return runs.join(walked, on="run_id", maintain_order="left").head(N_SHEETS)


def summarize_verdict(runs: pl.DataFrame, findings: Sequence[PromotionFinding]) -> str:
    """Summarize the runs and the verdict on the best ranked in two sentences."""
    if runs.is_empty():
        return "No completed run."
    counts = pluralize(len(runs), "completed run"), pluralize(runs["experiment"].n_unique(), "experiment")
    completed = f"{' of '.join(counts)}, the last of {runs['finished_at'].max():%Y-%m-%d}."
    if not findings:
        return f"{completed} They have not been compared yet."
    if not all(finding.passed for finding in findings):
        return f"{completed} The best ranked misses a threshold."
    return (
        f"{completed} The best ranked passes both thresholds: deflated probability at least {MIN_DEFLATED}, "
        f"probability of overfitting at most {MAX_OVERFITTING}."
    )


def _read_ranking(store: Store) -> pl.DataFrame:
    """Ranking of every contest; no rows before the first judgement."""
    try:
        return read_ranking(store)
    except NotFoundError:
        return store.tables.read(SCOREBOARD)


def _draw_sheet(store: Store, row: Mapping[str, str]) -> dict[str, str]:
    """Draw a tear sheet as a data URL, a third shorter than in base64."""
    _, picture = tear_sheet_picture(store, PolicyRef(row["run_id"], row["policy"]))
    return {**row, "source": f"data:image/svg+xml,{quote(picture.svg(), safe=PLAIN)}"}
