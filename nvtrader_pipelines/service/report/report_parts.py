"""Parts of the report: tables, plots and sentences, read from the warehouse."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.evaluation.prudex import axis_scores
from nvtrader_pipelines.promotion.findings import (
    MAX_OVERFITTING,
    PromotionFinding,
    deflated_findings,
    format_probability,
    overfitting_findings,
)
from nvtrader_pipelines.promotion.gate import PromotionGate
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.service.cli.output import UNKNOWN
from nvtrader_pipelines.service.cli.summary import sort_accounts, with_distinct_names, with_validation_mark
from nvtrader_pipelines.service.documents.short_samples import mask_short, short_note
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTIVE_POLICY,
    EVALUATIONS,
    MARKET_PANEL,
    OVERFITTING,
    PORTFOLIO_STATE,
    PROMOTION_DECISIONS,
    PRUDEX,
    RATIO_CURVE,
    REBALANCE_PLAN,
    SCOREBOARD,
    STRESS,
    VALIDATION,
)

RUN = "nvtrader materialize"
MINUS = "\u2212"


@dataclass(frozen=True)
class Grid:
    """Table of text cells; the first column names the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: Sequence[bool] = ()  # rows in bold
    is_open: bool = True


@dataclass(frozen=True)
class Plot:
    """Picture with its title."""

    title: str
    path: Path


@dataclass(frozen=True)
class Part:
    """Part of the report; an empty one shows the command that fills it."""

    name: str
    title: str
    lead: str
    grids: Sequence[Grid] = ()
    plots: Sequence[Plot] = ()
    sentences: Sequence[str] = ()
    command: str = RUN  # command that fills the part; empty if the part may be empty

    @property
    def is_missing(self) -> bool:
        """Whether the part is empty and should not be."""
        return bool(self.command) and not (any(grid.rows for grid in self.grids) or self.plots or self.sentences)


@dataclass(frozen=True)
class Evidence:
    """Tables that several parts share, read once."""

    store: Store
    runs: pl.DataFrame  # completed runs, oldest first
    latest: pl.DataFrame  # newest run of each experiment and market, with a distinct label
    validation: pl.DataFrame
    overfitting: pl.DataFrame
    gate: PromotionGate  # in force

    @classmethod
    def of(cls, store: Store) -> Self:
        """Read the tables that several parts share."""
        runs = walk_forward_runs(store).sort("finished_at", "run_id")
        latest = runs.group_by("experiment", "source", maintain_order=True).last()
        return cls(
            store,
            runs,
            label_runs(latest),
            store.tables.read(VALIDATION),
            store.tables.read(OVERFITTING),
            read_gate(store.home),
        )

    def plots(self, asset: str) -> list[Plot]:
        """List the pictures of an asset; of a partitioned one, those of the latest runs."""
        folder = self.store.home.pictures / asset
        whole = [Plot(to_words(path.stem), path) for path in sorted(folder.glob("*.png"))]
        return whole + [
            Plot(f"{label}: {to_words(path.stem)}", path)
            for label, key in self.latest.select("label", "partition_key").iter_rows()
            for path in sorted((folder / key).glob("*.png"))
        ]


def label_runs(latest: pl.DataFrame) -> pl.DataFrame:
    """Add a label: the experiment, its market if it has several, and "(validation only)"."""
    market = pl.when(pl.len().over("experiment") > 1).then(pl.format(" on {}", "source")).otherwise(pl.lit(""))
    mark = pl.when("validation_only").then(pl.lit(" (validation only)")).otherwise(pl.lit(""))
    return latest.with_columns(pl.concat_str("experiment", market, mark).alias("label"))


def promotion_findings(evidence: Evidence) -> list[PromotionFinding]:
    """Findings for and against promoting the best-ranked run of each source."""
    curve = evidence.store.tables.read(RATIO_CURVE)
    return deflated_findings(curve, evidence.validation) + overfitting_findings(evidence.overfitting)


