import datetime as dt
import json

import polars as pl
import pytest
from stable_baselines3 import PPO

from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.experiments.scoreboard import SCOREBOARD as BOARD
from nvtrader_pipelines.experiments.scoreboard import SCORECARD
from nvtrader_pipelines.experiments.scorecard import Scorecard
from nvtrader_pipelines.experiments.store import TrainedPolicy
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight, Momentum
from nvtrader_pipelines.policies.trajectory import TRAJECTORY
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.execution import walk_forward_run
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.medallion import read_panel
from nvtrader_pipelines.storage.plans import read_plan
from nvtrader_pipelines.storage.recording import Launch
from nvtrader_pipelines.storage.run_store import StoredRun
from nvtrader_pipelines.storage.scorecards import history_of, judge_all, rank, scoreboard_of
from nvtrader_pipelines.storage.tables import SCOREBOARD, SCORECARDS
from tests.policies.small import SPEC
from tests.storage.small_runs import EXPERIMENT, small_home

RULES = EXPERIMENT.model_copy(
    update={"name": "rules", "agent": Momentum(months=2), "seeds": (0,), "baselines": (EqualWeight(), BuyAndHold())}
)
START = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)
MARKET = "market: {source: landing}"


def files(home, **contents):
    """Write entrants: name with __ for the dot to content."""
    home.entrants.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = home.entrants / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def judged(lake, day):
    """Everybody, judged on another day; the number of new cards, and the board."""
    found = judge_all(lake, Ledger.open(lake.home), START + dt.timedelta(days=day), lambda _: None)
    return found, rank(lake)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A home with the run of an experiment that needs no training."""
    place = small_home(tmp_path_factory.mktemp("judged") / "home")
    key = Ledger.open(place.home).register(RULES)
    plan = read_plan(place, key)
    store, nothing = StoredRun(place, plan, lambda: START), pl.DataFrame(schema=TRAJECTORY)
    for fold, seed in plan.keys:  # here and now, for processes take seconds to start
        task = plan.task((fold, seed))
        fit = RULES.agent.train(plan.panel, RULES.environment, task.window, seed)
        store.keep_policy(TrainedPolicy(fold, seed, write_archive(plan.card(task, fit), {}), nothing))
    for _ in walk_forward_run(place, Ledger.open(place.home), key, Launch("task")):
        pass
    return place


@pytest.fixture(scope="module")
def trained_zip(lake, tmp_path_factory):
    """What Stable-Baselines3 saves of a model trained on the first 60 sessions, and the last of these."""
    panel = read_panel(lake, "landing")
    env = PortfolioEnv(panel, SPEC, first=0, last=60)
    path = tmp_path_factory.mktemp("zip") / "model.zip"
    PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0).learn(32).save(path)
    return path.read_bytes(), panel.sessions[0].item(), panel.sessions[60].item(), panel


@pytest.fixture(scope="module")
def season(lake, trained_zip):
    """Three judgements: without files, with some, and with changed weights."""
    content, first, last, panel = trained_zip
    days = panel.sessions[[0, 80, 120]]
    rows = pl.DataFrame({"date": days, panel.symbols[0]: [0.5, 0.2, 0.9], "cash": [0.5, 0.8, 0.1]})
    spec = f"environment: {json.dumps(SPEC.model_dump(mode='json', exclude={'costs'}))}"
    alone = judged(lake, 0)
    files(
        lake.home,
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
    )
    joined = judged(lake, 1)
    files(lake.home, mine__csv=rows.with_columns(pl.lit(0.0).alias(panel.symbols[0]), cash=1.0).write_csv())
    changed = judged(lake, 2)
    return {"alone": alone, "joined": joined, "changed": changed}


def test_without_files_the_runs_and_their_baselines_are_judged(season):
    found, board = season["alone"]
    assert [card.entrant for card in found.cards] == ["rules", "equal_weight", "buy_and_hold"]
    assert [card.refusal for card in found.cards] == ["", "", ""]
    assert board["rank"].sort().to_list() == [1, 2, 3]
    assert board["contest"].n_unique() == 1
    assert found.n_new == 3


def test_what_says_the_same_as_before_adds_nothing(lake, season):
    before, after = season["joined"][0], season["changed"][0]
    assert before.n_new == len(before.cards) - 3  # the run and its baselines were judged before
    assert after.n_new == 1
    assert len(lake.read(SCORECARDS)) == 3 + before.n_new + 1
    assert len(history_of(lake, "equal_weight")) == 1


def test_files_are_judged_beside_the_runs(season):
    _, board = season["joined"]
    ranked = board.filter(pl.col("rank").is_not_null())
    assert set(ranked["entrant"]) == {"rules", "equal_weight", "buy_and_hold", "mine", "foreign", "tail"}
    assert dict(ranked.select("entrant", "kind").iter_rows())["foreign"] == "sb3"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("seen", "seen was by its card trained from 2016-01-04 to 2016-10-03 and may be judged from"),
        ("undated", "must state the first and last session it was trained on"),
        ("typo", "there is no field 'fiel'; did you mean 'file'"),
        ("nowhere", "the market has no panel of source 'yahoo'"),
        ("nothing", "nothing.csv, but that cannot be read"),
        ("empty", "empty.yaml: weights must be a CSV"),
        ("rules.yaml", "rules is the name of an experiment"),
    ],
)
def test_who_cannot_be_judged_is_listed_without_a_rank_and_with_the_reason(season, name, sentence):
    row = season["joined"][1].filter(entrant=name).row(0, named=True)
    assert (row["rank"], row["sharpe"]) == (None, None)
    assert sentence in row["note"]


def test_the_board_knows_what_was_before(lake, season):
    before = season["joined"][1].filter(entrant="mine").row(0, named=True)
    mine = season["changed"][1].filter(entrant="mine").row(0, named=True)
    assert mine["sharpe"] == 0.0
    assert (mine["previous_sharpe"], mine["previous_rank"]) == (before["sharpe"], before["rank"])
    assert len(history_of(lake, "mine")) == 2


def test_cards_lie_as_documents_and_pages_in_a_folder_of_each_entrant(lake, season):
    for card in season["changed"][0].cards:
        folder = lake.home.scorecards / card.entrant
        assert Scorecard.model_validate_json((folder / "scorecard.json").read_bytes()) == card
        assert (folder / "scorecard.md").read_text().startswith(f"# Scorecard: {card.entrant}\n")


def test_the_tables_have_the_columns_of_the_frames():
    assert {column.name for column in SCORECARDS.fields} == SCORECARD.keys()
    assert {column.name for column in SCOREBOARD.fields} == BOARD.keys()


def test_the_board_is_read_as_it_was_written(lake, season):
    assert scoreboard_of(lake).select(list(BOARD)).equals(season["changed"][1])


def test_a_history_of_nobody_names_who_there_is(lake, season):
    with pytest.raises(StorageError, match=r"no entrant is called 'min'; there are .*; did you mean 'mine'"):
        history_of(lake, "min")


def test_before_anybody_was_judged_the_sentence_says_what_to_run(tmp_path):
    place = small_home(tmp_path / "home")
    for ask in (scoreboard_of, rank, lambda lake: history_of(lake, "x")):
        with pytest.raises(StorageError, match=r"nobody was judged yet.*nvtrader run.*nvtrader judge"):
            ask(place)
