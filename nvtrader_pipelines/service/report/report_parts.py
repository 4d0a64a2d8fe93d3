"""What a report on everything judged consists of: tables, plots and sentences, read from the warehouse."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.evaluation.prudex import axis_scores
from nvtrader_pipelines.promotion.decide import read_gate
from nvtrader_pipelines.promotion.findings import (
    MAX_OVERFITTING,
    PromotionFinding,
    deflated_findings,
    format_probability,
    overfitting_findings,
)
from nvtrader_pipelines.promotion.gate import PromotionGate
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.service.cli.summary import in_order, marked, told_apart
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
MINUS, UNKNOWN = "\u2212", "\u2013"


@dataclass(frozen=True)
class Grid:
    """A table as text; the first column names its rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: Sequence[bool] = ()  # rows to stand out
    is_open: bool = True


@dataclass(frozen=True)
class Plot:
    """A picture and what it is."""

    title: str
    path: Path


@dataclass(frozen=True)
class Part:
    """A part of the report; one with nothing to show says what to run."""

    name: str
    title: str
    lead: str
    grids: Sequence[Grid] = ()
    plots: Sequence[Plot] = ()
    sentences: Sequence[str] = ()
    command: str = RUN  # what makes it; empty where nothing need be there

    @property
    def is_missing(self) -> bool:
        """Whether something should be there and is not."""
        return bool(self.command) and not (any(grid.rows for grid in self.grids) or self.plots or self.sentences)


@dataclass(frozen=True)
class Evidence:
    """What the parts are made from, read once."""

    store: Store
    runs: pl.DataFrame  # completed runs, oldest first
    latest: pl.DataFrame  # the newest of each experiment and market, with the label that tells it from the others
    validation: pl.DataFrame
    overfitting: pl.DataFrame
    gate: PromotionGate  # in force

    @classmethod
    def of(cls, store: Store) -> Self:
        """Read what several parts need."""
        runs = walk_forward_runs(store).sort("finished_at", "run_id")
        latest = runs.group_by("experiment", "source", maintain_order=True).last()
        return cls(
            store,
            runs,
            labelled(latest),
            store.tables.read(VALIDATION),
            store.tables.read(OVERFITTING),
            read_gate(store.home),
        )

    def plots(self, asset: str) -> list[Plot]:
        """The pictures of an asset, of one with partitions those of the latest runs."""
        folder = self.store.home.pictures / asset
        whole = [Plot(spoken(path.stem), path) for path in sorted(folder.glob("*.png"))]
        return whole + [
            Plot(f"{label}: {spoken(path.stem)}", path)
            for label, key in self.latest.select("label", "partition_key").iter_rows()
            for path in sorted((folder / key).glob("*.png"))
        ]


def labelled(latest: pl.DataFrame) -> pl.DataFrame:
    """The runs with a label: the experiment, its market where it has several, and whether it is for validation only."""
    market = pl.when(pl.len().over("experiment") > 1).then(pl.format(" on {}", "source")).otherwise(pl.lit(""))
    mark = pl.when("validation_only").then(pl.lit(" (validation only)")).otherwise(pl.lit(""))
    return latest.with_columns(pl.concat_str("experiment", market, mark).alias("label"))


def findings(evidence: Evidence) -> list[PromotionFinding]:
    """What speaks for and against promoting the best-ranked run of each source."""
    curve = evidence.store.tables.read(RATIO_CURVE)
    return deflated_findings(curve, evidence.validation) + overfitting_findings(evidence.overfitting)


def what_was_judged(evidence: Evidence) -> Part:
    """Markets and runs."""
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
        "judged",
        "What was judged, on which data",
        "The newest run of each experiment on each market; all earlier ones count as trials.",
        [
            Grid("Runs", ["experiment", "market", "tested", "policies", "runs", "newest run", "code"], runs),
            Grid("Markets", ["market", "symbols", "sessions", "number", "panel"], markets),
        ],
    )