def runs_and_markets(evidence: Evidence) -> Part:
    """Part with the runs and their markets."""
    panels = evidence.store.tables.read(MARKET_PANEL).sort("source")
    markets = [
        [row["source"], str(row["n_symbols"]), f"{row['first_session']} to {row['last_session']}",
         f"{row['n_sessions']:,}", short_id(row["digest"])]
        for row in panels.iter_rows(named=True)
    ]  # fmt: skip
    counts = {tuple(key): n for *key, n in evidence.runs.group_by("experiment", "source").agg(pl.len()).iter_rows()}
    runs = [
        [row["label"], row["source"], f"{row['window_first']} to {row['window_last']}", str(row["n_policies"]),
         str(counts[row["experiment"], row["source"]]), short_id(row["run_id"]), row["code_version"]]
        for row in evidence.latest.iter_rows(named=True)
    ]  # fmt: skip
    return Part(
        "runs",
        "Runs and markets",
        "The newest run of each experiment on each market; earlier runs count as trials.",
        [
            Grid("Runs", ["experiment", "market", "tested", "policies", "runs", "newest run", "code"], runs),
            Grid("Markets", ["market", "symbols", "sessions", "number", "panel"], markets),
        ],
    )


def headline(evidence: Evidence) -> Part:
    """Part with each experiment's newest run, deflated for all trials, beside the baselines."""
    newest = mask_short(evidence.validation).join(evidence.latest.select("run_id", "label"), on="run_id")
    newest = newest.filter(pl.col("first_session").is_not_null().any().over("source", "period"))
    grids = [
        deflated_grid(newest.filter(pl.col("source") == source, pl.col("period") == period), evidence, is_open=i == 0)
        for source in newest["source"].unique().sort()
        for i, period in enumerate(
            sorted(newest.filter(pl.col("source") == source)["period"].unique(), key=period_order)
        )
    ]
    return Part(
        "headline",
        "The headline",
        "Information ratio: Sharpe ratio of the active return against the best baseline (picked with hindsight, in "
        "its favor) or the run's own anchor. Deflated: probability that it exceeds what the best of all trials reaches "
        "by luck. It is not the difference of Sharpe ratios.",
        [*grids, *account_grids(evidence)],
    )


def deflated_grid(rows: pl.DataFrame, evidence: Evidence, *, is_open: bool) -> Grid:
    """Grid of deflated information ratios of one source and period, a row per experiment."""
    source, period = rows["source"][0], rows["period"][0]
    by_trial: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        by_trial.setdefault(row["label"], {})[row["against"]] = row
    ranked = sorted(by_trial.items(), key=lambda item: -(item[1]["zero"]["sharpe"] or 0.0))
    cells = [
        [
            name,
            format_interval(trial["zero"]),
            *(part for against in ("best_baseline", "anchor") for part in ratio_cells(trial[against])),
            format_market_model(trial["best_baseline"]),
        ]
        for name, trial in ranked
    ]
    columns = ["experiment", "net Sharpe [95 %]", "information ratio, best baseline", "deflated",
               "information ratio, anchor",
               "deflated", "alpha, beta"]  # fmt: skip
    n_trials, first, last = rows["n_trials"][0], rows["first_session"].min(), rows["last_session"].max()
    known = f"{pluralize(n_trials, 'trial')}{overfitting_note(evidence, source, period)}"
    title = f"{source}, {to_words(period)} ({first} to {last}): {known}"
    return Grid(title, columns, cells, is_open=is_open)


def overfitting_note(evidence: Evidence, source: str, period: str) -> str:
    """Format the probability of overfitting of a source, to end a title."""
    rows = evidence.overfitting.filter(pl.col("source") == source, pl.col("period") == period)
    values = dict(rows.select("against", "probability_of_overfitting").iter_rows())
    found = [(values.get(name), name) for name in ("best_baseline", "anchor")]
    known = [
        f"{format_probability(value, MAX_OVERFITTING)} over {to_words(name)}"
        for value, name in found
        if value is not None
    ]
    return f"; probability of overfitting {', '.join(known)}" if known else "; overfitting cannot be computed"


def account_grids(evidence: Evidence) -> list[Grid]:
    """Grids of policies and baselines by market, period and span of sessions."""
    runs = evidence.latest.select("run_id", "source", "validation_only")
    verdicts = mask_short(evidence.store.tables.read(EVALUATIONS)).join(runs, on="run_id")
    shown = verdicts.filter(pl.col("period") != "fold", pl.col("kind") != "policy")
    own = [name for name in shown.columns if name not in {"spec_hash", "run_id", "experiment"}]
    columns = ["account", "net Sharpe [95 %]", "CAGR", "max drawdown", "turnover/y", "cost/y"]
    grids = []
    spans = shown.select("source", "period", "first_session", "last_session").drop_nulls().unique().sort(pl.all())
    for source, period, first, last in sorted(spans.iter_rows(), key=lambda span: (span[0], period_order(span[1]))):
        found = shown.filter(source=source, period=period, first_session=first, last_session=last)
        rows = sort_accounts(with_validation_mark(with_distinct_names(found.unique(own, maintain_order=True))))
        cells = [
            [row["policy"], format_interval(row), format_number(row["cagr"], ".1%"), f"{row['max_drawdown']:.0%}",
             format_number(row["turnover_per_year"], ".1f"), format_number(row["cost_per_year"], ".2%")]
            for row in rows.iter_rows(named=True)
        ]  # fmt: skip
        strong = (rows["kind"] == "ensemble").to_list()
        title = f"Policies and baselines: {source}, {to_words(period)} ({first} to {last})"
        title = "; ".join(filter(None, (title, short_note(rows["n_sessions"]))))
        grids.append(Grid(title, columns, cells, strong, is_open=not grids))
    return grids


