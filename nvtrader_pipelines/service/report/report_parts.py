"""Parts of the report: tables, plots and sentences, read from the warehouse."""

from collections.abc import Callable
from typing import Any

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.evaluation.prudex import axis_scores
from nvtrader_pipelines.promotion.findings import (
    MAX_OVERFITTING,
    format_probability,
)
from nvtrader_pipelines.service.account_cells import UNKNOWN, openings_cell
from nvtrader_pipelines.service.documents.run_facts import sort_accounts, with_distinct_names, with_validation_mark
from nvtrader_pipelines.service.documents.short_samples import mask_short, short_note
from nvtrader_pipelines.service.report.cell_formats import (
    format_interval,
    format_market_model,
    format_number,
    format_signed,
    pluralize,
    ratio_cells,
    to_words,
)
from nvtrader_pipelines.service.report.contents import Grid, Part
from nvtrader_pipelines.service.report.evidence import N_OPEN, N_ROWS, Evidence
from nvtrader_pipelines.storage.tables import (
    ACTIVE_POLICY,
    EVALUATIONS,
    MARKET_PANEL,
    PORTFOLIO_STATE,
    PROMOTION_DECISIONS,
    PRUDEX,
    REBALANCE_PLAN,
    SCOREBOARD,
    STRESS,
)


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
         str(counts[row["experiment"], row["source"]]), short_id(row["run_id"]), row["code_version"],
         str(row["rank"] or UNKNOWN)]
        for row in evidence.latest.iter_rows(named=True)
    ]  # fmt: skip
    columns = ["experiment", "market", "tested", "policies", "runs", "newest run", "code", "rank of all runs"]
    return Part(
        "runs",
        "Runs and markets",
        "The newest run of each experiment on each market, best rank first; earlier runs count as trials.",
        [
            Grid("Runs", columns, runs, groups=group_headings(evidence.latest), collapsed=collapsed_rows(len(runs))),
            Grid("Markets", ["market", "symbols", "sessions", "number", "panel"], markets),
        ],
    )


def headline(evidence: Evidence) -> Part:
    """Part with each experiment's newest run, deflated for all trials, beside the baselines."""
    newest = mask_short(evidence.validation).join(
        evidence.latest.select("run_id", "market", "label", "group"), on="run_id"
    )
    newest = newest.filter(pl.col("first_session").is_not_null().any().over("source", "period"))
    grids = [
        deflated_grid(newest.filter(pl.col("market") == market, pl.col("period") == period), evidence, is_open=i == 0)
        for market in newest["market"].unique().sort()
        for i, period in enumerate(
            sorted(newest.filter(pl.col("market") == market)["period"].unique(), key=period_order)
        )
    ]
    return Part(
        "headline",
        "The headline",
        "Information ratio: Sharpe ratio of the residual return (less beta times the reference's) over the best "
        "baseline (picked with hindsight, in its favor) or the anchor among the run's baselines, else 1/N. Deflated: "
        "probability that it exceeds what the best of all trials reaches by luck. It is not the difference of Sharpe "
        "ratios.",
        [*grids, *account_grids(evidence)],
    )