def headline(evidence: Evidence) -> Part:
    """Each experiment's newest run, discounted for all trials, and the baselines beside it."""
    newest = evidence.validation.join(evidence.latest.select("run_id", "label"), on="run_id")
    newest = newest.filter(pl.col("first_session").is_not_null().any().over("source", "period"))
    grids = [
        discounted(newest.filter(pl.col("source") == source, pl.col("period") == period), evidence, is_open=place == 0)
        for source in newest["source"].unique().sort()
        for place, period in enumerate(in_reading_order(newest.filter(pl.col("source") == source)["period"]))
    ]
    return Part(
        "headline",
        "The headline",
        "Information ratio: Sharpe ratio of the active return, against the best baseline (picked with hindsight, in "
        "its favor) or the run's own anchor, with the probability that it is more than the luck of so many trials. It "
        "is another number than the difference of Sharpe ratios.",
        [*grids, *against_baselines(evidence)],
    )


def discounted(rows: pl.DataFrame, evidence: Evidence, *, is_open: bool) -> Grid:
    """One source and period: a row per experiment."""
    source, period = rows["source"][0], rows["period"][0]
    by_trial: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        by_trial.setdefault(row["label"], {})[row["against"]] = row
    ranked = sorted(by_trial.items(), key=lambda item: -(item[1]["zero"]["sharpe"] or 0.0))
    cells = [
        [
            name,
            interval(trial["zero"]),
            *(part for against in ("best_baseline", "anchor") for part in over(trial[against])),
            f"{signed(trial['best_baseline']['alpha_per_year'], '.1%')}, {number(trial['best_baseline']['beta'])}",
        ]
        for name, trial in ranked
    ]
    columns = ["experiment", "net Sharpe [95 %]", "information ratio, best baseline", "deflated",
               "information ratio, anchor",
               "deflated", "alpha, beta"]  # fmt: skip
    n_trials, first, last = rows["n_trials"][0], rows["first_session"].min(), rows["last_session"].max()
    known = f"{counted(n_trials, 'trial')}{chosen(evidence, source, period)}"
    title = f"{source}, {spoken(period)} ({first} to {last}): {known}"
    return Grid(title, columns, cells, is_open=is_open)


def chosen(evidence: Evidence, source: str, period: str) -> str:
    """The probability of overfitting of a source, as the end of a title."""
    rows = evidence.overfitting.filter(pl.col("source") == source, pl.col("period") == period)
    values = dict(rows.select("against", "probability_of_overfitting").iter_rows())
    found = [(values.get(name), name) for name in ("best_baseline", "anchor")]
    known = [
        f"{format_probability(value, MAX_OVERFITTING)} over {spoken(name)}"
        for value, name in found
        if value is not None
    ]
    return f"; probability of overfitting {', '.join(known)}" if known else "; overfitting cannot be computed"


def against_baselines(evidence: Evidence) -> list[Grid]:
    """Policies and baselines: a table for each market, period and span of sessions."""
    runs = evidence.latest.select("run_id", "source", "validation_only")
    verdicts = evidence.store.tables.read(EVALUATIONS).join(runs, on="run_id")
    shown = verdicts.filter(pl.col("period") != "fold", pl.col("kind") != "policy")
    own = [name for name in shown.columns if name not in {"spec_hash", "run_id", "experiment"}]
    columns = ["account", "net Sharpe [95 %]", "CAGR", "max drawdown", "turnover/y", "cost/y"]
    grids = []
    spans = shown.select("source", "period", "first_session", "last_session").drop_nulls().unique().sort(pl.all())
    for source, period, first, last in sorted(spans.iter_rows(), key=lambda span: (span[0], reading_place(span[1]))):
        found = shown.filter(source=source, period=period, first_session=first, last_session=last)
        rows = in_order(marked(told_apart(found.unique(own, maintain_order=True))))
        cells = [
            [row["policy"], interval(row), number(row["cagr"], ".1%"), f"{row['max_drawdown']:.0%}",
             f"{row['turnover_per_year']:.1f}", f"{row['cost_per_year']:.2%}"]
            for row in rows.iter_rows(named=True)
        ]  # fmt: skip
        strong = (rows["kind"] == "ensemble").to_list()
        title = f"Policies and baselines: {source}, {spoken(period)} ({first} to {last})"
        grids.append(Grid(title, columns, cells, strong, is_open=not grids))
    return grids