def stress(evidence: Evidence) -> Part:
    """Part with the total return of each account in each stress scenario."""
    rows = evidence.store.tables.read(STRESS).join(evidence.latest.select("run_id", "label"), on="run_id")
    played = rows.filter(pl.col("statistic").is_in(["value", "median"]), pl.col("kind") != "policy")
    unplayed = rows.filter(pl.col("n_worlds") == 0).select("label", "scenario", "note").unique(maintain_order=True)
    grids = []
    for label in evidence.latest["label"]:
        own = played.filter(pl.col("label") == label)
        accounts = own.sort("kind", descending=True).select("policy").unique(maintain_order=True)["policy"].to_list()
        found = {(row[0], row[1]): row[2] for row in own.select("scenario", "policy", "total_return").iter_rows()}
        scenarios = own["scenario"].unique(maintain_order=True)
        cells = [
            [to_words(each), *(format_signed(found.get((each, account)), ".1%") for account in accounts)]
            for each in scenarios
        ]
        grids.append(Grid(f"{label}: total return", ["scenario", *accounts], cells, is_open=not grids))
    return Part(
        "stress",
        "Stress",
        "The same shocks for every account; the median of several paths. They show what breaks, not how likely it is.",
        grids,
        evidence.plots("stress"),
        [f"{label}, {to_words(scenario)}: {note}" for label, scenario, note in unplayed.iter_rows()],
    )


def prudex(evidence: Evidence) -> Part:
    """Part with the PRUDEX-Compass scores by axis and the pictures."""
    lead = (
        "Six axes of measures; 50 is 1/N. A score is relative to the other accounts in the table and no evidence of "
        "skill; see the validation for that."
    )
    table = evidence.store.tables.read(PRUDEX)
    scores = axis_scores(table) if len(table) else table.select("kind", "policy")
    rows = scores.sort("kind", "policy", descending=[True, False])
    shown = [name for name in rows.columns if name not in {"kind", "policy"}]
    cells = [
        [row["policy"], *(format_number(row[name], ".0f") for name in shown)] for row in rows.iter_rows(named=True)
    ]
    grid = Grid("Scores by axis", ["account", *map(to_words, shown)], cells, (rows["kind"] == "ensemble").to_list())
    left = evidence.latest.filter("validation_only")["label"].to_list()
    sentences = [f"Left out: {', '.join(left)}; also trained on sessions after their tests."] if left else []
    return Part("prudex", "PRUDEX-Compass", lead, [grid], evidence.plots("prudex"), sentences)


def scoreboard(evidence: Evidence) -> Part:
    """Part with the ranking by contest and the entrants that are not ranked."""
    board = evidence.store.tables.read(SCOREBOARD).sort("contest", "rank", "entrant", nulls_last=True)
    ranked = mask_short(board.filter(pl.col("rank").is_not_null()))
    columns = ["entrant", "net Sharpe [95 %]", "information ratio, best baseline", "deflated", "CAGR", "max drawdown",
               "turnover/y", "before"]  # fmt: skip
    grids = []
    for (_, source, first, last), rows in ranked.group_by(
        "contest", "source", "first_session", "last_session", maintain_order=True
    ):
        cells = [
            [row["entrant"] if row["rank"] is None else f"{row['rank']}. {row['entrant']}", format_interval(row),
             format_interval(row, "information_ratio", sign=True),
             format_number(row["deflated_information_ratio"]),
             format_number(row["cagr"], ".1%"), format_number(row["max_drawdown"], ".0%"),
             format_number(row["turnover_per_year"], ".1f"), str(row["previous_rank"] or UNKNOWN)]
            for row in rows.iter_rows(named=True)
        ]  # fmt: skip
        strong = (rows["kind"] == "run").to_list()
        title = "; ".join(filter(None, (f"{source}, {first} to {last}", short_note(rows["n_sessions"]))))
        grids.append(Grid(title, columns, cells, strong))
    left = [list(row) for row in board.filter(pl.col("rank").is_null()).select("entrant", "note").iter_rows()]
    lead = "Ranks hold within one contest: the same market, sessions, costs, fills and leverage."
    grids.append(Grid("Not ranked", ["entrant", "reason"], left))
    return Part("scoreboard", "Scoreboard", lead, grids, evidence.plots("scoreboard"))


