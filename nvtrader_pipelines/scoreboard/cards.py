"""Judging all entrants of a home: their scorecards as files and rows, and the scoreboard of the last judgement."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import polars as pl
import psutil

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.evaluation.sharpe.deflation import YEARLY
from nvtrader_pipelines.evaluation.trials import Period, trials_of
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.scoreboard.candidates import Candidate
from nvtrader_pipelines.scoreboard.harness import Meter
from nvtrader_pipelines.scoreboard.judging import Luck, Market, judge, refusal
from nvtrader_pipelines.scoreboard.ranking import scoreboard
from nvtrader_pipelines.scoreboard.roster import NAME, read_roster
from nvtrader_pipelines.scoreboard.scorecard import OUTSIDE, Contest, Scorecard, attempt_of, markdown
from nvtrader_pipelines.scoreboard.trials import trial_curves, trial_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RETURNS, SCOREBOARD, SCORECARDS

CARD, PAGE, STANDING = "scorecard.json", "scorecard.md", "standing.json"
NOBODY = (
    "nobody was judged yet, so there is no scoreboard; `nvtrader materialize` trains and judges every experiment, and "
    "`nvtrader scoreboard update` judges what is there, with the files of data/entrants"
)
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Judgement:
    """What one judgement found."""

    cards: Sequence[Scorecard]
    n_new: int  # cards that say something else than the last of the same entrant in the same contest

    @property
    def pages(self) -> list[tuple[Scorecard, str]]:
        """Every card with its page."""
        return [(card, markdown(card)) for card in self.cards]


def judge_all(store: Store, at: datetime, tell: Tell) -> Judgement:
    """Judge everybody, and keep the scorecards; one whose content is known already adds no row."""
    roster = read_roster(store, STANDARD_EXECUTION.gross_limit)
    tell(f"{len(roster.candidates)} entrants, and {len(roster.problems)} that cannot be judged")
    cards = [refusal(name, reason, at) for name, reason in roster.problems.items()]
    for choice in dict.fromkeys(MarketChoice(source=each.market.source) for each in roster.candidates):
        own = [each for each in roster.candidates if each.market.source == choice.source]
        try:
            whole = store.panels.of(choice)
        except (StorageError, ValueError) as error:
            cards += [refusal(each.name, str(error), at, each) for each in own]
        else:
            cards += _judge_source(store, whole, own, at, tell)
    with locked(store.home.scorecards / ".lock"):
        return Judgement(cards, _keep(store, cards))


def _judge_source(
    store: Store, whole: MarketPanel, candidates: Sequence[Candidate], at: datetime, tell: Tell
) -> list[Scorecard]:
    """The cards of one source."""
    found, without = {}, []
    for each in candidates:
        try:
            found[each.name] = store.panels.of(each.market)
        except ValueError as error:
            without.append(refusal(each.name, str(error), at, each))
    market = Market(
        whole,
        found,
        store.tables.read(RETURNS, {"source": [whole.source]}, snapshot_id=whole.snapshot_ids[RETURNS.name]),
        lambda contest: _luck(store, contest),
    )
    process = psutil.Process()
    meter = Meter(time.perf_counter, lambda: process.memory_info().rss)
    return [*judge([each for each in candidates if each.name in found], market, meter, at, tell), *without]


def _luck(store: Store, contest: Contest) -> Luck:
    """Every trial ever completed on the source, each over its own sessions within the contest's, and every attempt."""
    runs = trial_runs(store).filter(pl.col("source") == contest.source)
    trials = trials_of(runs, trial_curves(store, runs), Period("all", *contest.window))
    return Luck.of(trials, attempts_on(store, contest.source))


def attempts_on(store: Store, source: str) -> dict[str, float | None]:
    """Every attempt from outside ever judged on a source, to its last known information ratio per session.

    A file that is changed is another attempt; one that is judged on other sessions is not.
    """
    columns = ["entrant", "kind", "sharpe", "active_sharpe", "judged_at", "document"]
    rows = store.tables.read(SCORECARDS, {"source": [source]}, columns)
    rows = rows.filter(pl.col("kind").is_in(list(OUTSIDE)), pl.col("sharpe").is_not_null())
    found: dict[str, float | None] = {}
    for row in rows.sort("judged_at", "entrant").iter_rows(named=True):
        attempt, active = attempt_of(json.loads(row["document"])["configuration"]), row["active_sharpe"]
        found[attempt] = found.get(attempt) if active is None else active / YEARLY
    return found


def _keep(store: Store, cards: Sequence[Scorecard]) -> int:
    """Write the rows that are new, the files, and who took part; the number of new rows."""
    known = _last_digests(store)
    rows = pl.DataFrame([card.row() for card in cards], schema=SCORECARDS.schema)
    key = pl.concat_str(pl.col("contest").fill_null(""), "entrant", separator="|")
    new = rows.filter(key.replace_strict(known, default="", return_dtype=pl.String) != pl.col("digest"))
    if len(new):
        store.tables.replace(SCORECARDS, new, {"judgement": new["judgement"].to_list()})
    for card in cards:
        if NAME.fullmatch(card.entrant) is None:  # what was refused for its name is no folder
            continue
        folder = store.home.scorecards / card.entrant
        write_atomically(folder / CARD, (json.dumps(json.loads(card.as_json), indent=1) + "\n").encode())
        write_atomically(folder / PAGE, markdown(card).encode())
    standing = {card.entrant: card.digest for card in cards}
    write_atomically(store.home.scorecards / STANDING, json.dumps(standing, indent=1, sort_keys=True).encode())
    return len(new)


def _last_digests(store: Store) -> dict[str, str]:
    """Contest and entrant, joined by |, to the digest of the last card."""
    rows = store.tables.read(SCORECARDS, columns=["contest", "entrant", "digest", "judged_at"]).sort("judged_at")
    return {f"{contest or ''}|{entrant}": digest for contest, entrant, digest, _ in rows.iter_rows()}


def rank(store: Store) -> pl.DataFrame:
    """Write the scoreboard of the last judgement, and give it.

    Raises:
        StorageError: if nobody was ever judged.
    """
    board = scoreboard(store.tables.read(SCORECARDS), standing(store.home))
    store.tables.replace(SCOREBOARD, board, {})
    return board


def scoreboard_of(store: Store) -> pl.DataFrame:
    """The scoreboard as it was last written.

    Raises:
        StorageError: if there is none.
    """
    board = store.tables.read(SCOREBOARD)
    if board.is_empty():
        raise StorageError(NOBODY)
    return board.sort("source", "rank", "entrant", nulls_last=True)


def history_of(store: Store, entrant: str) -> pl.DataFrame:
    """Every judgement of one entrant that said something new, newest first.

    Raises:
        StorageError: if there is none of that name.
    """
    rows = store.tables.read(SCORECARDS)
    names = rows["entrant"].unique().sort().to_list()
    if not names:
        raise StorageError(NOBODY)
    if entrant not in names:
        raise StorageError(f"no entrant is called {entrant!r}; there are {', '.join(names)}{suggest(entrant, names)}")
    return rows.filter(pl.col("entrant") == entrant).drop("document").sort("judged_at", descending=True)


def standing(home: Home) -> dict[str, str]:
    """Entrant to the digest of its card, of the last judgement.

    Raises:
        StorageError: if there was none.
    """
    path = home.scorecards / STANDING
    if not path.exists():
        raise StorageError(NOBODY)
    return json.loads(path.read_bytes())