def deflated_grid(rows: pl.DataFrame, evidence: Evidence, *, is_open: bool) -> Grid:
    """Grid of deflated information ratios of one market and period, a row per experiment."""
    source, period = rows["source"][0], rows["period"][0]
    by_trial: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        by_trial.setdefault(row["label"], {})[row["against"]] = row
    ranked = best_group_first(rows.filter(against="zero"))
    cells = [
        [
            name,
            format_interval(trial["zero"]),
            *(part for against in ("best_baseline", "anchor") for part in ratio_cells(trial[against])),
            format_market_model(trial["best_baseline"]),
        ]
        for name, trial in ((name, by_trial[name]) for name in ranked["label"])
    ]
    columns = ["experiment", "net Sharpe [95\u00a0%]", "information ratio, best baseline", "deflated",
               "information ratio, anchor or 1/N",
               "deflated", "alpha, beta"]  # fmt: skip
    n_trials, first, last = rows["n_trials"][0], rows["first_session"].min(), rows["last_session"].max()
    known = f"{pluralize(n_trials, 'trial')}{overfitting_note(evidence, source, period)}"
    title = f"{rows['market'][0]}, {to_words(period)} ({first} to {last}): {known}"
    headings, collapsed = group_headings(ranked), collapsed_rows(len(cells))
    return Grid(title, columns, cells, groups=headings, collapsed=collapsed, is_open=is_open)


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
    runs = evidence.latest.select("run_id", "market", "validation_only", "group")
    verdicts = mask_short(evidence.store.tables.read(EVALUATIONS)).join(runs, on="run_id")
    shown = verdicts.filter(pl.col("period") != "fold", pl.col("kind") != "policy")
    own = [name for name in shown.columns if name not in {"spec_hash", "run_id", "experiment", "group"}]
    columns = ["account", "net Sharpe [95\u00a0%]", "CAGR", "max drawdown", "turnover/y", "cost/y"]
    grids = []
    spans = shown.select("market", "period", "first_session", "last_session").drop_nulls().unique().sort(pl.all())
    for market, period, first, last in sorted(spans.iter_rows(), key=lambda span: (span[0], period_order(span[1]))):
        found = shown.filter(market=market, period=period, first_session=first, last_session=last)
        named = with_validation_mark(with_distinct_names(found.unique(own, maintain_order=True)))
        is_experiment = pl.col("kind") == "ensemble"
        experiments = best_group_first(named.filter(is_experiment))
        rows = pl.concat([experiments, sort_accounts(named.filter(~is_experiment))])
        cells = [
            [row["policy"], format_interval(row), format_number(row["cagr"], ".1%"), f"{row['max_drawdown']:.0%}",
             format_number(row["turnover_per_year"], ".1f"), format_number(row["cost_per_year"], ".2%")]
            for row in rows.iter_rows(named=True)
        ]  # fmt: skip
        strong = (rows["kind"] == "ensemble").to_list()
        n_baselines = len(rows) - len(experiments)
        headings = [*group_headings(experiments), *[""] * n_baselines]
        collapsed = [*collapsed_rows(len(experiments)), *[False] * n_baselines]
        title = f"Policies and baselines: {market}, {to_words(period)} ({first} to {last})"
        title = "; ".join(filter(None, (title, short_note(rows["n_sessions"]))))
        grids.append(Grid(title, columns, cells, strong, headings, collapsed, is_open=not grids))
    return grids