def portfolio(evidence: Evidence) -> Part:
    """Part with the active policy, the gate's last decision, and the accounts."""
    active = evidence.store.tables.read(ACTIVE_POLICY).filter("active")
    decisions = evidence.store.tables.read(PROMOTION_DECISIONS).sort("considered_at").tail(1)
    sentences = [
        *(
            f"{policy} of run {short_id(run_id)} trades, activated by {by} on {at:%Y-%m-%d}."
            for policy, run_id, by, at in active.select("policy", "run_id", "by", "activated_at").iter_rows()
        ),
        *(f"Last decision of the gate: {sentence}." for sentence in decisions["sentence"]),
    ]
    plans = evidence.store.tables.read(REBALANCE_PLAN).sort("session")
    last = {row["account"]: f"{row['session']}, {row['status']}" for row in plans.iter_rows(named=True)}
    states = evidence.store.tables.read(PORTFOLIO_STATE).sort("session").group_by("account", maintain_order=True).last()
    columns = ["account", "session", "value", "equity", "drawdown", "cash", "last plan"]
    rows = [
        [row["account"], str(row["session"]), format_number(row["value"], ",.0f"), format_number(row["equity"], ".4f"),
         format_number(row["drawdown"], ".1%"), format_number(row["cash"], ".1%"), last.get(row["account"], UNKNOWN)]
        for row in states.iter_rows(named=True)
    ]  # fmt: skip
    return Part(
        "portfolio",
        "Active policy and accounts",
        "Accounts since their opening. Paper fills are assumptions: the bars' prices and the experiment's costs.",
        [Grid("Accounts", columns, rows)],
        evidence.plots("paper"),
        sentences or ["No policy is active yet."],
        command="",
    )


def warnings(evidence: Evidence) -> Part:
    """Part with the warnings of the runs and their data."""
    known = dict.fromkeys(line for lines in evidence.runs["warnings"].to_list() for line in lines)
    lead = "Recorded by the runs." if known else "The runs have none."
    return Part("warnings", "Warnings", lead, sentences=list(known), command="")


def picture_part(name: str, title: str, lead: str, *assets: str) -> Callable[[Evidence], Part]:
    """Return a function that builds a part with the pictures of some assets."""

    def part(evidence: Evidence) -> Part:
        return Part(name, title, lead, plots=[plot for asset in assets for plot in evidence.plots(asset)])

    return part


def period_order(period: str) -> tuple[int, str]:
    """Sort key of a period: the reported period first, then all sessions, then the folds that were tuned on."""
    return {"from": 0, "all": 1, "before": 2}[period.partition("_")[0]], period


def ratio_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    """Cells of an information ratio: the ratio with its interval, and the deflated probability."""
    return format_interval(row, sign=True), format_number(row["deflated_sharpe"])


def format_interval(row: Mapping[str, Any], name: str = "sharpe", *, sign: bool = False) -> str:
    """Format a figure with its interval; a dash if there is none."""
    form = "+.2f" if sign else ".2f"
    point, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if point is None:
        return UNKNOWN
    bounds = "" if low is None or high is None else f" [{low:{form}}, {high:{form}}]"
    return f"{point:{form}}{bounds}".replace("-", MINUS)


def format_number(value: float | None, form: str = ".2f") -> str:
    """Format a number; a dash if there is none."""
    return UNKNOWN if value is None else f"{value:{form}}".replace("-", MINUS)


def format_signed(value: float | None, form: str = ".2f") -> str:
    """Format a number with its sign; a dash if there is none."""
    return format_number(value, f"+{form}")


def format_market_model(row: Mapping[str, Any]) -> str:
    """Format the alpha per year and the beta on a reference."""
    return f"{format_signed(row['alpha_per_year'], '.1%')}, {format_number(row['beta'])}"


def pluralize(n: int, noun: str) -> str:
    """Format a count with its noun, in the plural if needed."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def to_words(name: str) -> str:
    """Replace the underscores of an identifier by spaces."""
    return name.replace("_", " ")
