import datetime as dt
import hashlib
import json
import os
import re
import shutil

import polars as pl
import pytest
from stable_baselines3 import PPO

from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.evaluation.invariants import inconsistent_entrants
from nvtrader_pipelines.evaluation.prudex import prudex_compass
from nvtrader_pipelines.experiments.plan import policy_card
from nvtrader_pipelines.experiments.run_store import TrainedPolicy
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.figures import scoreboard_figures
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight, Momentum
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.runs.ingestion import ingest_market, pin_panels
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.stored_run import RunWriter
from nvtrader_pipelines.scoreboard.board import read_history, read_scoreboard
from nvtrader_pipelines.scoreboard.cards import (
    MIN_PER_SHARD,
    external_attempts,
    judge_shard,
    score_all,
    shard_processes,
    update_scoreboard,
)
from nvtrader_pipelines.scoreboard.contests import BUILT_IN, COMMON
from nvtrader_pipelines.scoreboard.prudex_rows import read_prudex_record
from nvtrader_pipelines.scoreboard.roster import distinct_baselines
from nvtrader_pipelines.scoreboard.scorecard import Scorecard
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.panels import read_calendars, read_panel
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, DELIVERIES, FEATURES, RETURNS, SCORECARDS
from tests.markets import INGESTED_AT, csv_file, synthetic_bars, synthetic_sessions
from tests.policies.small_learners import SPEC
from tests.runs.small_runs import EXPERIMENT, run_whole, small_home

pytestmark = pytest.mark.slow
RULES = EXPERIMENT.model_copy(
    update={"name": "rules", "agent": Momentum(months=2), "seeds": (0,), "baselines": (EqualWeight(), BuyAndHold())}
)
START = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)
MARKET = "market: {source: landing}"


def files(home, **contents):
    """Write entrant files, with __ for dots in their names."""
    home.entrants.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = home.entrants / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def update(store, day):
    """Score every entrant on another day; return the result and the board."""
    found = score_all(store, START + dt.timedelta(days=day), lambda _: None)
    return found, update_scoreboard(store)


def run_rules(place, spec):
    """Run an experiment whose agent is a rule."""
    key = place.ledger.register(spec)
    plan = read_plan(place, key)
    store, nothing = RunWriter(place, plan, lambda: START), pl.DataFrame(schema=TRAJECTORY)
    for fold, seed in plan.keys:  # here and now, for processes take seconds to start
        task = plan.task((fold, seed))
        fit = spec.agent.train(plan.panel, spec.environment, task.window, seed)
        store.store_policy(TrainedPolicy(fold, seed, write_archive(policy_card(plan, task, fit), {}), nothing))
    for _ in run_whole(place, key, Launch(f"task of {key}")):
        pass