def best_group_first(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort by Sharpe ratio, the highest first; variants of an ablation follow their best."""
    best = pl.col("sharpe").max().over("group")
    return rows.sort(best, "group", "sharpe", descending=[True, False, True], nulls_last=True, maintain_order=True)


def group_headings(rows: pl.DataFrame) -> list[str]:
    """Heading of each row's ablation; empty where the group has one row."""
    counts = dict(rows["group"].value_counts().iter_rows())
    return [f"{group}: {counts[group]} variants" if counts[group] > 1 else "" for group in rows["group"]]


def collapsed_rows(n: int) -> list[bool]:
    """Whether each of n rows, the best first, is hidden at first: those after the twelfth."""
    return [i >= N_ROWS for i in range(n)]


def stress(evidence: Evidence) -> Part:
    """Part with the total return of each account in each stress scenario."""
    rows = evidence.store.tables.read(STRESS, {"run_id": evidence.best_runs["run_id"].to_list()})
    rows = rows.join(evidence.best_runs.select("run_id", "label"), on="run_id")
    played = rows.filter(pl.col("statistic").is_in(["value", "median"]), pl.col("kind") != "policy")
    unplayed = rows.filter(pl.col("n_worlds") == 0).select("label", "scenario", "note").unique(maintain_order=True)
    parts = []
    for label, key in evidence.best_runs.select("label", "partition_key").iter_rows():
        own = played.filter(pl.col("label") == label)
        plots = evidence.run_plots("stress", label, key)
        if len(own) or plots:
            parts.append(Part(f"stress-{key}", label, "", [stress_grid(own, label)], plots))
    return Part(
        "stress",
        "Stress",
        "The same shocks for every account; the median of several paths. They show what breaks, not how likely it is.",
        parts=parts,
        sentences=[
            *evidence.omitted_runs_note,
            *(f"{label}, {to_words(scenario)}: {note}" for label, scenario, note in unplayed.iter_rows()),
        ],
    )


def stress_grid(rows: pl.DataFrame, label: str) -> Grid:
    """Grid of the total returns of one run's accounts, a row per scenario."""
    accounts = rows.sort("kind", descending=True).select("policy").unique(maintain_order=True)["policy"].to_list()
    found = {(row[0], row[1]): row[2] for row in rows.select("scenario", "policy", "total_return").iter_rows()}
    cells = [
        [to_words(each), *(format_signed(found.get((each, account)), ".1%") for account in accounts)]
        for each in rows["scenario"].unique(maintain_order=True)
    ]
    return Grid(f"{label}: total return", ["scenario", *accounts], cells)


def prudex(evidence: Evidence) -> Part:
    """Part with the PRUDEX-Compass scores by axis and the pictures."""
    lead = (
        "Six axes of measures; 50 is 1/N. A score is relative to the other accounts in the table and no evidence of "
        "skill; see the validation for that."
    )
    table = evidence.store.tables.read(PRUDEX)
    scores = axis_scores(table) if len(table) else table.select("kind", "policy")
    order = evidence.latest.select(policy="experiment").unique(maintain_order=True).with_row_index("order")
    rows = scores.join(order, on="policy", how="left").sort("kind", "order", "policy", descending=[True, False, False])
    rows = rows.drop("order")
    shown = [name for name in rows.columns if name not in {"kind", "policy"}]
    cells = [
        [row["policy"], *(format_number(row[name], ".0f") for name in shown)] for row in rows.iter_rows(named=True)
    ]
    is_experiment = (rows["kind"] == "ensemble").to_list()
    collapsed = [experiment and i >= N_ROWS for i, experiment in enumerate(is_experiment)]
    grid = Grid("Scores by axis", ["account", *map(to_words, shown)], cells, is_experiment, collapsed=collapsed)
    left = evidence.latest.filter("validation_only")["label"].to_list()
    sentences = [f"Left out: {', '.join(left)}; also trained on sessions after their tests."] if left else []
    return Part("prudex", "PRUDEX-Compass", lead, [grid], evidence.plots("prudex"), sentences=sentences)


def scoreboard(evidence: Evidence) -> Part:
    """Part with the ranking by contest and the entrants that are not ranked."""
    board = evidence.store.tables.read(SCOREBOARD).sort("contest", "rank", "entrant", nulls_last=True)
    ranked = mask_short(board.filter(pl.col("rank").is_not_null()))
    columns = ["entrant", "net Sharpe [95\u00a0%]", "openings", "information ratio, best baseline", "deflated", "CAGR",
               "max drawdown", "turnover/y", "before"]  # fmt: skip
    grids = []
    for (_, source, calendar, first, last), rows in ranked.group_by(
        "contest", "source", "calendar", "first_session", "last_session", maintain_order=True
    ):
        cells = [
            [row["entrant"] if row["rank"] is None else f"{row['rank']}. {row['entrant']}", format_interval(row),
             openings_cell(row), format_interval(row, "information_ratio", sign=True),
             format_number(row["deflated_information_ratio"]),
             format_number(row["cagr"], ".1%"), format_number(row["max_drawdown"], ".0%"),
             format_number(row["turnover_per_year"], ".1f"), str(row["previous_rank"] or UNKNOWN)]
            for row in rows.iter_rows(named=True)
        ]  # fmt: skip
        strong = (rows["kind"] == "run").to_list()
        title = "; ".join(filter(None, (f"{source} ({calendar}), {first} to {last}", short_note(rows["n_sessions"]))))
        grids.append(Grid(title, columns, cells, strong, collapsed=collapsed_rows(len(cells))))
    left = [list(row) for row in board.filter(pl.col("rank").is_null()).select("entrant", "note").iter_rows()]
    lead = (
        "Ranks hold within one contest: the same market, sessions, costs, fills and leverage. Openings: Sharpe ratios "
        "over the sessions on which an account's decisions could have started; smaller differences are timing luck."
    )
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
        sentences=sentences or ["No policy is active yet."],
        command="",
    )


def warnings(evidence: Evidence) -> Part:
    """Part with the warnings of the runs and their data."""
    known = dict.fromkeys(line for lines in evidence.runs["warnings"].to_list() for line in lines)
    lead = "Recorded by the runs." if known else "The runs have none."
    return Part("warnings", "Warnings", lead, sentences=list(known), command="")


def picture_part(name: str, title: str, lead: str, asset: str) -> Callable[[Evidence], Part]:
    """Return a function that builds a part with the pictures of an asset without partitions."""

    def part(evidence: Evidence) -> Part:
        return Part(name, title, lead, plots=evidence.plots(asset))

    return part


def run_picture_part(name: str, title: str, lead: str, asset: str) -> Callable[[Evidence], Part]:
    """Return a function that builds a part with the pictures of the best ranked runs."""

    def part(evidence: Evidence) -> Part:
        runs = evidence.best_runs.select("label", "partition_key").rows()
        plots = [evidence.run_plots(asset, *run) for run in runs]
        first, more = ([plot for run in several for plot in run] for several in (plots[:N_OPEN], plots[N_OPEN:]))
        sentences = evidence.omitted_runs_note if first else []
        return Part(name, title, lead, plots=first, more_plots=more, sentences=sentences)

    return part


def period_order(period: str) -> tuple[int, str]:
    """Sort key of a period: the reported period first, then all sessions, then the folds that were tuned on."""
    return {"from": 0, "all": 1, "before": 2}[period.partition("_")[0]], period
