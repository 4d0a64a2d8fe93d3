"""Scorecards of all entrants of a home, as files and rows, and the scoreboard of the last update."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import sqrt

import polars as pl
import psutil

from nvtrader_pipelines.components.executor_choice import make_executor
from nvtrader_pipelines.evaluation.trials import Period, trials_of
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.training import PRELOADED
from nvtrader_pipelines.scoreboard.board import LATEST, read_latest
from nvtrader_pipelines.scoreboard.contest_backtest import Meter, admit_entrants, default_contest
from nvtrader_pipelines.scoreboard.contests import (
    ContestSpec,
    contests_of,
    default_contests,
    find_contest,
    read_contests,
)
from nvtrader_pipelines.scoreboard.entrants import Entrant
from nvtrader_pipelines.scoreboard.ranking import rank_entrants
from nvtrader_pipelines.scoreboard.roster import ENTRANT_NAME, read_roster
from nvtrader_pipelines.scoreboard.scorecard import EXTERNAL_KINDS, Contest, Scorecard, attempt_id
from nvtrader_pipelines.scoreboard.scorecard_page import markdown
from nvtrader_pipelines.scoreboard.scoring import SourceMarket, TrialPopulation, refusal_card, run_shard, score_entrants
from nvtrader_pipelines.scoreboard.trial_history import trial_curves, trial_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.panels import read_series
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RETURNS, SCOREBOARD, SCORECARDS

RESULT_LIFETIME = timedelta(days=30)  # after which a stored result of a backtest or stress test is deleted
CARD, PAGE = "scorecard.json", "scorecard.md"
MIN_PER_SHARD = 8  # new entrants per process: starting one takes as long as judging five
Report = Callable[[str], None]
Contests = Mapping[str, ContestSpec]
Shard = tuple[int, int]  # number of the shard, and number of shards


@dataclass(frozen=True)
class ScoringResult:
    """Scorecards of one update."""

    cards: Sequence[Scorecard]
    n_new: int  # cards that differ from the last one of the same entrant in the same contest

    @property
    def pages(self) -> list[tuple[Scorecard, str]]:
        """Every card with its Markdown page."""
        return [(card, markdown(card)) for card in self.cards]


def score_all(store: Store, at: datetime, report: Report) -> ScoringResult:
    """Score every entrant in the default contest of its source and write the scorecards.

    An unchanged card adds no row.

    Raises:
        StorageError: if `data/contests.yaml` is invalid.
        ValueError: if a contest lies outside the market.
    """
    cards = _score(store, default_contests(read_contests(store.home)), at, report)
    store.judgements.delete_unused(at - RESULT_LIFETIME)
    with file_lock(store.home.scorecards / ".lock"):
        n_new = _write_rows(store, cards)
        _write_files(store.home, cards)
    return ScoringResult(cards, n_new)


def score_contest(store: Store, name: str, at: datetime, report: Report) -> pl.DataFrame:
    """Score every entrant in a named contest and rank them; the scoreboard is left unchanged.

    Raises:
        StorageError: if there is no such contest.
        ValueError: if it lies outside the market.
    """
    cards = _score(store, find_contest(read_contests(store.home), name), at, report)
    with file_lock(store.home.scorecards / ".lock"):
        _write_rows(store, cards)
    board = rank_entrants(store.tables.read(SCORECARDS), {card.entrant: card.digest for card in cards})
    return board.with_columns(contest_name=pl.lit(name))  # equal terms may have been scored under another name


def _score(store: Store, contests: Mapping[str, ContestSpec], at: datetime, report: Report) -> list[Scorecard]:
    """Score every entrant on the sources of these contests."""
    roster = read_roster(store, STANDARD_EXECUTION.gross_limit)
    report(f"{len(roster.entrants)} entrants, and {len(roster.problems)} that cannot be scored")
    cards = [refusal_card(name, reason, at) for name, reason in roster.problems.items()]
    for choice in dict.fromkeys(MarketChoice(source=entrant.market.source) for entrant in roster.entrants):
        named = contests_of(contests, choice.source)
        if not named:
            continue
        own = [entrant for entrant in roster.entrants if entrant.market.source == choice.source]
        try:
            whole = store.panels.read(choice)
        except (StorageError, ValueError) as error:
            cards += [refusal_card(entrant.name, str(error), at, entrant) for entrant in own]
        else:
            cards += _score_source(store, whole, own, named, at, report)
    return cards


def _score_source(
    store: Store,
    whole: MarketPanel,
    entrants: Sequence[Entrant],
    contests: Mapping[str, ContestSpec],
    at: datetime,
    report: Report,
) -> list[Scorecard]:
    """Score the entrants on one source."""
    market, problems = _read_market(store, whole, entrants, contests)
    without = [
        refusal_card(entrant.name, problems[entrant.name], at, entrant)
        for entrant in entrants
        if entrant.name in problems
    ]
    able = [entrant for entrant in entrants if entrant.name not in problems]
    return [*score_entrants(able, market, _meter(), at, report), *without]


def judge_shard(home: Home, source: str, contests: Contests, shard: Shard) -> None:
    """Store the results of a shard of the entrants on one source, which another process scores."""
    store = Store(home)
    roster = read_roster(store, STANDARD_EXECUTION.gross_limit)
    entrants = [entrant for entrant in roster.entrants if entrant.market.source == source]
    whole = store.panels.read(MarketChoice(source=entrants[0].market.source))
    market, problems = _read_market(store, whole, entrants, contests)
    able = [entrant for entrant in entrants if entrant.name not in problems]
    named = default_contest(whole, able, market.panels, contests)
    run_shard(admit_entrants(whole, able, market.panels, named), market, _meter(), lambda _: None, shard)


@contextmanager
def shard_processes(
    judge: Callable[[Home, str, Contests, Shard], None], home: Home, source: str, contests: Contests, n_new: int
) -> Iterator[int]:
    """Judge every shard of the entrants but the first in its own process; yield the number of shards.

    The caller computes the results that no process has stored.
    """
    n_shards = max(1, min(os.cpu_count() or 1, n_new // MIN_PER_SHARD))
    with make_executor(n_shards - 1, PRELOADED) as executor:
        for number in range(1, n_shards):
            executor.submit(judge, home, source, dict(contests), (number, n_shards))
        yield n_shards


def _read_market(
    store: Store, whole: MarketPanel, entrants: Sequence[Entrant], contests: Mapping[str, ContestSpec]
) -> tuple[SourceMarket, dict[str, str]]:
    """Read the market of the entrants on one source; return it and why some have no panel."""
    found, problems = {}, {}
    for entrant in entrants:
        try:
            found[entrant.name] = store.panels.read(entrant.market)
        except ValueError as error:
            problems[entrant.name] = str(error)
    market = SourceMarket(
        whole,
        found,
        store.tables.read(RETURNS, {"source": [whole.source]}, snapshot_id=whole.snapshot_ids[RETURNS.name]),
        lambda contest: _read_population(store, contest),
        contests,
        store.judgements,
        partial(shard_processes, judge_shard, store.home, whole.source, contests),
        read_series(
            store.tables, whole.snapshot_ids, [part for entrant in entrants for part in entrant.market.features]
        ),
    )
    return market, problems


def _meter() -> Meter:
    process = psutil.Process()
    return Meter(time.perf_counter, lambda: process.memory_info().rss)


def _read_population(store: Store, contest: Contest) -> TrialPopulation:
    """Read the completed trials of the source, within the contest window, and the external attempts."""
    runs = trial_runs(store).filter(pl.col("source") == contest.source)
    trials = trials_of(runs, trial_curves(store, runs), Period("all", *contest.window), contest.periods_per_year)
    return TrialPopulation.of(trials, contest.n_sessions, external_attempts(store, contest.source))


def external_attempts(store: Store, source: str) -> dict[str, float | None]:
    """Read the external attempts on a source: id to last known information ratio per session.

    A changed file is a new attempt; the same file on other sessions is not.
    """
    columns = ["entrant", "kind", "sharpe", "information_ratio", "judged_at", "document"]
    rows = store.tables.read(SCORECARDS, {"source": [source]}, columns)
    rows = rows.filter(pl.col("kind").is_in(list(EXTERNAL_KINDS)), pl.col("sharpe").is_not_null())
    attempts: dict[str, float | None] = {}
    yearly = sqrt(store.read_calendars().of(source).periods_per_year)
    for row in rows.sort("judged_at", "entrant").iter_rows(named=True):
        attempt, active = attempt_id(json.loads(row["document"])["configuration"]), row["information_ratio"]
        attempts[attempt] = attempts.get(attempt) if active is None else active / yearly
    return attempts


def _write_rows(store: Store, cards: Sequence[Scorecard]) -> int:
    """Write the rows of new or changed cards; return their number."""
    known = _last_digests(store)
    rows = pl.DataFrame([card.row() for card in cards], schema=SCORECARDS.schema)
    key = pl.concat_str(pl.col("contest").fill_null(""), "entrant", separator="|")
    new = rows.filter(key.replace_strict(known, default="", return_dtype=pl.String) != pl.col("digest"))
    if len(new):
        store.tables.replace(SCORECARDS, new, {"judgement": new["judgement"].to_list()})
    return len(new)


def _write_files(home: Home, cards: Sequence[Scorecard]) -> None:
    """Write the files of the cards and the list of entrants."""
    for card in cards:
        if ENTRANT_NAME.fullmatch(card.entrant) is None:  # a name refused as invalid gets no folder
            continue
        folder = home.scorecards / card.entrant
        write_atomically(folder / CARD, (json.dumps(json.loads(card.as_json), indent=1) + "\n").encode())
        write_atomically(folder / PAGE, markdown(card).encode())
    latest = {card.entrant: card.digest for card in cards}
    write_atomically(home.scorecards / LATEST, json.dumps(latest, indent=1, sort_keys=True).encode())


def _last_digests(store: Store) -> dict[str, str]:
    """Read the digest of the last card by contest and entrant, joined by |."""
    rows = store.tables.read(SCORECARDS, columns=["contest", "entrant", "digest", "judged_at"]).sort("judged_at")
    return {f"{contest or ''}|{entrant}": digest for contest, entrant, digest, _ in rows.iter_rows()}


def update_scoreboard(store: Store) -> pl.DataFrame:
    """Rank the entrants of the last update, write the scoreboard and return it.

    Raises:
        StorageError: if nothing was scored yet.
    """
    board = rank_entrants(store.tables.read(SCORECARDS), read_latest(store.home))
    store.tables.replace(SCOREBOARD, board, {})
    return board
