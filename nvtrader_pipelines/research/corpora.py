"""Corpora: texts on results, each with the first day on which it may be read."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import polars as pl

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.evaluation.short_samples import mask_short
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.runs.run_verdict import run_verdict
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Row, to_frame
from nvtrader_pipelines.storage.tables import ALPHAS, DOCUMENTS, SCORECARDS, TRAJECTORIES
from nvtrader_pipelines.storage.tables.research import (
    ALPHA_FACTORS,
    BACKTEST_SUMMARIES,
    CORPORA,
    RL_TRAJECTORY_SUMMARIES,
)
from nvtrader_pipelines.storage.views.view_definitions import view_body

KEY = ["corpus", "id"]
OF_SEEDS = """
SELECT run_id, phase, fold, seed, count(DISTINCT episode) AS n_episodes, count(*) AS n_steps,
       avg(reward) AS mean_reward, max(coalesce(fill_session, session)) AS last_session
FROM ({trajectories}) WHERE kind = 'policy' GROUP BY ALL ORDER BY ALL
"""
FIGURES = {
    "sharpe": "net Sharpe ratio",
    "cagr": "compound annual growth",
    "volatility": "annual volatility",
    "max_drawdown": "maximum drawdown",
    "turnover_per_year": "turnover per year",
    "cost_per_year": "costs per year",
    "sharpe_difference": "Sharpe ratio less that of the best baseline",
    "deflated_information_ratio": "deflated information ratio (a probability)",
    "n_trials": "number of trials",
}


class ListedCorpus(Document):
    """Corpus of texts on results."""

    corpus: str
    n_documents: int
    known_from: date | None  # first day on which one of them may be read
    known_until: date | None  # day on which the newest became readable


def trajectory_query(tables: Warehouse) -> str:
    """Query of the trajectories' figures by run, phase, fold and seed."""
    return OF_SEEDS.format(trajectories=view_body(tables, TRAJECTORIES))


def update_documents(store: Store, verdicts: pl.DataFrame, trajectories: pl.DataFrame, on: date) -> pl.DataFrame:
    """Write the texts on all results; where a text has changed, the earlier one stays readable as of its days.

    Only the first text of a document may be dated back: what has changed since became known today.

    Args:
        store: store of the home.
        verdicts: rows of the walk-forward evaluation.
        trajectories: answer to `trajectory_query`.
        on: today.

    Returns:
        The rows of the table.
    """
    documents = [
        *_run_documents(store, verdicts),
        *_scoring_documents(store.tables.read(SCORECARDS)),
        *_trajectory_documents(store, trajectories),
        *_alpha_documents(store.tables.read(ALPHAS)),
    ]
    current = to_frame(DOCUMENTS, documents).unique([*KEY, "known_from"], keep="last", maintain_order=True)
    with store.lock("documents"):
        stored = store.tables.read(DOCUMENTS)
        latest = latest_documents(stored)
        changed = current.join(latest, on=[*KEY, "text"], how="anti").join(
            latest.select(*KEY, stored_from="known_from"), on=KEY, how="left"
        )
        today = pl.when(pl.col("stored_from").is_not_null()).then(pl.lit(on))
        changed = changed.with_columns(known_from=pl.max_horizontal("known_from", today)).drop("stored_from")
        others = stored.join(changed, on=[*KEY, "known_from"], how="anti")
        rows = pl.concat([others, changed]).sort(*KEY, "known_from")
        store.tables.replace(DOCUMENTS, rows, {})
    return rows


def latest_documents(rows: pl.DataFrame, as_of: date | None = None) -> pl.DataFrame:
    """Return the latest text of each document that was readable on a day, sorted by corpus and id."""
    readable = rows if as_of is None else rows.filter(pl.col("known_from") <= as_of)
    return readable.sort("known_from").unique(KEY, keep="last", maintain_order=True).sort(KEY)


def read_documents(store: Store, corpus: str | None = None, as_of: date | None = None) -> pl.DataFrame:
    """Read the documents of a corpus, by default of all, that were readable on a day.

    Raises:
        NotFoundError: if there is no such corpus.
    """
    if corpus not in (None, *CORPORA):
        raise NotFoundError(
            f"a corpus must be one of {', '.join(CORPORA)}, but is {corpus!r}{suggest(str(corpus), CORPORA)}"
        )
    rows = latest_documents(store.tables.read(DOCUMENTS), as_of)
    return rows if corpus is None else rows.filter(corpus=corpus)


def list_corpora(store: Store) -> list[ListedCorpus]:
    """List all corpora with their sizes and days."""
    rows = read_documents(store)
    parts = {corpus: rows.filter(corpus=corpus)["known_from"] for corpus in CORPORA}
    return [
        ListedCorpus(corpus=corpus, n_documents=len(days), known_from=_day(days.min()), known_until=_day(days.max()))
        for corpus, days in parts.items()
    ]