def land_two_markets(place):
    """Make a market of New York stocks and one of coins, which trade every day."""
    home, tables = place.home, place.tables
    bars = synthetic_bars(n_sessions=480)
    days = bars["date"].unique().sort()
    every_day = synthetic_sessions(480, calendar=TradingCalendar("24/7")).astype(str)
    (home.landing / "coins").mkdir(parents=True)
    home.market_file.write_text("sources: [{kind: landing}, {kind: landing, name: coins, calendar: 24/7}]\n")
    (home.landing / "stocks.csv").write_bytes(csv_file(bars).content)
    coins = bars.with_columns(pl.col("date").replace_strict(days.to_list(), every_day.tolist()))
    (home.landing / "coins" / "coins.csv").write_bytes(csv_file(coins).content)
    ingest_market(tables, range(2010, 2025), INGESTED_AT)
    calendars = read_calendars(tables)
    clean_bars, refused = clean(tables.read(BARS), tables.read(DELIVERIES), INGESTED_AT, calendars)
    assert refused.is_empty()
    returns = bar_returns(clean_bars, calendars)
    features = compute_features(returns, calendars=calendars)
    for table, rows in ((CLEAN_BARS, clean_bars), (RETURNS, returns), (FEATURES, features)):
        tables.replace(table, rows, {})
    pin_panels(tables, INGESTED_AT)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A home with the run of an experiment that needs no training."""
    place = small_home(tmp_path_factory.mktemp("judged") / "home")
    run_rules(place, RULES)
    return place


@pytest.fixture(scope="module")
def two_markets(tmp_path_factory):
    """A home of New York stocks and coins, with runs of one experiment on both."""
    place = Store(Home(tmp_path_factory.mktemp("two") / "home"))
    land_two_markets(place)
    for source in ("landing", "coins"):
        run_rules(place, RULES.model_copy(update={"market": MarketChoice(source=source)}))
    return place


@pytest.fixture(scope="module")
def trained_zip(store, tmp_path_factory):
    """Zip of a Stable-Baselines3 model, its first and last training session, and the panel."""
    panel = read_panel(store.tables, "landing")
    env = PortfolioEnv(panel, SPEC, first=0, last=60)
    path = tmp_path_factory.mktemp("zip") / "model.zip"
    PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0).learn(32).save(path)
    return path.read_bytes(), panel.sessions[0].item(), panel.sessions[60].item(), panel


@pytest.fixture(scope="module")
def season(store, trained_zip):
    """Three updates: without files, with some, and with changed weights."""
    content, first, last, panel = trained_zip
    days = panel.sessions[[0, 80, 120]]
    rows = pl.DataFrame({"date": days, panel.symbols[0]: [0.5, 0.2, 0.9], "cash": [0.5, 0.8, 0.1]})
    spec = f"environment: {json.dumps(SPEC.model_dump(mode='json', exclude={'costs'}))}"
    alone = update(store, 0)
    files(
        store.home,
        mine__yaml=f"kind: weights\n{MARKET}",
        mine__csv=rows.write_csv(),
        foreign__yaml=f"kind: sb3\n{MARKET}\n{spec}\ntrain_first: {first}\ntrain_last: {last}",
        foreign__zip=content,
        tail__yaml=f"kind: baseline\nrule: {{kind: momentum, months: 2}}\nrebal_freq: 1\n{MARKET}",
        seen__yaml=f"kind: sb3\n{MARKET}\nfile: foreign.zip\n{spec}\ntrain_first: {first}\ntrain_last: 2016-10-03",
        undated__yaml=f"kind: sb3\n{MARKET}\nfile: foreign.zip\n{spec}",
        typo__yaml="kind: weights\nfiel: mine.csv",
        nowhere__yaml="kind: weights\nmarket: {source: yahoo}\nfile: mine.csv",
        nothing__yaml=f"kind: weights\n{MARKET}",
        empty__yaml=f"kind: weights\n{MARKET}",
        empty__csv="",
        rules__yaml=f"kind: weights\n{MARKET}\nfile: mine.csv",
        equal_weight__yaml="kind: weights\nfiel: mine.csv",
        buy_and_hold__yaml=f"kind: baseline\nrule: {{kind: momentum}}\n{MARKET}",
        both__yaml=f"kind: weights\n{MARKET}\nfile: mine.csv",
        both__yml=f"kind: weights\n{MARKET}\nfile: mine.csv",
        other__yaaml=f"kind: weights\n{MARKET}\nfile: mine.csv",
        outside__yaml=f"kind: weights\n{MARKET}\nfile: ../../data/secret.csv",
        semicolons__yaml=f"kind: weights\n{MARKET}",
        semicolons__csv="date;AAA\n2015-01-05;0,5\n",
        wide__yaml=f"kind: weights\n{MARKET}",
        wide__csv="date,AAA\n".encode("utf-16"),
        broken__yaml=f"kind: sb3\n{MARKET}\n{spec}\ntrain_first: {first}\ntrain_last: {last}",
        broken__zip=content[:200] + bytes(200) + content[400:],
        deep__yaml="kind: " + "[" * 1_000,
        ______yaml="kind: weights",
        standing__json__yaml="kind: weights",
        __lock__yaml="kind: weights",
        prefix__yaml="kind: run\nrun: ''",
    )
    joined = update(store, 1)
    files(store.home, mine__csv=rows.with_columns(pl.lit(0.0).alias(panel.symbols[0]), cash=1.0).write_csv())
    changed = update(store, 2)
    return {"alone": alone, "joined": joined, "changed": changed}


def test_home_without_files_scores_runs_and_baselines(season):
    found, board = season["alone"]
    assert [card.entrant for card in found.cards] == ["rules", "equal_weight", "buy_and_hold"]
    assert [card.refusal for card in found.cards] == ["", "", ""]
    assert board["rank"].sort().to_list() == [1, 2, 3]
    assert board["contest"].n_unique() == 1
    assert found.n_new == 3


def test_markets_are_ranked_apart_with_the_experiment_on_both(two_markets):
    _, board = update(two_markets, 0)
    ranks = {
        market: list(rows.select("rank", "entrant").sort("entrant").iter_rows())
        for market, rows in board.partition_by("source", "calendar", as_dict=True).items()
    }
    assert {market: {name for _, name in rows} for market, rows in ranks.items()} == {
        ("coins", "24/7"): {"rules", "equal_weight-coins", "buy_and_hold-coins"},
        ("landing", "XNYS"): {"rules-landing", "equal_weight", "buy_and_hold"},
    }
    assert [sorted(rank for rank, _ in rows) for rows in ranks.values()] == [[1, 2, 3], [1, 2, 3]]
    assert board["contest"].n_unique() == 2
    assert inconsistent_entrants(board).is_empty()
    runs = board.filter(kind="run")
    assert runs["run_id"].null_count() == 0
    assert runs["run_id"].n_unique() == 2


def test_every_market_is_shown_with_its_name_and_calendar(two_markets, command):
    update(two_markets, 0)
    titles = [line for line in command(two_markets.home)("scoreboard").stdout.splitlines() if "contest" in line[:8]]
    assert [title.split(",")[0] for title in titles] == [
        "contest common: coins (24/7)",
        "contest common: landing (XNYS)",
    ]
    assert list(scoreboard_figures(read_scoreboard(two_markets))) == ["scoreboard_coins", "scoreboard_landing"]


def test_prudex_counts_both_markets_of_one_experiment(two_markets):
    table = prudex_compass(read_prudex_record(two_markets)).table
    notes = dict(table.filter(policy="rules", axis="universality", kind="ensemble").select("statistic", "note").rows())
    assert notes["countries"] == "2 of 2: US (landing), international (coins)"
    assert notes["asset_types"] == "2 of 2: coins (coins), stocks (landing)"


def test_unchanged_card_adds_no_row(store, season):
    before, after = season["joined"][0], season["changed"][0]
    assert before.n_new == len(before.cards) - 2  # the baselines were judged before, and the run with fewer trials
    assert after.n_new == 3  # what was changed is another trial, by which the run and the network are discounted, too
    assert len(store.tables.read(SCORECARDS)) == 3 + before.n_new + after.n_new
    assert len(read_history(store, "equal_weight")) == 1


def test_entrant_files_are_ranked_beside_runs(season):
    _, board = season["joined"]
    ranked = board.filter(pl.col("rank").is_not_null())
    assert set(ranked["entrant"]) == {"rules", "equal_weight", "buy_and_hold", "mine", "foreign", "tail"}
    assert dict(ranked.select("entrant", "kind").iter_rows())["foreign"] == "sb3"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("seen", "seen (trained from 2016-01-04 to 2016-10-03)"),
        ("undated", "train_first and train_last"),
        ("typo", "there is no field 'fiel'; did you mean 'file'"),
        ("nowhere", "there is no panel of source 'yahoo'"),
        ("nothing", "nothing.csv, but it cannot be read"),
        ("empty", "empty.yaml: weights must be a CSV"),
        ("rules.yaml", "rules is the name of an experiment"),
        ("equal_weight.yaml", "there is no field 'fiel'"),
        ("buy_and_hold.yaml", "buy_and_hold is the name of a baseline"),
        ("both", "both.yaml and both.yml"),
        ("outside", "outside.yaml: file must be in"),
        ("semicolons", "separated by commas, but the file has semicolons"),
        ("wide", "in UTF-8, but the file is in UTF-16"),
        ("broken", "zip of model.save()"),
        ("deep", "deep.yaml is not valid YAML"),
        ("standing.json", "the file is standing.json.yaml"),
        ("prefix", "no completed runs match 'prefix'"),
    ],
)
def test_refused_entrant_is_listed_without_rank_with_reason(season, name, sentence):
    row = season["joined"][1].filter(entrant=name).row(0, named=True)
    assert (row["rank"], row["sharpe"]) == (None, None)
    assert sentence in row["note"]


def test_board_has_previous_rank_and_sharpe(store, season):
    before = season["joined"][1].filter(entrant="mine").row(0, named=True)
    mine = season["changed"][1].filter(entrant="mine").row(0, named=True)
    assert mine["sharpe"] == 0.0
    assert (mine["previous_sharpe"], mine["previous_rank"]) == (before["sharpe"], before["rank"])
    assert len(read_history(store, "mine")) == 2


def test_cards_are_written_to_a_folder_per_entrant(store, season):
    names = {path.name for path in store.home.scorecards.iterdir() if path.is_dir()}
    cards = [card for card in season["changed"][0].cards if card.entrant in names]
    assert names == {card.entrant for card in season["changed"][0].cards if "." not in card.entrant}
    assert not (store.home.scorecards.parent / "scorecard.json").exists()
    for card in cards:
        folder = store.home.scorecards / card.entrant
        assert Scorecard.model_validate_json((folder / "scorecard.json").read_bytes()) == card
        assert (folder / "scorecard.md").read_text().startswith(f"# Scorecard: {card.entrant}\n")


def test_scoreboard_round_trips_through_its_table(store, season):
    assert read_scoreboard(store).equals(season["changed"][1])


def test_history_of_unknown_entrant_raises_with_names(store, season):
    with pytest.raises(StorageError, match="mine"):
        read_history(store, "min")


def test_reading_before_the_first_update_raises_with_commands(tmp_path):
    place = small_home(tmp_path / "home")
    for ask in (read_scoreboard, update_scoreboard, lambda store: read_history(store, "x")):
        with pytest.raises(StorageError, match="nvtrader scoreboard update"):
            ask(place)


def test_card_has_the_digest_of_the_scored_file(store, season):
    cards = {card.entrant: card for card in season["changed"][0].cards}
    for name in ("mine.csv", "foreign.zip"):
        digest = hashlib.sha256((store.home.entrants / name).read_bytes()).hexdigest()
        assert cards[name.partition(".")[0]].configuration["sha256"] == digest


def test_every_scored_file_counts_as_a_trial(store, season):
    n_trials = {
        when: {card.entrant: card.inference.n_trials for card in found.cards if card.inference and not card.refusal}
        for when, (found, _) in season.items()
    }
    assert n_trials["alone"]["rules"] == 1
    assert {n_trials["joined"][name] for name in ("rules", "mine", "foreign")} == {3}
    assert {n_trials["changed"][name] for name in ("rules", "mine", "foreign")} == {4}
    assert len(external_attempts(store, "landing")) == 3
    assert external_attempts(store, "sample") == {}


def test_later_baseline_renames_no_earlier_one():
    first, second = (
        RULES,
        RULES.model_copy(update={"name": "slow", "environment": SPEC.model_copy(update={"rebal_freq": 10})}),
    )
    third = second.model_copy(update={"market": MarketChoice(source="sample")})
    alone, all_three = distinct_baselines([first]), distinct_baselines([first, second, third], ["buy_and_hold-sample"])
    assert {name: all_three[name] for name in alone} == alone
    assert [re.sub("-[0-9a-f]{8}$", "-?", name) for name in all_three] == [
        "equal_weight",
        "buy_and_hold",
        "equal_weight-?",
        "buy_and_hold-?",
        "equal_weight-sample",
        "buy_and_hold-?",
    ]


def test_shard_of_another_process_is_not_judged_again(store, season, tmp_path):
    shutil.copytree(store.home.root, tmp_path / "home")
    home = Home(tmp_path / "home")
    shutil.rmtree(home.judgements)
    for path in home.entrants.iterdir():
        if path.stem not in ("mine", "tail"):
            path.unlink()
    judge_shard(home, "landing", {COMMON: BUILT_IN[COMMON]}, (0, 2))
    lines = []
    score_all(Store(home), START + dt.timedelta(days=9), lines.append)
    (known,) = [line for line in lines if "already walked" in line]
    n_known, n_new = (int(count) for count in re.findall(r"(\d+) (?:entrants|are new)", known))
    assert n_known >= 3
    assert n_known - n_new in (0, 1)


def test_results_that_lack_files_are_computed_again_to_equal_cards(store, season, tmp_path):
    shutil.copytree(store.home.root, tmp_path / "home")
    home = Home(tmp_path / "home")
    curves = sorted(home.judgements.glob("*/curves.parquet"))
    for path in curves[::2]:
        path.unlink()
    for path in curves[1::2]:
        os.truncate(path.with_name("actions.parquet"), 100)
    again = score_all(Store(home), START + dt.timedelta(days=9), lambda _: None).cards
    before, after = (
        {card.entrant: card.digest for card in cards if not card.refusal}
        for cards in (season["changed"][0].cards, again)
    )
    assert after == before
    whole = [path for path in curves if path.exists() and path.with_name("actions.parquet").stat().st_size > 100]
    assert len(whole) == len(before)  # those of earlier updates stay damaged


def test_run_that_is_not_to_be_judged_is_no_entrant_but_a_trial(store, season, tmp_path):
    shutil.copytree(store.home.root, tmp_path / "home")
    home = Home(tmp_path / "home")
    shutil.rmtree(home.entrants)
    files(home, rules__yaml="kind: run\njudged: false", rulse__yaml="kind: run\njudged: false")
    cards = score_all(Store(home), START + dt.timedelta(days=9), lambda _: None).cards
    assert [(card.entrant, "no experiment of that name" in card.refusal) for card in cards] == [("rulse", True)]
    files(home, rules__yaml="kind: run")
    cards = score_all(Store(home), START + dt.timedelta(days=10), lambda _: None).cards
    assert {card.entrant for card in cards} == {"rulse", "rules", "equal_weight", "buy_and_hold"}


def write_shard(home, source, contests, shard):
    """Leave a file with what a process was given."""
    (home.root / f"shard-{shard[0]}").write_text(f"{source} {len(contests)} {shard[1]}")


@pytest.mark.parametrize(
    ("n_new", "shards"), [(2 * MIN_PER_SHARD - 1, {}), (9 * MIN_PER_SHARD, {"shard-1": "sample 2 2"})]
)
def test_new_entrants_are_judged_in_a_process_per_core_if_many(home, monkeypatch, n_new, shards):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with shard_processes(write_shard, home, "sample", BUILT_IN, n_new) as n_shards:
        assert n_shards == 1 + len(shards)
    assert {path.name: path.read_text() for path in home.root.glob("shard-*")} == shards