def stress(evidence: Evidence) -> Part:
    """What each account came to in each scenario."""
    rows = evidence.store.tables.read(STRESS).join(evidence.latest.select("run_id", "label"), on="run_id")
    played = rows.filter(pl.col("statistic").is_in(["value", "median"]), pl.col("kind") != "policy")
    unplayed = rows.filter(pl.col("n_worlds") == 0).select("label", "scenario", "note").unique(maintain_order=True)
    grids = []
    for name in evidence.latest["label"]:
        own = played.filter(pl.col("label") == name)
        accounts = own.sort("kind", descending=True).select("policy").unique(maintain_order=True)["policy"].to_list()
        found = {(row[0], row[1]): row[2] for row in own.select("scenario", "policy", "total_return").iter_rows()}
        scenarios = own["scenario"].unique(maintain_order=True)
        cells = [[spoken(each), *(signed(found.get((each, who)), ".1%") for who in accounts)] for each in scenarios]
        grids.append(Grid(f"{name}: total return", ["scenario", *accounts], cells, is_open=not grids))
    return Part(
        "stress",
        "Stress",
        "The same shocks for every account; of several worlds the median. They say what breaks, not how likely it is.",
        grids,
        evidence.plots("stress"),
        [f"{label}, {spoken(scenario)}: {note}" for label, scenario, note in unplayed.iter_rows()],
    )


def prudex(evidence: Evidence) -> Part:
    """The scores of PRUDEX-Compass by axis, and its pictures."""
    lead = (
        "Six axes of measures; 50 is 1/N. A score is relative to who else is in the table and no evidence of skill: "
        "that is what the validation is for."
    )
    table = evidence.store.tables.read(PRUDEX)
    scores = axis_scores(table) if len(table) else table.select("kind", "policy")
    rows = scores.sort("kind", "policy", descending=[True, False])
    shown = [name for name in rows.columns if name not in {"kind", "policy"}]
    cells = [[row["policy"], *(number(row[name], ".0f") for name in shown)] for row in rows.iter_rows(named=True)]
    grid = Grid("Scores by axis", ["account", *map(spoken, shown)], cells, (rows["kind"] == "ensemble").to_list())
    left = evidence.latest.filter("validation_only")["label"].to_list()
    sentences = [f"Left out: {', '.join(left)}; trained on what came after their tests too."] if left else []
    return Part("prudex", "PRUDEX-Compass", lead, [grid], evidence.plots("prudex"), sentences)


def scoreboard(evidence: Evidence) -> Part:
    """Where everybody stands, contest by contest, and who was not judged."""
    board = evidence.store.tables.read(SCOREBOARD).sort("contest", "rank", "entrant", nulls_last=True)
    ranked = board.filter(pl.col("rank").is_not_null())
    columns = ["entrant", "net Sharpe [95 %]", "information ratio, best baseline", "deflated", "CAGR", "max drawdown",
               "turnover/y", "before"]  # fmt: skip
    grids = []
    for (_, source, first, last), rows in ranked.group_by(
        "contest", "source", "first_session", "last_session", maintain_order=True
    ):
        cells = [
            [f"{row['rank']}. {row['entrant']}", interval(row), interval(row, "active_", sign=True),
             number(row["active_deflated_sharpe"]), number(row["cagr"], ".1%"), number(row["max_drawdown"], ".0%"),
             number(row["turnover_per_year"], ".1f"), str(row["previous_rank"] or UNKNOWN)]
            for row in rows.iter_rows(named=True)
        ]  # fmt: skip
        strong = (rows["kind"] == "run").to_list()
        grids.append(Grid(f"{source}, {first} to {last}", columns, cells, strong))
    left = [list(row) for row in board.filter(pl.col("rank").is_null()).select("entrant", "note").iter_rows()]
    lead = "Ranks hold within one contest: the same market, sessions, costs, fills and leverage."
    grids.append(Grid("Not judged", ["entrant", "why"], left))
    return Part("scoreboard", "Scoreboard", lead, grids, evidence.plots("scoreboard"))