def _day(value: Any) -> date | None:
    return value


def _document(corpus: str, name: str, text: str, *days: date) -> Row:
    return {"corpus": corpus, "id": name, "text": text, "known_from": max(days)}


def _run_documents(store: Store, verdicts: pl.DataFrame) -> Iterator[Row]:
    """Texts on the judged runs; a verdict counts the trials and the scoreboard of its day, not of the run's."""
    finished = store.ledger.runs(with_deleted=True).select("source", pl.col("finished_at").alias("at"))
    scored = store.tables.read(SCORECARDS, columns=["source", "judged_at"]).rename({"judged_at": "at"})
    judged_on = dict(pl.concat([finished, scored]).group_by("source").agg(pl.col("at").max().dt.date()).iter_rows())
    periods = verdicts.filter(pl.col("period") != "fold").sort("run_id")
    for (run_id,), figures in periods.partition_by("run_id", as_dict=True, maintain_order=True).items():
        run, reported = store.ledger.run(str(run_id)), figures.filter(period=reported_period(figures["period"]))
        account = mask_short(reported.filter(kind="ensemble")).row(0, named=True)
        text = (
            f"Back-test of the run {run_id} ({run.kind}) of the experiment {account['experiment']} on the market "
            f"{run.source}, {account['first_session']} to {account['last_session']}: {_format_figures(account)}. "
            f"Verdict: {run_verdict(store, run, figures)}."
        )
        yield _document(BACKTEST_SUMMARIES, run.run_id, text, judged_on[run.source], account["last_session"])


def _scoring_documents(scorecards: pl.DataFrame) -> Iterator[Row]:
    """Texts on the stored back-tests of entrants in contests."""
    scored = mask_short(scorecards).filter(pl.col("max_drawdown").is_not_null(), pl.col("contest").is_not_null())
    for card in scored.sort("judged_at").iter_rows(named=True):
        text = (
            f"Back-test of the entrant {card['entrant']} ({card['kind']}) in the contest "
            f"{card['contest_name'] or card['contest']} on the market {card['source']}, {card['first_session']} to "
            f"{card['last_session']}: {_format_figures(card)}."
        )
        baseline, note = card["best_baseline"], card["note"]
        text += (f" Best baseline: {baseline}." if baseline else "") + (f" Note: {note}." if note else "")
        name = f"{card['contest']}/{card['entrant']}"
        yield _document(BACKTEST_SUMMARIES, name, text, card["judged_at"].date(), card["last_session"])


def _trajectory_documents(store: Store, trajectories: pl.DataFrame) -> Iterator[Row]:
    """Texts on the trajectories of portfolios of runs that have ended, by phase, fold and seed."""
    for (run_id,), rows in trajectories.partition_by("run_id", as_dict=True, maintain_order=True).items():
        run = store.ledger.run(str(run_id))
        if run.finished_at is None or run.kind == "world":
            continue
        parts = [
            f"{row['phase']} of fold {row['fold']}, seed {row['seed']}: {row['n_episodes']} episodes, "
            f"{row['n_steps']} steps, mean reward {row['mean_reward']:.4g}"
            for row in rows.iter_rows(named=True)
        ]
        experiment = run.partition_key.partition("@")[0]
        text = (
            f"Trajectories of the run {run_id} ({run.kind}) of the experiment {experiment} on the market "
            f"{run.source}. {'; '.join(parts)}."
        )
        days = run.finished_at.date(), rows["last_session"].max()
        yield _document(RL_TRAJECTORY_SUMMARIES, run.run_id, text, *days)  # pyright: ignore[reportArgumentType] - dates


def _alpha_documents(alphas: pl.DataFrame) -> Iterator[Row]:
    """Texts on the evaluated alphas; an adjusted p value counts all that were tried until the newest of the source."""
    newest = alphas.with_columns(pl.col("judged_at").max().over("source"))
    for row in newest.sort("source", "name").iter_rows(named=True):
        figures = f"mean rank correlation {row['mean_ic']:.4g}" if row["mean_ic"] is not None else row["note"]
        text = (
            f"Alpha {row['name']} on the market {row['source']}, formula {row['formula']}: {figures}, p value "
            f"{row['adjusted_p_value']:.4g} adjusted for {row['n_tried']} formulas tried, "
            f"{'significant' if row['is_significant'] else 'not significant'}."
        )
        yield _document(ALPHA_FACTORS, f"{row['source']}/{row['digest']}", text, row["judged_at"].date())


def _format_figures(row: Mapping[str, Any]) -> str:
    """Format the figures that a row has."""
    figures = [f"{label} {row[name]:.4g}" for name, label in FIGURES.items() if row.get(name) is not None]
    return ", ".join(figures)