def portfolio(evidence: Evidence) -> Part:
    """Which policy trades, what the gate said last, and where each account stands."""
    active = evidence.store.tables.read(ACTIVE_POLICY).filter("active")
    asked = evidence.store.tables.read(PROMOTION_DECISIONS).sort("considered_at").tail(1)
    sentences = [
        *(
            f"{policy} of run {short_id(run_id)} trades, activated by {by} on {at:%Y-%m-%d}."
            for policy, run_id, by, at in active.select("policy", "run_id", "by", "activated_at").iter_rows()
        ),
        *(f"The gate said last: {sentence}." for sentence in asked["sentence"]),
    ]
    plans = evidence.store.tables.read(REBALANCE_PLAN).sort("session")
    last = {row["account"]: f"{row['session']}, {row['status']}" for row in plans.iter_rows(named=True)}
    states = evidence.store.tables.read(PORTFOLIO_STATE).sort("session").group_by("account", maintain_order=True).last()
    columns = ["account", "session", "value", "equity", "drawdown", "cash", "last plan"]
    rows = [
        [row["account"], str(row["session"]), number(row["value"], ",.0f"), number(row["equity"], ".4f"),
         number(row["drawdown"], ".1%"), number(row["cash"], ".1%"), last.get(row["account"], UNKNOWN)]
        for row in states.iter_rows(named=True)
    ]  # fmt: skip
    return Part(
        "portfolio",
        "What trades",
        "Accounts since their opening. Paper fills are assumptions: the bars' prices and the experiment's costs.",
        [Grid("Accounts", columns, rows)],
        evidence.plots("paper"),
        sentences or ["No policy is active yet."],
        command="",
    )


def warnings(evidence: Evidence) -> Part:
    """What every reader must know of the data and the runs."""
    known = dict.fromkeys(line for lines in evidence.runs["warnings"].to_list() for line in lines)
    lead = "Said by the runs themselves." if known else "The runs have none."
    return Part("warnings", "Warnings", lead, sentences=list(known), command="")


def pictured(name: str, title: str, lead: str, *assets: str) -> Callable[[Evidence], Part]:
    """A part that shows the pictures of some assets."""

    def part(evidence: Evidence) -> Part:
        return Part(name, title, lead, plots=[plot for asset in assets for plot in evidence.plots(asset)])

    return part


def in_reading_order(periods: Iterable[str]) -> list[str]:
    """What came after the tuning first, then all, then what came before."""
    return sorted(set(periods), key=reading_place)


def reading_place(period: str) -> tuple[int, str]:
    """What periods are sorted by."""
    return {"from": 0, "all": 1, "before": 2}[period.partition("_")[0]], period


def over(row: Mapping[str, Any]) -> tuple[str, str]:
    """The information ratio with its interval, and the deflated probability."""
    return interval(row, sign=True), number(row["deflated_sharpe"])


def interval(row: Mapping[str, Any], prefix: str = "", *, sign: bool = False) -> str:
    """A Sharpe ratio with its interval; a dash where there is none."""
    form = "+.2f" if sign else ".2f"
    names = (f"{prefix}sharpe", f"{prefix or 'sharpe_'}low", f"{prefix or 'sharpe_'}high")
    point, low, high = (row[name] for name in names)
    if point is None:
        return UNKNOWN
    bounds = "" if low is None or high is None else f" [{low:{form}}, {high:{form}}]"
    return f"{point:{form}}{bounds}".replace("-", MINUS)


def number(value: float | None, form: str = ".2f") -> str:
    """A number, or a dash where there is none."""
    return UNKNOWN if value is None else f"{value:{form}}".replace("-", MINUS)


def signed(value: float | None, form: str = ".2f") -> str:
    """A number with its sign, or a dash."""
    return number(value, f"+{form}")


def counted(n: int, what: str) -> str:
    """How many, in words of one or several."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def spoken(name: str) -> str:
    """An identifier as words."""
    return name.replace("_", " ")
